"""Coroutines that were handed to a separate task, and what they wait for."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable
from concurrent.futures import Future
from typing import Any


def close_unbegun(work: Awaitable[Any]) -> None:
    """Close a coroutine whose task was cancelled before its first step.

    A loop that ends does that to all tasks. Python would warn about such a coroutine.

    Args:
        work: Any awaitable. Only a coroutine that has not begun is closed.
    """
    if inspect.iscoroutine(work) and inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
        work.close()


async def uncut(work: Awaitable[Any]) -> None:
    """Await something that a cancellation must not cut short.

    Args:
        work: The awaitable, which is awaited to its end.

    Raises:
        CancelledError: The awaiting task was cancelled meanwhile.
    """
    task = asyncio.ensure_future(work)
    is_cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            is_cancelled = True
    if is_cancelled:
        raise asyncio.CancelledError
    task.result()


def lasting() -> Future[Any]:
    """Return a future of all threads and loops that a task that waits for it cannot cancel."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    return future
