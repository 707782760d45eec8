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
    """Runs flows durably in this process; no other process is needed.

    A sync and async context manager: `with Engine() as engine`, `async with Engine() as engine`.
    Leaving it stops what still runs - the processes and tasks of running steps are ended, the
    executions are saved and can be resumed - and closes the store.

    Args:
        store: Folder of the store (created if missing), an open `Store`, or None for one in memory.
            Default: `$FLOWENGINE_STORE`, otherwise the nearest `.flowengine`: in the current folder
            or one above it. If there is none, it is created in the current folder.
        durability: What a commit survives: `power` (a power cut), `process` (a killed process),
            `none`. Default: the host's settings, otherwise `power`.
        workdir: Working folder of the file tools for executions that start here, whoever resumes
            them. Default: the current one.
        user: Who acts, as `user:NAME`. Default: the system's user of this process. A service passes
            the user whose credentials it has checked.
        via: The channel, for the audit of decisions: `python`, `cli`, ...
        stay: How long `run` and similar calls stay for a wait for time, in seconds. They always
            stay for pauses of `retry` and `loop.every`.
        ttl: Seconds after which an execution whose owner shows no sign of life may be taken over.
        runtime_resources: Objects for the steps of all executions, by name, in addition to the
            environments that a flow declares; `run` takes those of one execution. They belong to
            the caller: the engine neither checks nor closes them. One with the name of an
            environment is a `UsageError` before anything starts.
        clock: Returns the time.
        ids: Creates ids.
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
        await on_thread(self._host.close_environments)  # it waits until everything is closed
        self.close()

    @property
    def environments(self) -> EnvironmentManager:
        """The manager of the environments that its executions use."""
        return self._host.environments.manager

    def close(self) -> None:
        """Release all leases and close the store; a second call does nothing."""
        self._host.close()

    def leave(self) -> None:
        """Release all leases, and leave the store open, for a process that ends at once.

        Closing would copy the store's log into its database, which costs two syncs. Whoever fills
        the log does that.
        """
        self._host.close(store=False)

    # Flows

    def load(self, flow: Flow | str | PathLike[str]) -> LoadedFlow:
        """Read, check and compile a flow; for an unchanged file it comes from the store's cache.

        One with errors raises a `FlowFileError` with all of them.

        Args:
            flow: The path of its file, or a flow built in Python.

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
        """Start an execution and drive it until it finishes or has to wait.

        Args:
            flow: A flow built in Python or returned by `load`, or the path of a file.
            inputs: Name → value; those with a default may be left out.
            id: Its id. The same id with the same flow and inputs continues the existing execution;
                with another flow or other inputs it is a `Conflict`.
            labels: Labels to filter lists by.
            execution_environments: Specs of environments that this execution gets in addition to
                those that its flow declares: `{"kind": "python", "resource_key": "sandbox"}`.
                Functions find them in `runtime_resources`. They are stored with the execution,
                whoever resumes it.
            runtime_resources: Objects for its steps, by name, in addition to those of the engine.
                They belong to the caller: the engine does not check, save or close them. This
                engine keeps them until the execution has ended; another one needs them at `resume`.

        Returns:
            The state of the execution.
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
        """Like `run`, on the running event loop; concurrent calls share commits."""
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
        """Record a new execution without driving it; `resume` starts it, in any process.

        Args:
            flow: A flow built in Python or returned by `load`, or the path of a file.
            inputs: Name → value.
            id: Its id. The same id with the same flow and inputs changes nothing; with others it is
                a `Conflict`.
            labels: Labels to filter lists by.
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
        """Resume an execution, and drive it until it finishes or has to wait.

        Args:
            execution: Its id, or an unambiguous prefix of it.
            on_crash: `retry` or `fail` answers all questions about uncertain steps at once.
            runtime_resources: As for `run`; needed if another process provided them.

        Returns:
            The state of the execution. `Conflict` if another process holds it.
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
        """Like `resume`, on the running event loop; one that is already driven here is awaited."""
        loaded = self._driving.loaded(execution, runtime_resources)
        result = await self._driving.drive_async(loaded)
        while on_crash and self._answer_questions(result, on_crash):
            result = await self._driving.drive_async(self._driving.loaded(result.execution))
        return result

    def decide(self, wait: str, choice: str, **answer: Unpack[Answering]) -> Decision:
        """Decide on an approval, or answer a question (`retry`, `result` with `value`, `fail`).

        The decision is recorded first; then the execution continues in this process, unless another
        one holds it. Repeating the same decision is fine; a different one is a `Conflict` that says
        who decided what and when.

        Args:
            wait: Id of the wait, or an unambiguous prefix of it.
            choice: Id of the choice.
            **answer: Further parts of the answer, see `Answering`.

        Returns:
            The decision that counts.
        """
        decision, resume = self._record_decision(wait, choice, answer)
        result = self._driving.go_on(decision.execution, resume=resume)
        return decision._replace(result=result)

    async def decide_async(self, wait: str, choice: str, **answer: Unpack[Answering]) -> Decision:
        """Like `decide`, on the running event loop."""
        decision, resume = self._record_decision(wait, choice, answer)
        result = await self._driving.go_on_async(decision.execution, resume=resume)
        return decision._replace(result=result)

    def approve(self, wait: str, **answer: Unpack[Answering]) -> Decision:
        """Decide with the choice that counts as approval; like `decide`."""
        return self.decide(wait, self._choice_of(wait, "approve"), **answer)

    async def approve_async(self, wait: str, **answer: Unpack[Answering]) -> Decision:
        """Like `approve`, on the running event loop."""
        return await self.decide_async(wait, self._choice_of(wait, "approve"), **answer)

    def reject(self, wait: str, **answer: Unpack[Answering]) -> Decision:
        """Decide with the choice that counts as rejection; like `decide`."""
        return self.decide(wait, self._choice_of(wait, "reject"), **answer)

    async def reject_async(self, wait: str, **answer: Unpack[Answering]) -> Decision:
        """Like `reject`, on the running event loop."""
        return await self.decide_async(wait, self._choice_of(wait, "reject"), **answer)

    def continue_with(self, wait: str, answer: Mapping[str, Any]) -> Decision:
        """Answer an approval in the form that approval handlers use.

        Args:
            wait: Id of the wait, or an unambiguous prefix of it; for a handler, the id of its
                question.
            answer: `{"approved": True}` or `{"approved": False}`, optionally with a `reason`.

        Returns:
            The decision that counts; see `approve` and `reject`.
        """
        choice, said = self._read_answer(wait, answer)
        return self.decide(wait, choice, **said)

    async def continue_with_async(self, wait: str, answer: Mapping[str, Any]) -> Decision:
        """Like `continue_with`, on the running event loop."""
        choice, said = self._read_answer(wait, answer)
        return await self.decide_async(wait, choice, **said)

    def claim(self, wait: str, *, by: str | None = None) -> WaitInfo:
        """Claim an approval that has `claim: true`: from then on nobody else can decide it.

        It is on disk when this returns. If two users claim it at the same time, the first gets it,
        and the other gets a `Conflict`. Claiming it again is fine.

        Args:
            wait: Id of the wait, or an unambiguous prefix of it.
            by: The user who claims it, as `user:NAME`. Default: the engine's user.

        Returns:
            The wait afterwards.
        """
        return self._hand_over(wait, "claimed", by)

    def release(self, wait: str, *, by: str | None = None) -> WaitInfo:
        """Release a claimed approval; only the user who claimed it may. Like `claim`."""
        return self._hand_over(wait, "released", by)

    def delegate(
        self, wait: str, to: str, *, comment: str | None = None, by: str | None = None
    ) -> WaitInfo:
        """Delegate an approval to another user, who may then decide instead.

        The other assignees may still decide. A claim is delegated with the approval.

        Args:
            wait: Id of the wait, or an unambiguous prefix of it.
            to: The other user, as `user:NAME`.
            comment: The reason; stored with it.
            by: The user who delegates it. Default: the engine's user.

        Returns:
            The wait afterwards.
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

        If none has the key, the signal starts an execution of the registered flow that lists it in
        `start`. The signal is stored first; then the execution continues here, unless another
        process holds it.

        Args:
            name: Name of a signal that the flow declares.
            data: Its data; must match the declared schema.
            execution: Id of the execution, or an unambiguous prefix of it.
            key: The key; instead of `execution`.
            id: Id of the message. The same signal with the same id and data is not stored again;
                with other data it is a `Conflict`.
            by: The sender, as `user:NAME`. Default: the engine's user.
            flow: A flow, or the path of its file, that starts an execution if no open one has the
                key; it is registered first. Default: the registered flow that starts on the signal.
            resume: Resume the execution.

        Returns:
            The signal as stored, with its execution.
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
        """Like `signal`, on the running event loop."""
        from flowengine.engines.messages.signals import signal

        sent = signal(self._host, name, data, execution, key, id, self._who(by), flow)
        return sent._replace(result=await self._driving.go_on_async(sent.execution, resume=resume))

    def register(self, flow: LoadedFlow | str | PathLike[str]) -> list[str]:
        """Register a flow, so that messages start executions of it as declared in its `start`.

        It replaces earlier registrations of a flow with the same `id`.

        Args:
            flow: A flow, or the path of its file.

        Returns:
            The signals that start an execution if no open one has the message's key; empty if the
            flow has no `start`.
        """
        from flowengine.engines.messages.signals import register

        return register(self._host, as_loaded(self._host.store, flow))

    def cancel(
        self, execution: str, *, reason: str = "", now: bool = False, by: str | None = None
    ) -> Result:
        """Cancel an execution. If another process or thread is running it, that one cancels it.

        Args:
            execution: Its id, or an unambiguous prefix of it.
            reason: The reason, for the history.
            now: Skip `finally` and compensation.
            by: The user who cancels it. Default: the engine's user.

        Returns:
            The state of the execution; still open if another process or thread is running it.
            `Conflict` if it has ended.
        """
        from flowengine.engines.interventions.cancelling import ask_to_cancel

        id = ask_to_cancel(self._host, execution, reason, self._who(by), now=now)
        return self._driving.go_on(id) or self.result(id)

    async def cancel_async(
        self, execution: str, *, reason: str = "", now: bool = False, by: str | None = None
    ) -> Result:
        """Like `cancel`, on the running event loop."""
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
        """Continue a failed execution from what failed; what succeeded is kept.

        Args:
            execution: Its id, or an unambiguous prefix of it.
            step: Address of a step: retry what failed in it, or the step itself if nothing did.
                Default: everything that failed.
            flow: A fixed flow to continue with; the state must fit it, as for `upgrade`.
            by: The user who cancels it. Default: the engine's user.
            runtime_resources: As for `run`; an execution that has ended no longer has any.

        Returns:
            The state of the execution afterwards.
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
        """Like `retry`, on the running event loop."""
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
        """Start a new execution from the point where a step of an old one started.

        Args:
            execution: Id of the old one, or an unambiguous prefix of it; it is not changed.
            at: Address of the step.
            set: State to write before it starts.
            flow: A changed flow; everything before the point must be unchanged.
            id: Id of the new execution.
            labels: Labels to filter lists by.
            runtime_resources: As for `run`.

        Returns:
            The state of the new execution, after driving it.
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
        """Like `fork`, on the running event loop."""
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
        """Move open executions to another version of their flow, and resume those that can.

        Each is moved as a whole or not at all; one that a running process holds is left alone.

        Args:
            flow: The version to move them to, or the path of its file.
            *executions: Ids, or unambiguous prefixes of them. Default: all open ones of the flow
                that do not run this version already.
            mapping: What has another name in it: `steps`, `state`, `signals`, `inputs` (old name →
                new name) and `values` (`inputs` and `state`: new name → value).
            check: Only report what would happen to each.
            by: The user who moves them. Default: the engine's user.

        Returns:
            What happened to each, oldest first.
        """
        from flowengine.engines.interventions.upgrading import Upgrading

        who = self._who(by)
        upgrading = Upgrading(self._host, flow, executions, mapping, who, check=check)
        for execution in upgrading:
            with suppress(Conflict):  # taken over, or decided at the same moment
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
        """Like `upgrade`, on the running event loop."""
        from flowengine.engines.interventions.upgrading import Upgrading

        who = self._who(by)
        upgrading = Upgrading(self._host, flow, executions, mapping, who, check=check)
        for execution in upgrading:
            with suppress(Conflict):
                await self._driving.drive_async(execution)
        return upgrading.infos

    def prune(self, *, older: float = 0.0, status: Iterable[str] = ()) -> Pruned:
        """Delete executions that have ended, with everything that only they refer to.

        Args:
            older: Only those that ended at least this many seconds ago.
            status: Only those with one of these statuses; empty: all.

        Returns:
            How much was deleted.
        """
        from flowengine.journal.records import ENDED

        before = self._host.clock.now() - int(older * 1000)
        return self._host.store.prune(before, tuple(status) or ENDED)

    # Inside

    def _who(self, by: str | None) -> Actor:
        """Return the actor, for the history.

        Raises:
            NotAllowed: Acting for somebody else, which the host's settings forbid.
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
