"""The part of the public engine with which operators change the course of executions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any

from flowengine.engines.deciding import Decider
from flowengine.errors import Conflict, NotFound, UsageError
from flowengine.sdk.argument_checks import milliseconds
from flowengine.store_folder import remote_store
from flowengine.util.blocking import blocking, on_loop

if TYPE_CHECKING:
    from flowengine.engines.executions.execution import Execution
    from flowengine.engines.flows import LoadedFlow
    from flowengine.engines.infos import ScreenInfo, UpgradeInfo
    from flowengine.engines.results import ExecutionResult
    from flowengine.flow.building import Flow
    from flowengine.journal.records import Pruned


class Operator(Decider):
    """Lets an operator cancel, retry, fork, upgrade and delete executions."""

    @blocking
    async def cancel(
        self,
        execution: str,
        *,
        reason: str = "",
        now: bool = False,
        by: str | None = None,
        resume: bool = True,
    ) -> ExecutionResult:
        """Cancel an execution. If another process or thread is running it, that one cancels it.

        Args:
            execution: Its id, or an unambiguous prefix of it.
            reason: The reason, for the history.
            now: Skip `finally` and compensation.
            by: The user who cancels it. Default: the engine's user.
            resume: Cancel it here unless another process or thread is running it. Otherwise the
                request is only recorded.

        Returns:
            The state of the execution. Still open if it was not cancelled here.

        Raises:
            Conflict: It has ended.
        """
        from flowengine.engines.messages import ask_to_cancel

        id = ask_to_cancel(self._host, execution, reason, self._who(by), now=now)
        return await self._driving.go_on(id, resume=resume) or self.result(id)

    cancel_async = on_loop(cancel)

    @blocking
    async def retry(
        self,
        execution: str,
        *,
        step: str | None = None,
        flow: Flow | LoadedFlow | str | PathLike[str] | None = None,
        by: str | None = None,
        runtime_resources: Mapping[str, Any] | None = None,
        resume: bool = True,
    ) -> ExecutionResult:
        """Continue a failed execution from the steps that failed, keeping successful steps.

        Args:
            execution: Its id, or an unambiguous prefix of it.
            step: Address of a step: retry the failed steps in it, or the step itself if none
                failed. Default: everything that failed.
            flow: A fixed flow to continue with. The state must fit it, as for `upgrade`.
            by: The user who retries it. Default: the engine's user.
            runtime_resources: As for `run`. They must be passed again, because they are dropped
                when an execution ends.
            resume: Drive it here. Otherwise the retry is only recorded, for another process.

        Returns:
            The state of the execution afterwards.

        Raises:
            Conflict: It has not failed, or cannot be retried in place.
        """
        retried = self._retried(execution, step, flow, by, runtime_resources)
        if not resume:
            return self._driving.leave(retried)
        return await self._driving.drive(retried)

    retry_async = on_loop(retry)

    @blocking
    async def fork(
        self,
        execution: str,
        *,
        from_step: str,
        set: Mapping[str, Any] | None = None,
        flow: Flow | LoadedFlow | str | PathLike[str] | None = None,
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
        from flowengine.engines.interventions.fork import fork

        forked = fork(
            self._host, execution, from_step, set, flow, id, labels, self.user, runtime_resources
        )
        if not resume:
            return self._driving.leave(forked)
        return await self._driving.drive(forked)

    fork_async = on_loop(fork)

    @blocking
    async def upgrade(
        self,
        flow: Flow | LoadedFlow | str | PathLike[str],
        *executions: str,
        mapping: Mapping[str, Any] | None = None,
        check: bool = False,
        by: str | None = None,
        resume: bool = True,
    ) -> list[UpgradeInfo]:
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
        from flowengine.engines.interventions.upgrading import Upgrading

        who = self._who(by)
        upgrading = Upgrading(self._host, flow, executions, mapping, who, check=check)
        for execution in upgrading:
            with suppress(Conflict):  # taken over, or decided at the same moment
                if resume:
                    await self._driving.drive(execution)
                else:
                    self._driving.leave(execution)
        return upgrading.infos

    upgrade_async = on_loop(upgrade)

    def prune(self, *, older_than: float | str = 0.0, status: Iterable[str] = ()) -> Pruned:
        """Delete executions that have ended, with all data that only they refer to.

        Sessions of agents that have waited for the next message for as long are cancelled and
        deleted, too.

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
        from flowengine.journal.records import ENDED

        before = self._host.clock.now() - milliseconds("older_than", older_than)
        if isinstance(status, str):
            raise UsageError(f"status is {status!r}, not a list", hint=f"write [{status!r}]")
        statuses = tuple(status)
        ended = [] if statuses else self._end_sessions(before)
        pruned = self._host.store.prune(before, statuses or ENDED, ended)
        self._host.flows.forget()
        return pruned

    def _end_sessions(self, before: int) -> list[str]:
        """Cancel the sessions that have waited since a time, and return their executions."""
        from flowengine.journal.store import every_item

        wanted = partial(self.waits, kinds=["session"], before=before, limit=500)
        idle = [wait["execution"] for wait in every_item(lambda after: wanted(after=after))]
        ended = []
        for execution in idle:
            with suppress(Conflict, NotFound):  # another process was first
                if self.cancel(execution, reason="the session was idle").ended:
                    ended.append(execution)
        return ended

    def open_environments(self, execution: str | None = None) -> list[dict[str, Any]]:
        """Describe the environments that processes have open or have left open, oldest first.

        Those that cannot be opened again, so that an execution is stalled, follow.

        Args:
            execution: Only those of this execution: its id, or an unambiguous prefix of it.

        Returns:
            Plain data, as returned by `EnvironmentManager.written`, with the `execution` that owns
            it or None.
        """
        from flowengine.engines.inspection.open_environments import open_environments
        from flowengine.journal.store import every_item

        full = None if execution is None else self.find(execution)
        waits = every_item(lambda after: self.waits(kinds=["question"], after=after, limit=500))
        return open_environments(self._host.environments.manager, waits, full)

    def open_environment(self, name: str) -> dict[str, Any]:
        """Describe one environment that a process has open or has left open.

        Args:
            name: Its name, or an unambiguous prefix of its id.

        Raises:
            NotFound: No environment matches.
            Conflict: Several environments match.
        """
        from flowengine.engines.inspection.open_environments import with_execution

        return with_execution(self._host.environments.manager.written_one(name))

    def look_into_environment(self, name: str) -> ScreenInfo:
        """Look into an environment that a process on this machine has open.

        That process answers with a picture of the browser, or with the text of the terminal. The
        step that uses the environment is not disturbed, and nothing of the answer is stored. It
        blocks for at most some seconds.

        Args:
            name: Its name, or an unambiguous prefix of its id.

        Raises:
            NotFound: No environment matches.
            Conflict: Several environments match, or it cannot be looked into: its process has ended
                or does not answer, or its kind has nothing to look at.
            UsageError: The store is in Temporal, whose workers have the environments.
        """
        if remote_store(str(self._host.store.location)) is not None:
            raise UsageError(
                "a store in Temporal has its environments at its workers, where they cannot be "
                "looked into",
                hint="use a store in a directory for it",
            )
        from flowengine.engines.inspection.open_environments import screen_info

        return screen_info(*self._host.environments.manager.look(name))

    def release_environment(self, name: str, *, force: bool = False) -> dict[str, Any]:
        """End an environment that a process has left open.

        Args:
            name: Its name, or an unambiguous prefix of its id.
            force: End it even if the process that opened it is alive. Its steps then fail.

        Returns:
            A description of the environment, with `error` if it could not be ended.

        Raises:
            NotFound: No environment matches.
            Conflict: Several environments match, or a running process holds it.
        """
        from flowengine.engines.inspection.open_environments import failures, with_execution

        with failures():
            return with_execution(self._host.environments.manager.end_written(name, force=force))

    # Internals

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
