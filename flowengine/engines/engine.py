"""The public engine: everything that the command line does, for Python, sync and async.

    with Engine() as engine:
        result = engine.run(engine.load("hello.yaml"), {"name": "Ada"})

Calls that may drive an execution come twice: `run` for plain code, `run_async` for code on an event
loop. Calls that only read or write the store (`show`, `executions`, `waits`, `events`, ...) are
short and come once; use them from both.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from os import PathLike, fspath
from time import monotonic
from typing import TYPE_CHECKING, Any, Self, Unpack

from flowengine.engines.approvals import Answer, decide
from flowengine.engines.driver import Driver
from flowengine.engines.host import Host
from flowengine.engines.recovery import recover, take_hands
from flowengine.engines.results import (
    Answering,
    Decision,
    Difference,
    ExecutionInfo,
    ExecutionPage,
    Reason,
    Result,
    Sent,
    Update,
    UpgradeInfo,
    WaitInfo,
    WaitPage,
)
from flowengine.engines.seam import RandomIds, SystemClock
from flowengine.engines.views import result_of
from flowengine.errors import Conflict, InputError, NotFound, UsageError
from flowengine.journal.format import pack
from flowengine.settings import current_user, load_settings

if TYPE_CHECKING:
    from flowengine.engines.execution import Execution
    from flowengine.engines.flows import LoadedFlow
    from flowengine.engines.local import Local
    from flowengine.engines.seam import Clock, Ids
    from flowengine.engines.upgrading import Upgrading
    from flowengine.execution_environment import EnvironmentManager
    from flowengine.flow.building import Flow
    from flowengine.journal.store import Durability, Pruned, Store

SYNC_SECONDS = 0.1
"""How long an execution is driven without an event loop before other processes are listened to."""


class Engine:
    """Runs flows durably in this process; nothing has to be started beside it.

    A context manager in both worlds: `with Engine() as engine`, `async with Engine() as engine`.
    Leaving it stops what still runs - the processes and tasks of running steps are ended, the
    executions are saved and can be resumed - and closes the store.

    Args:
        store: Folder of the store (made if absent), an open `Store`, or None for one in memory.
            Default: `$FLOWENGINE_STORE`, else `.flowengine` in the current folder.
        durability: What a commit survives: `power` (a power cut), `process` (a killed process),
            `none`. Default: the host's settings, else `power`.
        workdir: Folder that the file tools of flows see as theirs. Default: the current one.
        user: Who acts, as `user:NAME`. Default: the login name.
        via: Through what, for the audit of decisions: `python`, `cli`, ...
        stay: Seconds ahead that `run` and its kin stay for waits for time. Pauses of `retry` and
            `loop.every` are always stayed for.
        ttl: Seconds after which an execution whose owner does not move may be taken over.
        runtime_resources: Objects for steps, by name, beside the environments that a flow declares.
            They are the caller's: nobody checks or closes them. One that has the name of an
            environment is a `UsageError` before anything starts.
        clock: Tells the time.
        ids: Makes ids.
    """

    def __init__(
        self,
        store: str | PathLike[str] | Store | None = "",
        *,
        durability: Durability | None = None,
        workdir: str | PathLike[str] | None = None,
        user: str | None = None,
        via: str = "python",
        stay: float = 60.0,
        ttl: float = 15.0,
        runtime_resources: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
    ) -> None:
        settings = load_settings(".flowengine")
        self.user = user or current_user()
        self._via = via
        self._host = Host(
            _open(store, durability or settings.durability or "power"),
            clock=clock or SystemClock(),
            ids=ids or RandomIds(),
            settings=settings,
            workdir=os.path.abspath(workdir or "."),
            stay=int(stay * 1000),
            ttl=int(ttl * 1000),
            resources=runtime_resources,
        )
        self._local: Local | None = None
        self._sent_out = False
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        import asyncio

        if self._local is not None:
            await self._local.close()
        await asyncio.to_thread(self._host.environments.close)  # it waits for what is closed
        self.close()

    @property
    def environments(self) -> EnvironmentManager:
        """The manager of the environments that its executions use."""
        return self._host.environments.manager

    def close(self) -> None:
        """Give back all leases and close the store; nothing happens the second time."""
        if not self._closed:
            self._closed = True
            self._host.environments.close()
            self._host.keeper.close()
            self._host.store.close()

    def leave(self) -> None:
        """Give back all leases, and leave the store open for a process that ends at once.

        Closing it would copy the store's log into its database, which costs two syncs and is done
        by whoever fills the log.
        """
        if not self._closed:
            self._closed = True
            self._host.environments.close()
            self._host.keeper.close()

    @property
    def store(self) -> Store:
        """The store, for what the engine does not offer."""
        return self._host.store

    # Flows

    def load(self, flow: Flow | str | PathLike[str]) -> LoadedFlow:
        """Read, check and compile a flow; that of an unchanged file comes from the store's cache.

        One with errors is a `FlowFileError` that holds all of them.

        Args:
            flow: The path of its file, or a flow that Python built.

        Returns:
            The flow.
        """
        from flowengine.engines.flows import load, load_cached

        if isinstance(flow, str | PathLike):
            return load_cached(self._host.store, fspath(flow))
        return load(flow)

    # Driving

    def run(
        self,
        flow: Flow | LoadedFlow | str | PathLike[str],
        inputs: Mapping[str, Any] | None = None,
        *,
        id: str | None = None,
        labels: Mapping[str, str] | None = None,
        execution_environments: Sequence[Mapping[str, Any]] = (),
    ) -> Result:
        """Start an execution and drive it until it ends or only waits.

        Args:
            flow: A flow that Python built or `load` gave, or the path of a file.
            inputs: By name; those with a default may be left out.
            id: Its id; the same id again goes on with the first execution of that id.
            labels: For lists.
            execution_environments: Specs of environments that this execution gets beside what its
                flow declares: `{"kind": "python", "resource_key": "sandbox"}`. Functions find them
                in `runtime_resources`. They are kept with the execution, whoever goes on with it.

        Returns:
            How it stands.
        """
        return self._drive(self._new(flow, inputs, id, labels, execution_environments))

    async def run_async(
        self,
        flow: Flow | LoadedFlow | str | PathLike[str],
        inputs: Mapping[str, Any] | None = None,
        *,
        id: str | None = None,
        labels: Mapping[str, str] | None = None,
        execution_environments: Sequence[Mapping[str, Any]] = (),
    ) -> Result:
        """Do as `run`, on the running event loop; many at once share commits."""
        execution = self._new(flow, inputs, id, labels, execution_environments)
        return await self._drive_async(execution)

    def start(
        self,
        flow: Flow | LoadedFlow | str | PathLike[str],
        inputs: Mapping[str, Any] | None = None,
        *,
        id: str | None = None,
        labels: Mapping[str, str] | None = None,
        execution_environments: Sequence[Mapping[str, Any]] = (),
    ) -> str:
        """Record a new execution without driving it; `resume` begins it, in any process.

        Args:
            flow: A flow that Python built or `load` gave, or the path of a file.
            inputs: By name.
            id: Its id; the same id again changes nothing.
            labels: For lists.
            execution_environments: Specs of environments that this execution gets beside what its
                flow declares: `{"kind": "python", "resource_key": "sandbox"}`. Functions find them
                in `runtime_resources`. They are kept with the execution, whoever goes on with it.

        Returns:
            Its id.
        """
        from flowengine.engines.beginning import record

        return record(
            self._host,
            self._flow(flow),
            inputs or {},
            id,
            labels or {},
            self.user,
            execution_environments,
        )

    def resume(self, execution: str, *, on_crash: str | None = None) -> Result:
        """Go on with an execution until it ends or only waits.

        Args:
            execution: Its id, or any unambiguous beginning of it.
            on_crash: `retry` or `fail` answers all questions about uncertain steps at once.

        Returns:
            How it stands. `Conflict` if another process holds it.
        """
        result = self._drive(self._loaded(execution))
        while on_crash and self._answer_questions(result, on_crash):
            result = self._drive(self._loaded(result.execution))
        return result

    async def resume_async(self, execution: str, *, on_crash: str | None = None) -> Result:
        """Do as `resume`, on the running event loop; one that is driven here is awaited."""
        result = await self._drive_async(self._loaded(execution))
        while on_crash and self._answer_questions(result, on_crash):
            result = await self._drive_async(self._loaded(result.execution))
        return result

    def decide(self, wait: str, choice: str, **answer: Unpack[Answering]) -> Decision:
        """Decide on an approval, or answer a question (`retry`, `result` with `value`, `fail`).

        The decision is recorded first; then the execution goes on in this process, if no other one
        holds it. The same decision again is fine; another one is a `Conflict` that tells who
        decided what and when.

        Args:
            wait: Id of the wait, or any unambiguous beginning of it.
            choice: Id of the choice.
            **answer: What comes with it, see `Answering`.

        Returns:
            The decision that stands.
        """
        decision = self._decided(wait, choice, answer)
        return decision._replace(result=self._go_on(decision.execution, answer))

    async def decide_async(self, wait: str, choice: str, **answer: Unpack[Answering]) -> Decision:
        """Do as `decide`, on the running event loop."""
        decision = self._decided(wait, choice, answer)
        return decision._replace(result=await self._go_on_async(decision.execution, answer))

    def approve(self, wait: str, **answer: Unpack[Answering]) -> Decision:
        """Decide with the choice that counts as approval; as `decide`."""
        return self.decide(wait, self._choice(wait, "approve"), **answer)

    async def approve_async(self, wait: str, **answer: Unpack[Answering]) -> Decision:
        """Do as `approve`, on the running event loop."""
        return await self.decide_async(wait, self._choice(wait, "approve"), **answer)

    def reject(self, wait: str, **answer: Unpack[Answering]) -> Decision:
        """Decide with the choice that counts as rejection; as `decide`."""
        return self.decide(wait, self._choice(wait, "reject"), **answer)

    async def reject_async(self, wait: str, **answer: Unpack[Answering]) -> Decision:
        """Do as `reject`, on the running event loop."""
        return await self.decide_async(wait, self._choice(wait, "reject"), **answer)

    def continue_with(self, wait: str, answer: Mapping[str, Any]) -> Decision:
        """Go on with an approval by an answer, as a handler of approvals gives it.

        Args:
            wait: Id of the wait, or any unambiguous beginning of it; for a handler the id of its
                question.
            answer: `{"approved": True}` or `{"approved": False}`, perhaps with a `reason`.

        Returns:
            The decision that stands; as `approve` and `reject`.
        """
        choice, said = self._read_answer(wait, answer)
        return self.decide(wait, choice, **said)

    async def continue_with_async(self, wait: str, answer: Mapping[str, Any]) -> Decision:
        """Do as `continue_with`, on the running event loop."""
        choice, said = self._read_answer(wait, answer)
        return await self.decide_async(wait, choice, **said)

    def claim(self, wait: str, *, by: str | None = None) -> WaitInfo:
        """Claim an approval that says `claim: true`: from then on nobody else decides on it.

        It is on disk when this returns. The first of two who claim it at once has it; the other is
        told by a `Conflict`. Claiming again what one has is fine.

        Args:
            wait: Id of the wait, or any unambiguous beginning of it.
            by: Who claims it, as `user:NAME`. Default: the engine's user.

        Returns:
            The wait as it stands then.
        """
        return self._handed(wait, "claimed", by, {})

    def release(self, wait: str, *, by: str | None = None) -> WaitInfo:
        """Give back an approval that was claimed; only who claimed it may. As `claim`."""
        return self._handed(wait, "released", by, {})

    def delegate(
        self, wait: str, to: str, *, comment: str | None = None, by: str | None = None
    ) -> WaitInfo:
        """Hand an approval on to another user, who may decide then in place of who handed it on.

        Who it was asked of besides may still decide. What was claimed is claimed by the other then.

        Args:
            wait: Id of the wait, or any unambiguous beginning of it.
            to: The other, as `user:NAME`.
            comment: Why; kept with it.
            by: Who hands it on. Default: the engine's user.

        Returns:
            The wait as it stands then.
        """
        return self._handed(wait, "delegated", by, {"to": to, "comment": comment})

    def signal(
        self,
        name: str,
        data: Any = None,
        *,
        execution: str | None = None,
        key: str | None = None,
        id: str | None = None,
        by: str | None = None,
        flow: LoadedFlow | str | PathLike[str] | None = None,
        resume: bool = True,
    ) -> Sent:
        """Send a signal to an execution, or to the open one that has the key.

        Where none has the key, the signal begins an execution of the flow that says so in `start`
        and is registered. It is stored first; then the execution goes on here, if no other process
        holds it.

        Args:
            name: Of a signal that the flow declares.
            data: Must fit the declared schema.
            execution: Id, or any unambiguous beginning of it.
            key: In place of `execution`.
            id: A second signal of the same id is not stored.
            by: Who sends it, as `user:NAME`. Default: the engine's user.
            flow: A flow, or the path of its file, that begins an execution if no open one has the
                key; it is registered first. Default: the one registered flow that says so.
            resume: Go on with the execution.

        Returns:
            To which execution it went.
        """
        sent = self._send_signal(name, data, execution, key, id, by, flow)
        return sent._replace(result=self._go_on(sent.execution, {"resume": resume}))

    async def signal_async(
        self,
        name: str,
        data: Any = None,
        *,
        execution: str | None = None,
        key: str | None = None,
        id: str | None = None,
        by: str | None = None,
        flow: LoadedFlow | str | PathLike[str] | None = None,
        resume: bool = True,
    ) -> Sent:
        """Do as `signal`, on the running event loop."""
        sent = self._send_signal(name, data, execution, key, id, by, flow)
        return sent._replace(result=await self._go_on_async(sent.execution, {"resume": resume}))

    def register(self, flow: LoadedFlow | str | PathLike[str]) -> list[str]:
        """Let messages begin executions of a flow, as its `start` says.

        What was registered before for a flow of the same `id` does not hold any more.

        Args:
            flow: A flow, or the path of its file.

        Returns:
            The signals that begin an execution where no open one has the message's key; empty if
            the flow has no `start`.
        """
        from flowengine.engines.signals import register

        return register(self._host, self._flow(flow))

    def cancel(
        self, execution: str, *, reason: str = "", now: bool = False, by: str | None = None
    ) -> Result:
        """Cancel an execution; a process that holds it does it itself.

        Args:
            execution: Its id, or any unambiguous beginning of it.
            reason: For the history.
            now: Skip `finally` and compensation.
            by: Who asks. Default: the engine's user.

        Returns:
            How it stands; still open if another process is at it. `Conflict` if it has ended.
        """
        id = self._send_cancel(execution, reason, now, by)
        return self._go_on(id, {}) or self.result(id)

    async def cancel_async(
        self, execution: str, *, reason: str = "", now: bool = False, by: str | None = None
    ) -> Result:
        """Do as `cancel`, on the running event loop."""
        id = self._send_cancel(execution, reason, now, by)
        return await self._go_on_async(id, {}) or self.result(id)

    def retry(self, execution: str, *, step: str | None = None, by: str | None = None) -> Result:
        """Start a failed execution again from what failed.

        Args:
            execution: Its id, or any unambiguous beginning of it.
            step: Address of the step to start from. Default: the one that failed.
            by: Who asks. Default: the engine's user.

        Returns:
            How it stands then.
        """
        return self._drive(self._retried(execution, step, by))

    async def retry_async(
        self, execution: str, *, step: str | None = None, by: str | None = None
    ) -> Result:
        """Do as `retry`, on the running event loop."""
        return await self._drive_async(self._retried(execution, step, by))

    def fork(
        self,
        execution: str,
        *,
        at: str,
        set: Mapping[str, Any] | None = None,
        flow: Flow | LoadedFlow | str | PathLike[str] | None = None,
        id: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Result:
        """Start a new execution from the point where a step of an old one began.

        Args:
            execution: The old one's id, or any unambiguous beginning of it; it is not changed.
            at: Address of the step.
            set: State to write before it begins.
            flow: A changed flow; all that comes before the point must be as it was.
            id: Id of the new execution.
            labels: For lists.

        Returns:
            How the new execution stands, after driving it.
        """
        return self._drive(self._forked(execution, at, set, flow, id, labels))

    async def fork_async(
        self,
        execution: str,
        *,
        at: str,
        set: Mapping[str, Any] | None = None,
        flow: Flow | LoadedFlow | str | PathLike[str] | None = None,
        id: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Result:
        """Do as `fork`, on the running event loop."""
        return await self._drive_async(self._forked(execution, at, set, flow, id, labels))

    def upgrade(
        self,
        flow: Flow | LoadedFlow | str | PathLike[str],
        *executions: str,
        mapping: Mapping[str, Any] | None = None,
        check: bool = False,
        by: str | None = None,
    ) -> list[UpgradeInfo]:
        """Move open executions to another form of their flow, and go on with those that can.

        Each is moved as a whole or not at all; one that a living process holds is left alone.

        Args:
            flow: The form to move them to, or the path of its file.
            *executions: Ids, or any unambiguous beginnings of them. Default: all open ones of the
                flow that do not run this form already.
            mapping: What is called otherwise in it: `steps`, `state`, `signals`, `inputs` (old name
                → new name) and `values` (`inputs` and `state`: new name → value).
            check: Only say what would become of each.
            by: Who moves them. Default: the engine's user.

        Returns:
            What became of each, oldest first.
        """
        upgrading = self._upgrading(flow, executions, mapping, by)
        if check:
            return [upgrading.look(record) for record in upgrading.records]
        infos = []
        for record in upgrading.records:
            info, execution = upgrading.take(record)
            while execution is not None:
                with suppress(Conflict):  # taken over, or decided in the same moment
                    self._drive(execution)
                execution = None
                if not upgrading.settle(info):
                    info, execution = upgrading.take(record)
            infos.append(info)
        return infos

    async def upgrade_async(
        self,
        flow: Flow | LoadedFlow | str | PathLike[str],
        *executions: str,
        mapping: Mapping[str, Any] | None = None,
        check: bool = False,
        by: str | None = None,
    ) -> list[UpgradeInfo]:
        """Do as `upgrade`, on the running event loop."""
        upgrading = self._upgrading(flow, executions, mapping, by)
        if check:
            return [upgrading.look(record) for record in upgrading.records]
        infos = []
        for record in upgrading.records:
            info, execution = upgrading.take(record)
            while execution is not None:
                with suppress(Conflict):
                    await self._drive_async(execution)
                execution = None
                if not upgrading.settle(info):
                    info, execution = upgrading.take(record)
            infos.append(info)
        return infos

    # Looking

    def find(self, beginning: str) -> str:
        """Return the id of the one execution whose id begins so."""
        return self._host.store.find_execution(beginning)

    def result(self, execution: str) -> Result:
        """Return how an execution stands, without driving it.

        Args:
            execution: Its id, or any unambiguous beginning of it.

        Returns:
            As `run` returns it.
        """
        return result_of(self._read(execution))

    def show(self, execution: str, *, step: str | None = None) -> ExecutionInfo:
        """Return all about an execution, read from its journal.

        Args:
            execution: Its id, or any unambiguous beginning of it.
            step: Address of a step; then `steps` holds only that, with its input and each attempt.

        Returns:
            The keys of `ExecutionInfo`.
        """
        from flowengine.engines.history import show

        return show(self._host, self.find(execution), step)

    def executions(
        self,
        *,
        flow: str | None = None,
        status: str | None = None,
        labels: Mapping[str, str] | None = None,
        since: int | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> ExecutionPage:
        """Return a page of executions, newest first; a page costs the same however many there are.

        Args:
            flow: Id of the flow.
            status: Of the executions.
            labels: All of them must be there.
            since: Created at this time or later, in milliseconds since 1970.
            limit: Size of the page.
            after: `next` of the page before.

        Returns:
            The page.
        """
        from flowengine.engines.views import execution_view
        from flowengine.journal.store import ExecutionFilter

        wanted = ExecutionFilter(flow, status, labels or {}, since)
        page = self._host.store.executions(wanted, after, limit)
        return ExecutionPage([execution_view(record) for record in page.items], page.next)

    def waits(
        self,
        *,
        flow: str | None = None,
        execution: str | None = None,
        assignee: str | None = None,
        batch: str | None = None,
        status: str = "pending",
        kinds: Iterable[str] = (),
        since: int | None = None,
        before: int | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> WaitPage:
        """Return a page of waits, oldest first.

        Args:
            flow: Id of the flow.
            execution: Id of an execution, or any unambiguous beginning of it.
            assignee: `user:NAME`: those that the user may answer, by name or group.
            batch: Their `batch`.
            status: `pending`, `closed` or `all`.
            kinds: See `WaitInfo.kind`; empty: all.
            since: Opened at this time or later, in milliseconds since 1970.
            before: Opened at this time or earlier.
            limit: Size of the page.
            after: `next` of the page before.

        Returns:
            The page.
        """
        from flowengine.engines.lists import waits

        wanted: dict[str, Any] = {
            "flow": flow,
            "execution": None if execution is None else self.find(execution),
            "batch": batch,
            "state": status,
            "kinds": tuple(kinds),
            "since": since,
            "before": before,
        }
        return waits(self._host, wanted, assignee, limit, after)

    def wait(self, wait: str) -> WaitInfo:
        """Return one wait, open or closed, by any unambiguous beginning of its id."""
        from flowengine.engines.handing import standing
        from flowengine.engines.lists import stored_wait_view

        store = self._host.store
        return stored_wait_view(standing(store, store.find_wait(wait)))

    def events(
        self, execution: str, *, since: int = 0, follow: bool = False
    ) -> Iterator[dict[str, Any]]:
        """Return the entries of a journal: `{seq, at, type, address?, ...}` each.

        Args:
            execution: Its id, or any unambiguous beginning of it.
            since: Number of the first one wanted.
            follow: Go on with what is written meanwhile, until the execution has ended.

        Returns:
            An iterator that reads as it goes.
        """
        from flowengine.engines.history import entries

        return entries(self._host, self.find(execution), since, follow=follow)

    def why(self, execution: str, *, waits: bool = True) -> list[Reason]:
        """Return for each live branch what it waits for, since when, and what would wake it.

        Args:
            execution: Its id, or any unambiguous beginning of it.
            waits: Tell of the open waits too, which its result lists already.

        Returns:
            One reason for each.
        """
        from flowengine.engines.reasons import reasons

        return reasons(self._host, self._read(execution), waits=waits)

    def diff(self, left: str, right: str) -> Difference:
        """Compare two executions: where their histories part, and what differs from there on.

        Histories are aligned by address and attempt; ids and times count as the same.

        Args:
            left: Id of one, or any unambiguous beginning of it.
            right: Id of the other.

        Returns:
            The keys of `Difference`.
        """
        from flowengine.engines.diff import diff

        return diff(self._host, self.find(left), self.find(right))

    def prune(self, *, older: float = 0.0, status: Iterable[str] = ()) -> Pruned:
        """Delete executions that have ended, with all that only they refer to.

        Args:
            older: Only those that ended so many seconds ago or earlier.
            status: Only those with one of these statuses; empty: all ends.

        Returns:
            How much was deleted.
        """
        from flowengine.journal.store import ENDED

        before = self._host.clock.now() - int(older * 1000)
        return self._host.store.prune(before, tuple(status) or ENDED)

    # Being told

    def subscribe(self, callback: Callable[[Update], None]) -> Callable[[], None]:
        """Let a callback be told of every update of the executions that are driven here.

        It is called after what it tells is on disk; texts that steps print may come from the
        thread of the step. What it raises is dropped.

        Args:
            callback: Takes an `Update`.

        Returns:
            Call it to end the subscription.
        """
        subscribers = self._host.subscribers
        subscribers.append(callback)
        return lambda: subscribers.remove(callback) if callback in subscribers else None

    async def updates(self, execution: str | None = None) -> AsyncGenerator[Update, None]:
        """Iterate over updates as they come.

        Args:
            execution: Full id of one execution: then the iterator ends when that ends or only
                waits. Default: all that are driven here, without end.

        Yields:
            The updates.
        """
        import asyncio

        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[Update] = asyncio.Queue()

        def tell(update: Update) -> None:
            loop.call_soon_threadsafe(queue.put_nowait, update)

        end = self.subscribe(tell)
        try:
            while True:
                update = await queue.get()
                if execution in (None, update.execution):
                    yield update
                    if execution is not None and update.kind == "end":
                        return
        finally:
            end()

    # Inside

    def _flow(self, flow: Flow | LoadedFlow | str | PathLike[str]) -> LoadedFlow:
        from flowengine.engines.flows import LoadedFlow

        return flow if isinstance(flow, LoadedFlow) else self.load(flow)

    def _new(
        self,
        flow: Flow | LoadedFlow | str | PathLike[str],
        inputs: Mapping[str, Any] | None,
        id: str | None,
        labels: Mapping[str, str] | None,
        environments: Sequence[Mapping[str, Any]] = (),
    ) -> Execution:
        """Return a new execution, or the one that has this id already."""
        from flowengine.engines.beginning import begin, exists

        _refuse_while_imported()
        if id is not None and exists(self._host, id):
            return self._loaded(id)
        loaded = self._flow(flow)
        return begin(self._host, loaded, inputs or {}, id, labels or {}, self.user, environments)

    def _loaded(self, execution: str) -> Execution:
        """Return an execution with its lease, and what happened meanwhile in its queue."""
        _refuse_while_imported()
        host, id = self._host, self.find(execution)
        if self._local is not None and id in self._local.executions:
            return self._local.executions[id]
        epoch = host.keeper.acquire(id)
        try:
            loaded = host.store.load(id)
            found = host.execution(id, host.programs.by_hash(loaded.record.hash), epoch)
            found.load(loaded)
            recover(found, host.store.inbox(id), host.clock.now())
        except BaseException:
            host.store.release([(id, epoch)])
            raise
        return found

    def _read(self, execution: str) -> Execution:
        """Return an execution as it stands in the store, to be looked at only."""
        loaded = self._host.store.load(self.find(execution))
        program = self._host.programs.by_hash(loaded.record.hash)
        found = self._host.execution(loaded.record.id, program, 0)
        found.load(loaded)
        return found

    def _drive(self, execution: Execution) -> Result:
        """Drive an execution, and then those to which it has sent something."""
        _refuse_on_loop()
        self._send_out()
        result = self._drive_one(execution)
        woken = self._host.woken
        if not woken:
            return result
        while woken:
            other = woken.popitem()[0]
            with suppress(Conflict, NotFound):  # who holds it reads it
                self._drive_one(self._loaded(other))
        return self.result(execution.id)

    def _send_out(self) -> None:
        """Send on its way what was still to be sent when a process died; once is enough."""
        if not self._sent_out:
            self._sent_out = True
            if self.store.outbox():
                from flowengine.engines.outgoing import deliver

                deliver(self._host)

    def _drive_one(self, execution: Execution) -> Result:
        """Drive an execution without an event loop, as far as that goes."""
        driver = Driver(self._host)
        driver.add(execution)
        driver.look(execution)
        until = monotonic() + SYNC_SECONDS
        try:
            while driver.ready and not driver.left and monotonic() <= until:
                driver.turn()
        except BaseException:
            driver.release(execution)
            raise
        if execution.error is None and driver.executions:
            self._drive_on_loop(execution, driver)
        if execution.error is not None:
            raise execution.error
        return result_of(execution)

    def _drive_on_loop(self, execution: Execution, driver: Driver) -> None:
        from flowengine.engines.local import drive_alone

        execution.queued = False
        drive_alone(self._host, execution, [command for _, command in driver.left])

    async def _drive_async(self, execution: Execution) -> Result:
        """Drive an execution on the running event loop, and those to which it sends something."""
        from flowengine.engines.local import Local

        if self._local is None or not self._local.is_here():
            self._local = Local(self._host)
        self._send_out()
        await self._local.drive(execution)
        woken = self._host.woken
        if not woken:
            return result_of(execution)
        while woken:
            other = woken.popitem()[0]
            with suppress(Conflict, NotFound):  # who holds it reads it
                await self._local.drive(self._loaded(other))
        return self.result(execution.id)

    def _go_on(self, execution: str, answer: Mapping[str, Any]) -> Result | None:
        """Go on with an execution that was sent something, if nobody else does."""
        if not answer.get("resume", True):
            return None
        try:
            return self.resume(execution)
        except Conflict:
            return None

    async def _go_on_async(self, execution: str, answer: Mapping[str, Any]) -> Result | None:
        """As `_go_on`; an execution that is driven here takes it and is not waited for."""
        if self._local is not None and execution in self._local.executions:
            self._local.read_inbox(self._local.executions[execution])
            return None
        if not answer.get("resume", True):
            return None
        try:
            return await self.resume_async(execution)
        except Conflict:
            return None

    def _decided(self, wait: str, choice: str, answer: Answering) -> Decision:
        """Record a decision."""
        host = self._host
        by, via = self._who(answer.get("by"))
        return decide(
            host.store,
            host.settings,
            host.store.find_wait(wait),
            Answer(
                choice,
                by,
                via,
                answer.get("form"),
                answer.get("edits"),
                answer.get("comment"),
                answer.get("attach", ()),
                answer.get("value"),
            ),
            host.clock.now(),
        )

    def _who(self, by: str | None) -> tuple[str, str]:
        """Return who acts and through what, for the history."""
        by = by or self.user
        return by, self._via if by == self.user else f"{self._via}, entered by {self.user}"

    def _handed(
        self, wait: str, what: str, by: str | None, more: Mapping[str, str | None]
    ) -> WaitInfo:
        """Record that an approval changes hands, and journal it unless another process does."""
        from flowengine.engines.handing import hand
        from flowengine.engines.lists import stored_wait_view

        host = self._host
        who, via = self._who(by)
        event = {"type": what, "at": host.clock.now(), "by": who, "via": via, **more}
        after = hand(host.store, host.settings, host.store.find_wait(wait), event)
        self._take_inbox(after.execution)
        return stored_wait_view(after)

    def _take_inbox(self, execution: str) -> None:
        """Let an execution journal what people did with its approvals; nothing of it is driven."""
        host = self._host
        if self._local is not None and execution in self._local.executions:
            self._local.read_inbox(self._local.executions[execution])
            return
        try:
            epoch = host.keeper.acquire(execution)
        except Conflict:
            return  # who holds it takes it
        try:
            loaded = host.store.load(execution)
            program = host.programs.by_hash(loaded.record.hash)
            found = host.execution(execution, program, epoch)
            found.load(loaded)
            take_hands(found, host.store.inbox(execution), host.clock.now())
            Driver(host).commit(found)
        except Conflict:
            pass  # somebody took it meanwhile; it is in the inbox
        finally:
            host.store.release([(execution, epoch)])

    def _upgrading(
        self,
        flow: Flow | LoadedFlow | str | PathLike[str],
        executions: Iterable[str],
        mapping: Mapping[str, Any] | None,
        by: str | None,
    ) -> Upgrading:
        from flowengine.engines.upgrading import Upgrading

        ids = list(dict.fromkeys(map(self.find, executions)))
        return Upgrading(self._host, self._flow(flow), ids, mapping or {}, self._who(by))

    def _read_answer(self, wait: str, answer: Mapping[str, Any]) -> tuple[str, Answering]:
        """Return the choice that an answer is, and what comes with it.

        Raises:
            InputError: It is none.
        """
        approved, reason = answer.get("approved"), answer.get("reason")
        if not isinstance(approved, bool):
            raise InputError("an answer says 'approved' with true or false", field="approved")
        if not isinstance(reason, str | None) or answer.keys() - {"approved", "reason"}:
            raise InputError("an answer has 'approved', and perhaps a 'reason' in words")
        said: Answering = {"comment": reason} if reason else {}
        return self._choice(wait, "approve" if approved else "reject"), said

    def _choice(self, wait: str, counts_as: str) -> str:
        """Return the one choice of a wait that counts so.

        Raises:
            InputError: There is none, or there are several.
        """
        choices = self.wait(wait).get("choices", [])
        found: list[str] = [c["id"] for c in choices if c.get("counts_as") == counts_as]
        if len(found) == 1:
            return found[0]
        known = ", ".join(choice["id"] for choice in choices) or "none"
        how_many = "several choices" if found else "no choice"
        raise InputError(
            f"{how_many} of {wait} count as {counts_as}",
            field="choice",
            hint=f"decide with one of: {known}",
        )

    def _answer_questions(self, result: Result, choice: str) -> bool:
        """Answer all open questions about uncertain steps.

        Args:
            result: How the execution stands.
            choice: `retry` or `fail`.

        Returns:
            Whether there were any.

        Raises:
            UsageError: The choice answers no question.
        """
        if choice not in ("retry", "fail"):
            raise UsageError(f"on_crash is {choice!r}", hint="it is retry or fail")
        questions = [wait for wait in result.waits if wait.get("ran") == "maybe"]
        for wait in questions:
            self._decided(wait["id"], choice, {})
        return bool(questions)

    def _send_signal(
        self,
        name: str,
        data: Any,
        execution: str | None,
        key: str | None,
        id: str | None,
        by: str | None,
        flow: LoadedFlow | str | PathLike[str] | None,
    ) -> Sent:
        from flowengine.engines.signals import register, send_signal

        found = None if execution is None else self.find(execution)
        host, begun = self._host, None
        if flow is not None:
            loaded = self._flow(flow)
            register(host, loaded)
            begun = loaded.id
        return send_signal(host, name, data, found, key, id, by or self.user, begun)

    def _send_cancel(self, execution: str, reason: str, now: bool, by: str | None) -> str:
        """Record a request to cancel, and return the full id of the execution."""
        host, id = self._host, self.find(execution)
        at = host.clock.now()
        event = {"type": "cancel", "at": at, "reason": reason, "by": by or self.user, "now": now}
        host.store.send(id, pack(event), at, host.ids.message())
        return id

    def _retried(self, execution: str, step: str | None, by: str | None) -> Execution:
        """Return a failed execution that is about to start again."""
        from flowengine.engines.retrying import retry

        found = self._loaded(execution)
        try:
            retry(self._host, found, step, by or self.user)
        except BaseException:
            self._host.store.release([(found.id, found.epoch)])
            raise
        return found

    def _forked(
        self,
        execution: str,
        at: str,
        set: Mapping[str, Any] | None,
        flow: Flow | LoadedFlow | str | PathLike[str] | None,
        id: str | None,
        labels: Mapping[str, str] | None,
    ) -> Execution:
        from flowengine.engines.fork import fork

        changed = None if flow is None else self._flow(flow)
        old = self.find(execution)
        return fork(self._host, old, at, set or {}, changed, id, labels, self.user)


def _refuse_while_imported() -> None:
    """Refuse to drive an execution from a module that is imported for a step of one."""
    modules = sys.modules.get("flowengine.python_modules")  # else it imports nothing
    names = modules.importing() if modules is not None else []
    if modules is not None and names:
        raise UsageError(
            f"the module {modules.public_name(names[-1])!r} runs a flow while it is imported for a "
            "step of one",
            hint="put what runs it under: if __name__ == '__main__':",
        )


def _open(store: str | PathLike[str] | Store | None, durability: Durability) -> Store:
    """Return a store: the one given, one in a folder, or one in memory."""
    if store is None:
        from flowengine.journal.memory import MemoryStore

        return MemoryStore()
    if isinstance(store, str | PathLike):
        from flowengine.journal.sqlite import SqliteStore

        folder = fspath(store) or os.environ.get("FLOWENGINE_STORE") or ".flowengine"
        return SqliteStore(os.path.join(folder, "flowengine.db"), durability)
    return store


def _refuse_on_loop() -> None:
    """Refuse to block an event loop that runs in this thread.

    Raises:
        UsageError: One does.
    """
    asyncio = sys.modules.get("asyncio")
    if asyncio is not None and asyncio._get_running_loop() is not None:
        raise UsageError(
            "an event loop runs in this thread, which this call would block",
            hint="await the call of the same name that ends in _async",
        )
