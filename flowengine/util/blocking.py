"""Operations that are written once, to block in plain code and to be awaited on an event loop.

An operation is a coroutine function. Wherever it waits, it awaits an `Either`, which has both ways
of waiting. `blocking` makes a plain function of it, which needs no event loop, and `on_loop` makes
the function with the same parameters that is awaited:

    @blocking
    async def run(self, flow: str) -> Result:
        return await Either(partial(drive, flow), partial(drive_on_loop, flow))

    run_async = on_loop(run)
"""

from __future__ import annotations

import sys
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterator,
)
from functools import partial, wraps
from typing import Any, Generic, ParamSpec, TypeVar

from flowengine.errors import UsageError
from flowengine.util.loops import new_event_loop

P = ParamSpec("P")
T = TypeVar("T")


class Either(Generic[T]):
    """Something that takes time, in two ways. Only operations may await it.

    Args:
        plain: Blocks until it is done, and returns its result.
        awaited: Returns what to await on the running event loop.
    """

    def __init__(self, plain: Callable[[], T], awaited: Callable[[], Awaitable[T]]) -> None:
        self.plain = plain
        self.awaited = awaited

    def __await__(self) -> Generator[Any, Any, T]:
        result: T = yield self
        return result


def blocking(operation: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Return a plain function that blocks until an operation has ended."""

    @wraps(operation)
    def plain(*args: P.args, **named: P.kwargs) -> T:
        return finished(operation(*args, **named))

    return plain


def finished(operation: Coroutine[Any, Any, T]) -> T:
    """Block until an operation has ended, and return its result."""
    go_on: Callable[[], Either[Any]] = partial(operation.send, None)
    while True:
        try:
            step = go_on()
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            del go_on  # it may hold an error, whose traceback holds this frame
        try:
            go_on = partial(operation.send, step.plain())
        except BaseException as error:
            go_on = partial(operation.throw, error)


def on_loop(method: Callable[P, T], more: str = "") -> Callable[P, Coroutine[Any, Any, T]]:
    """Return the function that awaits the operation of a plain one on the running event loop.

    Args:
        method: As returned by `blocking`.
        more: How it differs, for its description.
    """
    operation: Callable[P, Coroutine[Any, Any, T]] = method.__wrapped__  # type: ignore[attr-defined]

    @wraps(operation)
    async def awaited(*args: P.args, **named: P.kwargs) -> T:
        return await on_this_loop(operation(*args, **named))

    awaited.__name__ = f"{operation.__name__}_async"
    awaited.__qualname__ = f"{operation.__qualname__}_async"
    awaited.__doc__ = f"Like `{operation.__name__}`, on the running event loop. {more}".rstrip()
    return awaited


async def on_this_loop(operation: Coroutine[Any, Any, T]) -> T:
    """Await an operation on the running event loop, and return its result."""
    go_on: Callable[[], Either[Any]] = partial(operation.send, None)
    while True:
        try:
            step = go_on()
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            del go_on  # as in `finished`
        try:
            go_on = partial(operation.send, await step.awaited())
        except BaseException as error:
            go_on = partial(operation.throw, error)


async def is_awaited() -> bool:
    """Return whether the operation that calls this is awaited on an event loop."""

    async def yes() -> bool:
        return True

    return await Either(lambda: False, yes)


def items(source: AsyncGenerator[T]) -> Iterator[T]:
    """Yield the items of a generator of operations, and block until each is there."""
    try:
        while True:
            try:
                item = finished(source.__anext__())
            except StopAsyncIteration:
                return
            yield item
    finally:
        finished(source.aclose())


async def items_on_loop(source: AsyncGenerator[T]) -> AsyncIterator[T]:
    """Yield the items of a generator of operations, each awaited on the running event loop."""
    try:
        while True:
            try:
                item = await on_this_loop(source.__anext__())
            except StopAsyncIteration:
                return
            yield item
    finally:
        await on_this_loop(source.aclose())


def pause(seconds: float) -> Either[None]:
    """Wait for some time."""

    async def sleep() -> None:
        import asyncio

        await asyncio.sleep(seconds)

    return Either(partial(time.sleep, seconds), sleep)


def off_loop(function: Callable[P, T], /, *args: P.args, **named: P.kwargs) -> Either[T]:
    """Call a function that blocks, on another thread if an event loop runs in this one."""

    async def on_thread() -> T:
        import asyncio

        return await asyncio.to_thread(function, *args, **named)

    return Either(partial(function, *args, **named), on_thread)


def run_on_new_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a new event loop, and return its result.

    An interrupt (SIGINT) waits until the loop is made. Unlike `asyncio.run`, it leaves no half of
    a loop and no coroutine for Python to warn of.
    """
    import asyncio
    import signal
    import threading

    held: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGINT) if is_main else None
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            if callable(handler):
                signal.signal(signal.SIGINT, lambda number, _: held.append(number))
            try:
                runner.get_loop()
            finally:
                if callable(handler):
                    signal.signal(signal.SIGINT, handler)
            if held:
                raise KeyboardInterrupt
            return runner.run(work)
    finally:
        work.close()


def imported(name: str) -> Any:
    """Return a module that is completely imported, or None."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    return None if getattr(spec, "_initializing", False) else module


def refuse_on_loop() -> None:
    """Refuse to block an event loop that runs in this thread.

    Raises:
        UsageError: An event loop is running in this thread.
    """
    asyncio = imported("asyncio")
    if asyncio is not None and asyncio._get_running_loop() is not None:
        raise UsageError(
            "an event loop is running in this thread, and this call would block it",
            hint="await the method with the same name ending in _async",
        )
