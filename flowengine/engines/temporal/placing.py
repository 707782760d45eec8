"""The worker at which the environments of an execution are open.

Attempts with such environments run at that worker's own task queue. It is the worker that held the
workflow when it was needed first. If it does not respond, and no other takes its place, the
environments open there are lost: see the event `lost`. Environments of scope `step` need no place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, CancelledError, TimeoutError, TimeoutType

from flowengine.engines.environments.requests import (
    EXECUTION,
    REGION,
    SCOPES,
    name_with_args,
    region_owner,
)
from flowengine.engines.executions.execution import Execution
from flowengine.engines.temporal.requests import (
    PACK,
    PLACE,
    RELEASE,
    RESTING,
    UNPACK,
)
from flowengine.errors import Conflict
from flowengine.journal.store import MovedWorkspace
from flowengine.kernel.commands import Run

_SOON = timedelta(seconds=60)
_LONGEST = timedelta(minutes=10)
"""Maximum time to close environments."""
_ONCE = RetryPolicy(maximum_attempts=1)
LINGER = 10_000
"""Environments are not released for a timer that is due within this time (ms)."""
HEARTBEATS = 3
"""A place is lost if no worker begins its work within this many times the heartbeat."""

_LONGEST_MOVE = timedelta(hours=6)
"""Maximum time to pack or unpack files."""
_KEPT = (SCOPES["execution"], SCOPES["region"])
"""Scopes of environments whose files belong to the execution."""
_LOST = ""
"""The queue of an environment that is lost, as its execution knows."""
_ALL = ""
"""The name that stands for all environments of an owner whose files were moved here."""

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
        begin: Begins a task.
    """

    def __init__(
        self,
        execution: Execution,
        heartbeat: Callable[[], float],
        on_released: Callable[[list[Any]], None],
        begin: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self._execution = execution
        self._heartbeat = heartbeat
        self._on_released = on_released
        self._begin_task = begin
        self._queue: str | None = None
        self._open: dict[_Owned, str] = {}
        """The environments that were used → queue of their worker."""
        self._moved: list[MovedWorkspace] = []
        """`MovedWorkspace`s from another store that no worker has restored yet."""
        self._used = False
        """Whether environments were used since the last release."""
        self._choosing = asyncio.Lock()
        self._releases: dict[asyncio.Task[None], set[str]] = {}
        """Release → the names of its environments."""

    @property
    def queue(self) -> str | None:
        """The task queue of the place. None: there is none now."""
        return self._queue

    @property
    def busy(self) -> bool:
        """Whether environments are being released."""
        return bool(self._releases)

    def kept(self) -> list[Any]:
        """Return what `restore` takes in another run."""
        opened = [[*owned, queue] for owned, queue in self._open.items()]
        return [self._queue, self._used, opened, self._moved]

    def restore(
        self,
        queue: str | None,
        used: bool,
        opened: list[list[str]],
        moved: Sequence[MovedWorkspace] = (),
    ) -> None:
        """Continue after an earlier run, or after a move from another store."""
        self._queue, self._used, self._moved = queue, used, [*moved]
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
            await self._choose()
            while self._moved:
                try:
                    await self._unpack(wanted)
                except ActivityError as error:  # the files are still there
                    if isinstance(error.cause, CancelledError):
                        raise
                    self._queue = None
                await self._choose()
        lost = [owned for owned in wanted if self._queue_of(owned) not in (self._queue, _LOST)]
        for owned in lost:
            self._open[owned] = _LOST
        if lost:
            raise EnvironmentsLost(_lost(lost[0], wanted[lost[0]]))
        self._used = True
        return self._queue

    async def queue_of(self, run: Run) -> tuple[bool, str | None]:
        """Return whether the environments of a call can be opened before it is made, and where.

        Nothing is lost by that: the files of another place are neither moved nor given up.

        Returns:
            Whether they can, and the task queue of their place. None: all workers can open them.
        """
        wanted = dict(self._environments_of(run))
        if not wanted or self._moved:
            return not wanted, None
        while releases := self._releases_of(wanted):
            await asyncio.wait(releases)
        async with self._choosing:
            await self._choose()
        opens = all(self._queue_of(owned) == self._queue for owned in wanted)
        self._used = self._used or opens
        return opens, self._queue if opens else None

    async def _choose(self) -> None:
        if self._queue is None:
            self._queue = await workflow.execute_local_activity(PLACE, start_to_close_timeout=_SOON)

    def _queue_of(self, owned: _Owned) -> str | None:
        """Return where an environment is, or else where it will be opened."""
        scope, owner, _ = owned
        return self._open.get(owned, self._open.get((scope, owner, _ALL), self._queue))

    async def _unpack(self, wanted: Mapping[_Owned, Any]) -> None:
        """Restore files from another store at the place.

        Raises:
            ActivityError: Its worker has died.
            EnvironmentsLost: They cannot be restored now.
        """
        assert self._queue is not None
        queue, moved = self._queue, self._moved
        answer = await self._at_place(UNPACK, [moved], "files of environments from another store")
        if "error" in answer:
            [owned, spec], *_ = wanted.items()
            message = answer["error"].message
            raise EnvironmentsLost(_lost(owned, spec, "EnvironmentUnavailable", message))
        for one in moved:
            self._open[one.scope, one.owner_id, _ALL] = queue
        self._moved = []

    def _at_place(self, activity: str, given: list[Any], summary: str) -> Awaitable[Any]:
        """Begin an activity at the place, which handles files."""
        assert self._queue is not None
        return workflow.execute_activity(
            activity,
            args=given,
            task_queue=self._queue,
            retry_policy=_ONCE,
            schedule_to_start_timeout=self.patience,
            start_to_close_timeout=_LONGEST_MOVE,
            heartbeat_timeout=timedelta(seconds=self._heartbeat()),
            summary=summary,
        )

    def began(self, run: Run, queue: str) -> None:
        """Note that an attempt has begun at a place, where its environments are now open."""
        for owned, _ in self._environments_of(run):
            self._open[owned] = queue

    def lose(self, queue: str) -> None:
        """Note that a place is lost."""
        if self._queue == queue:
            self._queue = None

    # Moves

    async def packed(self) -> dict[str, Any]:
        """Have the files of environments packed that belong to the execution.

        Returns:
            As `answer`, `MovedWorkspace`s. Or the `error` that prevents it.
        """
        if self._moved:
            return {"answer": self._moved}
        kept = [owned for owned in self._open if owned[0] in _KEPT]
        if not kept:
            return {"answer": []}
        for owned in kept:
            if self._queue_of(owned) not in (self._queue, _LOST):
                return _unpacked(f"environment '{owned[2]}' was lost with its worker")
        if self._queue is None:
            return {"answer": []}
        try:
            answer: dict[str, Any] = await self._at_place(PACK, [], "files of environments")
        except ActivityError as error:
            return _unpacked(f"the worker that has its environments: {error.cause or error}")
        return answer

    def leave(self) -> None:
        """Remove the files of an execution that was moved to another store."""
        if any(scope in _KEPT for scope, _, _ in self._open):
            self._release("move", 0, {name for _, _, name in self._open})

    # Releases

    def end_region(self, region: int) -> None:
        """Release the environments of a region that has ended."""
        owner = region_owner(self._execution.context.owner, region)
        ended = [owned for owned in self._open if owned[:2] == (REGION, owner)]
        if any(self._open.pop(owned) == self._queue for owned in ended):
            self._release("region", region, {name for _, _, name in ended})

    def give_back(self, now: int) -> None:
        """Release the environments that an ended or waiting execution does not need.

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
        soon = now + LINGER
        waits = execution.state["status"] in RESTING and not execution.timers.stays(soon, soon)
        if waits and self._used:
            self._used = False
            self._release("wait", 0, names)

    def _release(self, what: str, region: int, names: set[str]) -> None:
        if self._queue is not None:
            task = self._begin_task(self._released(self._queue, what, region))
            self._releases[task] = names

    async def _released(self, queue: str, what: str, region: int) -> None:
        linked, context = self._execution.linked, self._execution.context
        events: list[Any] = []
        try:
            events = await workflow.execute_activity(
                RELEASE,
                args=[linked.hash, context.workdir, context.identity, what, region],
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
        """Return the owner of an environment. For a region, see `EnvironmentRequests`."""
        own = self._execution.context.owner
        if use["scope"] == EXECUTION:
            return own
        if use["scope"] != REGION:
            return str(use["spec"].get("owner_id", ""))
        owners = [region_owner(own, region) for region in run.regions or (0,)]
        return next((owner for owner in owners if (REGION, owner, name) in self._open), owners[0])


def never_began(error: ActivityError) -> bool:
    """Return whether no worker has begun an activity in time."""
    cause = error.cause
    return isinstance(cause, TimeoutError) and cause.type == TimeoutType.SCHEDULE_TO_START


def result_of(activity: workflow.ActivityHandle[Any]) -> Any:
    """Return the result of an activity that has ended in the workflow task that cancels it.

    The library drops it, because it cannot report both. None: it has no result.
    """
    ended: asyncio.Future[Any] = activity._result_fut  # type: ignore[attr-defined]
    return ended.result() if ended.done() and ended.exception() is None else None


def _unpacked(why: str) -> dict[str, Any]:
    return {"error": Conflict(f"the files of the execution's environments cannot be moved: {why}")}


def _lost(
    owned: _Owned,
    spec: Mapping[str, Any],
    kind: str = "EnvironmentLost",
    message: str = "",
) -> dict[str, Any]:
    scope, owner, name = owned
    provider = spec.get("provider")
    which = {
        "kind": spec["kind"],
        "provider": provider if isinstance(provider, str) else "",
        "scope": scope,
        "owner_id": owner,
        "resource_key": name,
    }
    message = message or (
        f"environment '{name}' was open at a worker that does not respond any more. Its files are "
        "there, and it would be opened again without them"
    )
    data: dict[str, Any] = {"environment": which}
    if kind == "EnvironmentLost":
        data["decides"] = "operator"
    error = {"type": kind, "message": message, "data": data}
    return {"type": "lost", "ran": "no", "error": error}
