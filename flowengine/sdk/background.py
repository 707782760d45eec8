"""The background thread that does the input and output of a process's live environments.

A connection, a pipe or a child process belongs to the event loop that opened it. Environments are
opened in one task, used in another and released in a third, under any of the program's loops or
none. All of this therefore happens on one separate loop, which starts on first use. Requests to
models are sent there too, because their connections outlive the loop of an execution.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine
    from concurrent.futures import Future

_Result = TypeVar("_Result")

_lock = threading.Lock()
_current: Background | None = None


class Background:
    """An event loop on a thread that ends with the process."""

    def __init__(self) -> None:
        import asyncio

        self.pid = os.getpid()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(
            target=self.loop.run_forever, name="flowengine-environments", daemon=True
        )
        self.thread.start()

    def submit(self, work: Coroutine[Any, Any, _Result]) -> Future[_Result]:
        """Start a coroutine and return its future, which also cancels it.

        Args:
            work: The coroutine.

        Returns:
            A future for any thread.
        """
        import asyncio

        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def run(self, work: Coroutine[Any, Any, _Result], instead: str = "") -> _Result:
        """Run a coroutine and wait for it, blocking the calling thread.

        Interrupting the wait (Ctrl-C) cancels the coroutine and waits until it has ended.

        Args:
            work: The coroutine.
            instead: What to do instead if a loop is running, for the message.

        Returns:
            The coroutine's result.

        Raises:
            RuntimeError: The thread runs an event loop, which this would block.
        """
        refuse_in_loop(work, instead)
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            if not future.done():
                self.withdraw(future)
            raise

    async def wait(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Run a coroutine and await it in the caller's loop, which may be any loop.

        Cancelling the awaiting task cancels the coroutine.

        Args:
            work: The coroutine.

        Returns:
            The coroutine's result.
        """
        import asyncio

        if asyncio.get_running_loop() is self.loop:
            return await self.loop.create_task(work)
        return await asyncio.wrap_future(self.submit(work))

    async def see_through(self, work: Coroutine[Any, Any, _Result], bound: float) -> _Result:
        """Run a coroutine like `wait`, but let cancellation wait until it has ended.

        Args:
            work: The coroutine.
            bound: Seconds within which it must end once cancelled.

        Returns:
            The coroutine's result.

        Raises:
            CancelledError: The awaiting task was cancelled.
        """
        import asyncio

        if asyncio.get_running_loop() is self.loop:
            return await self.loop.create_task(work)
        tasks: list[asyncio.Task[_Result]] = []

        async def noted() -> _Result:
            tasks.extend(filter(None, [asyncio.current_task()]))
            return await work

        def cancel() -> None:
            for task in tasks:
                task.cancel()

        result = asyncio.wrap_future(self.submit(noted()))
        try:
            return await asyncio.shield(result)
        except asyncio.CancelledError:
            if not result.done():
                # One loop iteration later: the task may be about to start.
                self.loop.call_soon_threadsafe(self.loop.call_soon, cancel)
                await asyncio.wait([result], timeout=bound)
            raise

    def withdraw(self, future: Future[Any]) -> None:
        """Cancel the work of a future, and return when everything cancelled has been notified."""
        future.cancel()
        passed = threading.Event()
        self.loop.call_soon_threadsafe(lambda: self.loop.call_soon(passed.set))
        passed.wait(1.0)


def background() -> Background:
    """Return the background loop of this process, which starts on first use."""
    global _current  # noqa: PLW0603 - one a process
    loop = _current
    if loop is not None and loop.pid == os.getpid():
        return loop
    with _lock:
        if _current is None or _current.pid != os.getpid():
            _current = Background()
        return _current


def refuse_in_loop(work: Coroutine[Any, Any, Any] | None, instead: str) -> None:
    """Refuse to block a thread that runs an event loop.

    Args:
        work: The coroutine that would be awaited. It is closed.
        instead: What to do instead, for the message.

    Raises:
        RuntimeError: The thread runs an event loop.
    """
    if running_loop() is None:
        return
    if work is not None:
        work.close()
    raise RuntimeError(
        f"an event loop is running in this thread, and this would block it: {instead}"
    )


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread, if any, without importing asyncio."""
    import sys

    if "asyncio" not in sys.modules:
        return None
    import asyncio

    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _forked() -> None:
    """Reset in the child of a fork, where the thread does not exist and the lock guards nothing."""
    global _lock, _current  # noqa: PLW0603 - one a process
    _lock = threading.Lock()
    if _current is not None:
        import asyncio

        for task in asyncio.all_tasks(_current.loop):  # they continue in the parent
            task._log_destroy_pending = False  # type: ignore[attr-defined]
    _current = None


os.register_at_fork(after_in_child=_forked)
