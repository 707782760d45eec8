"""The offers of a worker to steps that need them: places for their attempts.

    workflow ── offer, on the queue of the labels ──► a worker with all of them, once it has a place
             ◄── the worker's own queue ────────────
             ── attempt, on that queue ─────────────► it takes the place that was reserved for it

A worker takes one request at a time from each queue, and answers when it has a place. So a worker
without one keeps at most one request from the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from itertools import combinations
from time import monotonic

from temporalio import activity

from flowengine.engines.temporal.places import Place
from flowengine.engines.temporal.requests import OFFER, PLACES, queue_of_needs

_RESERVED = 30.0
"""Seconds for which a place is kept for an attempt that does not come, such as a cancelled one."""
_LOOK = 1.0
"""Seconds between two heartbeats of a request that waits for a place."""
_Unit = tuple[str, int]
"""Execution, and number of its unit."""


class Offering:
    """The places of this process for attempts with needs.

    Args:
        place: Of this process.
        labels: Its offers.
        concurrency: The number of places. None: as many as for other attempts.
    """

    def __init__(self, place: Place, labels: Iterable[str], concurrency: int | None) -> None:
        self.labels = sorted(labels)
        self.place = place
        self._places = PLACES if concurrency is None else concurrency
        self._reserved: dict[_Unit, float] = {}
        """Attempt → until when its place is reserved."""
        self._taken: set[_Unit] = set()
        self._changed = asyncio.Event()

    @property
    def queues(self) -> list[str]:
        """The queues of all labels that a step may need and this process offers."""
        sizes = range(1, len(self.labels) + 1)
        return [queue_of_needs(some) for size in sizes for some in combinations(self.labels, size)]

    @activity.defn(name=OFFER)
    async def offer(self, unit: int) -> str:
        """Reserve a place for the attempt of a unit, and return the queue of this process."""
        whose = activity.info().workflow_id or "", unit
        while not self._reserves(whose):
            activity.heartbeat()
            await self._change()
        return self.place.queue

    @asynccontextmanager
    async def taken(self, execution: str, unit: int) -> AsyncIterator[None]:
        """Have the place of an attempt during the block."""
        whose = execution, unit
        while not self._reserves(whose):
            await self._change()
        del self._reserved[whose]
        self._taken.add(whose)
        try:
            yield
        finally:
            self._taken.discard(whose)
            self._changed.set()

    def _reserves(self, whose: _Unit) -> bool:
        """Reserve a place for an attempt, and return whether it has one."""
        now = monotonic()
        self._reserved = {unit: end for unit, end in self._reserved.items() if end > now}
        occupied = self._reserved.keys() | self._taken
        if whose not in self._reserved and len(occupied) >= self._places:
            return False
        self._reserved[whose] = now + _RESERVED
        return True

    async def _change(self) -> None:
        """Wait until a place may have become free."""
        self._changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK):
                await self._changed.wait()
