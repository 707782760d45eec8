"""Backfill: the executions of past times of schedules, a few at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from flowengine.engines.deployed_flows import start_at
from flowengine.engines.host import Host
from flowengine.engines.infos import ScheduledStart
from flowengine.engines.running.driving import Driving
from flowengine.journal.records import ENDED

_PAUSE = 0.2
"""Seconds between two looks at an execution that another process drives."""


async def backfill(
    host: Host,
    driving: Driving,
    flow: str,
    times: Sequence[tuple[str, Any, int]],
    concurrency: int,
    tell: Callable[[ScheduledStart], None],
) -> list[ScheduledStart]:
    """Start and drive the execution of each time, with a bound on how many run at once.

    Args:
        host: Provides the store.
        driving: Drives them.
        flow: Id of the flow.
        times: See `times_between`.
        concurrency: How many run at once. Those that wait do not count.
        tell: Called when an execution has ended or waits, or could not be started.

    Returns:
        The executions, in the order of their times.
    """
    places = asyncio.Semaphore(concurrency)

    async def one(hash: str, start: Any, time: int) -> ScheduledStart:
        async with places:
            started = start_at(host, flow, hash, start, time)
            if started.execution is not None:
                await _until_it_rests(host, driving, started.execution)
            tell(started)
            return started

    return list(await asyncio.gather(*(one(*time) for time in times)))


async def _until_it_rests(host: Host, driving: Driving, execution: str) -> None:
    """Drive an execution, or wait while another process does, until it ends or waits."""
    while not host.draining:
        status = host.store.execution(execution).status
        if status in ENDED or status == "waiting":
            return
        if await driving.take(execution) is not None:
            return
        await asyncio.sleep(_PAUSE)
