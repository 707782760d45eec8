"""One execution as a workflow: the kernel decides, activities run attempts, timers wake it.

This module reads no clock, file or randomness, and runs no user code. After a crash, Temporal
replays the history through it, so the same history must lead to the same commands.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, TypeGuard, TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy, SearchAttributeUpdate
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    CancelledError,
    TimeoutError,
    TimeoutType,
)
from temporalio.workflow._context import _Runtime

from flowengine.engines.executions.calls import environments_of
from flowengine.engines.executions.execution import Execution
from flowengine.engines.executions.linked_flows import LinkedFlow, LinkedFlows
from flowengine.engines.executions.reducers import Unreduced, reducers_of
from flowengine.engines.executions.subjects import address_of
from flowengine.engines.flows import LANGUAGE
from flowengine.engines.memory.store import MemoryStore
from flowengine.engines.running.call_descriptions import run_of_call
from flowengine.engines.running.carrying import Carrier, Notice, with_warning
from flowengine.engines.temporal.heartbeat import DEFAULT, TAKEN
from flowengine.engines.temporal.listing import (
    HEAD,
    HELD,
    MOST_MEMO_BYTES,
    NEW,
    OPEN_WAITS,
    STATUS,
    WAITS,
    WAITS_KEPT,
    placed,
    wait_values,
)
from flowengine.engines.temporal.needs import Needs
from flowengine.engines.temporal.outgoing import (
    Inputs,
    OutgoingQueue,
    add,
    fixed,
    known,
    remembered,
)
from flowengine.engines.temporal.payloads import LARGE, ByReference, packed
from flowengine.engines.temporal.placing import EnvironmentsLost, Placing, never_began, result_of
from flowengine.engines.temporal.requests import (
    AT_WORK,
    ATTEMPT,
    DESCRIBE,
    MOST_BYTES,
    MOVED,
    MOVES,
    NOT_BEGUN,
    OUTCOMES,
    PLACES,
    READS,
    REDUCE,
    REFUSED,
    RESTING,
    USE,
    VOTES,
    WANTED,
    WATCH,
    WHO,
    WORKFLOW,
    cut,
    log_in,
    process_of,
    run_as_data,
    run_of,
    summary_of,
)
from flowengine.engines.temporal.room import LONGEST_HISTORY, Room
from flowengine.errors import Conflict, FlowEngineError
from flowengine.journal.encoding import pack, unpack
from flowengine.journal.filters import failure_of
from flowengine.journal.records import (
    Append,
    Beginning,
    ExecutionHead,
    LockOperation,
    NewExecution,
    Vote,
)
from flowengine.journal.refusals import no_execution
from flowengine.kernel.commands import Consult, Notify, ReleaseRegion, Run, Send, Stop
from flowengine.kernel.events import Offered, ProcessData
from flowengine.kernel.graph.specs import CompiledFlow
from flowengine.kernel.notation.addresses import wait_id
from flowengine.kernel.state.records import State
from flowengine.sdk.steps.context import ExecutionContext
from flowengine.sdk.texts.sizes import size_text

T = TypeVar("T")
_ONCE = RetryPolicy(maximum_attempts=1)
_SOME_TIMES = RetryPolicy(maximum_attempts=3)
_LONGEST_DESCRIPTION = timedelta(minutes=1)
_LONGEST_REDUCTION = timedelta(minutes=1)
_LONGEST = timedelta(days=365)
MOST_AT_WORK = PLACES
"""Maximum number of concurrent attempts, equal to the capacity of a worker. Temporal fails a
workflow task with the 2,000th pending activity, and one that takes too long."""
MOST_BYTES_AT_ONCE = MOST_BYTES
"""Maximum bytes of inputs in one workflow task. Temporal ends a workflow that sends 4 MiB."""
_SENT = 0.001
"""Seconds after which the work begun by a workflow task is sent."""
_AGAIN = 10.0
"""Seconds after which an attempt that could not begin at a worker is given to one again, or that
was ended by an error of the engine."""
_UNDECODED = "Failed decoding arguments"
"""Message of Temporal's library for an activity that has not begun, such as when the object store
with its input does not work."""
MOST_REPLAYED = 500
"""Events of a history that a reader replays in a moment."""
MOST_EVENTS = 16_000_000
"""Bytes of the events of a run up to which they are kept for readers."""
_PAGE_BYTES = LARGE - 4096
"""Maximum bytes of events or waits in one response, so that it is not kept in the object store."""
READERS: dict[str, list[WorkflowDriver]] = {}
"""Run of a workflow → receives its driver, in a process that replays its history to read it."""


class _WorkflowFlow(LinkedFlow):
    """A flow whose steps and reducers run elsewhere."""

    def __init__(self, compiled: CompiledFlow, hash: str) -> None:
        super().__init__(compiled, hash, LANGUAGE)
        self.graph.function = remembered

    def look_ahead(self, *_: Any, **__: Any) -> None:
        """Do nothing, because preloading would start a thread."""


_SETTINGS = {"heartbeat": DEFAULT}
"""Settings of the worker in this process. They do not affect which commands follow from a
history."""


def set_heartbeat(seconds: float) -> None:
    """Set the time without a heartbeat after which an attempt is interrupted."""
    _SETTINGS["heartbeat"] = seconds


_LINKED: dict[str, LinkedFlow] = {}
"""Linked flows by hash, of all workflows of this process."""


class _Flows(LinkedFlows):
    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store, LANGUAGE)
        self._flows = _LINKED


class WorkflowDriver(Carrier):
    """Drives one execution. Its store contains nothing else, and is rebuilt at each replay.

    Args:
        start: `flow`, `id`, `new` (its entry in lists), `most` (bytes of a value), and `event`,
            `keys` and `locks` of its beginning, or `past` and reserved `claims`, see `_continue`.
        is_new: Whether no other run of the workflow has published its status yet.
        run: Id of the run, if it has replaced another one by *Reset* of Temporal.
    """

    def __init__(
        self, start: dict[str, Any], *, is_new: bool = False, run: str | None = None
    ) -> None:
        id, new = start["id"], start["new"]
        self.start = start
        self.store: MemoryStore = MemoryStore()
        self.now = _now
        self._reduces = False
        for hash, flow in {new.hash: start["flow"], **start.get("flows", {})}.items():
            self._keep_flow(flow, hash)
        self.execution = self._opened(id, new)
        self.broken: str | None = None
        """An error of the engine, which fails the current workflow task. Temporal gives it to a
        worker again, until one has an engine that can continue."""
        self.moved = False
        """Whether another store drives it from now on."""
        self.texts: dict[str, bytes] = {}
        """Digest → text of a tool that approvers have seen, without an object store."""
        self.resets = [*start.get("past", {}).get("resets", ()), *([] if run is None else [run])]
        """The runs that have replaced others by *Reset*, so far."""
        self.outgoing = OutgoingQueue(
            id, new.created_at, self.store, self._rest, self._task, self.resets
        )
        self.placing = Placing(
            self.execution, lambda: _SETTINGS["heartbeat"], self._released, self._task
        )
        self.needs = Needs(
            self.execution, start, lambda: _SETTINGS["heartbeat"], self._offered, self._task
        )
        self._inputs = Inputs(self.execution, self.resets)
        self.room = Room(start["most"])
        self._held: deque[Run] = deque()
        self._next: dict[int, Run] = {}
        """Unit → its next attempt, which begins when the one that was stopped has ended."""
        self._watched: dict[int, tuple[Run, dict[str, Any]]] = {}
        """Unit → its attempt that is at work without an activity of this run, unless it is being
        stopped, and where. Another run can take it over."""
        self._bytes, self._pausing = 0, False
        self._full_at: int | None = None
        """Length of the history in which the current portion of attempts began. None: it has room
        for more."""
        self._warned: set[tuple[int, int]] = set()
        """Attempts with a warning that they could not begin."""
        self._stopped: set[tuple[int, int]] = set()
        self._reserved: list[LockOperation] = start.get("claims", [])
        self._reduced: list[Any] = []
        """Results of reducers for the first event of the queue."""
        self._reducing: asyncio.Task[None] | None = None
        self._alarm: asyncio.Task[None] | None = None
        self._alarm_due: int | None = None
        self._shown_waits: list[str] = []
        self._shown_status, self._has_past, self._is_new = "running", "past" in start, is_new
        if self._has_past:
            self._continue(start["past"])
        else:
            self.store.begin(Beginning(id, new, start["keys"], start["event"]))
            self.outgoing.restore(0, start["locks"])

    def _opened(self, id: str, new: NewExecution) -> Execution:
        """Return the execution that this workflow drives."""
        context = ExecutionContext(
            id,
            new.flow,
            new.version or "",
            "",
            None,  # type: ignore[arg-type] # no step runs here
            lambda address, text: None,
        )
        flows = _Flows(self.store)
        return Execution(
            id, flows.by_hash(new.hash), context, 0, flows, partial(self.store.events, id)
        )

    def _continue(self, past: dict[str, Any]) -> None:
        """Continue an execution that has a past: in another run, as a fork, or retried.

        Args:
            past: `copy` (what its store contained), `append` (a change to it), `queue` (events to
                apply), `texts`, and from another run `held`,
                `outgoing`, `placing`, `shown`, `watched`, `resets`. And for readers only, `before`
                (the run before, if there are events that `copy` does not have), and `events` (the
                last of these, which are those of that run).
        """
        id = self.execution.id
        past.pop("events", None)
        if past.get("copy") is not None:
            self.store.restore(past["copy"])
        if past.get("append") is not None:
            append = past["append"]
            new = append.new and append.new._replace(owner=None)
            self._commit(append._replace(epoch=0, new=new, claims=(), files=()))
        self.execution.load(self.store.load(id))
        self.execution.queue += [unpack(event) for event in past.get("queue", ())]
        self._held += [run_of(given) for given in past.get("held", ())]
        self.needs.restore(past.get("needs", ()))
        self._watched = {
            given[0].unit: given for given in map(_taken_over, past.get("watched", ()))
        }
        self.outgoing.restore(*past.get("outgoing", (0, [])))
        self.placing.restore(*past.get("placing", (None, False, [])))
        add(self.texts, past.get("texts", {}))
        self._shown_waits, self._shown_status = past.get("shown", ([], "running"))

    @property
    def must_continue(self) -> bool:
        """Whether it is to be continued in another run as soon as nothing is at work."""
        return self.room.is_to_continue

    @property
    def quiet(self) -> bool:
        """Whether nothing is at work."""
        return not self.execution.work and self.may_continue

    @property
    def may_continue(self) -> bool:
        """Whether nothing is at work that another run could not take over."""
        busy = self.outgoing.busy or self.placing.busy or self.execution.queue
        return not busy and self.execution.work.keys() <= self._watched.keys()

    def continued(self) -> dict[str, Any]:
        """Return what another run starts with, which continues this one.

        Events before the snapshot are not part of its state.
        """
        execution, id = self.execution, self.execution.id
        self._take_snapshot()
        first = 0 if execution.linked.grows else execution.seq  # lists refer to events
        past = {
            "copy": self.store.copy(id, first),
            "held": [run_as_data(run) for run in self._held],
            "watched": [[*run[:4], where] for run, where in self._watched.values()],
            "needs": self.needs.kept(),
            "outgoing": self.outgoing.kept(),
            "placing": self.placing.kept(),
            "texts": self.texts,
            "shown": [self._shown_waits, self._shown_status],
            "resets": self.resets,
            "before": workflow.info().run_id,
        }
        if not first:
            past["events"] = []
        elif self._has_few_bytes():
            past["events"] = self.store.events(id)
        return self._start_with(past)

    def left(self) -> dict[str, bytes]:
        """Return as `left`, packed, what readers need to know of it once it has ended.

        It is like the start of another run, with all events that this run has. Empty: it is too
        large, or to replay the history takes no longer.
        """
        is_long = workflow.info().get_current_history_length() > MOST_REPLAYED
        is_long = is_long or "before" in self.start.get("past", {})
        if self.execution.halted or not is_long or not self._has_few_bytes():
            return {}
        self._take_snapshot()
        copy, outgoing = self.store.copy(self.execution.id), self.outgoing.kept()
        past = {"copy": copy, "outgoing": outgoing, "texts": self.texts, "resets": self.resets}
        left = packed(self._start_with(past))
        return {"left": left} if len(left) <= self.start["most"] else {}

    def halt(self, at: int, why: str) -> None:
        """Let the execution fail for readers, because its workflow was ended before it.

        Args:
            at: When (ms).
            why: The message of its error.
        """
        error: Any = {"type": "EngineError", "message": why}
        self.execution.queue = [
            {"type": "halted", "at": max(at, self.execution.state["now"]), "error": error}
        ]
        self.execution.apply_queue()
        self.execution.commands.clear()
        self._commit(self.execution.take(release=False))

    def _has_few_bytes(self) -> bool:
        """Return whether its events can be packed in a workflow task, whose time is limited."""
        events = self.store.events(self.execution.id)
        return sum(len(event.payload) for event in events) <= MOST_EVENTS

    def _take_snapshot(self) -> None:
        """Have its store contain a snapshot of the state."""
        self.execution.rewrite()
        self._commit(self.execution.take(release=False))

    def _commit(self, append: Append) -> None:
        """Commit to the store in memory. A refusal is an error of the engine."""
        [refusal] = self.store.commit([append])
        if refusal is not None:
            raise refusal

    def _start_with(self, past: dict[str, Any]) -> dict[str, Any]:
        """Return the input of a run that has a past."""
        same = {name: self.start[name] for name in ("id", "most", "new")}
        return {**same, "flows": self.start.get("flows", {}), "past": past}

    @property
    def over(self) -> bool:
        """Whether the execution is over, or continues in another store."""
        return self.execution.ended or self.moved

    @property
    def at_work(self) -> bool:
        """Whether attempts or environments are still being ended."""
        return bool(self.execution.work or self.outgoing.busy or self.placing.busy)

    @property
    def mark(self) -> list[int]:
        """Numbers that change whenever anything happens."""
        return [self.execution.seq, self.store.changes()]

    def arrive(self) -> None:
        """Publish an execution from another store, and make it known by its keys."""
        record = self.store.execution(self.execution.id)
        head = ExecutionHead(record.status, record.changed_at, record.due)
        append = Append(record.id, 0, self.execution.seq, head=head)
        self.outgoing.add(append)
        self._show(append)
        workflow.upsert_memo({HELD: False})

    async def _leave(self, mark: list[int]) -> bool:
        """Leave the execution to another store, unless anything has happened since a mark."""
        if not self._is_still(mark):
            return False
        self.outgoing.leave_keys()
        await workflow.wait_condition(lambda: not self.outgoing.busy)
        locks = self.outgoing.locks
        is_wanted = bool(locks) and await workflow.execute_local_activity(
            WANTED, locks, start_to_close_timeout=_LONGEST_DESCRIPTION
        )
        # Messages that arrive before this timer fires are seen here. Later ones are refused.
        await workflow.sleep(0.001)
        if is_wanted or not self._is_still(mark):
            self.outgoing.add(Append(self.execution.id, 0, self.execution.seq))
            return False
        self.moved = True
        self.outgoing.leave_locks(_now())
        self.placing.leave()
        self.needs.ask(again=True)
        workflow.upsert_search_attributes([STATUS.value_set(MOVED), WAITS.value_set([])])
        await workflow.wait_condition(lambda: not (self.outgoing.busy or self.placing.busy))
        return True

    def _is_still(self, mark: list[int]) -> bool:
        """Return whether it is open, and nothing has happened since a mark."""
        return not self.over and self.quiet and self.mark == mark

    def _upgrade(self, flow: CompiledFlow, event: Any, seq: int) -> bool:
        """Continue with another form of the flow, unless anything has happened since.

        Args:
            flow: The form.
            event: The event that moves the execution.
            seq: Number of events for which the move was checked.
        """
        if self.over or not self.quiet or self.execution.seq != seq:
            return False
        self._keep_flow(flow, event["after"])
        self.needs.note(flow)
        self.start["flows"] = {**self.start.get("flows", {}), event["after"]: flow}
        event["at"] = _now()
        self.execution.queue.append(event)
        self._move()
        return True

    def _keep_flow(self, flow: CompiledFlow, hash: str) -> None:
        self.store.put_flow(hash, pack(flow))
        self._reduces = self._reduces or bool(reducers_of(flow))
        if hash not in _LINKED:
            _LINKED[hash] = _WorkflowFlow(flow, hash)

    def take_inbox(self) -> None:
        """Take the messages to the execution, and carry out the resulting commands."""
        if self.over:
            return
        if self._reserved:
            self.outgoing.claim(self._reserved, _now())
            self._reserved = []
        self.read_inbox(self.execution)
        self._move()

    def _move(self) -> None:
        """Apply queued events, and carry out the resulting commands. Never waits."""
        if self.moved:
            return
        execution = self.execution
        try:
            while execution.queue and self._reducing is None:
                self._apply()
                if self._reducing is not None:
                    break
                append = execution.take(release=False)
                self._commit(append._replace(claims=(), files=()))
                self.outgoing.add(append, is_at_work=bool(execution.work))
                self._show(append)
                self.carry_out(execution)
                self._begin_held()
            if self._reducing is None:
                self._begin_held()
                if execution.queue:  # attempts that cannot begin
                    self._move()
                    return
                self._set_alarm(execution)
                self.needs.ask(again=self.must_continue)
                self.placing.give_back(_now())
                if execution.ended and not execution.work:
                    self.outgoing.leave_locks(_now())
        except Exception as error:
            self._break(error)

    def _task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begin a task. An error in it fails the workflow task, too.

        To forget a workflow, Temporal's library ends its tasks by a `BaseException`.
        """

        def check(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and isinstance(error := task.exception(), Exception):
                self._break(error)

        task = asyncio.create_task(work)
        task.add_done_callback(check)
        return task

    def _break(self, error: Exception) -> None:
        self.broken = f"{type(error).__name__}: {error}"

    def _apply(self) -> None:
        """Apply the queued events, or those before one that needs a reducer in Python."""
        if not self._reduces:
            self.execution.apply_queue()
            return
        try:
            with known(self._reduced):
                self.execution.apply_first(again=bool(self._reduced))
        except Unreduced as needed:
            if self._shown_status in RESTING:
                self._shown_status = "running"
                workflow.upsert_search_attributes([STATUS.value_set("running")])
            self._reducing = self._task(self._reduce(needed.given))
        else:
            self._reduced = []

    async def _reduce(self, given: list[Any]) -> None:
        """Call a reducer in a worker, and apply the event that needs its result."""
        try:
            result = await workflow.execute_local_activity(
                REDUCE,
                pack(given),
                start_to_close_timeout=_LONGEST_REDUCTION,
                retry_policy=_SOME_TIMES,
            )
        except ActivityError as error:
            result = {"error": f"{given[0]['python']} was called in vain: {error.cause or error}"}
        if "missing" in result:  # another worker may have it, which then takes this task
            self._break(LookupError(result["missing"]))
            return
        self._reduced.append(result)
        self._reducing = None
        self._move()

    def _show(self, append: Append) -> None:
        """Publish the status and the open waits, for lists without a worker."""
        changed: list[SearchAttributeUpdate[Any]] = []
        memo: dict[str, Any] = {}
        if append.opened or append.closed or self._has_past:
            opened = [*append.opened, *(self.execution.waits.values() if self._has_past else ())]
            self._has_past = False
            ids = dict.fromkeys(wait_id(self.execution.id, record["id"]) for record in opened)
            new = [id for id in ids if id not in self._shown_waits]
            self._shown_waits = [*self._shown_waits, *new][-WAITS_KEPT - 1 :]
            records = [*self.execution.waits.values()]
            kinds = (record["kind"] for record in records)
            changed.append(WAITS.value_set(wait_values(self._shown_waits, kinds)))
            size = len(packed([records, self.start["new"]]))
            memo[OPEN_WAITS] = records if size <= MOST_MEMO_BYTES else None  # which deletes it
        if append.moved is not None:
            hash, version = append.moved
            memo[NEW] = workflow.memo()[NEW]._replace(hash=hash, version=version)
        if append.head is not None:
            head = append.head
            memo[HEAD] = [head.status, head.at, head.due, failure_of(head.error)]
        elif self._is_new:  # from now on, it can be asked
            memo[HEAD] = [self.execution.state["status"], append.at, None, None]
        self._is_new = False
        status = self.execution.state["status"]
        if status != self._shown_status and not (status in RESTING and self._is_preparing):
            self._shown_status = status
            changed.append(STATUS.value_set(status))
        if changed:
            workflow.upsert_search_attributes(changed)
        if memo:
            workflow.upsert_memo(memo)

    @property
    def _is_preparing(self) -> bool:
        """Whether others cannot reach it yet, or a question is not described yet."""
        execution = self.execution
        if self.outgoing.busy or any(isinstance(key, int) and key < 0 for key in execution.work):
            return True
        return any(isinstance(command, Consult) for command in execution.commands)

    def _rest(self) -> None:
        """Publish that it rests, once others can reach it by its keys."""
        status = self.execution.state["status"]
        if self._is_preparing:
            return
        if status in RESTING and status != self._shown_status:
            self._shown_status = status
            workflow.upsert_search_attributes([STATUS.value_set(status)])

    # Commands

    def enqueue(self, execution: Execution) -> None:
        """Do nothing, because the callers take the turn themselves, by `_move`."""

    def begin_attempt(self, execution: Execution, run: Run) -> bool:
        """Begin an attempt, or queue it until capacity is available.

        One with needs first waits for a worker that has a place for it.
        """
        if self.needs.lacks(run):
            execution.queue.append(
                {"type": "unoffered", "at": _now(), "unit": run.unit, "attempt": run.attempt}
            )
        else:
            self._held.append(run)
        return True

    def _offered(self, wait: int | None) -> None:
        """Begin the attempt of a wait for which a worker has a place."""
        if wait is not None:
            event: Offered = {"type": "offered", "at": _now(), "wait": wait}
            self.execution.queue.append(event)
        self._move()

    async def write(self, request: dict[str, Any], flow: Any) -> dict[str, Any]:
        """Carry out an update. See `FlowExecution.write`."""
        given = request["arguments"]
        match request["method"]:
            case "decide":
                return await self._decide(*given)
            case "upgrade":
                return {"answer": self._upgrade(flow, *given)}
            case "leave":
                return {"answer": await self._leave(given)}
            case "pack":
                files = await self.placing.packed() if self._is_still(given) else {}
                return files if self._is_still(given) and files else {"answer": None}
        answer = answered(self, request)
        self.take_inbox()
        return answer

    async def _decide(self, wait: str, vote: Vote) -> dict[str, Any]:
        """Decide a wait, together with what executions share: the grant given or used for it."""
        uses = vote.uses
        if uses is not None and not await workflow.execute_activity(
            USE,
            args=[uses, wait, vote.at],
            start_to_close_timeout=_LONGEST_DESCRIPTION,
            summary="use of a grant",
        ):
            return {"answer": (False, self.store.wait(wait))}
        if self.moved:
            answer: dict[str, Any] = {"error": no_execution(self.execution.id)}
        else:
            decided = {"method": "decide", "arguments": [wait, vote._replace(uses=None)]}
            answer = answered(self, decided)
            self.take_inbox()
        accepted = "answer" in answer and answer["answer"][0]
        if uses is not None:
            await self.outgoing.add_now({"do": "used", "wait": wait, "counts": accepted})
        if vote.gives is not None and vote.approves and accepted:
            [grant] = [grant for grant in self.store.grants() if grant.id == wait]
            await self.outgoing.add_now({"do": "grant", "grant": grant})
        return answer

    def _begin_held(self) -> None:
        """Begin queued attempts as far as capacity is available."""
        while self._held and len(self.execution.work) < MOST_AT_WORK and not self._pauses():
            if self.must_continue:
                return  # what begins now would be lost to the next run
            work = len(self.execution.work)
            if not self.room.is_for(work + 1, self._bytes):
                if work:
                    return  # some of its results will be smaller
                run = self._held.popleft()
                self._fail(run, self.room.refusal())
                continue
            if self.room.is_full:
                raise RuntimeError(f"the history of one run has {LONGEST_HISTORY} events")
            run = fixed(self._held.popleft())
            size = self._inputs.size(run)
            if size > self.start["most"]:
                self._refuse(run, size)
                continue
            if run.unit in self.execution.work:
                self._next[run.unit] = run
                continue
            self._begin(run)
            self._bytes += min(size, LARGE) if self.start["most"] > MOST_BYTES else size
            if self._bytes > MOST_BYTES_AT_ONCE:
                self._full_at = workflow.info().get_current_history_length()
                self._begin_later(_SENT)

    def _pauses(self) -> bool:
        """Return whether no further attempt begins now.

        Temporal's timers take a second at least. The next workflow task may begin earlier, for
        example with the end of an attempt: what this one has begun is sent then.
        """
        length = workflow.info().get_current_history_length()
        if self._full_at is not None and length > self._full_at:
            self._pause.cancel()
            self._bytes, self._pausing, self._full_at = 0, False, None
        return self._pausing

    def _begin(self, run: Run, where: dict[str, Any] | None = None) -> None:
        """Begin an attempt, or watch one that is at work."""
        task = self._task(self._attempt(run, where))
        self.execution.work[run.unit] = task
        task.add_done_callback(partial(self._forget, run))

    async def take_over(self) -> None:
        """Watch the attempts that an earlier run has left at work."""
        for run, where in self._watched.values():
            self._begin(run, where)
        if self._watched:
            await asyncio.sleep(0)  # a message that stops one finds it begun

    def _refuse(self, run: Run, size: int) -> None:
        """Fail an attempt whose input is too large."""
        most = size_text(self.start["most"])
        message = f"the input has {size_text(size)}; at most {most} are possible"
        self._fail(run, {"type": "LimitExceeded", "message": message})

    def _fail(self, run: Run, error: dict[str, Any]) -> None:
        """Fail an attempt that has not begun."""
        event: Any = {"type": "failed", "at": _now(), "unit": run.unit, "attempt": run.attempt}
        event["error"] = error
        self.execution.queue.append(event)

    def _begin_later(self, seconds: float) -> None:
        """Begin no further attempt for some time."""
        self._pausing = True
        self._pause = self._task(self._resume_after(seconds))

    async def _resume_after(self, seconds: float) -> None:
        await workflow.sleep(seconds)
        self._bytes, self._pausing, self._full_at = 0, False, None
        self._move()

    def stop(self, execution: Execution, stop: Stop) -> None:
        """Stop an attempt, or remove it from the queue."""
        held = len(self._held)
        self._held = deque(run for run in self._held if run.unit != stop.unit)
        was_held = len(self._held) < held or self._next.pop(stop.unit, None) is not None
        task = execution.work.get(stop.unit)
        if task is not None and not was_held:
            self._stopped.add((stop.unit, stop.attempt))
            self._watched.pop(stop.unit, None)
            task.cancel()

    def _set_alarm(self, execution: Execution) -> None:
        """Schedule the next timer of an execution in Temporal."""
        due = None if execution.ended else execution.timers.next()
        if due == self._alarm_due:
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_due = due
        if due is None:
            self._alarm = None
            return
        event = {"type": "timer", "timer": execution.timers.next_number()}
        address = address_of(execution.linked.graph, execution.state, event)
        summary = "next timer" if address is None else f"timer of {address}"
        self._alarm = self._task(self._ring(due, summary))

    async def _ring(self, due: int, summary: str) -> None:
        await workflow.sleep(max(due - _now(), 0) / 1000, summary=summary)
        self._alarm, self._alarm_due = None, None
        self.fire_timers(self.execution)
        self._move()

    def notify(self, execution: Execution, command: Notice) -> None:
        """Ignore notifications that only concern subscribers of an engine.

        Raises:
            NotImplementedError: `check_supported` should have refused the command.
        """
        if isinstance(command, Consult):
            task = self._task(self._describe(command))
            execution.work[-command.wait] = task
        elif isinstance(command, ReleaseRegion):
            self.placing.end_region(command.region)
        elif not isinstance(command, Notify | Send):
            raise NotImplementedError(f"the command {type(command).__name__} in Temporal")

    async def _describe(self, asked: Consult) -> None:
        """Let rules or grants answer a question, or add what its approvers see of the call."""
        wait = asked.wait
        with suppress(ActivityError, asyncio.CancelledError):
            if await self._described(asked, "begin"):
                await self._described(asked, "grants")
        self.execution.work.pop(-wait, None)
        self._move()
        self._rest()

    async def _described(self, asked: Consult, stage: str) -> bool:
        """Add the result of an activity to a question, and return whether grants may answer it.

        Those see the completed question.
        """
        run, opens, queue = None, False, None
        if environments_of(self.execution.linked.compiled["steps"][asked.step]):
            run = run_of_call(self.execution, asked.wait)
        if run is not None:
            opens, queue = await self.placing.queue_of(run)
        describe = partial(
            workflow.execute_activity,
            DESCRIBE,
            retry_policy=_SOME_TIMES,
            start_to_close_timeout=_LONGEST_DESCRIPTION,
            summary="description of a call",
        )
        given = [asked.wait, asked.step, asked.required, stage]
        patience = None if queue is None else self.placing.patience
        try:
            events, grants, more = await describe(
                args=[*given, opens], task_queue=queue, schedule_to_start_timeout=patience
            )
        except ActivityError as error:
            if not never_began(error):
                raise
            events, grants, more = await describe(args=[*given, False])
        if asked.wait not in self.execution.waits:
            return False
        add(self.texts, more)
        for event in events:
            event["at"] = _now()
            self.execution.queue.append(event)
        self._move()
        return bool(grants)

    # Attempts

    async def _attempt(self, run: Run, event: Any = None) -> None:
        """Run an attempt as an activity, whose result is an event.

        Args:
            run: The attempt.
            event: Where it is at work, if an earlier run of the workflow has begun it.
        """
        try:
            event = await self._event(run, event)
        except asyncio.CancelledError:
            event = None
        self._has_ended(run)
        if event is not None:
            self._queue(run.unit, run.attempt, event)
        self._move()

    def _queue(self, unit: int, attempt: int, event: dict[str, Any]) -> None:
        """Queue the event of an attempt, and its warnings.

        An outcome can arrive twice: by the activity that watches a long attempt, and as a late one
        from a worker whose watch belonged to an earlier run. The second one is dropped.
        """
        if event["type"] in (*OUTCOMES, "cut") and not self._counts(unit, attempt):
            return
        kind, own = event["type"], {"at": _now(), "unit": unit, "attempt": attempt}
        whole: Any = {"type": kind, **own, **event, **own}
        warnings = whole.pop("warnings", [])
        self.execution.queue += [*warnings, *with_warning(self.execution, whole)]

    def _counts(self, number: int, attempt: int) -> bool:
        """Return whether an outcome of an attempt can still have an effect."""
        state = self.execution.state
        unit = state["units"].get(number)
        is_open = (
            unit is not None and unit["attempt"] == attempt and unit["phase"] in ("run", "ask")
        )
        return is_open or number in state["cuts"]

    async def _event(self, run: Run, event: Any) -> Any:
        """Return the event of an attempt. None: it was stopped, or begins again later."""
        try:
            if event is None:
                if self.outgoing.refers:
                    await workflow.wait_condition(lambda: not self.outgoing.refers)
                event = await self._attempted(run)
            while event is not None and event["type"] == AT_WORK:
                event = await self._watch(run, event)
            return event
        except EnvironmentsLost as error:
            return error.event
        except ActivityError as error:
            return await self._failed(run, error)

    def _forget(self, run: Run, task: asyncio.Task[None]) -> None:
        """Forget an attempt that was stopped in the workflow task in which it was to begin.

        Nothing of its task has run then.
        """
        if self.execution.work.get(run.unit) is task:
            self._has_ended(run)
            self._move()

    def _has_ended(self, run: Run) -> None:
        """Note that an attempt is not at work any more, so that the next one of its unit can be."""
        del self.execution.work[run.unit]
        self._stopped.discard((run.unit, run.attempt))
        self._watched.pop(run.unit, None)
        if (following := self._next.pop(run.unit, None)) is not None:
            self._held.appendleft(following)

    async def _attempted(self, run: Run) -> Any:
        """Run the activity of an attempt, at the worker that has its environments, or its place."""
        while True:
            if self.needs.lacks(run):
                return {"type": "unoffered"}
            place = self.needs.take(run)
            queue = place or await self.placing.queue_for(run)
            # Temporal does not compare inputs with those of the history. To pack thousands of long
            # ones again would take longer than a workflow task may.
            given = b"" if workflow.unsafe.is_replaying() else self._inputs.packed(run)
            begun = self._begun_activity(
                run,
                ATTEMPT,
                [given],
                queue,
                heartbeat=_SETTINGS["heartbeat"],
                patience=None if queue is None else self.placing.patience,
            )
            try:
                event = await begun
            except ActivityError as error:
                if queue is None or not never_began(error):
                    raise
                if place is None:
                    self.placing.lose(queue)
                continue
            except asyncio.CancelledError:
                event = result_of(begun)
                if event is None or event["type"] != AT_WORK:
                    raise
            if queue is not None and place is None:
                self.placing.began(run, queue)
            return event

    async def _watch(self, run: Run, where: dict[str, Any]) -> Any:
        """Watch an attempt that is at work, or have it stopped.

        Returns:
            The event. `where`, if the activity has not reached its worker, or it is not known
            whether it has. None if the attempt was stopped.
        """
        attempt = run.unit, run.attempt
        if attempt not in self._stopped:
            self._watched[run.unit] = run, where
        begun = self._begun_activity(
            run,
            WATCH,
            [where["key"], attempt in self._stopped],
            where["queue"],
            heartbeat=where["heartbeat"],
            patience=timedelta(seconds=TAKEN * where["heartbeat"]),
        )
        try:
            event = await begun
        except ActivityError as error:
            if never_began(error):
                self.placing.lose(where["place"])
            elif not _has_arrived(error):
                return where
            raise
        except asyncio.CancelledError:
            return where
        return None if event["type"] == "cut" and attempt in self._stopped else event

    def _begun_activity(
        self,
        run: Run,
        activity: str,
        given: list[Any],
        queue: str | None,
        *,
        heartbeat: float,
        patience: timedelta | None,
    ) -> workflow.ActivityHandle[Any]:
        """Begin an activity that runs or watches an attempt.

        The library gives activities to the worker of the workflow first. If an attempt could not
        begin, the server chooses, because another worker may have the missing parts.
        """
        runtime: Any = _Runtime.current()
        runtime._disable_eager_activity_execution = (run.unit, run.attempt) in self._warned
        return workflow.start_activity(
            activity,
            args=given,
            task_queue=queue,
            activity_id=f"{run.unit}.{run.attempt}",
            retry_policy=_ONCE,
            schedule_to_start_timeout=patience,
            start_to_close_timeout=_LONGEST,
            heartbeat_timeout=timedelta(seconds=heartbeat),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            summary=summary_of(run),
        )

    def _released(self, events: list[Any]) -> None:
        """Record which environments could not be closed."""
        self.execution.queue += events
        self._move()

    async def _failed(self, run: Run, error: ActivityError) -> dict[str, Any] | None:
        """Return the event of an attempt without a result. None: it is stopped, or begins again."""
        cause = error.cause
        is_stopped = (run.unit, run.attempt) in self._stopped
        if is_stopped and not isinstance(cause, TimeoutError):
            return None
        if isinstance(cause, TimeoutError | CancelledError):  # its worker is gone or was stopped
            event = cut(log_in(getattr(cause, "last_heartbeat_details", ())))
            process = None if is_stopped else await self._process_of(run, error)
            if process is not None and "began" in process:
                self._begin_again(run, "its worker ended before it began")
                return None
            return event if process is None else {**event, "process": process}
        if _has_not_begun(cause):
            why = cause.message if cause.type == NOT_BEGUN else str(cause.cause or cause)
            self._begin_again(run, why)
            return None
        await workflow.sleep(_AGAIN)  # the next attempt may fail in the same way
        return cut({"lines": [[_now(), "ERROR", f"error of the engine: {cause}"]]})

    async def _process_of(self, run: Run, error: ActivityError) -> ProcessData | None:
        """Return the process that may still be at work on a lost attempt, for the question."""
        node = self.execution.linked.graph.node(run.step)
        if node.effect != "once" or node.on_crash != "ask":
            return None
        if run.unit in self._watched:
            return process_of(self._watched[run.unit][1]["who"])
        if not error.started_event_id:
            return None
        try:
            found: ProcessData | None = await workflow.execute_local_activity(
                WHO,
                args=[error.started_event_id, f"{run.unit}.{run.attempt}"],
                start_to_close_timeout=_LONGEST_DESCRIPTION,
                retry_policy=_SOME_TIMES,
            )
        except ActivityError:
            return None
        return found

    def is_late(self, unit: int, attempt: int, event: dict[str, Any]) -> bool:
        """Return whether `take_late` can take an event: the end of the activity comes before it.

        An outcome counts in any order. But an attempt that has not begun would begin again, and
        then count as interrupted.
        """
        at_work = unit in self.execution.work and self._counts(unit, attempt)
        return event["type"] in OUTCOMES or not at_work

    def take_late(self, unit: int, attempt: int, event: dict[str, Any]) -> None:
        """Take the event of an attempt that may count as interrupted. See `Attempts`."""
        if not self.over:
            self._queue(unit, attempt, event)
            self._move()

    def _begin_again(self, run: Run, why: str) -> None:
        """Queue an attempt that could not begin, and begin nothing for some time."""
        self._held.append(run)
        self._full_at = None
        self._begin_later(_AGAIN)
        attempt = run.unit, run.attempt
        if attempt not in self._warned:
            self._warned.add(attempt)
            message = f"attempt {run.attempt} of {run.address} could not begin yet: {why}"
            warning: Any = {"type": "warning", "at": _now(), "about": "attempt", "message": message}
            self.execution.queue.append(warning)


@workflow.defn(name=WORKFLOW)
class FlowExecution:
    """The workflow.

    Args:
        start: See `WorkflowDriver`.
        flow: The compiled flow, in a separate payload, which many executions share.
    """

    @workflow.init
    def __init__(self, start: dict[str, Any], flow: dict[str, Any]) -> None:
        info, is_new = workflow.info(), HEAD not in workflow.memo()
        run = info.run_id if info.original_execution_run_id not in ("", info.run_id) else None
        self._driver = WorkflowDriver({**start, "flow": flow}, is_new=is_new, run=run)
        self._begun = False
        self._has_run_before = "before" in start.get("past", {})
        self._held = start.get("held", False)
        if (reader := READERS.get(workflow.info().run_id)) is not None:
            reader.append(self._driver)

    @workflow.run
    async def run(self, start: dict[str, Any], flow: dict[str, Any]) -> dict[str, Any]:
        """Drive the execution to its end.

        Returns:
            Its final status, its outputs if they are small, and what `WorkflowDriver.left` returns.

        Raises:
            ApplicationError: It has failed, or has moved to another store. The detail of a failure
                is `left`, if there is one.
            RuntimeError: The engine has an error, so that this workflow task fails.
        """
        driver = self._driver
        # Without a worker, the signal to drive it arrives before the first task.
        if start.get("held"):
            await workflow.wait_condition(lambda: not self._held)
            driver.arrive()
        await driver.take_over()
        driver.take_inbox()
        self._begun = True
        while True:
            await workflow.wait_condition(
                lambda: driver.broken is not None or self._is_over() or self._is_to_continue()
            )
            if driver.broken is not None:
                raise RuntimeError(driver.broken)
            if self._is_over():
                break
            given = [driver.continued(), ByReference(flow)]
            fits = driver.room.fits(given)
            if not fits:  # readers can replay this run for its events
                given[0]["past"].pop("events", None)
            if fits or driver.room.fits(given):
                workflow.continue_as_new(args=given, memo=workflow.memo())  # else that of the start
            driver.take_inbox()  # it continues in this run
        await workflow.wait_condition(workflow.all_handlers_finished)
        if driver.moved:
            raise ApplicationError("moved to another store", type=MOVED, non_retryable=True)
        state = driver.execution.state
        error, left = state["error"], driver.left()
        if error is not None and state["status"] == "failed":
            raise ApplicationError(
                error["message"], *left.values(), type=error["type"], non_retryable=True
            )
        outputs = state["outputs"]
        small = len(pack(outputs)) <= driver.start["most"]
        return {"status": state["status"], "outputs": outputs if small else None, **left}

    def _is_over(self) -> bool:
        return self._driver.over and not self._driver.at_work

    def _is_to_continue(self) -> bool:
        driver = self._driver
        if driver.over or not driver.must_continue:
            return False
        may_continue = driver.may_continue and not driver.needs.busy
        return may_continue and workflow.all_handlers_finished()

    @workflow.signal
    async def message(self, request: dict[str, Any]) -> None:
        """Take a message, unless one with its id was taken or the execution has ended.

        It gives way to updates of the same workflow task, so that these are accepted before there
        are other commands. In a replay, Temporal's library joins a task without commands to the
        next one, unless that begins with an accepted update. An update that is accepted later is
        then given to a run that has not begun, and the order of the commands changes.
        """
        if self._begun or self._has_run_before:
            await workflow.wait_condition(lambda: self._begun)
        driver = self._driver
        with suppress(Conflict):
            driver.store.send(driver.execution.id, request["event"], request["at"], request["id"])
        if self._begun:
            driver.take_inbox()

    @workflow.signal
    async def late(self, given: list[Any]) -> None:
        """Take the outcome of an attempt that may count as interrupted, or that it never began."""
        await workflow.wait_condition(lambda: self._begun and self._driver.is_late(*given))
        self._driver.take_late(*given)

    @workflow.signal
    def drive(self) -> None:
        """Begin to drive an execution that was moved here. See `MovingPort`."""
        self._held = False

    @workflow.update
    async def write(
        self, request: dict[str, Any], flow: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Execute a write method of a store, and carry out the resulting commands.

        Args:
            request: The `method` (one of `VOTES` or `MOVES`, or `upgrade`) and its `arguments`.
            flow: The form of the flow with which an upgrade continues.
        """
        if request["method"] in MOVES and not self._begun:
            return {"answer": None}
        await workflow.wait_condition(lambda: self._begun)
        return await self._driver.write(request, flow)

    @write.validator
    def _may_write(self, request: dict[str, Any], flow: dict[str, Any] | None = None) -> None:
        """Refuse what changes nothing, so that it leaves no event in the history."""
        method = request["method"]
        if method not in (*VOTES, *MOVES, "upgrade"):
            raise ApplicationError(f"there is no {method}", type="UsageError")
        if method not in VOTES or not self._begun:
            return
        refusal = answered(self._driver, {**request, "method": f"refusal_of_{method}"})
        if refusal.get("answer", refusal) is not None:
            raise ApplicationError("it changes nothing", refusal, type=REFUSED, non_retryable=True)

    @workflow.query
    def read(self, request: dict[str, Any]) -> dict[str, Any]:
        """Execute a read-only method of a store."""
        if request["method"] not in READS:
            raise ApplicationError(f"there is no {request['method']}", type="UsageError")
        return answered(self._driver, request)


def _has_not_begun(cause: BaseException | None) -> TypeGuard[ApplicationError]:
    """Return whether an attempt could not begin at a worker, which may change."""
    if not isinstance(cause, ApplicationError):
        return False
    return cause.type == NOT_BEGUN or cause.message == _UNDECODED


def answered(driver: WorkflowDriver, request: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of an execution's store to a request, or its error."""
    method, arguments, store = request["method"], request["arguments"], driver.store
    try:
        if method == "open_waits":
            filter, place, most = arguments
            every = placed(store.waits(limit=sys.maxsize).items, filter, tuple(place))
            answer: Any = _page([wait for _, wait in every[:most]], _packed_size)
        elif method == "waits":
            filter, after, most = arguments
            fitting = _page(store.waits(filter, after, most).items, _packed_size)
            answer = store.waits(filter, after, min(most, len(fitting)))
        elif method == "place":
            answer = driver.placing.queue
        elif method == "texts":
            answer = driver.texts
        elif method == "around":
            [unit] = arguments
            answer = _around(driver.execution.state, unit)
        elif method == "events":
            events = store.events(*arguments)
            page = _page(events, lambda event: len(event.payload))
            answer = store.first(driver.execution.id), page, len(page) < len(events)
        else:
            answer = getattr(store, method)(*arguments)
    except FlowEngineError as error:
        return {"error": error}
    return {"answer": answer}


def _packed_size(value: Any) -> int:
    return len(packed(value))


def _taken_over(given: list[Any]) -> tuple[Run, dict[str, Any]]:
    """Return an attempt that an earlier run has left at work, without its input, and where."""
    unit, attempt, step, address, where = given
    return Run(unit, attempt, step, address, None, None, None), where


def _has_arrived(error: ActivityError) -> bool:
    """Return whether a worker has received the activity that has failed.

    A worker sends the first heartbeat as soon as it has. The server ends one that no worker has
    begun immediately after its cancellation.
    """
    cause = error.cause
    if isinstance(cause, CancelledError):
        return error.started_event_id > 0
    if isinstance(cause, TimeoutError) and cause.type == TimeoutType.HEARTBEAT:
        return bool(cause.last_heartbeat_details)
    return True


def _around(state: State, unit: int) -> dict[str, Any]:
    """Return the parts of a state that rules and approvals of a unit's call refer to."""
    units = {unit: state["units"][unit]} if unit in state["units"] else {}
    parts = {"execution": state["execution"], "inputs": state["inputs"], "units": units}
    return {**parts, "grants": state.get("grants", {})}


def _page(items: Sequence[T], size_of: Callable[[T], int]) -> list[T]:
    """Return as many items as fit into a response, at least one."""
    size = 0
    page: list[T] = []
    for item in items:
        size += size_of(item)
        if page and size > _PAGE_BYTES:
            break
        page.append(item)
    return page


def _now() -> int:
    """Return the time of the workflow, in milliseconds."""
    return workflow.time_ns() // 1_000_000
