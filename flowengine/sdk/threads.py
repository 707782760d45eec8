"""Threads for functions that may block, without delaying the loop or the end of the process.

A thread cannot be stopped from outside. These are daemon threads, so a hanging function does not
keep the process alive. The result of a cancelled function is dropped unless the caller waits for
it. Only a function whose attempt another process may begin again is interrupted, see `Calls`.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from _thread import allocate_lock, get_ident
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias, TypeVar

_Result = TypeVar("_Result")


_Report: TypeAlias = Callable[[tuple[object, BaseException | None]], None]

_jobs: SimpleQueue[tuple[Callable[[], object], _Report]] = SimpleQueue()
"""Functions to call, and what receives their outcomes."""
_idle: SimpleQueue[None] = SimpleQueue()
"""An entry for each thread that waits for a job. A `Semaphore` is slower: it is in Python."""


class AttemptLost(BaseException):
    """Another process may begin the attempt of this function again, so it must not go on."""


class Calls:
    """The functions that attempts call on threads, until the attempts are lost.

    Args:
        may_begin: Returns whether the attempts are still this process's own.
    """

    def __init__(self, may_begin: Callable[[], bool]) -> None:
        self._may_begin = may_begin
        self._threads: set[int] = set()
        self._lock = allocate_lock()
        self._are_lost = False

    @property
    def at_work(self) -> bool:
        """Whether any function is at work."""
        return bool(self._threads)

    def call(self, function: Callable[[], _Result]) -> _Result:
        """Call a function on this thread.

        Returns:
            Its result.

        Raises:
            AttemptLost: The attempt is lost. The function has not begun, or was interrupted.
        """
        is_held = self._may_begin()
        thread = get_ident()
        with self._lock:
            if self._are_lost or not is_held:
                raise AttemptLost
            self._threads.add(thread)
        try:
            return function()
        finally:
            try:
                self._leave(thread)
            except AttemptLost:  # it came only now
                self._leave(thread)

    def _leave(self, thread: int) -> None:
        with self._lock:
            self._threads.discard(thread)

    def interrupt(self) -> None:
        """Raise `AttemptLost` in all functions at work, and let no other one begin.

        One that waits in compiled code is interrupted when that returns.
        """
        from ctypes import c_ulong, py_object, pythonapi

        with self._lock:
            if not self._are_lost:
                self._are_lost = True
                for thread in self._threads:
                    pythonapi.PyThreadState_SetAsyncExc(c_ulong(thread), py_object(AttemptLost))


CALLS: ContextVar[Calls | None] = ContextVar("flowengine.calls", default=None)
"""The functions of the current attempt. None: they are not counted."""


async def on_thread(
    function: Callable[[], _Result], outlast: Callable[[], float] | None = None
) -> _Result:
    """Call a function on a thread, in a copy of the caller's context.

    Args:
        function: The function to call.
        outlast: Called when the caller is cancelled. Returns how many seconds to wait for the
            function's result. None means that the result is dropped.

    Returns:
        Its result. Its exceptions are raised here.

    Raises:
        CancelledError: The caller was cancelled, and the function did not end in time.
        RuntimeError: It raised `KeyboardInterrupt`, which would end the loop.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
    known: list[tuple[Any, BaseException | None]] = []

    def settle(outcome: tuple[object, BaseException | None]) -> None:
        if not ended.done():
            ended.set_result(outcome)

    def report(outcome: tuple[object, BaseException | None]) -> None:
        known.append(outcome)
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, outcome)

    context = contextvars.copy_context()
    _jobs.put((partial(context.run, function), report))
    try:
        _idle.get_nowait()
    except Empty:
        threading.Thread(target=_work, name="flowengine-step", daemon=True).start()
    try:
        result, error = await ended
    except asyncio.CancelledError:
        if outlast is None:
            raise
        ended = loop.create_future()  # the first future was cancelled
        result, error = known[0] if known else await _within(outlast(), ended)
    if isinstance(error, KeyboardInterrupt):  # not from the keyboard: signals go to the main thread
        raise RuntimeError("a function on a thread raised KeyboardInterrupt") from error
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]


async def _within(seconds: float, ended: asyncio.Future[_Result]) -> _Result:
    """Return the result of a future if it arrives in time, otherwise re-raise the cancellation."""
    if seconds > 0:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                return await ended
    raise asyncio.CancelledError


def _work() -> None:
    while True:
        call, report = _jobs.get()
        result: object = None
        error: BaseException | None = None
        try:
            result = call()
        except BaseException as raised:
            error = raised
        _idle.put(None)
        try:
            report((result, error))
        except RuntimeError:  # the loop was closed at this moment
            continue
        finally:
            del call, report, result, error


def _forked() -> None:
    """Reset in the child of a fork: the threads that waited for jobs are the parent's."""
    global _jobs, _idle  # noqa: PLW0603 - one a process
    _jobs = SimpleQueue()
    _idle = SimpleQueue()


os.register_at_fork(after_in_child=_forked)
