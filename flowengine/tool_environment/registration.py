"""Registration of tools, and of calls."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import ValidationError

from flowengine.engines.attempts.serialization import copy
from flowengine.sdk.python.user_code import bounded
from flowengine.sdk.python.user_code import call as call_plugin
from flowengine.sdk.texts.exception_text import describe
from flowengine.sdk.texts.near_words import did_you_mean
from flowengine.sdk.texts.validation_messages import faults
from flowengine.sdk.tools.tool_calls import EnvironmentResponse, ToolCall, ToolResult
from flowengine.tool_environment.calls import Call, CallExecutions, digest_of
from flowengine.tool_environment.errors import CallError, RegistrationError, ToolEnvironmentClosed
from flowengine.tool_environment.observers import Watchers
from flowengine.tool_environment.ready_tools import BUILT_IN
from flowengine.tool_environment.results import response_of
from flowengine.tool_environment.tools import Tool, ToolDefinition, define, overrides

REMEMBERED = 10_000
"""Maximum ended calls whose results are kept in memory."""


@dataclass(frozen=True)
class CallBounds:
    """Time limits in seconds."""

    grace: float = 2.0
    """Time that a tool has to stop by itself, and again after it is cancelled."""
    observer: float = 5.0
    dispose: float = 1.0
    question: float | None = None
    """Time that a question stays open. None: unlimited."""


_FIELDS = (Mapping, ToolCall)


class RegisteredTool(NamedTuple):
    """A tool registered in an environment."""

    definition: ToolDefinition
    instance: Tool
    prepared: dict[str, Any]
    """The attributes that its `init` has set."""


class Registering:
    """The part of an environment that knows its tools and calls.

    Args:
        watchers: Receive reports about calls.
        executions: The executions of the calls.
        bounds: Time limits.
    """

    def __init__(self, watchers: Watchers, executions: CallExecutions, bounds: CallBounds) -> None:
        self._watchers, self._executions, self._bounds = watchers, executions, bounds
        self._tools: dict[str, RegisteredTool] = {}
        self._calls: dict[str, Call] = {}
        self._lock = threading.Lock()
        self._closed = False

    async def register_tool(self, tool: Any, *, replace: bool = False) -> str:
        """Add a tool, and initialize it.

        Args:
            tool: A function, a class with `execute`, or an instance of one.
            replace: Whether to replace a tool of the same name. Its open calls keep the old one.

        Returns:
            Its name.

        Raises:
            RegistrationError: It is not a tool, the name is taken, or `init` failed. Nothing has
                changed.
        """
        self._check_open()
        definition = define(tool)
        name, there = definition.name, self._tools.get(definition.name)
        if there is not None and not replace:
            if there.definition.source is definition.source:
                return name
            raise RegistrationError(
                f"there is already a tool '{name}'",
                hint="give it another name, or pass replace=True",
            )
        instance = definition.make()
        before = dict(vars(instance))
        instance.environment = self
        if overrides(instance, "init"):
            outcome = await bounded(None, call_plugin(instance.init, self))
            if outcome.error is not None:
                why = describe(outcome.error)
                raise RegistrationError(f"tool '{name}' was not registered: init: {why}")
        after = vars(instance).items()
        prepared = {key: value for key, value in after if before.get(key, before) is not value}
        self._tools.pop(name, None)
        self._tools[name] = RegisteredTool(definition, instance, prepared)
        if there is not None:
            await self._dispose(name, there.instance)
        return name

    async def _admit(self, given: Any) -> Call | EnvironmentResponse:
        """Return a new or known call, by its data or its id, or why it cannot be made."""
        self._check_open()
        try:
            if isinstance(given, str):
                return self._known(given)
            requested = validated(given)
            return self._same(requested) or await self._register(requested)
        except CallError as error:
            return refusal(given, error)

    def _known(self, id: str, error: type[CallError] = CallError) -> Call:
        if (call := self._calls.get(id)) is None:
            raise error("unknown_call", f"there is no call '{id}'")
        return call

    def _same(self, requested: ToolCall) -> Call | None:
        """Return the known call with this id, or None.

        Raises:
            CallError: It is a different one.
        """
        call, digest = self._calls.get(requested.tool_call_id), digest_of(requested.args)
        if call is None:
            kept = self._executions.find(requested.tool_call_id)[1]  # of an earlier process
            if kept is None or (kept["tool"], kept["digest"]) == (requested.tool_name, digest):
                return None
        elif call.tool == requested.tool_name:
            if call.is_loading and not call.is_made:
                call.args = copy(requested.args) or call.args
                return call
            if digest_of(call.args) == digest:
                return call
        why = f"another call has the id '{requested.tool_call_id}' already"
        raise CallError("duplicate_call", why)

    async def _register(self, requested: ToolCall) -> Call:
        """Register a call, with a new instance of its tool.

        Raises:
            CallError: The tool is unknown.
        """
        name = requested.tool_name
        if name not in self._tools and name in BUILT_IN:
            await self.register_tool(BUILT_IN[name])
        if (live := self._tools.get(name)) is None:
            names = sorted({*self._tools, *BUILT_IN})
            near = did_you_mean(name, names)
            why = f"there is no tool '{name}'{'' if near is None else f'; {near}'}"
            raise CallError("unknown_tool", f"{why} Known tools: {', '.join(names)}.")
        instance = live.definition.make()
        instance.environment = self
        vars(instance).update(live.prepared)
        call = Call(requested, live.definition, instance)
        with self._lock:
            there = self._calls.setdefault(call.id, call)
            if len(self._calls) > REMEMBERED:
                oldest = next(iter(self._calls.values()))
                if oldest.response.done():
                    del self._calls[oldest.id]
        if there is not call:  # another thread has registered the same call
            return self._same(requested) or there
        self._watchers.send("call_registered", call, call=call.view())
        return call

    def _open_calls(self) -> list[Call]:
        return [call for call in [*self._calls.values()] if not call.response.done()]

    def _check_open(self) -> None:
        if self._closed:
            raise ToolEnvironmentClosed("the tool environment was disposed of: make a new one")

    async def _dispose(self, name: str, instance: Any) -> None:
        if overrides(instance, "dispose"):
            bound = self._bounds.dispose
            why = (await bounded(bound, call_plugin(instance.dispose))).fault(bound)
            if why is not None:
                self._watchers.warn("dispose", f"dispose of tool '{name}': {why}")


def validated(call: Any) -> ToolCall:
    """Return a validated copy of a call.

    Raises:
        CallError: The message lists everything that is wrong.
    """
    try:
        return ToolCall.model_validate(dict(call) if isinstance(call, _FIELDS) else call)
    except ValidationError as error:
        raise CallError("invalid", faults(error)) from None


def refusal(given: Any, error: CallError) -> EnvironmentResponse:
    """Return the response to a call that cannot be made.

    Args:
        given: The call or its id.
        error: The reason.
    """
    fields = dict(given) if isinstance(given, _FIELDS) else {"tool_call_id": given}
    call, tool = (str(fields.get(name) or "") for name in ("tool_call_id", "tool_name"))
    return response_of(
        ToolResult(
            tool_call_id=call, tool_name=tool, success=False, status="invalid", ran="no",
            message=error.message,
        ),
        error.code,
    )  # fmt: skip
