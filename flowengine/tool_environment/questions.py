"""Questions whether a call may run, answered by the first valid decision from any source."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal

from flowengine.engines.attempts.serialization import copy
from flowengine.errors import InputError
from flowengine.sdk.exception_text import describe
from flowengine.sdk.tool_calls import ApprovalResponse, EnvironmentResponse, ToolCall
from flowengine.sdk.user_code import Shown, lasting
from flowengine.tool_environment.call import AdmittedCall
from flowengine.tool_environment.errors import DecisionError
from flowengine.tool_environment.observers import AUTO, CallbackAuthority, no, read_decision
from flowengine.tool_environment.tools import ArgumentFault, Tool

if TYPE_CHECKING:
    from flowengine.errors import FlowEngineError
    from flowengine.tool_environment.registry import EnvironmentParts


AutoApprove = Literal["nothing", "asking", "everything"]
BY_TOOL = "tool"
"""Recorded approver of calls to tools that require no approval."""


class Questions:
    """Requests decisions about the calls of one environment.

    Args:
        parts: The environment's parts.
        authority: Returns the authority that decides.
        has_client: Returns whether a client answers questions.
        auto: Calls to approve automatically if no approver is available.
        may_decide: Returns whether a user may decide about a call. None: every user may.
    """

    def __init__(
        self,
        parts: EnvironmentParts,
        authority: Callable[[], Any],
        has_client: Callable[[], bool],
        auto: AutoApprove,
        may_decide: Callable[[str, Any], bool] | None,
    ) -> None:
        self._parts = parts
        self._authority = authority
        self._has_client = has_client
        self._auto = auto
        self._may_decide = may_decide
        self._warned = False

    def answer(self, call: AdmittedCall) -> ApprovalResponse | None:
        """Return the automatic decision about a call, or None if a decision must be requested."""
        authority, options = self._authority(), call.options
        if options.approval == "none":
            decision = ApprovalResponse(approved=True, by=BY_TOOL)
        elif isinstance(authority, CallbackAuthority) and self._approves_itself(authority, options):
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
            assert call.definition is not None
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

    def _approves_itself(self, authority: CallbackAuthority, options: Tool) -> bool:
        if authority.callback is not None:
            return False
        if self._auto == "everything":
            return True
        if self._auto == "nothing" or options.approval == "required":
            return False
        return not self._has_client()

    async def _ask_authority(self, call: AdmittedCall, preview: Awaitable[Shown]) -> None:
        """Request a decision from the authority, unless only clients or other processes decide."""
        parts, authority = self._parts, self._authority()
        shown = await preview
        if any(shown):
            call.tell("preview", **shown._asdict())
        if isinstance(authority, CallbackAuthority) and authority.callback is None:
            return
        view = parts.shown(call)
        view.preview, view.preview_note = shown
        what = "the authority's answer"
        try:
            decision = read_decision(await authority.approve_tool(view), what)
            self._check_edit(call, decision)
        except InputError as error:
            decision = no(f"{what} was refused: {error.message}")
        except BaseException as error:
            if call.question is None:  # it is no longer needed
                raise
            decision = no(f"the authority raised {describe(error)}")
        if decision.decision == "defer":
            call.tell("deferred")
            if call.started:  # otherwise it is requested again when the call is made
                return
        by = decision.by or type(authority).__name__
        call.decide(decision.model_copy(update={"by": by}))

    def _check_edit(self, call: AdmittedCall, decision: ApprovalResponse) -> None:
        """Check edited arguments.

        Raises:
            InputError: They do not fit the schema of the tool.
        """
        if decision.args is None:
            return
        assert call.definition is not None
        if missing := call.args.keys() - decision.args.keys():
            raise InputError(f"args: '{min(missing)}' cannot be taken away", field="args")
        try:
            call.definition.signature.convert(unmasked(decision.args, call.masked, call.args))
        except ArgumentFault as error:
            raise InputError(f"args: {error}", field="args") from None

    def decide(self, call_id: str, given: Any, by: str) -> None:
        """Apply a decision from outside. The first one counts.

        Args:
            call_id: Id of the call.
            given: An `ApprovalResponse`, or a mapping with its fields.
            by: The approver.

        Raises:
            DecisionError: No such question is open, the decision is invalid, or the approver is not
                allowed to decide.
        """
        try:
            self._decide(call_id, given, by)
        except DecisionError as error:
            self._parts.feed.publish(
                "decision_refused",
                tool_call_id=call_id,
                by=by,
                code=error.code,
                message=error.message,
            )
            raise

    def _decide(self, call_id: str, given: Any, by: str) -> None:
        call = self._parts.calls.get(call_id)
        if call is None:
            raise DecisionError("unknown_call", f"there is no call '{call_id}'")
        if call.question is None:
            how = f", it is {call.stop}" if call.stop else ""
            raise DecisionError("not_open", f"call '{call_id}' has no open question{how}")
        if self._may_decide is not None and not self._may_decide(by, call.view()):
            raise DecisionError("not_allowed", f"{by} may not decide about call '{call_id}'")
        try:
            decision = ApprovalResponse.of(given)
            self._check_edit(call, decision)
        except InputError as error:
            raise DecisionError("invalid_decision", error.message, field=error.field) from None
        if decision.decision == "defer":
            return
        if not call.decide(decision.model_copy(update={"by": by})):
            raise DecisionError("not_open", f"call '{call_id}' is decided already")

    def _tell(self, call: AdmittedCall, decision: ApprovalResponse) -> None:
        call.tell(
            "decided",
            decision=decision.decision,
            by=decision.by,
            feedback=decision.feedback,
            args=decision.args,
            auto_approve=self._auto if decision.by == AUTO else None,
        )


_DEFERRED = ApprovalResponse(approved=False, decision="defer")


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
