"""Calls of code that users provide. Its exceptions and hangs do not reach the caller."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from flowengine.sdk.coroutines import close_unbegun
from flowengine.sdk.exception_text import describe
from flowengine.sdk.threads import on_thread


class CodeOutcome(NamedTuple):
    """How a piece of code ended."""

    value: Any = None
    error: BaseException | None = None
    late: bool = False
    """Whether it exceeded its time limit."""

    def fault(self, bound: float | None) -> str | None:
        """Return what went wrong, or None.

        Args:
            bound: Time limit of the code in seconds.
        """
        if self.late:
            return f"it did not end within {bound:g} s"
        return None if self.error is None else describe(self.error)


async def contained(work: Awaitable[Any]) -> CodeOutcome:
    """Await something, and return how it ended, without raising.

    This includes `SystemExit`, which would end the loop, and cancellation raised by the code
    itself.

    Args:
        work: The code.

    Returns:
        How it ended.
    """
    try:
        return CodeOutcome(await work)
    except BaseException as error:
        return CodeOutcome(error=error)


async def call(function: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """Call a user's code: a coroutine function here, any other function on a thread."""
    if is_coroutine_function(function):
        return await function(*args, **named)
    outcome = await on_thread(lambda: _called(function, args, named))
    if outcome.error is not None:
        raise outcome.error
    return await outcome.value if inspect.isawaitable(outcome.value) else outcome.value


def _called(function: Callable[..., Any], args: Any, named: Any) -> CodeOutcome:
    try:
        return CodeOutcome(function(*args, **named))
    except BaseException as error:
        return CodeOutcome(error=error)


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    """Return whether a call returns a coroutine, also for objects with an async `__call__`."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - does not test whether it is callable
    )


async def bounded(seconds: float | None, work: Awaitable[Any]) -> CodeOutcome:
    """Run code in a separate task, with a time limit.

    Code that exceeds the limit is cancelled, without waiting for it to end.

    Args:
        seconds: The limit. None: unlimited.
        work: The code.

    Returns:
        How it ended.

    Raises:
        CancelledError: The caller was cancelled.
    """
    task = asyncio.ensure_future(contained(work))
    task.add_done_callback(lambda _: close_unbegun(work))
    try:
        in_time = await within(seconds, task)
    except asyncio.CancelledError:
        task.cancel()
        raise
    if in_time:
        return CodeOutcome(error=asyncio.CancelledError()) if task.cancelled() else task.result()
    task.cancel()
    return CodeOutcome(late=True)


async def within(seconds: float | None, work: asyncio.Future[Any]) -> bool:
    """Wait for work that continues by itself.

    Args:
        seconds: The limit. None: unlimited.
        work: A task or future.

    Returns:
        Whether it ended in time.
    """
    if not work.done():
        await asyncio.wait([work], timeout=seconds)
    return work.done()
