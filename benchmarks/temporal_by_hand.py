"""The workflow written by hand, in a module of its own, because the sandbox imports it."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.common import RetryPolicy

STEPS = 20
_BEAT = timedelta(seconds=3)


@activity.defn
async def by_hand(value: str) -> str:
    """Return the value, with heartbeats as the engine sends them."""

    async def beat() -> None:
        while True:
            await asyncio.sleep(_BEAT.total_seconds())
            activity.heartbeat()

    beating = asyncio.create_task(beat())
    try:
        return await asyncio.to_thread(str, value)
    finally:
        beating.cancel()


@workflow.defn
class ByHand:
    """A chain of steps."""

    @workflow.run
    async def run(self, value: str) -> str:
        for number in range(STEPS):
            value = await workflow.execute_activity(
                by_hand,
                value,
                start_to_close_timeout=timedelta(days=1),
                heartbeat_timeout=timedelta(seconds=10),
                retry_policy=RetryPolicy(maximum_attempts=1),
                summary=f"s{number} #1",
            )
        return value
