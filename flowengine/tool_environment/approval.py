"""Approval of calls: the authority, its callback, and open questions. In doubt, no."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from typing import Any, Literal

from flowengine.engines.tool_authority import decision_of
from flowengine.errors import InputError
from flowengine.sdk import StepError
from flowengine.sdk.python.argument_checks import check_kinds
from flowengine.sdk.python.user_code import bounded, is_coroutine_function, lasting
from flowengine.sdk.python.user_code import call as call_plugin
from flowengine.sdk.steps.previews import Shown
from flowengine.sdk.texts.exception_text import describe
from flowengine.sdk.tools.tool_calls import ApprovalResponse, EnvironmentResponse, ToolCall
from flowengine.tool_environment.calls import Call, resolve
from flowengine.tool_environment.context import Turns
from flowengine.tool_environment.errors import DecisionError
from flowengine.tool_environment.observers import check_callback
from flowengine.tool_environment.registration import Registering

AUTO, BY_TOOL = "auto", "tool"
"""Recorded approvers of calls that are approved automatically, and that require no approval."""
AutoApprove = Literal["nothing", "asking", "everything"]
Callback = Callable[[ToolCall], Any]
DEFERRED = ApprovalResponse(approved=False, decision="defer")


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
            await asyncio.wrap_future(granted)
            outcome = await bounded(self._timeout, call_plugin(self.callback, call_))
        try:
            if outcome.late:
                decision = _no(f"the approval callback did not answer within {self._timeout:g} s")
            elif outcome.error is not None:
                decision = _no(f"the approval callback raised {describe(outcome.error)}")
            else:
                decision = ApprovalResponse.of(outcome.value)
        except InputError as error:
            decision = _no(f"the approval callback's answer was refused: {error.message}")
        return EnvironmentResponse(result=decision.model_copy(update={"by": "callback"}))


def _no(why: str) -> ApprovalResponse:
    """Return a rejection for a reason other than the approver's."""
    return ApprovalResponse(approved=False, feedback=why[:2000])


class Deciding(Registering):
    """The part of an environment that decides about its calls."""

    authority: Any
    _auto: AutoApprove
    _warned = False

    def register_tool_approval_callback(
        self, callback: Callback, *, timeout: float | None = None
    ) -> None:
        """Request decisions about all calls from a callback.

        Args:
            callback: Takes the `ToolCall` and returns an `ApprovalResponse`, a mapping with its
                fields, or a boolean. It can be a coroutine function.
            timeout: Maximum seconds for the callback. A late decision counts as a rejection.

        Raises:
            RegistrationError: It cannot be called with a call.
        """
        self.authority = CallbackAuthority(callback, timeout=timeout)

    def clear_tool_approval_callback(self) -> None:
        """Remove the approval callback. It still decides open questions."""
        self.authority = CallbackAuthority()

    def decide(
        self, call_id: str, decision: ApprovalResponse | Mapping[str, Any], *, by: str = "person"
    ) -> None:
        """Answer an open question. The first decision counts.

        Args:
            call_id: Id of the call.
            decision: The decision.
            by: The approver.

        Raises:
            DecisionError: The question does not exist, or the decision is invalid. The question
                remains unchanged.
        """
        call = self._known(call_id, DecisionError)
        if call.question is None or call.question.done():
            how = f", it is {call.signal.reason}" if call.signal.aborted else ""
            raise DecisionError("not_open", f"call '{call_id}' has no open question{how}")
        try:
            checked = _checked(call, decision)
        except InputError as error:
            raise DecisionError("invalid_decision", error.message, field=error.field) from None
        if checked.decision != "defer":
            resolve(call.question, checked.model_copy(update={"by": by}))

    def questions(self) -> list[ToolCall]:
        """Return the calls with an open question, with secrets masked, in order of registration."""
        open_ones = (call for call in [*self._calls.values()] if call.question is not None)
        return [self._watchers.copy(call.view()) for call in open_ones]

    def _automatic(self, call: Call) -> ApprovalResponse | None:
        """Return the automatic decision about a call, or None if a decision must be requested."""
        needed = call.options.approval
        is_auto = self._auto == "everything" or (self._auto == "asking" and needed != "required")
        if needed == "none":
            by = BY_TOOL
        elif is_auto and not _can_decide(self.authority):
            by = AUTO
            if not self._warned:
                self._warned = True
                why = "calls are approved without a question: no approval callback is registered"
                self._watchers.warn("auto_approval", why)
        else:
            return None
        return self._told(call, ApprovalResponse(approved=True, by=by))

    async def _requested(self, call: Call, preview: Awaitable[Shown]) -> ApprovalResponse | None:
        """Return the first decision about a call. None: the call must stop."""
        question = call.question = lasting()
        self._watchers.send("approval", call, call=call.view())
        asking = asyncio.ensure_future(self._ask_authority(call, preview, question))
        try:
            await call.signal.async_wait(question)
            return self._told(call, question.result()) if question.done() else None
        finally:
            resolve(question, DEFERRED)
            call.question = None
            asking.cancel()

    async def _ask_authority(
        self, call: Call, preview: Awaitable[Shown], question: Future[ApprovalResponse]
    ) -> None:
        """Answer a question with the decision of the authority, which leaves it open if it defers.

        One that replaces the authority meanwhile is not asked.
        """
        authority, shown = self.authority, await preview
        if any(shown):
            self._watchers.send("preview", call, **shown._asdict())
        decision = await self._authority_says(call, shown, authority)
        if decision.decision != "defer":
            resolve(question, decision)

    async def _authority_says(
        self, call: Call, shown: Shown, authority: Any = None
    ) -> ApprovalResponse:
        """Return the decision of an authority about a call."""
        authority = authority or self.authority
        if not _can_decide(authority):
            return DEFERRED
        view = self._watchers.copy(call.view())
        view.preview, view.preview_note = shown
        decision = await decision_of(authority.approve_tool(view))
        try:
            decision = _checked(call, decision)
        except InputError as error:
            decision = _no(f"the authority's answer was refused: {error.message}")
        if decision.decision == "defer":
            self._watchers.send("deferred", call)
        return decision.model_copy(update={"by": decision.by or type(authority).__name__})

    def _told(self, call: Call, decision: ApprovalResponse) -> ApprovalResponse:
        auto = self._auto if decision.by == AUTO else None
        shown = {name: getattr(decision, name) for name in ("decision", "by", "feedback", "args")}
        self._watchers.send("decided", call, **shown, auto_approve=auto)
        return decision


def _can_decide(authority: Any) -> bool:
    return not isinstance(authority, CallbackAuthority) or authority.callback is not None


def _checked(call: Call, given: Any) -> ApprovalResponse:
    """Return a decision about a call.

    Raises:
        InputError: It is not valid, or its arguments do not fit the schema of the tool.
    """
    decision = ApprovalResponse.of(given)
    if decision.args is not None:
        if missing := call.args.keys() - decision.args.keys():
            raise InputError(f"args: '{min(missing)}' cannot be taken away", field="args")
        try:
            call.definition.convert(call.unmasked(decision.args))
        except (InputError, StepError) as error:
            raise InputError(f"args: {error}", field="args") from None
    return decision
