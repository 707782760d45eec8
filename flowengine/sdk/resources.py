"""Live resources, with each verb in a blocking form and as a coroutine for any loop.

    class Counter(Resource):
        async def _add(self, n: int = 1) -> int:
            '''Add to the counter and return it.'''
            return await self.connection.add(n)

        add = blocking(_add)
        async_add = awaitable(_add)

The body of `_add` runs on the background loop. When the resource is released, a running call ends
first or is interrupted after a time limit. Later calls are refused.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Coroutine
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from flowengine.sdk.background import background, refuse_in_loop
from flowengine.sdk.errors import EnvironmentClosed, EnvironmentLost

if TYPE_CHECKING:
    from asyncio import Task

    from flowengine.sdk.sandboxes import Request

_Kind = TypeVar("_Kind", bound="Resource")
_Args = ParamSpec("_Args")
_Result = TypeVar("_Result")


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
            raise EnvironmentLost(f"{self.name} was closed; ensure it again")
        if self._closed:
            raise EnvironmentClosed(f"{self.name} was released; ensure it again")

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


def blocking(
    verb: Callable[Concatenate[_Kind, _Args], Coroutine[Any, Any, _Result]],
) -> Callable[Concatenate[_Kind, _Args], _Result]:
    """Return the blocking form of a verb.

    Inside a running loop it refuses and names the other form.

    Args:
        verb: A coroutine method, named with a leading underscore.

    Returns:
        A plain method.
    """
    name = verb.__name__.lstrip("_")

    def call(self: _Kind, /, *args: _Args.args, **kwargs: _Args.kwargs) -> _Result:
        self.check_open()
        refuse_in_loop(None, f"await async_{name}()")
        return background().run(self._call(lambda: verb(self, *args, **kwargs)))

    return _named(call, verb, name)


def awaitable(
    verb: Callable[Concatenate[_Kind, _Args], Coroutine[Any, Any, _Result]],
) -> Callable[Concatenate[_Kind, _Args], Coroutine[Any, Any, _Result]]:
    """Return a verb that is a coroutine for any loop.

    Args:
        verb: A coroutine method, named with a leading underscore.

    Returns:
        A coroutine method.
    """

    async def call(self: _Kind, /, *args: _Args.args, **kwargs: _Args.kwargs) -> _Result:
        self.check_open()
        return await background().wait(self._call(lambda: verb(self, *args, **kwargs)))

    return _named(call, verb, f"async_{verb.__name__.lstrip('_')}")


_Callable = TypeVar("_Callable", bound=Callable[..., Any])


def _named(call: _Callable, verb: Callable[..., Any], name: str) -> _Callable:
    update_wrapper(call, verb)
    call.__name__ = name
    return call
