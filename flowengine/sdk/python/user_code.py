"""Calls of code that users provide. Its exceptions and hangs do not reach the caller."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import os
import threading
from _thread import allocate_lock, get_ident
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, suppress
from contextvars import ContextVar
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeAlias, TypeVar

from flowengine.sdk.errors import CodeRaised, StepError, Timeout, raised
from flowengine.sdk.steps.previews import Shown
from flowengine.sdk.texts.exception_text import describe
from flowengine.util.loops import is_interrupt

# Coroutines that were handed to a separate task, and their waits.


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


async def until_done(future: Future[Any]) -> None:
    """Wait until a future of another thread is done, with any result.

    Cancelling the wait leaves it running.
    """
    if future.done():
        return
    loop = asyncio.get_running_loop()
    is_done = asyncio.Event()

    def notify(_: Future[Any]) -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(is_done.set)

    future.add_done_callback(notify)
    await is_done.wait()


def lasting() -> Future[Any]:
    """Return a future of all threads and loops that a task that waits for it cannot cancel."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    return future


# Threads for functions that may block, without delaying the loop or the end of the process.
#
# A thread cannot be stopped from outside. These are daemon threads, so a hanging function does not
# keep the process alive. The result of a cancelled function is dropped unless the caller waits for
# it. Only a function whose attempt another process may begin again is interrupted, see `Calls`.

_Result = TypeVar("_Result")


_Report: TypeAlias = Callable[[tuple[object, BaseException | None]], None]

_jobs: SimpleQueue[tuple[Callable[[], object], _Report]] = SimpleQueue()
"""Functions to call, and what receives their outcomes."""
_idle: SimpleQueue[None] = SimpleQueue()
"""An entry for each thread that waits for a job. A `Semaphore` is slower: it is in Python."""


class AttemptLost(BaseException):
    """Another process may begin the attempt of this function again, so it must stop."""


class UsersCode:
    """Makes each exception of users' code in a block an error of the call, as `CodeRaised`."""

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        is_error = isinstance(error, Exception | asyncio.CancelledError | AttemptLost)
        if error is not None and not is_error and not is_interrupt(error):
            raise CodeRaised(describe(error)) from error


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


FUNCTION_SECONDS = 60.0
"""Time limit of functions that no step runs, so that no `timeout` of a step applies."""


async def in_time(work: Awaitable[_Result], what: str) -> _Result:
    """Await a function on a thread, or a coroutine, within the time limit.

    Args:
        work: The function.
        what: Its purpose, for the message.

    Returns:
        Its result.

    Raises:
        Timeout: It did not return.
        TimeoutError: It raised this.
    """
    try:
        async with asyncio.timeout(FUNCTION_SECONDS) as limit:
            return await work
    except TimeoutError:
        if not limit.expired():
            raise
        why = f"{what} did not return within {FUNCTION_SECONDS:g} s"
        raise Timeout(why, retryable=False) from None


def begin(function: Callable[[], _Result]) -> Future[_Result]:
    """Call a function on a thread, in a copy of the caller's context, and return its future."""
    future = lasting()

    def report(outcome: tuple[Any, BaseException | None]) -> None:
        result, error = outcome
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    _put(function, report)
    return future


def _put(function: Callable[[], object], report: _Report) -> None:
    """Hand a function to an idle thread, or to a new one."""
    _jobs.put((partial(contextvars.copy_context().run, function), report))
    try:
        _idle.get_nowait()
    except Empty:
        threading.Thread(target=_work, name="flowengine-step", daemon=True).start()


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
        CodeRaised: It raised an exception that would end the loop.
    """
    loop = asyncio.get_running_loop()
    # A future of the loop: one of all threads would cost a step some percent.
    ended: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
    known: list[tuple[Any, BaseException | None]] = []

    def resolve(outcome: tuple[object, BaseException | None]) -> None:
        if not ended.done():
            ended.set_result(outcome)

    def report(outcome: tuple[object, BaseException | None]) -> None:
        known.append(outcome)
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(resolve, outcome)

    _put(function, report)
    try:
        await ended
    except asyncio.CancelledError:
        if outlast is None:
            raise
        ended = loop.create_future()  # the first future was cancelled
        if not known and (seconds := outlast()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await ended
        if not known:
            raise
    [(result, error)] = known
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]


def _work() -> None:
    while True:
        call, report = _jobs.get()
        result: object = None
        error: BaseException | None = None
        try:
            with UsersCode():
                result = call()
        except BaseException as failure:
            error = failure
        _idle.put(None)
        report((result, error))
        del call, report, result, error


def _forked() -> None:
    """Reset in the child of a fork: the threads that waited for jobs are the parent's."""
    global _jobs, _idle  # noqa: PLW0603 - one a process
    _jobs = SimpleQueue()
    _idle = SimpleQueue()


os.register_at_fork(after_in_child=_forked)


# Calls of code that users provide. Its exceptions and hangs do not reach the caller.


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
        return CodeOutcome(error=raised(error))


async def call(function: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """Call a user's code: a coroutine function here, any other function on a thread."""
    if is_coroutine_function(function):
        return await function(*args, **named)
    value = await on_thread(partial(function, *args, **named))
    return await value if inspect.isawaitable(value) else value


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


# Previews of tool calls: the effect of a call, described by its tool for the approver.

_Given = TypeVar("_Given")
SECONDS = 2.0
"""Maximum time for a preview, in seconds."""
LONGEST = 20_000
"""Maximum characters of a preview. An approver would not read more."""
LONGEST_NOTE = 300


def call_preview(function: Callable[..., Any], args: dict[str, Any]) -> Any:
    """Return the preview of a call by a function, running a coroutine to its end.

    Args:
        function: Takes the arguments as one dict.
        args: Arguments of the call, with secrets masked.
    """
    preview = function(args)
    if not hasattr(preview, "__await__"):
        return preview

    async def awaited() -> Any:
        return await preview

    return asyncio.run(awaited())


async def computed(
    preview: Callable[[_Given], Any],
    given: AbstractAsyncContextManager[_Given],
    mask: Callable[[Any], Any],
) -> Shown:
    """Return the information shown to an approver, computed on a thread within the time limit.

    Args:
        preview: Returns the preview. It may raise, hang, or return anything.
        given: Opens what the preview reads, and closes it.
        mask: Replaces secrets.
    """

    def compute(given: _Given) -> tuple[Any, BaseException | None]:
        try:
            return preview(given), None
        except BaseException as error:  # including exceptions that would end the process
            return None, error

    try:
        async with asyncio.timeout(SECONDS), given as opened:
            found, error = await on_thread(partial(compute, opened))
    except TimeoutError:
        return Shown(note=f"no preview: it took longer than {SECONDS:g} s")
    except StepError as failure:  # nothing was opened
        found, error = None, failure
    if error is not None:
        text = _storable(mask(describe(error)))
        return Shown(note=f"no preview: it failed with {text}"[:LONGEST_NOTE])
    if found is None:  # the tool has nothing to show
        return Shown()
    if not isinstance(found, str):
        return Shown(note=f"no preview: it is a {type(found).__name__}, not text")
    text = _storable(mask(found))
    if len(text) > LONGEST:
        return Shown(note=f"no preview: it has {len(text)} characters, more than {LONGEST}")
    return Shown(preview=text)


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
