"""Observers: told of every call that ran, beside each other, on copies; they can change nothing."""

from __future__ import annotations

import asyncio
import json
from collections import UserDict
from collections.abc import Callable
from typing import Any

from flowengine.engines.attempts.serialization import to_plain
from flowengine.sdk import StepError
from flowengine.sdk.tool_calls import Observer, ObserverResult, ToolCall, ToolResult
from flowengine.tool_environment.authority import check_callback
from flowengine.tool_environment.errors import RegistrationError
from flowengine.tool_environment.feed import cut_text
from flowengine.tool_environment.outcomes import bounded, call

LARGEST = 64 * 1024
"""Characters of what one observer says."""


class Observers(UserDict[str, Observer]):
    """Observers by name, in the order in which they were added; each is checked when it is."""

    def __setitem__(self, name: str, observer: Observer) -> None:
        check_observer(observer, name)
        there = self.data.setdefault(name, observer)
        if there is not observer:
            raise RegistrationError(f"there is already an observer '{name}'")

    def now(self) -> list[Observer]:
        """Return those that there are at this moment."""
        return list(self.data.values())


def check_observer(observer: Any, name: str | None = None) -> str:
    """Refuse what is no observer; return its name.

    Args:
        observer: What was given.
        name: The name it is added under; default: its own.

    Raises:
        RegistrationError: It lacks something, or its name is another one.
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
    """Tell observers of a call, all at once.

    Args:
        observers: Whom.
        made: The call.
        result: Its result.
        bound: Seconds that each has.
        mask: Replaces secrets.

    Returns:
        What each said, in the order of the observers.
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

    found = await asyncio.gather(*map(tell, observers))
    return {each.observer_name: each for each in found}


def as_data(value: Any) -> tuple[Any, str | None]:
    """Return what code of somebody else gave as data within bounds, and what is odd about it."""
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
