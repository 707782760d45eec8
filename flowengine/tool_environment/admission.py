"""Admission of calls: validation, tool lookup, and recognition of earlier calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from flowengine.sdk.near_words import did_you_mean
from flowengine.sdk.tool_calls import EnvironmentResponse, ToolCall, ToolResult
from flowengine.sdk.validation_messages import faults
from flowengine.tool_environment.call import AdmittedCall, digest_of
from flowengine.tool_environment.errors import CallError
from flowengine.tool_environment.results import response_of

if TYPE_CHECKING:
    from flowengine.tool_environment.parts import EnvironmentParts


async def admit(parts: EnvironmentParts, given: Any) -> AdmittedCall:
    """Return a new or known call of an environment.

    Args:
        parts: The environment's parts.
        given: The call, or the id of a known one.

    Raises:
        CallError: The call cannot be made.
    """
    if isinstance(given, str):
        if given not in parts.calls:
            raise CallError("unknown_call", f"there is no call '{given}'")
        return parts.calls[given]
    made = validated(given)
    return _known(parts, made) or await take(parts, made)


def _known(parts: EnvironmentParts, made: ToolCall) -> AdmittedCall | None:
    """Return the known call with this id, or None.

    Raises:
        CallError: It is a different one.
    """
    call = parts.calls.get(made.tool_call_id)
    if call is None:
        kept = parts.journal.find(made.tool_call_id)[1]  # of an earlier process
        same = (made.tool_name, digest_of(made.args)) if kept else None
        if kept is None or (kept["tool"], kept["digest"]) == same:
            return None
    elif call.tool == made.tool_name:
        if call.is_loading:
            # Without arguments, it stands for those that have arrived.
            call.update(made.args or None, is_final=True)
            return call
        if digest_of(call.args) == digest_of(made.args) or call.replace(made.args):
            return call
    raise CallError("duplicate_call", f"another call has the id '{made.tool_call_id}' already")


async def take(parts: EnvironmentParts, made: ToolCall) -> AdmittedCall:
    """Register a call, with a new instance of its tool.

    Args:
        parts: The environment's parts.
        made: The call.

    Raises:
        CallError: There is no such tool.
    """
    definition = await parts.registry.find(made.tool_name)
    if definition is None:
        names = parts.registry.names()
        near = did_you_mean(made.tool_name, names)
        hint = "" if near is None else f"; {near}"
        known = f" Known tools: {', '.join(names)}." if names else ""
        raise CallError("unknown_tool", f"there is no tool '{made.tool_name}'{hint}{known}")
    call = AdmittedCall(made, parts.feed, parts.lock)
    call.definition = definition
    call.instance = parts.registry.clone_tool(made.tool_name)
    with parts.lock:  # another thread may have registered the same call
        is_first = call.id not in parts.calls
        if is_first:
            parts.remember(call)
    if not is_first:
        return _known(parts, made) or await take(parts, made)
    call.move("call_registered", call=call.view())
    return call


def validated(call: Any) -> ToolCall:
    """Return a validated copy of a call.

    Raises:
        CallError: The message lists everything that is wrong.
    """
    if isinstance(call, ToolCall):
        call = call.model_dump()
    if not isinstance(call, Mapping):
        raise CallError("invalid", f"a call is a map, not {type(call).__name__}")
    try:
        return ToolCall.model_validate(dict(call))
    except ValidationError as error:
        raise CallError("invalid", faults(error)) from None


def refusal(given: Any, error: CallError) -> EnvironmentResponse:
    """Return the response to a call that cannot be made.

    Args:
        given: The call or its id.
        error: The reason.
    """
    fields = dict(given) if isinstance(given, Mapping | ToolCall) else {"tool_call_id": given}
    call, tool = (str(fields.get(name) or "") for name in ("tool_call_id", "tool_name"))
    return response_of(
        ToolResult(
            tool_call_id=call, tool_name=tool, success=False, status="invalid", ran="no",
            message=error.message,
        ),
        error.code,
    )  # fmt: skip
