"""Admission of calls: validation, tool lookup, and recognition of earlier calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from flowengine.sdk.near_words import did_you_mean
from flowengine.sdk.tool_calls import (
    EnvironmentResponse,
    ToolCall,
    ToolResult,
)
from flowengine.sdk.validation_messages import faults
from flowengine.tool_environment.call import AdmittedCall, digest_of
from flowengine.tool_environment.errors import CallError
from flowengine.tool_environment.results import response_of

if TYPE_CHECKING:
    from flowengine.tool_environment.parts import EnvironmentParts


class Admission:
    """Admits the calls of one environment.

    Args:
        parts: The environment's parts.
    """

    def __init__(self, parts: EnvironmentParts) -> None:
        self._parts = parts

    async def admit(self, given: Any) -> AdmittedCall | EnvironmentResponse:
        """Return a new or known call, or an error response."""
        if isinstance(given, str):
            earlier = self._parts.calls.get(given)
            return earlier or invalid(given, "", f"there is no call '{given}'", "unknown_call")
        try:
            made = validated(given)
        except CallError as error:
            fields = given if isinstance(given, Mapping) else {}
            call, tool = (str(fields.get(name) or "") for name in ("tool_call_id", "tool_name"))
            return invalid(call, tool, error.message)
        return self._known(made) or self._made_before(made) or await self.take(made)

    def _known(self, made: ToolCall) -> AdmittedCall | EnvironmentResponse | None:
        """Return the known call with this id if it is the same, or an error response."""
        call = self._parts.calls.get(made.tool_call_id)
        if call is None:
            return None
        if call.tool == made.tool_name:
            if call.is_loading:
                # Without arguments, it stands for those that have arrived.
                call.update(made.args or None, is_final=True)
                return call
            if digest_of(call.args) == digest_of(made.args) or call.replace(made.args):
                return call
        return error_response(call, "duplicate_call", "another call has this id already")

    async def take(self, made: ToolCall) -> AdmittedCall | EnvironmentResponse:
        """Register a call, with a new instance of its tool."""
        parts = self._parts
        definition = await self._parts.registry.find(made.tool_name)
        if definition is None:
            return self._unknown(made)
        call = AdmittedCall(made, parts.feed, parts.lock)
        call.definition = definition
        call.instance = parts.registry.clone_tool(made.tool_name)
        with parts.lock:  # another thread may have registered the same call
            is_first = call.id not in parts.calls
            if is_first:
                parts.remember(call)
        if not is_first:
            return self._known(made) or await self.take(made)
        call.move("call_registered", call=call.view())
        return call

    def _made_before(self, made: ToolCall) -> EnvironmentResponse | None:
        """Reject a call that differs from the one that an earlier process made with this id."""
        kept = self._parts.journal.find(made.tool_call_id)[1]
        if kept is None or (kept["tool"], kept["digest"]) == (made.tool_name, digest_of(made.args)):
            return None
        why = "another call has this id already"
        return invalid(made.tool_call_id, made.tool_name, why, "duplicate_call")

    def _unknown(self, made: ToolCall) -> EnvironmentResponse:
        names = self._parts.registry.names()
        near = did_you_mean(made.tool_name, names)
        hint = "" if near is None else f"; {near}"
        known = f" Known tools: {', '.join(names)}." if names else ""
        return invalid(
            made.tool_call_id,
            made.tool_name,
            f"there is no tool '{made.tool_name}'{hint}{known}",
            "unknown_tool",
        )


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


def invalid(call_id: str, tool: str, message: str, code: str = "invalid") -> EnvironmentResponse:
    return response_of(
        ToolResult(
            tool_call_id=call_id, tool_name=tool, success=False, status="invalid", ran="no",
            message=message,
        ),
        code,
    )  # fmt: skip


def error_response(call: AdmittedCall, code: str, message: str) -> EnvironmentResponse:
    return invalid(call.id, call.tool, f"call '{call.id}': {message}", code)
