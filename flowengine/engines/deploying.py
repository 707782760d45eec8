"""The part of the public engine with the flows that are deployed in a store."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime
from os import PathLike

from flowengine.engines.deployed_flows import (
    deploy,
    find,
    listed,
    pause,
    resume,
    start_at,
    start_due,
    started_by,
    times_between,
    trigger,
    undeploy,
)
from flowengine.engines.flows import LoadedFlow, as_loaded
from flowengine.engines.infos import DeployedInfo, ScheduledStart, StartInfo
from flowengine.engines.reading import Group
from flowengine.journal.records import OfFlows


class DeployedFlows(Group):
    """The deployed flows: their versions, and what starts them."""

    def versions(self, flow: str | None = None) -> list[DeployedInfo]:
        """Return the deployed versions of flows.

        Args:
            flow: Only those of the flow with this id.

        Returns:
            The keys of `DeployedInfo`, ordered by flow, the current version of each first.
        """
        return listed(self._host, flow)

    def find(self, name: str, *, flows: OfFlows | None = None) -> LoadedFlow:
        """Return a deployed flow, to be started, or compared with another version.

        Args:
            name: `ID` for the current version, `ID@VERSION`, or at least 8 digits of a hash.
            flows: Returns whether a flow, given by its id, may be found. Default: any.

        Raises:
            NotFound: It is not deployed.
            UsageError: The digits fit several flows.
        """
        return find(self._host, name, flows)

    def kept(self, hash: str) -> LoadedFlow:
        """Return a flow that the store keeps, by `LoadedFlow.form`.

        Args:
            hash: The hash.

        Raises:
            NotFound: The store keeps no such flow.
        """
        return LoadedFlow(self._host.flows.by_hash(hash).compiled, hash)

    def starts(self, flow: str | None = None) -> list[StartInfo]:
        """Return what starts executions of deployed flows: signals and schedules.

        Args:
            flow: Only those of the flow with this id.

        Returns:
            The keys of `StartInfo`, ordered by flow. Schedules with their next time.
        """
        return started_by(self._host, flow)

    def deploy(self, flow: LoadedFlow | str | PathLike[str]) -> DeployedInfo:
        """Keep a version of a flow in the store, to be started by name, signals and schedules.

        The store keeps everything that the file and its imports contain. Python modules are kept by
        name: steps import them from the directory of the flow file. The version becomes the current
        one: its `start` replaces that of earlier versions, on which open executions stay. A
        schedule that an earlier version has keeps its next time. A worker, or `start_due`, starts
        the executions of schedules.

        Args:
            flow: A flow, or the path of its file.

        Returns:
            The deployed version.

        Raises:
            Conflict: This version was deployed with other contents. Flows without `version` may be
                deployed again.
        """
        return deploy(self._host, as_loaded(flow))

    def undeploy(self, name: str) -> list[str]:
        """Remove a deployed flow, which nothing starts any more. Its executions are unaffected.

        Args:
            name: `ID` for all versions of a flow, or `ID@VERSION` for one of them.

        Returns:
            The removed versions as `ID@VERSION`.

        Raises:
            NotFound: It is not deployed.
            Conflict: The version is the current one, and others are deployed.
            UsageError: The name is a hash.
        """
        return [f"{deployed.flow}@{deployed.version}" for deployed in undeploy(self._host, name)]

    def start_due(self, *, leave: Collection[tuple[str, str]] = ()) -> list[ScheduledStart]:
        """Record an execution for each schedule of a deployed flow that is due.

        A worker calls it by itself. Of several processes that call it, one starts each execution.

        Args:
            leave: Flow and schedule of those to leave out, as `ScheduledStart` names them.

        Returns:
            The executions that were started here, to be driven like others that are `due`, and
            those that could not be started.
        """
        due = self.store.schedules(self._host.clock.now())
        return start_due(self._host, leave) if due else []

    def pause(self, flow: str) -> list[StartInfo]:
        """Pause the schedules of a deployed flow. Everything else starts executions as before.

        A paused flow stays paused when it is deployed again.

        Args:
            flow: Its id.

        Returns:
            What starts it, as `starts`.

        Raises:
            NotFound: It is not deployed, or has no schedule.
        """
        pause(self._host, flow)
        return self.starts(flow)

    def resume(self, flow: str) -> list[StartInfo]:
        """Resume the schedules of a deployed flow, from their next times on.

        Times during the pause do not count as missed: `backfill` starts their executions.

        Args:
            flow: Its id.

        Returns:
            What starts it, as `starts`.

        Raises:
            NotFound: It is not deployed, or has no schedule.
        """
        resume(self._host, flow)
        return self.starts(flow)

    def trigger(self, flow: str, *, schedule: str | None = None) -> str:
        """Record an execution of a deployed flow now, with the inputs of its schedule.

        Args:
            flow: Its id.
            schedule: The expression of the schedule, if it has several.

        Returns:
            The id of the execution, to be driven with `resume`.

        Raises:
            NotFound: The flow is not deployed, or has no such schedule.
            UsageError: It has several schedules.
            InputError: The inputs are refused.
        """
        return trigger(self._host, flow, schedule, self._engine.user)

    async def backfill_async(
        self,
        flow: str,
        since: datetime,
        until: datetime,
        *,
        schedule: str | None = None,
        concurrency: int = 1,
        limit: int = 1000,
        tell: Callable[[ScheduledStart], None] = lambda started: None,
    ) -> list[ScheduledStart]:
        """Start and drive the executions of past times of a deployed flow's schedules.

        The executions are those that the schedule would have started. Existing ones are not started
        again, so that an interrupted backfill can be repeated.

        Args:
            flow: Its id.
            since: The first moment of the range, with a time zone.
            until: The last one. Times later than now are left out.
            schedule: The expression of a schedule. Default: all schedules of the flow.
            concurrency: How many executions run at once. Executions that wait do not count.
            limit: How many times the range may contain.
            tell: Called when an execution has ended or waits, or could not be started.

        Returns:
            The executions, ordered by time.

        Raises:
            NotFound: The flow is not deployed, or has no such schedule.
            InputError: The range contains more times.
        """
        times = times_between(self._host, flow, schedule, since, until, limit)
        from flowengine.engines.backfilling import backfill

        return await backfill(self._host, self._driving, flow, times, concurrency, tell)

    def record_past(
        self,
        flow: str,
        since: datetime,
        until: datetime,
        *,
        schedule: str | None = None,
        limit: int = 1000,
    ) -> list[ScheduledStart]:
        """Record the executions of past times, as `backfill_async`, for another process.

        Args:
            flow: Its id.
            since: The first moment of the range, with a time zone.
            until: The last one. Times later than now are left out.
            schedule: The expression of a schedule. Default: all schedules of the flow.
            limit: How many times the range may contain.

        Returns:
            The executions, ordered by time.

        Raises:
            NotFound: The flow is not deployed, or has no such schedule.
            InputError: The range contains more times.
        """
        times = times_between(self._host, flow, schedule, since, until, limit)
        return [start_at(self._host, flow, *time) for time in times]
