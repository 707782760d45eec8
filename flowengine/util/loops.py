"""The event loops of this program, which users' code does not end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Awaitable, Generator, Iterator
from functools import partial
from types import CodeType
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future

T = TypeVar("T")


def new_event_loop() -> AbstractEventLoop:
    """Return a loop that no task or callback ends: by `SystemExit`, `KeyboardInterrupt`, or `stop`.

    asyncio would leave the loop, although the task has failed with the exception as with any other.
    """
    import asyncio

    class Loop(asyncio.SelectorEventLoop):
        awaited: Future[Any] | None = None

        def run_until_complete(self, future: Generator[Any, None, T] | Awaitable[T]) -> T:
            task: Future[T] = asyncio.ensure_future(cast("Awaitable[T]", future), loop=self)
            self.awaited = task
            try:
                return super().run_until_complete(task)
            except BaseException:
                if task.done() and not task.cancelled():
                    task.exception()  # it is raised here: asyncio would warn that nothing read it
                raise
            finally:
                self.awaited = None

        def run_forever(self) -> None:
            while True:
                try:
                    super().run_forever()
                    if self.awaited is None or self.awaited.done():
                        return
                except (SystemExit, KeyboardInterrupt) as error:
                    is_over = self.awaited is not None and self.awaited.done()
                    # Otherwise, a handler of a signal has raised it while the loop waited.
                    is_of_callback = asyncio.Handle._run.__code__ in codes_of(error)
                    if is_over or is_interrupt(error) or not is_of_callback:
                        raise

    return Loop()


def is_interrupt(error: BaseException) -> bool:
    """Return whether an exception interrupts the program (Ctrl-C), and code has not raised it.

    A handler of SIGINT in Python raises it, in the main thread. Only of Python's own, which has no
    frame, nothing is known.
    """
    if not isinstance(error, KeyboardInterrupt):
        return False
    handler: Any = signal.getsignal(signal.SIGINT)
    while isinstance(handler, partial):
        handler = handler.func
    code = getattr(getattr(handler, "__func__", handler), "__code__", None)
    if code is None:
        return threading.current_thread() is threading.main_thread()
    return code in codes_of(error)


def codes_of(error: BaseException) -> Iterator[CodeType]:
    """Yield the code of the frames that an exception has passed."""
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame.f_code
        trace = trace.tb_next
