"""Third-party work that runs as a separate task with a time limit."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from flowengine.execution_environment.clock import SystemTimerClock, within
from flowengine.sdk.python.user_code import bounded


@pytest.mark.parametrize("limited", [partial(within, SystemTimerClock(), 9), partial(bounded, 9)])
def test_work_that_a_loop_that_ends_never_began_is_closed(
    limited: Callable[[Awaitable[None]], Awaitable[object]],
) -> None:
    """Python warns of coroutines that are never awaited, and warnings are errors here."""

    async def work() -> None:
        raise AssertionError("nobody wants it any more")

    async def cancelled_at_once() -> None:
        waiting = asyncio.ensure_future(limited(made))
        await asyncio.sleep(0)  # the task exists, but has not started
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.wait([waiting])

    made = work()
    asyncio.run(cancelled_at_once())

    assert inspect.getcoroutinestate(made) == inspect.CORO_CLOSED
