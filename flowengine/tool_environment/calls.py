"""Calls of a tool environment: their flows, their results, and these as messages for models."""

from __future__ import annotations

import json
from _thread import LockType, allocate_lock
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from pydantic import ValidationError

from flowengine.agents.call_answers import as_text
from flowengine.engines.flows import LoadedFlow, load
from flowengine.engines.infos import ExecutionInfo
from flowengine.engines.results import ExecutionResult
from flowengine.errors import FlowEngineError, InputError
from flowengine.flow.building.flow import Flow
from flowengine.flow.models.types import in_generated
from flowengine.kernel.notation.addresses import separate_id
from flowengine.sdk.python.user_code import lasting
from flowengine.sdk.texts.flow_texts import literal_text
from flowengine.sdk.texts.validation_messages import faults
from flowengine.sdk.texts.visible_text import ends_in_characters, without_middle
from flowengine.sdk.tools.tool_calls import (
    ApprovalResponse,
    EnvironmentResponse,
    Ran,
    ResponseError,
    Status,
    ToolCall,
    ToolResult,
)
from flowengine.tool_environment.tools import AbortSignal, ToolDefinition, overrides

TASK, TOOL = "task", "tool"
"""The labels with the execution id of the tool environment, and with the name of the tool."""
_CALL = "call"
"""The step of the flow of a tool."""


@dataclass(eq=False)
class Call:
    """A call that has not ended. Any thread can use it."""

    task: str
    """Execution id of the environment."""
    id: str
    tool: str
    args: dict[str, Any]
    definition: ToolDefinition
    instance: Any
    """Its own instance of the tool."""
    is_loading: bool = True
    made: LockType = field(default_factory=allocate_lock)
    """Locked once `execute_tool` has started it."""
    published: dict[str, Any] | None = None
    """The arguments that were last published."""
    changed: dict[str, Any] | None = None
    """The arguments that ran, if an approver changed them."""
    prior: ApprovalResponse | None = None
    """The decision that `approve_tool` received, until the call is made."""
    decision: ApprovalResponse | None = None
    """The last decision made in this process."""
    approval: Mapping[str, Any] | None = None
    """The approval of the engine, if the tool ran in this process."""
    earlier: ExecutionInfo | None = None
    """Its execution as an earlier process left it."""
    began: bool = False
    """Whether its tool ran in this process."""
    produced: list[str] = field(default_factory=list)
    """The output of its tool so far."""
    signal: AbortSignal = field(default_factory=AbortSignal)
    response: Future[EnvironmentResponse] = field(default_factory=lasting)

    @property
    def execution(self) -> str:
        """Id of its execution."""
        return separate_id(_CALL, self.task, self.id)

    @property
    def labels(self) -> dict[str, str]:
        """The labels of its execution."""
        return {TASK: self.task, TOOL: self.tool}

    def view(self) -> ToolCall:
        """Return a copy of the call in its current state."""
        args = self.args if self.changed is None else self.changed
        call = ToolCall(
            tool_call_id=self.id, tool_name=self.tool, args=args, is_loading=self.is_loading
        )
        return call.model_copy(deep=True)

    def result(self, status: Status, message: str | None = None, **fields: Any) -> ToolResult:
        """Return a result of the call.

        Args:
            status: How it ended.
            message: Why it failed.
            **fields: Further fields.
        """
        fields = {"ran": self.ran, "args": self.changed, "message": message, **fields}
        known = {"tool_call_id": self.id, "tool_name": self.tool, "status": status}
        return ToolResult.model_validate({**known, **fields})

    @property
    def ran(self) -> Ran:
        """Whether its tool ran, in this process or an earlier one, as far as is known."""
        steps = () if self.earlier is None else self.earlier["steps"]
        return "maybe" if self.began or any(step["attempts"] for step in steps) else "no"


def validated(call: Any) -> ToolCall:
    """Return a validated copy of a call.

    Raises:
        InputError: The message lists everything that is wrong.
    """
    given = dict(call) if isinstance(call, Mapping | ToolCall) else call
    try:
        return ToolCall.model_validate(given).model_copy(deep=True)
    except ValidationError as error:
        raise InputError(faults(error)) from None


def flow_of(secrets: Mapping[str, Any], definition: ToolDefinition, asks: bool) -> LoadedFlow:
    """Return the flow that makes a call of a tool.

    Args:
        secrets: Name → reference of each secret to mask.
        definition: The tool.
        asks: Whether the call needs an approval.
    """
    name, options = definition.name, definition.options
    function: dict[str, Any] = {"live": name}
    if overrides(options, "preview"):
        function["preview"] = {"live": f"{name}/preview"}
    tool: dict[str, Any] = {
        "agent_function": {"function": function},
        "args": literal_text(definition.schema),
        "effect": options.effect,
    }
    if options.timeout is not None:
        tool["timeout"] = timedelta(seconds=options.timeout)
    if asks:
        tool["approval"] = {"edit": True, "required": options.approval == "required"}
    flow = Flow(
        "tool_call", inputs={"call": str, "args": dict, "version": str}, secrets=dict(secrets)
    )
    flow.declare("tools", name, tool)
    args: Any = "${{ inputs.args }}"
    flow.step(_CALL, call=name, with_=args)
    flow.output("made", f"${{{{ steps.{_CALL}.output }}}}")
    token = in_generated.set(True)
    try:
        return load(flow)
    finally:
        in_generated.reset(token)


