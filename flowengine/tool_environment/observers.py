"""Listeners, observers and execution callbacks, which see calls and cannot change them."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import UserDict
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from pydantic import BaseModel

from flowengine.sdk import StepError
from flowengine.sdk.python.user_code import bounded
from flowengine.sdk.python.user_code import call as call_plugin
from flowengine.sdk.tools.tool_calls import Observer, ObserverResult, ToolCall, ToolResult
from flowengine.sdk.values.plain_values import to_plain
from flowengine.tool_environment.calls import Call
from flowengine.tool_environment.errors import RegistrationError

Listener = Callable[[dict[str, Any]], object]
_Model = TypeVar("_Model", bound=BaseModel)


def check_callback(callback: Any, arguments: int, what: str) -> None:
    """Check that a callback can be called with a number of arguments.

    Raises:
        RegistrationError: It cannot.
    """
    try:
        inspect.signature(callback).bind(*range(arguments))
    except TypeError as error:
        many = "s" if arguments > 1 else ""
        raise RegistrationError(
            f"{what} is called with {arguments} argument{many}: {error}"
        ) from None
    except ValueError:  # a C function without a signature
        return


class Observers(UserDict[str, Observer]):
    """Observers by name, in the order in which they were added, each validated when added."""

    def __setitem__(self, name: str, observer: Observer) -> None:
        own = getattr(observer, "name", None)
        if not isinstance(own, str) or not own.strip() or own != name:
            raise RegistrationError(
                f"{type(observer).__name__} is not an observer that can be added as {name!r}: its "
                f"name is {own!r}"
            )
        if self.data.get(name, observer) is not observer:
            raise RegistrationError(f"there is already an observer '{name}'")
        check_callback(getattr(observer, "execute", None), 2, f"'execute' of the observer '{name}'")
        self.data[name] = observer


class Watchers:
    """Receives reports about the calls of an environment: listeners, observers and callbacks.

    Args:
        mask: Replaces secrets.
        bound: Maximum seconds for an observer or a callback.
    """

    def __init__(self, mask: Callable[[Any], Any], bound: float) -> None:
        self.mask = mask
        self.observers = Observers()
        self.listeners: list[Listener] = []
        self.callbacks: dict[str, Any] = {}
        self._bound = bound

    def send(self, kind: str, about: Call | None, **fields: Any) -> None:
        """Send a message to the listeners, on any thread."""
        if not self.listeners:
            return
        if about is not None:
            fields |= {"tool_call_id": about.id, "tool_name": about.tool}
        plain = {
            name: value.model_dump() if isinstance(value, BaseModel) else value
            for name, value in fields.items()
        }
        message = {"type": kind, **self.mask(plain)}
        for listener in [*self.listeners]:
            try:
                listener(message)
            except Exception:
                logging.getLogger("flowengine.tools").exception("a listener failed")

    def warn(self, code: str, message: str, about: Call | None = None) -> None:
        """Send a warning to the listeners."""
        self.send("warning", about, code=code, message=message)

    def copy(self, model: _Model) -> _Model:
        """Return a copy of a call or a result with secrets masked."""
        return type(model).model_validate(self.mask(model.model_dump()))

    async def notify(self, which: str, *models: BaseModel) -> None:
        """Call the callback `start` or `end` with copies of its arguments."""
        if (callback := self.callbacks.get(which)) is not None:
            called = call_plugin(callback, *map(self.copy, models))
            if (why := (await bounded(self._bound, called)).fault(self._bound)) is not None:
                self.warn("callback", f"the callback '{which}': {why}")

    async def observe(self, made: ToolCall, result: ToolResult) -> dict[str, ObserverResult]:
        """Run the current observers on a call that ran, concurrently, on copies.

        Returns:
            Their results, in the order of the observers.
        """

        async def call(observer: Observer) -> ObserverResult:
            called = call_plugin(observer.execute, self.copy(made), self.copy(result))
            answer, error = await data_of(called, self._bound)
            return ObserverResult(
                observer_name=observer.name,
                observer_result=self.mask(answer),
                error=self.mask(error),
            )

        results = await asyncio.gather(*map(call, self.observers.data.values()))
        return {each.observer_name: each for each in results}


async def data_of(work: Awaitable[Any], bound: float) -> tuple[Any, str | None]:
    """Return the result of external code as data, and why there is none.

    Args:
        work: The code.
        bound: Its maximum seconds.
    """
    outcome = await bounded(bound, work)
    if (fault := outcome.fault(bound)) is not None:
        return None, fault
    try:
        return to_plain(outcome.value), None
    except StepError as error:
        return None, f"it returned something that is not data: {error.message}"
