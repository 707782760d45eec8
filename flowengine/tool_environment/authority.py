"""Approval of calls by a callback, and validation of decisions. In doubt, a call is rejected."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from flowengine.errors import InputError
from flowengine.sdk.exception_text import describe
from flowengine.sdk.tool_calls import ApprovalResponse, EnvironmentResponse, ToolCall
from flowengine.sdk.user_code import (
    CodeOutcome,
    bounded,
    call,
    is_coroutine_function,
)
from flowengine.tool_environment.errors import RegistrationError
from flowengine.tool_environment.turns import Turns

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
