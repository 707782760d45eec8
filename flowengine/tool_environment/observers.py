"""Observers, which receive copies of every call that ran, concurrently, and cannot change it."""

from __future__ import annotations

import asyncio
import json
from collections import UserDict
from collections.abc import Callable
from typing import Any

from flowengine.sdk import StepError
from flowengine.sdk.plain_values import to_plain
from flowengine.sdk.text_ends import cut_text
from flowengine.sdk.tool_calls import Observer, ObserverResult, ToolCall, ToolResult
from flowengine.sdk.user_code import bounded, call
from flowengine.tool_environment.authority import check_callback
from flowengine.tool_environment.errors import RegistrationError

LARGEST = 64 * 1024
"""Maximum characters of an observer's result."""


class Observers(UserDict[str, Observer]):
    """Observers by name, in the order in which they were added, each validated when added."""

    def __setitem__(self, name: str, observer: Observer) -> None:
        check_observer(observer, name)
        there = self.data.setdefault(name, observer)
        if there is not observer:
            raise RegistrationError(f"there is already an observer '{name}'")

    def now(self) -> list[Observer]:
        """Return a list of the current observers."""
        return list(self.data.values())


def check_observer(observer: Any, name: str | None = None) -> str:
    """Validate an observer, and return its name.

    Args:
        observer: The observer.
        name: The name under which it is added. Default: its own.

    Raises:
        RegistrationError: An attribute is missing or invalid, or its name is a different one.
    """
    own = getattr(observer, "name", None)
    if not isinstance(own, str) or not own.strip():
        raise RegistrationError(f"{type(observer).__name__} is not an observer: it has no name")
    if name is not None and name != own:
        raise RegistrationError(f"the observer '{own}' cannot be added as '{name}'")
    execute = getattr(observer, "execute", None)
    if execute is None:
        raise RegistrationError(f"the observer '{own}' has no 'execute'")
    check_callback(execute, 2, f"'execute' of the observer '{own}'")
    return own


async def observe(
    observers: list[Observer],
    made: ToolCall,
    result: ToolResult,
    bound: float,
    mask: Callable[[Any], Any],
) -> dict[str, ObserverResult]:
    """Run observers on a call, concurrently.

    Args:
        observers: The observers.
        made: The call.
        result: Its result.
        bound: Maximum seconds for each observer.
        mask: Replaces secrets.

    Returns:
        Their results, in the order of the observers.
    """

    async def tell(observer: Observer) -> ObserverResult:
        copies = made.model_copy(deep=True), result.model_copy(deep=True)
        outcome = await bounded(bound, call(observer.execute, *copies))
        answer, error = None, outcome.fault(bound)
        if error is None:
            answer, error = as_data(outcome.value)
        return ObserverResult(
            observer_name=observer.name,
            observer_result=mask(answer),
            error=None if error is None else mask(cut_text(error, LARGEST)),
            in_conversation=getattr(observer, "in_conversation", False) is True,
        )

    results = await asyncio.gather(*map(tell, observers))
    return {each.observer_name: each for each in results}


def as_data(value: Any) -> tuple[Any, str | None]:
    """Return the result of external code as limited data, and a note about anything unusual."""
    if value is None:
        return None, "it returned nothing"
    try:
        plain = to_plain(value)
    except StepError as error:
        return None, f"it returned something that is not data: {error.message}"
    if isinstance(plain, bytes):
        return None, f"it returned {len(plain)} bytes; give text or a map"
    text = plain if isinstance(plain, str) else json.dumps(plain, default=repr)
    if len(text) <= LARGEST:
        usual = isinstance(plain, str | dict)
        return plain, None if usual else f"it returned a {type(plain).__name__}; give text or a map"
    return cut_text(text, LARGEST), f"it returned {len(text)} characters, which were cut"
