"""The public engine: everything that the command line does, for Python, sync and async.

    with Engine() as engine:
        result = engine.run(engine.load("hello.yaml"), {"name": "Ada"})

Calls that may drive an execution come twice: `run` for plain code, `run_async` for code on an event
loop. Calls that only read or write the store (`show`, `executions`, `waits`, `events`, ...) are
short and come once; use them from both.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from os import PathLike
from typing import TYPE_CHECKING, Any, Self, Unpack

from flowengine.engines.actors import Actor
from flowengine.engines.flows import as_loaded
from flowengine.engines.host import Host, open_store
from flowengine.engines.reading import Reader
from flowengine.engines.results import (
    Answering,
    Decision,
    Result,
    Sent,
    UpgradeInfo,
    WaitInfo,
)
from flowengine.engines.running.driving import Driving
from flowengine.engines.seam import RandomIds, SystemClock
from flowengine.errors import Conflict, NotAllowed
from flowengine.settings import current_user, load_settings
from flowengine.store_folder import project_folder

if TYPE_CHECKING:
    from flowengine.engines.executions.execution import Execution
    from flowengine.engines.flows import LoadedFlow
    from flowengine.engines.seam import Clock, Ids
    from flowengine.engines.starting.beginning import Starting
    from flowengine.execution_environment import EnvironmentManager
    from flowengine.flow.building import Flow
    from flowengine.journal.records import Pruned
    from flowengine.journal.store import Durability, Store


class Engine(Reader):
    """Runs flows durably in this process; nothing has to be started beside it.

    A context manager in both worlds: `with Engine() as engine`, `async with Engine() as engine`.
    Leaving it stops what still runs - the processes and tasks of running steps are ended, the
    executions are saved and can be resumed - and closes the store.

    Args:
        store: Folder of the store (made if absent), an open `Store`, or None for one in memory.
            Default: `$FLOWENGINE_STORE`, else the nearest `.flowengine`: in the current folder or
            one above it. If there is none, it is made in the current folder.
        durability: What a commit survives: `power` (a power cut), `process` (a killed process),
            `none`. Default: the host's settings, else `power`.
        workdir: Folder that the file tools see as theirs of executions that begin here, whoever
            goes on with them. Default: the current one.
        user: Who acts, as `user:NAME`. Default: who runs the process, by the system's word. A
            service says whose credentials it has checked.
        via: Through what, for the audit of decisions: `python`, `cli`, ...
        stay: Seconds ahead that `run` and its kin stay for waits for time. Pauses of `retry` and
            `loop.every` are always stayed for.
        ttl: Seconds after which an execution whose owner does not move may be taken over.
        runtime_resources: Objects for the steps of all executions, by name, beside the environments
            that a flow declares; `run` takes those of one execution. They are the caller's: nobody
            checks or closes them. One that has the name of an environment is a `UsageError` before
            anything starts.
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
        settings = load_settings(project_folder())
        self.user = user or current_user()
        self._via = via
        host = Host(
            open_store(store, durability or settings.durability or "power"),
            clock=clock or SystemClock(),
            ids=ids or RandomIds(),
            settings=settings,
            workdir=os.path.abspath(workdir or "."),
            stay=int(stay * 1000),
            ttl=int(ttl * 1000),
            resources=runtime_resources,
        )
        super().__init__(host)
        self._driving = Driving(host)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        from flowengine.sdk.threads import on_thread

        await self._driving.close()
        await on_thread(self._host.close_environments)  # it waits for what is closed
        self.close()

    @property
    def environments(self) -> EnvironmentManager:
        """The manager of the environments that its executions use."""
        return self._host.environments.manager

    def close(self) -> None:
        """Give back all leases and close the store; nothing happens the second time."""
        self._host.close()

    def leave(self) -> None:
        """Give back all leases, and leave the store open for a process that ends at once.

        Closing it would copy the store's log into its database, which costs two syncs and is done
        by whoever fills the log.
        """
        self._host.close(store=False)

    # Flows

    def load(self, flow: Flow | str | PathLike[str]) -> LoadedFlow:
        """Read, check and compile a flow; that of an unchanged file comes from the store's cache.

        One with errors is a `FlowFileError` that holds all of them.

        Args:
            flow: The path of its file, or a flow that Python built.

        Returns:
            The flow.
        """
        return as_loaded(self._host.store, flow)

    # Driving

    def run(
        self,
        flow: Flow | LoadedFlow | str | PathLike[str],
        inputs: Mapping[str, Any] | None = None,
        *,
        id: str | None = None,
        labels: Mapping[str, str] | None = None,
        execution_environments: Sequence[Mapping[str, Any]] = (),
        runtime_resources: Mapping[str, Any] | None = None,
    ) -> Result:
        """Start an execution and drive it until it ends or only waits.

        Args:
            flow: A flow that Python built or `load` gave, or the path of a file.
            inputs: By name; those with a default may be left out.
            id: Its id. The same id with the same flow and inputs continues the first execution;
                with another flow or other inputs it is a `Conflict`.
            labels: For lists.
            execution_environments: Specs of environments that this execution gets beside what its
                flow declares: `{"kind": "python", "resource_key": "sandbox"}`. Functions find them
                in `runtime_resources`. They are kept with the execution, whoever goes on with it.
            runtime_resources: Objects for its steps, by name, beside those of the engine. They are
                the caller's: nobody checks, saves or closes them. This engine has them until the
                execution has ended; another one needs them at `resume`.

        Returns:
            How it stands.
        """
        starting = self._starting(
            flow, inputs, id, labels, execution_environments, runtime_resources
        )
        return self._driving.drive(self._driving.new(starting))

    async def run_async(
        self,
        flow: Flow | LoadedFlow | str | PathLike[str],
        inputs: Mapping[str, Any] | None = None,
        *,
        id: str | None = None,
        labels: Mapping[str, str] | None = None,
        execution_environments: Sequence[Mapping[str, Any]] = (),
        runtime_resources: Mapping[str, Any] | None = None,
    ) -> Result:
        """Do as `run`, on the running event loop; many at once share commits."""
        starting = self._starting(
            flow, inputs, id, labels, execution_environments, runtime_resources
        )
        return await self._driving.drive_async(self._driving.new(starting))

    def start(
        self,
        flow: Flow | LoadedFlow | str | PathLike[str],
        inputs: Mapping[str, Any] | None = None,
        *,
        id: str | None = None,
        labels: Mapping[str, str] | None = None,
        execution_environments: Sequence[Mapping[str, Any]] = (),
        runtime_resources: Mapping[str, Any] | None = None,
    ) -> str:
        """Record a new execution without driving it; `resume` begins it, in any process.

        Args:
            flow: A flow that Python built or `load` gave, or the path of a file.
            inputs: By name.
            id: Its id. The same id with the same flow and inputs changes nothing; else it is a
                `Conflict`.
            labels: For lists.
            execution_environments: As for `run`.
            runtime_resources: As for `run`.

        Returns:
            Its id.
        """
        from flowengine.engines.starting.beginning import record

        starting = self._starting(
            flow, inputs, id, labels, execution_environments, runtime_resources
        )
        return record(self._host, starting)

    def resume(
        self,
        execution: str,
        *,
        on_crash: str | None = None,
        runtime_resources: Mapping[str, Any] | None = None,
    ) -> Result:
        """Go on with an execution until it ends or only waits.

        Args:
            execution: Its id, or any unambiguous beginning of it.
            on_crash: `retry` or `fail` answers all questions about uncertain steps at once.
            runtime_resources: As for `run`; needed where another process gave them.

        Returns:
            How it stands. `Conflict` if another process holds it.
        """
        result = self._driving.drive(self._driving.loaded(execution, runtime_resources))
        while on_crash and self._answer_questions(result, on_crash):
            result = self._driving.drive(self._driving.loaded(result.execution))
        return result

    async def resume_async(
        self,
        execution: str,
        *,
        on_crash: str | None = None,
        runtime_resources: Mapping[str, Any] | None = None,
    ) -> Result:
        """Do as `resume`, on the running event loop; one that is driven here is awaited."""
        loaded = self._driving.loaded(execution, runtime_resources)
        result = await self._driving.drive_async(loaded)
        while on_crash and self._answer_questions(result, on_crash):
            result = await self._driving.drive_async(self._driving.loaded(result.execution))
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
        decision, resume = self._record_decision(wait, choice, answer)
        result = self._driving.go_on(decision.execution, resume=resume)
        return decision._replace(result=result)

    async def decide_async(self, wait: str, choice: str, **answer: Unpack[Answering]) -> Decision:
        """Do as `decide`, on the running event loop."""
        decision, resume = self._record_decision(wait, choice, answer)
        result = await self._driving.go_on_async(decision.execution, resume=resume)
        return decision._replace(result=result)

    def approve(self, wait: str, **answer: Unpack[Answering]) -> Decision:
        """Decide with the choice that counts as approval; as `decide`."""
        return self.decide(wait, self._choice_of(wait, "approve"), **answer)

    async def approve_async(self, wait: str, **answer: Unpack[Answering]) -> Decision:
        """Do as `approve`, on the running event loop."""
        return await self.decide_async(wait, self._choice_of(wait, "approve"), **answer)

    def reject(self, wait: str, **answer: Unpack[Answering]) -> Decision:
        """Decide with the choice that counts as rejection; as `decide`."""
        return self.decide(wait, self._choice_of(wait, "reject"), **answer)

    async def reject_async(self, wait: str, **answer: Unpack[Answering]) -> Decision:
        """Do as `reject`, on the running event loop."""
        return await self.decide_async(wait, self._choice_of(wait, "reject"), **answer)

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
        return self._hand_over(wait, "claimed", by)

    def release(self, wait: str, *, by: str | None = None) -> WaitInfo:
        """Give back an approval that was claimed; only who claimed it may. As `claim`."""
        return self._hand_over(wait, "released", by)

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
        return self._hand_over(wait, "delegated", by, to=to, comment=comment)

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
            id: The same signal again, with the same id and data, is not stored; with other data it
                is a `Conflict`.
            by: Who sends it, as `user:NAME`. Default: the engine's user.
            flow: A flow, or the path of its file, that begins an execution if no open one has the
                key; it is registered first. Default: the one registered flow that says so.
            resume: Go on with the execution.

        Returns:
            To which execution it went.
        """
        from flowengine.engines.messages.signals import signal

        sent = signal(self._host, name, data, execution, key, id, self._who(by), flow)
        return sent._replace(result=self._driving.go_on(sent.execution, resume=resume))

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
        from flowengine.engines.messages.signals import signal

        sent = signal(self._host, name, data, execution, key, id, self._who(by), flow)
        return sent._replace(result=await self._driving.go_on_async(sent.execution, resume=resume))

    def register(self, flow: LoadedFlow | str | PathLike[str]) -> list[str]:
        """Register a flow, so that messages start executions of it, as its `start` says.

        What was registered before for a flow of the same `id` does not hold any more.

        Args:
            flow: A flow, or the path of its file.

        Returns:
            The signals that begin an execution where no open one has the message's key; empty if
            the flow has no `start`.
        """
        from flowengine.engines.messages.signals import register

        return register(self._host, as_loaded(self._host.store, flow))

    def cancel(
        self, execution: str, *, reason: str = "", now: bool = False, by: str | None = None
    ) -> Result:
        """Cancel an execution; another process or thread that runs it does so itself.

        Args:
            execution: Its id, or any unambiguous beginning of it.
            reason: For the history.
            now: Skip `finally` and compensation.
            by: Who asks. Default: the engine's user.

        Returns:
            How it stands; still open if another process or thread is running it. `Conflict` if it
            has ended.
        """
        from flowengine.engines.interventions.cancelling import ask_to_cancel

        id = ask_to_cancel(self._host, execution, reason, self._who(by), now=now)
        return self._driving.go_on(id) or self.result(id)

    async def cancel_async(
        self, execution: str, *, reason: str = "", now: bool = False, by: str | None = None
    ) -> Result:
        """Do as `cancel`, on the running event loop."""
        from flowengine.engines.interventions.cancelling import ask_to_cancel

        id = ask_to_cancel(self._host, execution, reason, self._who(by), now=now)
        return await self._driving.go_on_async(id) or self.result(id)

    def retry(
        self,
        execution: str,
        *,
        step: str | None = None,
        flow: Flow | LoadedFlow | str | PathLike[str] | None = None,
        by: str | None = None,
        runtime_resources: Mapping[str, Any] | None = None,
    ) -> Result:
        """Start a failed execution again from what failed; what succeeded is kept.

        Args:
            execution: Its id, or any unambiguous beginning of it.
            step: Address of a step: what failed in it, or the step itself if nothing did. Default:
                all that failed.
            flow: A mended flow to continue with; its state must fit, as for `upgrade`.
            by: Who asks. Default: the engine's user.
            runtime_resources: As for `run`: what has ended has none any more.

        Returns:
            How it stands then.
        """
        retried = self._retried(execution, step, flow, by, runtime_resources)
        return self._driving.drive(retried)

    async def retry_async(
        self,
        execution: str,
        *,
        step: str | None = None,
        flow: Flow | LoadedFlow | str | PathLike[str] | None = None,
        by: str | None = None,
        runtime_resources: Mapping[str, Any] | None = None,
    ) -> Result:
        """Do as `retry`, on the running event loop."""
        retried = self._retried(execution, step, flow, by, runtime_resources)
        return await self._driving.drive_async(retried)

    def fork(
        self,
        execution: str,
        *,
        at: str,
        set: Mapping[str, Any] | None = None,
        flow: Flow | LoadedFlow | str | PathLike[str] | None = None,
        id: str | None = None,
        labels: Mapping[str, str] | None = None,
        runtime_resources: Mapping[str, Any] | None = None,
    ) -> Result:
        """Start a new execution from the point where a step of an old one began.

        Args:
            execution: The old one's id, or any unambiguous beginning of it; it is not changed.
            at: Address of the step.
            set: State to write before it begins.
            flow: A changed flow; all that comes before the point must be as it was.
            id: Id of the new execution.
            labels: For lists.
            runtime_resources: As for `run`.

        Returns:
            How the new execution stands, after driving it.
        """
        from flowengine.engines.interventions.fork import fork

        forked = fork(
            self._host, execution, at, set, flow, id, labels, self.user, runtime_resources
        )
        return self._driving.drive(forked)

    async def fork_async(
        self,
        execution: str,
        *,
        at: str,
        set: Mapping[str, Any] | None = None,
        flow: Flow | LoadedFlow | str | PathLike[str] | None = None,
        id: str | None = None,
        labels: Mapping[str, str] | None = None,
        runtime_resources: Mapping[str, Any] | None = None,
    ) -> Result:
        """Do as `fork`, on the running event loop."""
        from flowengine.engines.interventions.fork import fork

        forked = fork(
            self._host, execution, at, set, flow, id, labels, self.user, runtime_resources
        )
        return await self._driving.drive_async(forked)

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
        from flowengine.engines.interventions.upgrading import Upgrading

        who = self._who(by)
        upgrading = Upgrading(self._host, flow, executions, mapping, who, check=check)
        for execution in upgrading:
            with suppress(Conflict):  # taken over, or decided in the same moment
                self._driving.drive(execution)
        return upgrading.infos

    async def upgrade_async(
        self,
        flow: Flow | LoadedFlow | str | PathLike[str],
        *executions: str,
        mapping: Mapping[str, Any] | None = None,
        check: bool = False,
        by: str | None = None,
    ) -> list[UpgradeInfo]:
        """Do as `upgrade`, on the running event loop."""
        from flowengine.engines.interventions.upgrading import Upgrading

        who = self._who(by)
        upgrading = Upgrading(self._host, flow, executions, mapping, who, check=check)
        for execution in upgrading:
            with suppress(Conflict):
                await self._driving.drive_async(execution)
        return upgrading.infos

    def prune(self, *, older: float = 0.0, status: Iterable[str] = ()) -> Pruned:
        """Delete executions that have ended, with all that only they refer to.

        Args:
            older: Only those that ended so many seconds ago or earlier.
            status: Only those with one of these statuses; empty: all ends.

        Returns:
            How much was deleted.
        """
        from flowengine.journal.records import ENDED

        before = self._host.clock.now() - int(older * 1000)
        return self._host.store.prune(before, tuple(status) or ENDED)

    # Inside

    def _who(self, by: str | None) -> Actor:
        """Return who acts, for the history.

        Raises:
            NotAllowed: In another's name, which the host's settings forbid.
        """
        if by in (None, self.user):
            return Actor(self.user, self._via)
        if not self._host.settings.act_for_others:
            raise NotAllowed(
                f"{self.user} may not act for {by}: the host's settings say 'act_for_others: false'"
            )
        return Actor(by, self._via, self.user)

    def _answer_questions(self, result: Result, choice: str) -> bool:
        from flowengine.engines.people.answering import answer_questions

        return answer_questions(self._host, result, choice, self._who(None))

    def _record_decision(self, wait: str, choice: str, answer: Answering) -> tuple[Decision, bool]:
        from flowengine.engines.people.answering import record_decision

        return record_decision(self._host, wait, choice, answer, self._who(answer.get("by")))

    def _choice_of(self, wait: str, counts_as: str) -> str:
        from flowengine.engines.people.answering import choice_of

        return choice_of(self._host, wait, counts_as)

    def _read_answer(self, wait: str, answer: Mapping[str, Any]) -> tuple[str, Answering]:
        from flowengine.engines.people.answering import read_answer

        return read_answer(self._host, wait, answer)

    def _hand_over(self, wait: str, what: str, by: str | None, **more: str | None) -> WaitInfo:
        from flowengine.engines.people.answering import hand_over

        return hand_over(self._host, self._driving, wait, what, self._who(by), **more)

    def _starting(
        self,
        flow: Flow | LoadedFlow | str | PathLike[str],
        inputs: Mapping[str, Any] | None,
        id: str | None,
        labels: Mapping[str, str] | None,
        environments: Sequence[Mapping[str, Any]],
        resources: Mapping[str, Any] | None,
    ) -> Starting:
        from flowengine.engines.starting.beginning import Starting

        user = self.user
        return Starting(
            flow, inputs or {}, id, labels or {}, user, environments, dict(resources or {})
        )

    def _retried(
        self,
        execution: str,
        step: str | None,
        flow: Flow | LoadedFlow | str | PathLike[str] | None,
        by: str | None,
        resources: Mapping[str, Any] | None,
    ) -> Execution:
        from flowengine.engines.interventions.retrying import retried

        who = self._who(by)
        return retried(self._host, self._driving, execution, step, flow, who, resources)
