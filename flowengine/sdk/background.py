"""The one thread on which the live environments of a process do their input and output.

A connection, a pipe or a child process belongs to the event loop it was opened in. Environments
are opened in one task, used in another and released in a third, under whatever loops the program
has, or none. So all of that happens on one loop of its own, which starts with the first use.
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
            work: What is to be done.

        Returns:
            A future for any thread.
        """
        import asyncio

        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def run(self, work: Coroutine[Any, Any, _Result], instead: str = "") -> _Result:
        """Do a coroutine's work and wait for it, blocking the calling thread.

        Interrupting the wait (Ctrl-C) cancels the work and waits until it has ended.

        Args:
            work: What is to be done.
            instead: The name of the coroutine function to call where a loop runs.

        Returns:
            What it returns.

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
        """Do a coroutine's work and await it in whatever loop the caller has.

        Cancelling the awaiting task cancels the work.

        Args:
            work: What is to be done.

        Returns:
            What it returns.
        """
        import asyncio

        if asyncio.get_running_loop() is self.loop:
            return await self.loop.create_task(work)
        return await asyncio.wrap_future(self.submit(work))

    async def see_through(self, work: Coroutine[Any, Any, _Result], bound: float) -> _Result:
        """Do a coroutine's work as `wait` does; being cancelled takes until the work has ended.

        Args:
            work: What is to be done.
            bound: Seconds that it has to end once it is cancelled.

        Returns:
            What it returns.

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
                # One round later: the task may be about to begin.
                self.loop.call_soon_threadsafe(self.loop.call_soon, cancel)
                await asyncio.wait([result], timeout=bound)
            raise

    def withdraw(self, future: Future[Any]) -> None:
        """Cancel the work of a future, and return when all that was cancelled has been told so."""
        future.cancel()
        passed = threading.Event()
        self.loop.call_soon_threadsafe(lambda: self.loop.call_soon(passed.set))
        passed.wait(1.0)


def background() -> Background:
    """Return the background loop of this process; it starts when it is first asked for."""
    global _current  # noqa: PLW0603 - one a process
    found = _current
    if found is not None and found.pid == os.getpid():
        return found
    with _lock:
        if _current is None or _current.pid != os.getpid():
            _current = Background()
        return _current


def refuse_in_loop(work: Coroutine[Any, Any, Any] | None, instead: str) -> None:
    """Refuse to block a thread that runs an event loop.

    Args:
        work: What would be waited for; it is closed.
        instead: The name of the coroutine function to call.

    Raises:
        RuntimeError: The thread runs an event loop.
    """
    if running_loop() is None:
        return
    if work is not None:
        work.close()
    raise RuntimeError(
        f"an event loop is running in this thread, and this would block it: await {instead}"
    )


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread, if any; loads no asyncio to find none."""
    import sys

    if "asyncio" not in sys.modules:
        return None
    import asyncio

    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _forked() -> None:
    """Reset in the child of a fork, which has neither the thread nor what the lock guards."""
    global _lock, _current  # noqa: PLW0603 - one a process
    _lock = threading.Lock()
    if _current is not None:
        import asyncio

        for task in asyncio.all_tasks(_current.loop):  # they go on in the parent
            task._log_destroy_pending = False  # type: ignore[attr-defined]
    _current = None


os.register_at_fork(after_in_child=_forked)
