"""Questions whether a call may run, answered by the first valid decision from any source."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Literal

from flowengine.engines.attempts.serialization import copy
from flowengine.engines.people.tool_authority import decision_of
from flowengine.errors import FlowEngineError, InputError
from flowengine.sdk.tool_calls import ApprovalResponse, EnvironmentResponse, ToolCall
from flowengine.sdk.user_code import Shown, lasting
from flowengine.tool_environment.call import AdmittedCall
from flowengine.tool_environment.errors import DecisionError
from flowengine.tool_environment.observers import AUTO, CallbackAuthority, no
from flowengine.tool_environment.registry import EnvironmentParts
from flowengine.tool_environment.tools import ArgumentFault

AutoApprove = Literal["nothing", "asking", "everything"]
BY_TOOL = "tool"
"""Recorded approver of calls to tools that require no approval."""
_DEFERRED = ApprovalResponse(approved=False, decision="defer")


class Questions:
    """Requests decisions about the calls of one environment.

    Args:
        parts: The environment's parts.
        environment: Has the `authority` that decides, and the `client`.
        auto: Calls to approve automatically if no approver is available.
    """

    def __init__(self, parts: EnvironmentParts, environment: Any, auto: AutoApprove) -> None:
        self._parts = parts
        self._environment = environment
        self._auto = auto
        self._warned = False

    def answer(self, call: AdmittedCall) -> ApprovalResponse | None:
        """Return the automatic decision about a call, or None if a decision must be requested."""
        if call.options.approval == "none":
            decision = ApprovalResponse(approved=True, by=BY_TOOL)
        elif self._approves_itself(required=call.options.approval == "required"):
            if not self._warned:
                self._warned = True
                why = "calls are approved without a question: no approval callback is registered"
                self._parts.warn("auto_approval", why)
            decision = ApprovalResponse(approved=True, by=AUTO)
        else:
            return None
        call.move("approval", call=call.view(), asked=False)
        self._tell(call, decision)
        return decision

    def _approves_itself(self, *, required: bool) -> bool:
        authority, client = self._environment.authority, self._environment.client
        if not isinstance(authority, CallbackAuthority) or authority.callback is not None:
            return False
        has_client = client is not None and getattr(client, "decides", True) is not False
        may = self._auto == "asking" and not required and not has_client
        return may or self._auto == "everything"

    async def ask(
        self, call: AdmittedCall, asked: ToolCall, preview: Awaitable[Shown]
    ) -> EnvironmentResponse:
        """Request a decision about a call, unless there is one already.

        Args:
            call: The call.
            asked: The call as the engine asks about it.
            preview: Its preview, which is being computed.

        Returns:
            The decision for the engine. It is deferred if the call must stop.
        """
        decision = call.decision or await self.decision(call, preview)
        if decision is None:
            return EnvironmentResponse(result=_DEFERRED)
        call.decision = decision
        fields = {name: getattr(decision, name) for name in ("feedback", "content", "args")}
        return EnvironmentResponse(result=decision.model_copy(update=self._parts.mask(fields)))

    def refused(self, call: AdmittedCall, error: FlowEngineError) -> None:
        """Drop the decision about a call, because it is invalid or another one was made before."""
        decision, call.decision = call.decision, None
        if decision is not None:
            call.refusal = f"the decision of {decision.by} is not valid: {error.message}"

    async def decision(
        self, call: AdmittedCall, preview: Awaitable[Shown]
    ) -> ApprovalResponse | None:
        """Return the first decision about a call. None: the call must stop.

        Args:
            call: The call.
            preview: Its preview, which is being computed.
        """
        question, asking = call.question, None
        if question is None:
            question = call.question = lasting()
            call.move("approval", call=call.view(), asked=True, tool=call.definition.metadata())
            asking = asyncio.ensure_future(self._ask_authority(call, preview))
        waiting = asyncio.wrap_future(question)
        try:
            if not await call.unless_stopped(waiting):
                return None
        finally:
            waiting.cancel()
            if asking is not None:
                call.decide(_DEFERRED)
                call.question = None
                asking.cancel()
        if asking is not None:
            self._tell(call, question.result())
        return question.result()

    async def _ask_authority(self, call: AdmittedCall, preview: Awaitable[Shown]) -> None:
        """Request a decision from the authority, unless only clients or other processes decide."""
        authority, shown = self._environment.authority, await preview
        if any(shown):
            call.tell("preview", **shown._asdict())
        if isinstance(authority, CallbackAuthority) and authority.callback is None:
            return
        view = self._parts.shown(call)
        view.preview, view.preview_note = shown
        decision = await decision_of(authority.approve_tool(view))
        try:
            self._checked(call, decision)
        except InputError as error:
            decision = no(f"the authority's answer was refused: {error.message}")
        if decision.decision == "defer":
            call.tell("deferred")
            if call.started:  # otherwise it is requested again when the call is made
                return
        by = decision.by or type(authority).__name__
        call.decide(decision.model_copy(update={"by": by}))

    def decide(self, call_id: str, given: Any, by: str) -> None:
        """Apply a decision from outside. The first one counts.

        Args:
            call_id: Id of the call.
            given: An `ApprovalResponse`, or a mapping with its fields.
            by: The approver.

        Raises:
            DecisionError: No such question is open, or the decision is invalid.
        """
        call = self._parts.calls.get(call_id)
        if call is None:
            raise DecisionError("unknown_call", f"there is no call '{call_id}'")
        if call.question is None or call.question.done():
            how = f", it is {call.stop}" if call.stop else ""
            raise DecisionError("not_open", f"call '{call_id}' has no open question{how}")
        try:
            decision = self._checked(call, given)
        except InputError as error:
            raise DecisionError("invalid_decision", error.message, field=error.field) from None
        if decision.decision != "defer":
            call.decide(decision.model_copy(update={"by": by}))

    def _checked(self, call: AdmittedCall, given: Any) -> ApprovalResponse:
        """Return a decision about a call.

        Raises:
            InputError: It is not valid, or its arguments do not fit the schema of the tool.
        """
        decision = ApprovalResponse.of(given)
        if decision.args is not None:
            if missing := call.args.keys() - decision.args.keys():
                raise InputError(f"args: '{min(missing)}' cannot be taken away", field="args")
            try:
                args = unmasked(decision.args, call.masked, call.args)
                call.definition.signature.convert(args)
            except ArgumentFault as error:
                raise InputError(f"args: {error}", field="args") from None
        return decision

    def _tell(self, call: AdmittedCall, decision: ApprovalResponse) -> None:
        call.tell(
            "decided",
            decision=decision.decision,
            by=decision.by,
            feedback=decision.feedback,
            args=decision.args,
            auto_approve=self._auto if decision.by == AUTO else None,
        )


def unmasked(edited: Any, masked: Any, original: Any) -> Any:
    """Return edited arguments, with the original values in place of unchanged masked ones."""
    if edited == masked:
        return copy(original)
    if isinstance(edited, dict) and isinstance(masked, dict) and isinstance(original, dict):
        return {
            key: unmasked(value, masked[key], original[key])
            if key in masked and key in original
            else value
            for key, value in edited.items()
        }
    if isinstance(edited, list) and isinstance(masked, list) and len(edited) == len(masked):
        return [unmasked(*each) for each in zip(edited, masked, original, strict=True)]
    return edited