# Results

LARGEST = 100_000
"""Maximum characters of content sent to a model."""
_STATUSES: dict[str, Status] = {
    "Rejected": "rejected", "Refused": "rejected", "Expired": "expired", "Timeout": "timed_out",
    "Cancelled": "aborted", "waiting": "uncertain", "stalled": "uncertain",
}  # fmt: skip
"""Errors and states of executions, and their statuses. Others are errors."""
_TOOK_EFFECT = {
    "no": "Nothing was done.", "maybe": "It may have acted in part.", "yes": "It had ended.",
}  # fmt: skip


def read(call: Call, made: ExecutionResult) -> ToolResult:
    """Return the result of a call from its execution.

    Args:
        call: The call.
        made: The state of its execution.
    """
    error: Mapping[str, Any] = made.error or {"type": made.status, "message": None}
    notes, why = call.approval or {}, error["message"]
    status = _STATUSES.get(error["type"], "error")
    if made.outputs is not None:
        value = made.outputs["made"]
        is_own = isinstance(value, dict) and "result" in value  # else an approver supplied it
        fields = {"ran": "yes", **value["result"]} if is_own else {"ran": "no", "content": value}
        result = call.result("ok", **fields)
    else:
        if error["type"] == "Rejected":
            notes = error["data"]
            by = notes["by"] if call.decision is None else call.decision.by
            why = f"rejected by {by}" + (f": {notes['comment']}" if notes["comment"] else "")
        elif status == "error":
            why = f"{error['type']}: {why}"
        ran = "yes" if status == "error" and call.began else call.ran
        result = call.result(status, why, ran=ran, content="".join(call.produced) or None)
    if call.decision is not None:
        result.feedback, result.feedback_images = call.decision.feedback, call.decision.images
    else:
        result.feedback = notes.get("comment")
    result.replayed = call.earlier is not None and not call.began
    return result


def response_of(result: ToolResult) -> EnvironmentResponse:
    """Return a result as a response, which is an error unless the call succeeded."""
    if result.success:
        return EnvironmentResponse(result=result)
    code, message = result.status, result.message or f"the call was {result.status}"
    return EnvironmentResponse(error=ResponseError(code=code, message=message, result=result))


def refusal(given: Any, error: FlowEngineError) -> EnvironmentResponse:
    """Return the response to a call that cannot be made.

    Args:
        given: The call or its id.
        error: The reason.
    """
    fields = dict(given) if isinstance(given, Mapping | ToolCall) else {"tool_call_id": given}
    named = {name: str(fields.get(name) or "") for name in ("tool_call_id", "tool_name")}
    more = {"status": "invalid", "ran": "no", "message": error.message}
    return response_of(ToolResult.model_validate({**named, **more}))


def tool_message(call: ToolCall, response: EnvironmentResponse) -> dict[str, Any]:
    """Return the message that answers a call, in the format of chat completions.

    The text describes the outcome. With images, the content is a list of parts.

    Args:
        call: The call.
        response: The response to the call.
    """
    text, images = answer_of(response)
    parts = [{"type": "text", "text": text}] if text else []
    shown = [{"type": "image_url", "image_url": {"url": url}} for url in images]
    content: Any = [*parts, *shown] if shown else text
    named = {"tool_call_id": call.tool_call_id, "name": call.tool_name}
    return {"role": "tool", **named, "content": content}


def answer_of(response: EnvironmentResponse) -> tuple[str, list[str]]:
    """Return the text and the URLs of the images with which a model learns of an outcome."""
    result = response.tool_result
    if result is None:
        return f"Error: {response.error.message}" if response.error is not None else "", []
    texts = [_what_happened(result)]
    if result.args is not None:
        args = json.dumps(result.args, ensure_ascii=False, default=str)
        texts.append(f"The arguments were changed before it ran: {args}")
    if result.feedback:
        texts.append(f"Comment of the person who decided: {result.feedback}")
    images = [*result.images, *result.feedback_images]
    return "\n\n".join(filter(None, texts)), [image.url for image in images]


def _what_happened(result: ToolResult) -> str:
    content = as_text(result.content)
    if (ends := ends_in_characters(content, LARGEST)) is not None:
        content = without_middle(content, ends)
    if result.success:
        return content
    if result.status == "error":
        message = f"Error: {result.message}"
    else:
        status = "lost" if result.status == "uncertain" else result.status.replace("_", " ")
        message = f"The call was {status}. {_TOOK_EFFECT[result.ran]}"
    if result.status == "invalid":
        message = f"{message} {result.message}"
    return f"{message}\n\nWhat it had produced:\n{content}" if content else message
