"""Live resources, and the background thread that does their input and output."""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

from flowengine.sdk.environments.sandboxes import Request
from flowengine.sdk.errors import EnvironmentClosed, EnvironmentLost
from flowengine.util.blocking import imported
from flowengine.util.loops import new_event_loop

if TYPE_CHECKING:
    import asyncio
    from asyncio import Task
    from concurrent.futures import Future


# The background thread that does the input and output of a process's live environments.
#
# A connection, a pipe or a child process belongs to the event loop that opened it. Environments
# are opened in one task, used in another and released in a third, under any of the program's loops
# or none. All of this therefore happens on one separate loop, which starts on first use. Requests
# to models are sent there too, because their connections outlive the loop of an execution.

_Result = TypeVar("_Result")

_lock = threading.Lock()
_current: Background | None = None


class Background:
    """An event loop on a thread that ends with the process."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = new_event_loop()
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
            instead: The alternative if a loop is running, for the message.

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
        instead: The alternative, for the message.

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
    asyncio = imported("asyncio")
    return None if asyncio is None else asyncio._get_running_loop()


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


# Live resources, with each verb in a blocking form and as a coroutine for any loop.
#
#     class Counter(Resource):
#         async def _add(self, n: int = 1) -> int:
#             '''Add to the counter and return it.'''
#             return await self.connection.add(n)
#
#         add, async_add = both_forms(_add)
#
# The body of `_add` runs on the background loop. When the resource is released, a running call
# ends first or is interrupted after a time limit. Later calls are refused.

_Kind = TypeVar("_Kind", bound="HasVerbs")
_Args = ParamSpec("_Args")


class Resource:
    """Base of live resources.

    Args:
        request: The opening that it belongs to.
    """

    def __init__(self, request: Request) -> None:
        self.name = str(request.spec)
        """Names the environment in messages."""
        self.generation = request.generation
        """1 for the first opening of its spec, increased each time it is opened again."""
        self._pid = os.getpid()
        self._calls: dict[Task[Any], None] = {}
        self._cut = False
        self._closed = False

    @property
    def given_back(self) -> bool:
        """Whether the manager has closed it, so that it is unused and not healthy."""
        return self._closed

    def check_open(self) -> None:
        """Refuse use after the end, and in a process other than the one that opened it.

        Raises:
            EnvironmentClosed: It was released, or belongs to the parent of this process.
            EnvironmentLost: It was closed although it was still held.
        """
        if self._pid != os.getpid():
            raise EnvironmentClosed(f"{self.name} belongs to process {self._pid}, not to this one")
        if self._cut:
            raise EnvironmentLost(f"{self.name} was closed: ensure it again")
        if self._closed:
            raise EnvironmentClosed(f"{self.name} was released: ensure it again")

    async def finish(self, bound: float, *, lost: bool = False) -> None:
        """Refuse new calls, let running ones end, and interrupt those that do not end in time.

        The manager calls it on the background loop before the provider's `release`.

        Args:
            bound: Seconds that running calls have.
            lost: Whether holders remain. Their next use raises `EnvironmentLost`.
        """
        import asyncio

        self._closed = True
        if self._calls:
            await asyncio.wait(list(self._calls), timeout=bound)
        self._cut = lost or bool(self._calls)
        for task in list(self._calls):
            task.cancel()
        if self._calls:
            await asyncio.wait(list(self._calls), timeout=bound)

    async def cancelled_calls_ended(self) -> None:
        """Wait until cancelled calls have ended. Their callers may already have continued.

        A verb that refuses to run concurrently awaits this first.
        """
        import asyncio

        this = asyncio.current_task()
        ending = [task for task in self._calls if task is not this and task.cancelling()]
        if ending:
            await asyncio.wait(ending)

    async def _call(self, verb: Callable[[], Awaitable[_Result]]) -> _Result:
        """Run one call in a separate task."""
        import asyncio

        self.check_open()
        task = asyncio.current_task()
        assert task is not None
        self._calls[task] = None
        try:
            return await verb()
        except asyncio.CancelledError:
            if self._cut:
                raise EnvironmentLost(
                    f"{self.name} was released while in use, and the call was interrupted"
                ) from None
            raise
        finally:
            del self._calls[task]


class HasVerbs(Protocol):
    """An object with verbs: a resource, or an object that opens one."""

    def check_open(self) -> None:
        """Raise an error if it is not open."""

    async def _call(self, verb: Callable[[], Awaitable[_Result]]) -> _Result:
        """Run one call."""


def both_forms(
    verb: Callable[Concatenate[_Kind, _Args], Coroutine[Any, Any, _Result]],
) -> tuple[
    Callable[Concatenate[_Kind, _Args], _Result],
    Callable[Concatenate[_Kind, _Args], Coroutine[Any, Any, _Result]],
]:
    """Return the blocking and the asynchronous form of a verb, named `run` and `async_run`.

    Inside a running loop, the blocking form refuses and names the other one.

    Args:
        verb: A coroutine method, named with a leading underscore.

    Returns:
        A plain method, and a coroutine method for any loop.
    """
    name = verb.__name__.lstrip("_")

    def call(self: _Kind, /, *args: _Args.args, **kwargs: _Args.kwargs) -> _Result:
        self.check_open()
        refuse_in_loop(None, f"await async_{name}()")
        return background().run(self._call(lambda: verb(self, *args, **kwargs)))

    async def async_call(self: _Kind, /, *args: _Args.args, **kwargs: _Args.kwargs) -> _Result:
        self.check_open()
        return await background().wait(self._call(lambda: verb(self, *args, **kwargs)))

    return _named(call, verb, name), _named(async_call, verb, f"async_{name}")


_Callable = TypeVar("_Callable", bound=Callable[..., Any])


def _named(call: _Callable, verb: Callable[..., Any], name: str) -> _Callable:
    update_wrapper(call, verb)
    call.__name__ = name
    return call
