"""The worker at which the environments of an execution are open.

Attempts with such environments run at that worker's own task queue. It is the worker that held the
workflow when it was needed first. If it does not respond, and no other takes its place, what was
open there is lost: see the event `lost`. Environments of scope `step` need no place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, TimeoutError, TimeoutType

from flowengine.engines.environments.requests import EXECUTION, REGION, SCOPES, region_owner
from flowengine.engines.environments.specs import name_with_args
from flowengine.engines.temporal.requests import PLACE, RELEASE, RESTING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flowengine.engines.executions.execution import Execution
    from flowengine.kernel.commands import Run

_SOON = timedelta(seconds=60)
_LONGEST = timedelta(minutes=10)
"""Maximum time to close environments."""
_ONCE = RetryPolicy(maximum_attempts=1)
LINGER = 10_000
"""Environments are not released for a timer that is due within this time (ms)."""
HEARTBEATS = 3
"""A place is lost if no worker begins its work within this many times the heartbeat."""

_Owned = tuple[str, str, str]
"""Scope, owner and name of an environment."""


class EnvironmentsLost(Exception):
    """Environments that an attempt uses were open at a place that is lost.

    Args:
        event: The resulting event.
    """

    def __init__(self, event: dict[str, Any]) -> None:
        super().__init__(event["error"]["message"])
        self.event = event


class Placing:
    """Chooses the task queue of attempts, and releases environments.

    Args:
        execution: The execution.
        heartbeat: Returns the time without a heartbeat after which an activity is interrupted (s).
        on_released: Called after a release, with the events that report failures.
    """

    def __init__(
        self,
        execution: Execution,
        heartbeat: Callable[[], float],
        on_released: Callable[[list[Any]], None],
    ) -> None:
        self._execution = execution
        self._heartbeat = heartbeat
        self._on_released = on_released
        self._queue: str | None = None
        self._open: dict[_Owned, str] = {}
        """The environments that were used → queue of their worker."""
        self._used = False
        """Whether environments were used since the last release."""
        self._choosing = asyncio.Lock()
        self._releases: dict[asyncio.Task[None], set[str]] = {}
        """Release → the names of its environments."""

    @property
    def busy(self) -> bool:
        """Whether environments are being released."""
        return bool(self._releases)

    def kept(self) -> list[Any]:
        """Return what `restore` takes in another run."""
        return [self._queue, self._used, [[*owned, queue] for owned, queue in self._open.items()]]

    def restore(self, queue: str | None, used: bool, opened: list[list[str]]) -> None:
        """Continue after an earlier run."""
        self._queue, self._used = queue, used
        self._open = {(scope, owner, name): at for scope, owner, name, at in opened}

    # Attempts

    @property
    def patience(self) -> timedelta:
        """How long an activity at a place may wait for its worker."""
        return timedelta(seconds=HEARTBEATS * self._heartbeat())

    async def queue_for(self, run: Run) -> str | None:
        """Return the task queue for an attempt. None: all workers can run it.

        Raises:
            EnvironmentsLost: It used environments that are lost. They are opened again next time.
        """
        wanted = dict(self._environments_of(run))
        if not wanted:
            return None
        while releases := self._releases_of(wanted):
            await asyncio.wait(releases)
        async with self._choosing:
            if self._queue is None:
                self._queue = await workflow.execute_local_activity(
                    PLACE, start_to_close_timeout=_SOON
                )
        lost = [owned for owned in wanted if self._open.get(owned, self._queue) != self._queue]
        for owned in lost:
            del self._open[owned]
        if lost:
            raise EnvironmentsLost(_lost(lost[0], wanted[lost[0]]))
        self._used = True
        return self._queue

    def began(self, run: Run) -> None:
        """Note that an attempt has ended at the place, where its environments are now open."""
        assert self._queue is not None
        for owned, _ in self._environments_of(run):
            self._open[owned] = self._queue

    def lose(self, queue: str) -> None:
        """Note that a place is lost."""
        if self._queue == queue:
            self._queue = None

    # Releases

    def end_region(self, region: int) -> None:
        """Release the environments of a region that has ended."""
        owner = region_owner(self._execution.id, region)
        ended = [owned for owned in self._open if owned[:2] == (REGION, owner)]
        if any(self._open.pop(owned) == self._queue for owned in ended):
            self._release("region", region, {name for _, _, name in ended})

    def give_back(self, now: int) -> None:
        """Release what an execution does not need that has ended or waits.

        Args:
            now: The time (ms).
        """
        execution = self._execution
        if self._releases or execution.work:
            return
        names = {name for _, _, name in self._open}
        if execution.ended:
            self._release("end", 0, names)
            self._queue = None
            return
        waits = execution.state["status"] in RESTING and not execution.timers.stays(now + LINGER)
        if waits and self._used:
            self._used = False
            self._release("wait", 0, names)

    def _release(self, what: str, region: int, names: set[str]) -> None:
        if self._queue is not None:
            task = asyncio.create_task(self._released(self._queue, what, region))
            self._releases[task] = names

    async def _released(self, queue: str, what: str, region: int) -> None:
        execution = self._execution
        events: list[Any] = []
        try:
            events = await workflow.execute_activity(
                RELEASE,
                args=[execution.linked.hash, execution.context.workdir, what, region],
                task_queue=queue,
                retry_policy=_ONCE,
                schedule_to_start_timeout=self.patience,
                start_to_close_timeout=_LONGEST,
                heartbeat_timeout=timedelta(seconds=self._heartbeat()),
                summary=f"release of environments: {what}",
            )
        except ActivityError as error:
            if never_began(error):
                self.lose(queue)
        task = asyncio.current_task()
        assert task is not None
        del self._releases[task]
        self._on_released(events)

    def _releases_of(self, wanted: Mapping[_Owned, Any]) -> Sequence[asyncio.Task[None]]:
        """Return the releases that must end before environments are opened."""
        names = {name for _, _, name in wanted}
        return [task for task, ending in self._releases.items() if ending & names]

    def _environments_of(self, run: Run) -> Iterator[tuple[_Owned, dict[str, Any]]]:
        """Yield the environments of an attempt that outlive it, with their specs."""
        pending = [*(run.environments or {}).values()]
        while pending:
            use = pending.pop()
            spec = use["spec"]
            pending += spec.get("mounts", {}).values()
            if use["scope"] != "step":
                name = name_with_args(spec)
                yield (SCOPES[use["scope"]], self._owner(run, use, name), name), spec

    def _owner(self, run: Run, use: Mapping[str, Any], name: str) -> str:
        """Return the owner of an environment. For a region, see `Requests`."""
        execution = self._execution.id
        if use["scope"] == EXECUTION:
            return execution
        if use["scope"] != REGION:
            return str(use["spec"].get("owner_id", ""))
        owners = [region_owner(execution, region) for region in run.regions or (0,)]
        return next((one for one in owners if (REGION, one, name) in self._open), owners[0])


def never_began(error: ActivityError) -> bool:
    """Return whether no worker has begun an activity in time."""
    cause = error.cause
    return isinstance(cause, TimeoutError) and cause.type == TimeoutType.SCHEDULE_TO_START


def _lost(owned: _Owned, spec: Mapping[str, Any]) -> dict[str, Any]:
    scope, owner, name = owned
    provider = spec.get("provider")
    which = {
        "kind": spec["kind"],
        "provider": provider if isinstance(provider, str) else "",
        "scope": scope,
        "owner_id": owner,
        "resource_key": name,
    }
    message = (
        f"environment '{name}' was open at a worker that does not respond any more. Its files are "
        "there, and it would be opened again without them"
    )
    error = {"type": "EnvironmentLost", "message": message, "data": {"environment": which}}
    return {"type": "lost", "ran": "no", "error": error}
