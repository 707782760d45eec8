"""Observers, which receive calls that ran, and authorities, which approve calls."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections import UserDict
from collections.abc import Callable
from typing import Any

from flowengine.errors import InputError
from flowengine.sdk import StepError
from flowengine.sdk.argument_checks import check_kinds
from flowengine.sdk.exception_text import describe
from flowengine.sdk.plain_values import to_plain
from flowengine.sdk.tool_calls import (
    ApprovalResponse,
    EnvironmentResponse,
    Observer,
    ObserverResult,
    ToolCall,
    ToolResult,
)
from flowengine.sdk.user_code import CodeOutcome, bounded, call, is_coroutine_function
from flowengine.sdk.visible_text import cut_text
from flowengine.tool_environment.context import Turns
from flowengine.tool_environment.errors import RegistrationError

# Approval of calls by a callback, and validation of decisions. In doubt, a call is rejected.

AUTO = "auto"
"""Recorded approver of calls that are approved automatically."""

Callback = Callable[[ToolCall], Any]


class CallbackAuthority:
    """Requests decisions from a callback. Without a callback, it approves every call.

    Args:
        callback: Takes the call and returns an `ApprovalResponse`, a mapping with the same fields,
            or a boolean. It can be a coroutine function. None: every call is approved.
        timeout: Maximum seconds for the callback. None: unlimited.

    Raises:
        RegistrationError: The callback cannot be called with one argument.
    """

    def __init__(self, callback: Callback | None = None, *, timeout: float | None = None) -> None:
        check_kinds(float, timeout=timeout)
        if callback is not None:
            check_callback(callback, 1, "an approval callback")
        self.callback = callback
        self._timeout = timeout
        self._turns = None if callback is None or is_coroutine_function(callback) else Turns(1)
        """A blocking callback, such as a prompt at a terminal, receives one call at a time."""

    async def approve_tool(self, call_: ToolCall) -> EnvironmentResponse:
        """Request a decision about a call, without running it.

        Args:
            call_: The call.

        Returns:
            The decision. Anything other than a valid approval is a rejection, with the reason as
            feedback.
        """
        if self.callback is None:
            return EnvironmentResponse(result=ApprovalResponse(approved=True, by=AUTO))
        outcome = await self._ask(self.callback, call_)
        if outcome.late:
            decision = no(f"the approval callback did not answer within {self._timeout:g} s")
        elif outcome.error is not None:
            decision = no(f"the approval callback raised {describe(outcome.error)}")
        else:
            decision = read_decision(outcome.value, "the approval callback's answer")
        return EnvironmentResponse(result=decision.model_copy(update={"by": "callback"}))

    async def _ask(self, callback: Callback, call_: ToolCall) -> CodeOutcome:
        if self._turns is None:
            return await bounded(self._timeout, call(callback, call_))
        with self._turns.queue() as granted:
            if not granted.done():
                await asyncio.wrap_future(granted)
            return await bounded(self._timeout, call(callback, call_))


def no(why: str) -> ApprovalResponse:
    """Return a rejection for a reason other than the approver's."""
    return ApprovalResponse(approved=False, feedback=why[:2000])


def read_decision(given: Any, what: str) -> ApprovalResponse:
    """Validate a decision. An invalid one becomes a rejection with the reason.

    Args:
        given: The decision.
        what: Its name, for the reason.
    """
    try:
        return ApprovalResponse.of(given)
    except InputError as error:
        return no(f"{what} was refused: {error.message}")


def check_callback(callback: Any, arguments: int, what: str) -> None:
    """Check that a callback can be called with a number of arguments.

    Raises:
        RegistrationError: It cannot.
    """
    if not callable(callback):
        raise RegistrationError(f"{what} must be callable, not {type(callback).__name__}")
    try:
        inspect.signature(callback).bind(*range(arguments))
    except TypeError:
        raise RegistrationError(
            f"{what} is called with {arguments} argument{'s' if arguments > 1 else ''}; "
            f"{getattr(callback, '__name__', callback)!s} does not take them"
        ) from None
    except ValueError:  # a C function without a signature
        return


# Observers, which receive copies of every call that ran, concurrently, and cannot change it.

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
