"""The part of the public engine with which operators change the course of executions."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from os import PathLike
from typing import Any, Literal

from flowengine.engines import interventions
from flowengine.engines.actors import Actor
from flowengine.engines.deciding import Approvals
from flowengine.engines.flows import LoadedFlow
from flowengine.engines.host import Host
from flowengine.engines.infos import InterventionPlan, UpgradeInfo
from flowengine.engines.reading import StoredExecutions
from flowengine.engines.results import ExecutionResult
from flowengine.errors import Conflict, NotFound, UsageError
from flowengine.flow import building
from flowengine.journal.encoding import pack
from flowengine.journal.records import ENDED, Pruned
from flowengine.journal.refusals import not_new
from flowengine.journal.shapes import Sound
from flowengine.journal.store import every_item
from flowengine.kernel.view import STOPPABLE, View
from flowengine.sdk.python.argument_checks import milliseconds
from flowengine.util.blocking import blocking, on_loop


class Executions(StoredExecutions):
    """The executions of a store: shows, cancels, retries, forks, upgrades, moves and deletes them.

    Args:
        engine: The engine.
    """

    @blocking
    async def cancel(
        self,
        execution: str,
        *,
        reason: str = "",
        now: bool = False,
        step: str | None = None,
        by: str | None = None,
        resume: bool = True,
    ) -> ExecutionResult:
        """Cancel an execution, or stop a step of it. A process that is running it does so.

        Args:
            execution: Its id, or an unambiguous prefix of it.
            reason: The reason, for the history.
            now: Skip `finally` and compensation.
            step: Address of a running call, group or subflow. It fails with `Stopped`, and the
                execution continues as its flow defines. An agent receives the error.
            by: The user who cancels it. Default: the engine's user.
            resume: Cancel it here unless another process or thread is running it. Otherwise the
                request is only recorded.

        Returns:
            The state of the execution. Still open if it was not cancelled here.

        Raises:
            Conflict: It has ended, or the step is not running.
        """
        if step is not None:
            id = ask_to_stop(self._host, execution, step, reason, self._who(by))
        else:
            id = ask_to_cancel(self._host, execution, reason, self._who(by), now=now)
        return await self._driving.go_on(id, resume=resume) or self.result(id)

    cancel_async = on_loop(cancel)

    @blocking
    async def retry(
        self,
        execution: str,
        *,
        step: str | Sequence[str] | None = None,
        flow: building.Flow | LoadedFlow | str | PathLike[str] | None = None,
        by: str | None = None,
        runtime_resources: Mapping[str, Any] | None = None,
        repeat_once: bool = False,
        resume: bool = True,
    ) -> ExecutionResult:
        """Continue a failed execution from the steps that failed, keeping successful steps.

        Args:
            execution: Its id, or an unambiguous prefix of it.
            step: Address of a step: retry the failed steps in it, or the step itself if none
                failed. Several addresses: retry what failed in them. Default: everything that
                failed.
            flow: A fixed flow to continue with. The state must fit it, as for `upgrade`.
            by: The user who retries it. Default: the engine's user.
            runtime_resources: As for `run`. They must be passed again, because they are dropped
                when an execution ends.
            repeat_once: Allow the retry to begin a flow or an agent anew in which calls with effect
                `once` have succeeded. It repeats them. That happens if it ended with an outcome
                that its step does not route, such as `max_turns`.
            resume: Drive it here. Otherwise the retry is only recorded, for another process.

        Returns:
            The state of the execution afterwards.

        Raises:
            Conflict: It has not failed, cannot be retried in place, or would repeat calls with
                effect `once`.
        """
        retry = interventions.retrying.retried(
            self._host,
            self._driving,
            execution,
            _addresses(step),
            flow,
            self._who(by),
            runtime_resources,
            repeat_once=repeat_once,
        )
        if not resume:
            return self._driving.leave(retry)
        return await self._driving.drive(retry)

    retry_async = on_loop(retry)

    @blocking
    async def fork(
        self,
        execution: str,
        *,
        from_step: str,
        set: Mapping[str, Any] | None = None,
        flow: building.Flow | LoadedFlow | str | PathLike[str] | None = None,
        id: str | None = None,
        labels: Mapping[str, str] | None = None,
        runtime_resources: Mapping[str, Any] | None = None,
        resume: bool = True,
    ) -> ExecutionResult:
        """Start a new execution from the point where a step of an existing one started.

        Args:
            execution: Id of the existing one, or an unambiguous prefix of it. It is not changed.
            from_step: Address of the step.
            set: State to write before the step starts.
            flow: A changed flow. Everything before the point must be unchanged.
            id: Id of the new execution.
            labels: Labels to filter lists by.
            runtime_resources: As for `run`.
            resume: Drive it here. Otherwise the fork is only recorded, for another process.

        Returns:
            The state of the new execution, after driving it.

        Raises:
            Conflict: An execution with this id exists, or the changed flow has another past.
            NotFound: The step has not started.
        """
        if id is not None and id == self._host.store.find_execution(execution):
            raise not_new(id, self._host.store.execution(id))
        user, resources = self._engine.user, runtime_resources
        forked = interventions.fork.fork(
            self._host, execution, from_step, set, flow, id, labels, user, resources
        )
        if not resume:
            return self._driving.leave(forked)
        return await self._driving.drive(forked)

    fork_async = on_loop(fork)

    @blocking
    async def upgrade(
        self,
        flow: building.Flow | LoadedFlow | str | PathLike[str],
        *executions: str,
        mapping: Mapping[str, Any] | None = None,
        check: bool = False,
        by: str | None = None,
        resume: bool = True,
    ) -> builtins.list[UpgradeInfo]:
        """Move open executions to another version of their flow, and resume those that can.

        Each execution is moved as a whole or not at all. An execution held by a running process is
        skipped.

        Args:
            flow: The version to move them to, or the path of its file.
            *executions: Ids, or unambiguous prefixes of them. Default: all open executions of the
                flow that run another version.
            mapping: Names that differ in the new version: `steps`, `state`, `signals`, `inputs`
                (old name → new name) and `values` (`inputs` and `state`: new name → value).
            check: Only report what would happen to each.
            by: The user who moves them. Default: the engine's user.
            resume: Resume them here. Otherwise they are only moved.

        Returns:
            The outcome for each execution, oldest first.
        """
        who = self._who(by)
        upgrading = interventions.upgrading.Upgrading(
            self._host, flow, executions, mapping, who, check=check
        )
        for execution in upgrading:
            with suppress(Conflict):  # taken over, or decided at the same moment
                if resume:
                    await self._driving.drive(execution)
                else:
                    self._driving.leave(execution)
        return upgrading.infos

    upgrade_async = on_loop(upgrade)

    def move(self, execution: str, *, to: str | PathLike[str]) -> str:
        """Move an open execution that waits to another store, with all that is known of it.

        A move that was interrupted is finished by repeating it.

        Args:
            execution: Its id, or an unambiguous prefix of it.
            to: The other store: a directory, or `temporal://HOST:PORT/NAMESPACE`.

        Returns:
            Its full id.

        Raises:
            NotFound: It does not exist.
            Conflict: It has ended or is running, or the other store has one with its id.
            UsageError: It cannot be moved, or not to that store.
        """
        with closing(self._engine._other(to)) as target:
            return interventions.moving.move(self._host.store, target, execution)

    def interrupted_moves(self, *, to: str | PathLike[str]) -> builtins.list[str]:
        """Return the ids of executions whose move to another store is left to be finished.

        No store drives them until `move` is repeated with the id.

        Args:
            to: The other store.
        """
        with closing(self._engine._other(to)) as target:
            return interventions.moving.interrupted(self._host.store, target)

    def prune(self, *, older_than: float | str = 0.0, status: Iterable[str] = ()) -> Pruned:
        """Delete executions that have ended, with all data that only they refer to.

        Sessions of agents that have waited for the next message for as long are cancelled and
        deleted, too. So are budgets that executions share, if their period ended as long ago.

        Args:
            older_than: Only executions that ended at least this long ago: seconds, or a duration
                such as `30d`.
            status: Only ended executions with one of these statuses. Empty: all, and sessions.

        Returns:
            How much was deleted.

        Raises:
            UsageError: `older_than` is not a duration, or a status is not one of an ended
                execution.
        """
        before = self._host.clock.now() - milliseconds("older_than", older_than)
        if isinstance(status, str):
            raise UsageError(f"status is {status!r}, not a list", hint=f"write [{status!r}]")
        statuses = tuple(status)
        ended = [] if statuses else self._end_sessions(before)
        pruned = self._host.store.prune(before, statuses or ENDED, ended)
        self._host.flows.forget()
        return pruned

    def _end_sessions(self, before: int) -> builtins.list[str]:
        """Cancel the sessions that have waited since a time, and return their executions."""
        wanted = partial(Approvals(self._engine).list, kinds=["session"], before=before, limit=500)
        idle = [wait["execution"] for wait in every_item(lambda after: wanted(after=after))]
        ended = []
        for execution in idle:
            with suppress(Conflict, NotFound):  # another process was first
                if self.cancel(execution, reason="the session was idle").ended:
                    ended.append(execution)
        return ended

    def plan(
        self,
        execution: str,
        do: Literal["retry", "fork", "cancel"],
        *,
        step: str | Sequence[str] | None = None,
    ) -> InterventionPlan:
        """Preview an intervention, without recording anything.

        Args:
            execution: Its id, or an unambiguous prefix of it.
            do: The method that would be called.
            step: As for `retry`, and `from_step` of `fork`.

        Raises:
            Conflict: The intervention would be refused.
            NotFound: The execution or step does not exist.
        """
        id, steps = self.find(execution), _addresses(step)
        with Sound(f"the stored data of execution {id}"):
            if do == "retry":
                return interventions.planning.planned_retry(self._host, id, steps)
            if do == "fork":
                return interventions.planning.planned_fork(self._host, id, "".join(steps[:1]))
            return interventions.planning.planned_cancellation(self._host, id)


def _addresses(step: str | Sequence[str] | None) -> Sequence[str]:
    return [step] if isinstance(step, str) else step or ()


def ask_to_cancel(host: Host, execution: str, reason: str, who: Actor, *, now: bool) -> str:
    """Record a request to cancel.

    Args:
        host: Provides the store.
        execution: Its id, or an unambiguous prefix of it.
        reason: The reason, for the history.
        who: The user who cancels it.
        now: Skip `finally` and compensation.

    Returns:
        The full id of the execution.
    """
    id, at = host.store.find_execution(execution), host.clock.now()
    event = {"type": "cancel", "at": at, "reason": reason, **who.fields(), "now": now}
    host.store.send(id, pack(event), at, host.ids.message())
    return id


def ask_to_stop(host: Host, execution: str, step: str, reason: str, who: Actor) -> str:
    """Record a request to stop a running step, which fails.

    Args:
        host: Provides the store.
        execution: Its id, or an unambiguous prefix of it.
        step: Address of a call, group or subflow that is running.
        reason: The reason, for the history and for what handles the failure.
        who: The user who stops it.

    Returns:
        The full id of the execution.

    Raises:
        Conflict: It is not running.
    """
    stored = host.stored(host.store.find_execution(execution), 0)
    view = View(stored.linked.graph, stored.state)
    units = stored.state["units"].values()
    running = {view.address(unit): unit for unit in units if unit["phase"] in STOPPABLE}
    unit = running.get(step)
    if unit is None:
        those = ", ".join(running) or "none"
        raise Conflict(
            f"step {step!r} of execution {stored.id} is not running",
            hint=f"those that are: {those}",
            plain=f"step {step!r} is not running",
            flow=stored.context.flow,
        )
    at, by = host.clock.now(), who.fields()
    message = f"it was stopped by {by['by']}" + (f": {reason}" if reason else "")
    event = {
        "type": "failed", "at": at, "unit": unit["id"], "attempt": unit["attempt"],
        "error": {"type": "Stopped", "message": message}, **by,
    }  # fmt: skip
    host.store.send(stored.id, pack(event), at, host.ids.message())
    return stored.id
