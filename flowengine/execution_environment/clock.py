"""The manager's clock, which tests can replace to avoid waiting."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar, cast

from flowengine.sdk.environments import background
from flowengine.sdk.python.user_code import close_unbegun

_Result = TypeVar("_Result")


class TimerClock(Protocol):
    """Returns the time, and schedules calls."""

    def now(self) -> float:
        """Return seconds since 1970. The value can jump."""

    def monotonic(self) -> float:
        """Return monotonic seconds."""

    def call_later(self, seconds: float, call: Callable[[], object]) -> Callable[[], object]:
        """Call a function on the background loop after a delay.

        Args:
            seconds: The delay.
            call: The function, which must not block.

        Returns:
            A function that cancels the call, from any thread.
        """


class SystemTimerClock:
    """The clock of this machine."""

    def now(self) -> float:
        """Return seconds since 1970."""
        return time.time()

    def monotonic(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic()

    def call_later(self, seconds: float, call: Callable[[], object]) -> Callable[[], object]:
        """Call a function on the background loop after a delay."""
        loop = background().loop
        timers: list[asyncio.TimerHandle] = []
        withdrawn: list[bool] = []

        def start() -> None:
            if not withdrawn:
                timers.append(loop.call_later(seconds, call))

        def stop() -> None:
            for timer in timers:
                timer.cancel()

        def withdraw() -> None:
            withdrawn.append(True)
            loop.call_soon_threadsafe(stop)

        loop.call_soon_threadsafe(start)
        return withdraw


class TookTooLong(Exception):
    """The work exceeded its time limit and was cancelled."""


async def within(
    clock: TimerClock,
    seconds: float,
    work: Awaitable[_Result],
    late: Callable[[_Result], Awaitable[object]] | None = None,
) -> _Result:
    """Run plug-in code on the background loop with a time limit, containing its exceptions.

    It runs in a separate task. Cancellation or `SystemExit` raised in that task does not reach the
    caller or the loop. If the caller is cancelled, the work is cancelled too and awaited until its
    time limit. If it does not end by then, it is abandoned.

    Args:
        clock: Measures the limit.
        seconds: The limit.
        work: The code.
        late: Receives the result if the caller no longer waits for it.

    Returns:
        The result of the code.

    Raises:
        TookTooLong: It did not end in time.
        PluginFailed: It raised something other than an `Exception`.
        CancelledError: The caller was cancelled.
    """
    task = asyncio.ensure_future(_contained(work))
    task.add_done_callback(lambda _: close_unbegun(work))
    ended = asyncio.Event()
    task.add_done_callback(lambda _: ended.set())
    withdraw = clock.call_later(seconds, ended.set)
    try:
        await ended.wait()
        if task.done():
            result, error = task.result()
            if error is not None:
                raise error
            return cast("_Result", result)
        task.cancel()
        await asyncio.wait([task], timeout=_GRACE)
    except asyncio.CancelledError:
        if not task.done():
            await _end(task, ended)
        _hand_over(task, late)
        raise
    finally:
        withdraw()
    _hand_over(task, late)
    raise TookTooLong(f"it did not finish within {seconds:g} s")


def _hand_over(
    task: asyncio.Task[tuple[_Result | None, BaseException | None]],
    late: Callable[[_Result], Awaitable[object]] | None,
) -> None:
    """Pass on the result of work without a waiting caller."""

    def ended(task: asyncio.Task[tuple[_Result | None, BaseException | None]]) -> None:
        if late is None or task.cancelled():
            return
        result, _ = task.result()
        if result is not None:
            kept.append(asyncio.ensure_future(late(result)))

    kept: list[asyncio.Future[object]] = []
    task.add_done_callback(ended)


_GRACE = 0.2
"""Seconds (of the loop) that cancelled work has to end."""


class PluginFailed(Exception):
    """A plug-in raised an exception that would have ended the program or the task."""


async def _contained(work: Awaitable[_Result]) -> tuple[_Result | None, BaseException | None]:
    task = asyncio.current_task()
    assert task is not None
    try:
        return await work, None
    except asyncio.CancelledError as error:
        if task.cancelling():
            raise
        return None, PluginFailed(f"it raised {type(error).__name__}")
    except Exception as error:
        return None, error
    except BaseException as error:
        return None, PluginFailed(f"it raised {type(error).__name__}")


async def _end(task: asyncio.Task[Any], ended: asyncio.Event) -> None:
    """Cancel work and wait for its end, within the current time limit."""
    task.cancel()
    ended.clear()
    waiting = asyncio.ensure_future(ended.wait())
    while not waiting.done():
        try:
            await asyncio.shield(waiting)
        except asyncio.CancelledError:
            continue
