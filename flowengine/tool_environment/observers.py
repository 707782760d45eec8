"""Observers, which receive calls that ran, and authorities, which approve calls."""

from __future__ import annotations

import asyncio
import inspect
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
from flowengine.tool_environment.context import Turns
from flowengine.tool_environment.errors import RegistrationError

# Approval of calls by a callback. In doubt, a call is rejected.

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
        self._turns = Turns()

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
        # A blocking callback, such as a prompt at a terminal, receives one call at a time.
        with self._turns.queue(exclusive=not is_coroutine_function(self.callback)) as granted:
            if not granted.done():
                await asyncio.wrap_future(granted)
            outcome = await bounded(self._timeout, call(self.callback, call_))
        if outcome.late:
            decision = no(f"the approval callback did not answer within {self._timeout:g} s")
        elif outcome.error is not None:
            decision = no(f"the approval callback raised {describe(outcome.error)}")
        else:
            try:
                decision = ApprovalResponse.of(outcome.value)
            except InputError as error:
                decision = no(f"the approval callback's answer was refused: {error.message}")
        return EnvironmentResponse(result=decision.model_copy(update={"by": "callback"}))


def no(why: str) -> ApprovalResponse:
    """Return a rejection for a reason other than the approver's."""
    return ApprovalResponse(approved=False, feedback=why[:2000])


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


async def observe(
    observers: Observers,
    made: ToolCall,
    result: ToolResult,
    bound: float,
    mask: Callable[[Any], Any],
) -> dict[str, ObserverResult]:
    """Run the current observers on a call, concurrently.

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
        answer, error = data_of(await bounded(bound, call(observer.execute, *copies)), bound)
        return ObserverResult(
            observer_name=observer.name, observer_result=mask(answer), error=mask(error)
        )

    results = await asyncio.gather(*map(tell, observers.data.values()))
    return {each.observer_name: each for each in results}


def data_of(outcome: CodeOutcome, bound: float) -> tuple[Any, str | None]:
    """Return the result of external code as data, and why there is none.

    Args:
        outcome: How the code ended.
        bound: Its maximum seconds.
    """
    if (fault := outcome.fault(bound)) is not None:
        return None, fault
    try:
        return to_plain(outcome.value), None
    except StepError as error:
        return None, f"it returned something that is not data: {error.message}"
