"""Attempts as activities: a worker runs one, and returns the resulting event."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Any, NoReturn

from temporalio import activity
from temporalio.api.common.v1 import Payloads
from temporalio.api.workflowservice.v1 import GetSystemInfoRequest
from temporalio.client import AsyncActivityCancelledError, Client, WorkflowExecutionStatus
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from flowengine.engines.attempts.outcome import ASKING, AttemptFailed, failed, measured, succeeded
from flowengine.engines.attempts.printed import PRINTING
from flowengine.engines.environments.making import environments_of
from flowengine.engines.environments.requests import FolderWorkspaces
from flowengine.engines.executions.calls import is_call
from flowengine.engines.executions.execution import Execution
from flowengine.engines.executions.linked_flows import LinkedFlow
from flowengine.engines.executions.outer_attempts import OUTER
from flowengine.engines.executions.reducers import reducer
from flowengine.engines.flows import LANGUAGE
from flowengine.engines.guard import BEATS, CUT, END, Pulse, Slot, now
from flowengine.engines.host import Host, KeptFiles
from flowengine.engines.running.answers import answer_by_grant
from flowengine.engines.running.call_descriptions import described
from flowengine.engines.running.gate import answer, asked_instead, check
from flowengine.engines.running.previews import previewed
from flowengine.engines.running.recovery import begin_detached, not_released
from flowengine.engines.running.work import LATE_SECONDS
from flowengine.engines.temporal.at_work import AttemptAtWork, AtWork
from flowengine.engines.temporal.guard import never_began
from flowengine.engines.temporal.objects import ObjectWorkspaces
from flowengine.engines.temporal.offering import Offering
from flowengine.engines.temporal.outgoing import NewTexts
from flowengine.engines.temporal.past import begun_by, first_input
from flowengine.engines.temporal.requests import (
    ATTEMPT,
    DESCRIBE,
    NOT_BEGUN,
    OUTCOMES,
    PACK,
    PLACE,
    REDUCE,
    RELEASE,
    UNPACK,
    WATCH,
    WHO,
    beat_of,
    cut,
    process_of,
    run_of,
    summary_of,
)
from flowengine.engines.temporal.resets import ReplacedAttempts
from flowengine.engines.temporal.store import TemporalStore
from flowengine.engines.temporal.support import unsupported
from flowengine.errors import Conflict, FlowEngineError, StoreError
from flowengine.journal.encoding import pack, unpack
from flowengine.journal.store import MovedWorkspace
from flowengine.kernel.commands import Run
from flowengine.kernel.notation.addresses import wait_id
from flowengine.kernel.notation.changes import change
from flowengine.registry import UnknownKind
from flowengine.sdk.environments import NotReleased
from flowengine.sdk.python.imported_modules import is_missing
from flowengine.sdk.python.user_code import CALLS, AttemptLost
from flowengine.sdk.steps.context import ExecutionContext
from flowengine.sdk.texts.sizes import size_text

_log = logging.getLogger("flowengine.temporal")
_PAUSE = 0.5
"""Seconds between tries to reach a server that did not answer."""
_HINT = "set XDG_STATE_HOME to a writable directory for it"


class Attempts:
    """Runs attempts in this process.

    Args:
        client: Reads flows that this process has not cached.
        host: Of this worker.
        store: Its store.
        strict: Whether a step fails whose script leaves something running.
        offering: The places of this process for attempts with needs.
        pulse: Of this process.
        tell: Called with the execution, its flow and the address of the step when an attempt
            begins.
    """

    def __init__(
        self,
        client: Client,
        host: Host,
        store: TemporalStore,
        *,
        strict: bool,
        offering: Offering,
        pulse: Pulse,
        tell: Callable[[str, str, str], None],
    ) -> None:
        self._client = client
        self._host = host
        self._store = store
        self._tell = tell
        self._strict = strict
        self._offering = offering
        self._place = place = offering.place
        self._flows: dict[str, LinkedFlow] = {}
        self._not_released: dict[str, list[NotReleased]] = {}
        """Execution → its environments that could not be closed, until a result reports them."""
        host.on_not_released = self._keep_not_released
        self._pulse = pulse
        self.at_work = AtWork(place, pulse, client.identity)
        """Those that are at work."""
        self._heard = now()
        """When the last request was sent that the server has answered here."""
        self._quickest: float | None = None
        """The shortest time (s) of an attempt from the server to here, plus the difference between
        their clocks."""
        self._replaced = ReplacedAttempts(client)
        self._giving: set[asyncio.Task[bool]] = set()
        """Those that send an outcome to the server."""
        self.leaving: asyncio.Task[None] | None = None
        """Closes environments that were lost."""

    async def keep_alive(self, heartbeat: float, end: Callable[[str], None] | None) -> NoReturn:
        """Send heartbeats, and cut off the attempts whose heartbeats might not reach the server.

        The server counts them as interrupted then, and other workers begin them again. They must
        not run beside those.

        Args:
            heartbeat: Seconds without a heartbeat after which an attempt is interrupted.
            end: Ends this process, for a reason. None: it does not end.
        """
        pulse, pause = self._pulse, heartbeat / BEATS / 2
        look = heartbeat * (END - CUT) / 4  # the end of cut attempts is seen before the end
        asked = -pause
        details = await self._client.data_converter.encode(beat_of(None))
        pulse.prepare(Payloads(payloads=details).SerializeToString())
        asking: asyncio.Task[None] | None = None
        while True:
            pulse.beat()
            for attempt in self.at_work.cut_lost():
                is_lost = pulse.is_lost(heartbeat) or await self._goes_on(attempt.execution)
                if is_lost and end is not None:
                    end(f"a function of execution {attempt.execution} could not be cut off")
            if (asking is None or asking.done()) and now() - asked >= pause:
                asked, asking = now(), asyncio.create_task(self._ask(heartbeat))
            await asyncio.sleep(look)

    async def _ask(self, heartbeat: float) -> None:
        """Query the server for a sign of life."""
        asked, before = now(), self._heard
        patience = max(before + CUT * heartbeat - asked, heartbeat / BEATS / 2)
        try:
            await self._client.workflow_service.get_system_info(
                GetSystemInfoRequest(), timeout=timedelta(seconds=patience)
            )
        except RPCError:
            return
        self._pulse.hear(asked)
        self._heard = asked
        if asked - before > heartbeat and (self.leaving is None or self.leaving.done()):
            self.leaving = asyncio.create_task(self._leave(heartbeat))

    async def _leave(self, pause: float) -> None:
        """Close the environments of executions that have lost this place during a silence."""
        left = environments_of(self._host).kept_for()
        while left:
            for id in [*left]:
                with suppress(RPCError, StoreError):
                    place = await asyncio.to_thread(self._store.place_of, id)
                    if place != self._place.queue:
                        if self.at_work.has_any(id):
                            continue
                        await environments_of(self._host).lose(id)
                    left.remove(id)
            await asyncio.sleep(pause)

    async def _goes_on(self, execution: str) -> bool:
        """Return whether an execution is open, so that a lost attempt of it may begin again."""
        try:
            newest = await self._client.get_workflow_handle(execution).describe()
        except RPCError as error:
            return error.status != RPCStatusCode.NOT_FOUND
        return newest.status == WorkflowExecutionStatus.RUNNING

    async def _give(self, event: dict[str, Any]) -> bool:
        """Complete the current activity, and return whether the server has taken its event.

        The library neither reports that nor tries for long, and cancels an activity that the server
        takes for lost. If the attempt counts as interrupted by now, the workflow learns its outcome
        in another way.
        """
        handle = self._client.get_async_activity_handle(task_token=activity.info().task_token)

        async def given() -> bool:
            if await _is_taken(partial(handle.complete, event)):
                return True
            if event["type"] in OUTCOMES:
                await self._give_late(event)
            return False

        giving = asyncio.create_task(given())
        self._giving.add(giving)
        giving.add_done_callback(self._giving.discard)
        return await asyncio.shield(giving)

    async def _give_late(self, event: dict[str, Any]) -> None:
        """Give a workflow what answers an open question about the attempt of this activity."""
        info = activity.info()
        handle = self._client.get_workflow_handle(info.workflow_id or "")
        unit, attempt = map(int, info.activity_id.split("."))
        await _is_taken(partial(handle.signal, "late", [unit, attempt, event]))

    @activity.defn(name=WHO)
    async def who(self, event: int, id: str) -> dict[str, Any] | None:
        """Return which process has received an activity of the current run, and whether it `began`.

        Args:
            event: The number of the event of its history that reports it.
            id: Of the activity.

        Returns:
            Without `began`, unless it is known that it never began.
        """
        info = activity.info()
        run = info.workflow_run_id or ""
        found = await begun_by(self._client, info.workflow_id or "", run, event)
        process = None if found is None else process_of(found[0])
        if found is None or process is None:
            return None
        return {**process, **({"began": False} if never_began(f"{run}/{id}", *found) else {})}

    @activity.defn(name=ATTEMPT)
    async def attempt(self, given: bytes) -> NoReturn:
        """Run an attempt to its end, unless it is long, and complete with its event.

        The event of a long attempt is where it is at work: see `left_at_work`.

        Args:
            given: Hash of the flow, working directory of the execution, the kernel's command, and
                if *Reset* of Temporal has replaced runs of the execution, by which, packed.

        Raises:
            ApplicationError: It has not begun. If it counts as interrupted by now, the workflow
                learns that in another way.
        """
        try:
            with _before_any_effect():
                if not await self._may_begin():
                    raise ApplicationError("it has arrived too late", type=NOT_BEGUN)
            info = activity.info()
            self._pulse.begin(f"{info.workflow_run_id}/{info.activity_id}")
            event = await self.at_work.begun(partial(self._event, given))
        except ApplicationError as error:
            if error.type == NOT_BEGUN and not await self._is_open():
                await self._give_late({"type": "cut", "began": False})
            raise
        await self._give(event)
        activity.raise_complete_async()

    async def _may_begin(self) -> bool:
        """Return whether an attempt, or other work, that has arrived here is still its own.

        Its time began when the server sent it. If this process was stopped before it read that, or
        the network held it up, it may have begun elsewhere, and its own heartbeats would report
        this too late. So the server is asked about an attempt that took longer than the quickest
        one. Their clocks may differ.
        """
        info = activity.info()
        assert info.heartbeat_timeout is not None
        late = info.heartbeat_timeout.total_seconds() / BEATS / 2
        delay = time.time() - info.started_time.timestamp()
        if self._quickest is not None and delay - self._quickest < late:
            self._quickest = min(self._quickest, delay)
            return True
        if not await self._is_open():
            return False
        self._quickest = delay
        return True

    async def _is_open(self) -> bool:
        """Return whether the server awaits the result of the current activity."""
        handle = self._client.get_async_activity_handle(task_token=activity.info().task_token)
        with suppress(AsyncActivityCancelledError):  # which its own heartbeats will report
            return await _is_taken(handle.heartbeat)
        return True

    @activity.defn(name=WATCH)
    async def watch(self, key: str, stop: bool) -> NoReturn:
        """Watch a long attempt of this process to its end, and complete with its event.

        Args:
            key: Of the attempt.
            stop: Whether to stop it first.
        """
        await self.at_work.watch(key, self._give, stop=stop)
        activity.raise_complete_async()

    async def _event(self, given: bytes, attempt: AttemptAtWork) -> dict[str, Any]:
        hash, workdir, identity, data, *resets = unpack(given)
        run = run_of(data)
        with _before_any_effect():
            flow = await self._flow(hash)
            self._tell(activity.info().workflow_id or "", flow.compiled["id"], run.address)
            attempt.printed = flow.runner.printed(run.step, None)
            event = await self._instead(flow, workdir, run)
            if event is None and resets:
                event = await self._before_reset(flow, run, *resets)
        if event is None:
            event = await self._placed(flow, self._context(flow, workdir, identity), run, attempt)
        warnings = [*event.get("warnings", ()), *self._warnings()]
        if warnings:
            event = {**event, "warnings": warnings}
        await self._keep(event)
        return event

    async def _instead(self, flow: LinkedFlow, workdir: str, run: Run) -> dict[str, Any] | None:
        """Return the event of an attempt that runs no step here. None: it runs one."""
        if not os.path.isdir(workdir):  # noqa: ASYNC240 - it takes no time
            return _refused(
                "StoreError", f"this worker has no directory {workdir}, in which it was started"
            )
        step = flow.compiled["steps"][run.step]
        if step["kind"] != "flow" and not self._is_gated(flow, run):
            return None
        execution = await asyncio.to_thread(self._around, flow, run)
        gated = await asyncio.to_thread(check, self._host, execution, run)
        if gated is not None:
            return dict(gated)
        if step["kind"] != "flow":
            return None
        return dict(await asyncio.to_thread(begin_detached, self._host, execution, run))

    async def _placed(
        self, flow: LinkedFlow, context: ExecutionContext, run: Run, attempt: AttemptAtWork
    ) -> dict[str, Any]:
        """Return the outcome of an attempt, which has a place here if it has needs."""
        if "needs" not in flow.compiled["steps"][run.step]:
            return await self._outcome(flow, context, run, attempt)
        async with self._offering.taken(activity.info().workflow_id or "", run.unit):
            return await self._outcome(flow, context, run, attempt)

    async def _before_reset(
        self, flow: LinkedFlow, run: Run, resets: list[str]
    ) -> dict[str, Any] | None:
        """Return the event of an attempt with effect `once` that may have taken effect before.

        It counts as interrupted, so that an operator is asked. None: it begins.
        """
        if run.measures or flow.graph.node(run.step).effect != "once":
            return None
        id, summary = activity.info().workflow_id or "", summary_of(run)
        outcome = await self._replaced.outcome(id, resets, summary)
        if outcome is None:
            return None
        message = (
            "the execution was reset in Temporal, which does not undo attempts: "
            f"attempt {run.attempt} of {run.address} {outcome}"
        )
        warning = {"type": "warning", "at": self._host.clock.now(), "about": "attempt"}
        return {"type": "cut", "warnings": [{**warning, "message": message}]}

    async def _outcome(
        self, flow: LinkedFlow, context: ExecutionContext, run: Run, attempt: AttemptAtWork
    ) -> dict[str, Any]:
        printed = attempt.printed
        step = flow.compiled["steps"][run.step]
        assert printed is not None
        PRINTING.set(printed)
        CALLS.set(attempt.calls)
        OUTER.set(_NoFlows())  # type: ignore[arg-type] # refuses every request
        now = time.time_ns() // 1_000_000
        try:
            if run.measures:
                return dict(measured(run, await flow.runner.needs(context, run, printed), now))
            patience = LATE_SECONDS if "compensate" in step else 0.0
            environments = self._host.environments if run.environments else None
            kept = await flow.runner.attempt(context, run, environments, printed, lambda: patience)
            event: Any = succeeded(run, kept.value, now, kept.openings, kept.log)
        except AttemptFailed as failure:
            if isinstance(failure.__cause__, AttemptLost):
                return cut(attempt.log)
            if failure.__cause__ is not None and _is_missing(failure.__cause__):
                raise self._not_here(failure.error["message"]) from None
            if failure.error["type"] in ASKING:
                with _before_any_effect():
                    execution = await asyncio.to_thread(self._around, flow, run)
                asked = asked_instead(self._host, execution, run, failure)
                if asked is not None:
                    return dict(asked)
            event = failed(run, failure, now)
        size = len(pack(event))
        if size > self._store.most_bytes and event.pop("log", None) is not None:
            size = len(pack(event))  # the result alone may fit
        if size > self._store.most_bytes:
            most = size_text(self._store.most_bytes)
            message = f"the result has {size_text(size)}; at most {most} are possible"
            return _refused("LimitExceeded", message)
        return dict(event)

    def _not_here(self, why: str) -> ApplicationError:
        """Return the error that leaves an attempt to a worker with the missing parts."""
        message = f"the worker {self._client.identity} cannot run it: {why}"
        return ApplicationError(message, type=NOT_BEGUN)

    async def _keep(self, event: dict[str, Any]) -> None:
        """Keep a large event in the object store, if there is one, however long that takes.

        The activity would fail otherwise, and the event be lost. Temporal's library encodes it
        again, which sends nothing then.
        """
        is_logged = False
        while self._store.objects is not None:
            try:
                await self._client.data_converter.encode([event])
            except StoreError as error:
                if not is_logged:
                    id = activity.info().workflow_id
                    _log.warning("a result of execution %s cannot be kept yet: %s", id, error)
                is_logged = True
                await asyncio.sleep(_PAUSE)
            else:
                return

    def _around(self, flow: LinkedFlow, run: Run) -> Execution:
        """Return the execution of an attempt, with only what its rules and approval refer to."""
        id = activity.info().workflow_id or ""
        execution = self._host.execution(id, flow, 0)
        state: dict[str, Any] = execution.state  # type: ignore[assignment]
        state |= self._store.around(id, run.unit)
        return execution

    def _is_gated(self, flow: LinkedFlow, run: Run) -> bool:
        """Return whether rules or an approval apply to an attempt, so that it must be checked."""
        if run.approved is not None or run.step in flow.ruled:
            return True
        rules = self._host.rules
        rules.look_again()  # an attempt beside this one may have written a file
        return is_call(flow.compiled["steps"][run.step]) and rules.there()

    @activity.defn(name=DESCRIBE)
    async def describe(
        self, wait: int, step: int, required: bool, stage: str, opens: bool
    ) -> list[Any]:
        """Answer a question about a call by rules or grants, or describe it to its approvers.

        Args:
            wait: Number of the question.
            step: The calling step.
            required: Whether a human must approve each call.
            stage: `begin`: rules may answer. `grants`: the tool is described, and grants may.
            opens: Whether this worker may open its environments: it is at their place, if any.

        Returns:
            Events that describe the call, whether there are grants that may answer, and without an
            object store the text of the tool by its digest.
        """
        texts = NewTexts()
        host, id = self._host, activity.info().workflow_id or ""
        execution = await asyncio.to_thread(host.stored, id, 0)
        if wait not in execution.waits:
            return [[], False, {}]
        if self._store.objects is None:
            execution.context = execution.context._replace(artifacts=texts)  # type: ignore[arg-type]
        events: list[Any] = []
        if stage == "grants":
            asked = await asyncio.to_thread(host.store.wait, wait_id(id, wait))
            source = asked.record.get("source")
            if await asyncio.to_thread(answer_by_grant, host, asked, source):
                return [[], False, {}]
        else:
            host.rules.look_again()
            if await asyncio.to_thread(answer, host, execution, wait, step, required=required):
                return [[], False, {}]
            now = host.clock.now()
            event = await asyncio.to_thread(described, execution, wait, step, now)
            if event is not None:
                events.append(dict(event))
            if await asyncio.to_thread(host.store.grants, execution.context.flow):
                return [events, True, texts.kept]
        shown = (await previewed(host, execution, wait, step, opens=opens))._asdict()
        said = {name: text for name, text in shown.items() if text is not None}
        if said:
            events.append({"type": "described", "wait": wait, **said})
        return [events, False, texts.kept]

    @activity.defn(name=REDUCE)
    async def reduce(self, given: bytes) -> dict[str, Any]:
        """Call a reducer in Python.

        Args:
            given: The reducer, the current value and the written one, packed.

        Returns:
            The change of the current value, or the `error` of the function. `missing`: why this
            worker cannot call it.
        """
        function, old, new = unpack(given)
        try:
            return change(old, await asyncio.to_thread(reducer(function), old, new))
        except ValueError as error:
            is_here = error.__cause__ is None or not _is_missing(error.__cause__)
            return {"error" if is_here else "missing": str(error)}

    @activity.defn(name=PLACE)
    async def place(self) -> str:
        """Return the task queue of the environments of this process."""
        return self._place.queue

    @activity.defn(name=RELEASE)
    async def release(
        self, hash: str, workdir: str, identity: str, what: str, region: int
    ) -> list[Any]:
        """Release environments of an execution.

        Args:
            hash: Hash of its flow.
            workdir: Its working directory.
            identity: Its identity.
            what: The cause: `region`, `wait`, `end`, or `move` if it has left the store.
            region: The region that has ended.

        Returns:
            Events that report those that could not be closed.
        """
        id = activity.info().workflow_id or ""
        if what == "wait" and not await self._may_begin() and self.at_work.has_any(id):
            return []  # it does not wait any more
        beating = asyncio.create_task(_beat(self._pulse))
        try:
            flow, environments = await self._flow(hash), environments_of(self._host)
            context = self._context(flow, workdir, identity)
            if what == "region":
                await environments.end_region(context, region)
            elif what == "wait":
                await environments.suspend(context)
            else:
                await environments.finish(context, flow.compiled)
            if what == "move" and self._place.folder is not None:
                files = FolderWorkspaces(self._folder)  # also those that were never used here
                with suppress(Conflict):
                    await asyncio.to_thread(files.remove, context.id)
            return self._warnings()
        finally:
            beating.cancel()

    @activity.defn(name=PACK)
    async def pack(self) -> dict[str, Any]:
        """Keep the files of an execution's environments in the object store.

        Returns:
            As `answer`, `MovedWorkspace`s. Or the `error` that prevents it.
        """

        def pack(id: str, here: FolderWorkspaces, there: ObjectWorkspaces) -> Any:
            packed = here.pack(id, [])
            there.put(id, packed, here.fetch)
            return [*packed]

        return await self._moved(pack)

    @activity.defn(name=UNPACK)
    async def unpack(self, moved: list[MovedWorkspace]) -> dict[str, Any]:
        """Restore the files of an execution's environments from the object store.

        Returns:
            An `answer`, or the `error` that prevents it.
        """

        def unpack(id: str, here: FolderWorkspaces, there: ObjectWorkspaces) -> None:
            here.put(id, moved, there.fetch)

        return await self._moved(unpack)

    async def _moved(
        self, move: Callable[[str, FolderWorkspaces, ObjectWorkspaces], Any]
    ) -> dict[str, Any]:
        """Move files on a thread. It ends before the activity does, also if that is cancelled."""

        def moved(id: str) -> dict[str, Any]:
            with (
                closing(FolderWorkspaces(self._folder)) as here,
                closing(ObjectWorkspaces(lambda: self._store.files)) as there,
            ):
                try:
                    return {"answer": move(id, here, there)}
                except FlowEngineError as error:
                    return {"error": error}

        if not await self._may_begin():
            return {"answer": None}  # another worker may have the files by now
        beating = asyncio.create_task(_beat(self._pulse))
        moving = asyncio.create_task(asyncio.to_thread(moved, activity.info().workflow_id or ""))
        try:
            return await asyncio.shield(moving)
        finally:
            await asyncio.wait([moving])
            beating.cancel()

    def _folder(self) -> str:
        """Return the directory of the environments of this process.

        Raises:
            StoreError: It has none that another worker would find.
        """
        if self._place.folder is None:
            raise StoreError("this worker cannot write to its state directory", hint=_HINT)
        return self._place.folder

    def _context(self, flow: LinkedFlow, workdir: str, identity: str) -> ExecutionContext:
        id = activity.info().workflow_id or ""
        return ExecutionContext(
            id,
            flow.compiled["id"],
            flow.compiled["version"],
            workdir,
            KeptFiles(self._store, id),
            lambda address, text: print(text, flush=True),  # noqa: T201 - what steps print
            strict=self._strict,
            identity=identity,
        )

    def _keep_not_released(self, execution: str, failed: Sequence[NotReleased]) -> None:
        self._not_released.setdefault(execution, []).extend(failed)

    def _warnings(self) -> list[Any]:
        """Return events about environments of the execution that could not be closed."""
        failed = self._not_released.pop(activity.info().workflow_id or "", ())
        return [*not_released(failed, self._host.clock.now())]

    async def _flow(self, hash: str) -> LinkedFlow:
        """Return a flow.

        If not cached, it is read from the first event of the workflow's history.
        """
        if hash not in self._flows:
            info = activity.info()
            start = await first_input(self._client, info.workflow_id or "", info.workflow_run_id)
            flows = {start["new"][2]: start["flow"], **start.get("flows", {})}
            if hash not in flows:  # it was upgraded in this run
                id = info.workflow_id or ""
                flows[hash] = await asyncio.to_thread(self._store.form_of, id, hash)
            self._flows[hash] = LinkedFlow(flows[hash], hash, LANGUAGE)
        return self._flows[hash]


async def _is_taken(request: Callable[[], Awaitable[None]]) -> bool:
    """Send a request until the server answers. Return False if it does not know what is named."""
    while True:
        try:
            await request()
            return True
        except (RPCError, StoreError) as error:
            if isinstance(error, RPCError) and error.status == RPCStatusCode.NOT_FOUND:
                return False
        await asyncio.sleep(_PAUSE)


async def _beat(pulse: Pulse) -> None:
    """Send heartbeats. The first one is delayed, because each is a call to the server."""
    info = activity.info()
    timeout = info.heartbeat_timeout
    if timeout is None:
        return
    seconds = timeout.total_seconds()
    slot = pulse.claim(Slot(seconds, False, info.task_token))
    try:
        while True:
            await asyncio.sleep(seconds / BEATS)
            activity.heartbeat()
    finally:
        pulse.free(slot)


@contextmanager
def _before_any_effect() -> Iterator[None]:
    """Let an attempt begin again later if stores or the server do not answer, or the worker stops.

    Raises:
        ApplicationError: It is so. The attempt has had no effect yet.
    """
    try:
        yield
    except (StoreError, RPCError) as error:
        raise ApplicationError(str(error), type=NOT_BEGUN) from error
    except asyncio.CancelledError as error:
        raise ApplicationError("its worker was stopped", type=NOT_BEGUN) from error


def _is_missing(error: BaseException) -> bool:
    """Return whether an error is about a missing requirement that other workers may have.

    A worker that is replaced by a newer one receives attempts of newer flows until then.
    """
    return isinstance(error, UnknownKind) or is_missing(error)


def _refused(kind: str, message: str) -> dict[str, Any]:
    return {"type": "failed", "error": {"type": kind, "message": message}}


class _NoFlows:
    """Placeholder for the enclosing attempt, for engines and agents that its function uses."""

    def __getattr__(self, name: str) -> NoReturn:
        raise unsupported("functions that run flows or agents")
