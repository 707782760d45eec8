"""Deployed flows as tools: their names, descriptions and schemas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from flowengine.sdk.visible_text import printable
from flowengine.server.calls import deployed_flow
from flowengine.server.rights import Right
from flowengine.server.sent_values import names_path

if TYPE_CHECKING:
    from flowengine.engines.flows import LoadedFlow
    from flowengine.server.calls import ApiCall

STATUS = "execution-status"
"""The tool that shows an execution. No flow can replace it: ids of flows have no hyphen.

The other tools are named after their flows: each id is a valid name, and no two are equal."""
PAGE = 100
"""Tools of one page of the list."""
LONGEST_WAIT = 300
"""Seconds that a call of `execution_status` may wait."""
_LONGEST_TITLE = 200
OUTPUT = {
    "type": "object",
    "properties": {
        "execution": {"type": "string"},
        "flow": {"type": "string"},
        "status": {
            "type": "string",
            "description": "succeeded, failed and cancelled are final",
        },
        "outputs": {"type": ["object", "null"], "description": "once it has succeeded"},
        "error": {"type": ["object", "null"]},
        "waits": {
            "type": "array",
            "description": "what it waits for, and where a person decides it",
            "items": {"type": "object"},
        },
        "next": {"type": "string", "description": "what to do to learn how it ends"},
        "executions": {"type": "array", "items": {"type": "object"}},
    },
}
"""JSON Schema of the structured result of each tool."""
STATUS_INPUT = {
    "type": "object",
    "properties": {
        "execution": {
            "type": "string",
            "description": "its id. Without it, the newest executions that you started are listed",
        },
        "wait_seconds": {
            "type": "integer",
            "minimum": 0,
            "maximum": LONGEST_WAIT,
            "default": 0,
            "description": "how long to wait for it to end or to need a decision",
        },
    },
    "additionalProperties": False,
}
STATUS_TEXT = (
    "Show an execution of a flow: its status, its outputs or its error, and what it waits for. "
    "Approvals are decided by people, not by this tool."
)


class FlowTool(NamedTuple):
    """A deployed flow as a tool."""

    flow: str
    """Id of the flow, and name of the tool."""
    title: str
    description: str
    schema: dict[str, Any]
    """JSON Schema of its arguments, which are the inputs of the flow."""


class ToolPage(NamedTuple):
    """A page of the list of tools."""

    tools: list[FlowTool]
    next: str | None
    """Id of the last flow, if there are more."""


def list_tools(call: ApiCall, after: str | None) -> ToolPage:
    """Return a page of the flows that the user may start, ordered by their ids.

    Flows that need a file of this machine are left out: no caller can name one.

    Args:
        call: The request.
        after: `next` of the page before.
    """
    ids = [id for id in _startable(call) if after is None or id > after]
    tools: list[FlowTool] = []
    for id in ids:
        if len(tools) == PAGE:
            return ToolPage(tools, tools[-1].flow)
        tool = _tool(deployed_flow(call, id))
        if tool is not None:
            tools.append(tool)
    return ToolPage(tools, None)


def is_tool(call: ApiCall, name: str) -> bool:
    """Return whether the list of tools has one with this name, besides `STATUS`."""
    return name in _startable(call) and _tool(deployed_flow(call, name)) is not None


def _startable(call: ApiCall) -> list[str]:
    deployed = (item["flow"] for item in call.engine.deployed() if item["current"])
    return sorted(id for id in deployed if call.may(Right.SEE, id) and call.may(Right.START, id))


def _tool(flow: LoadedFlow) -> FlowTool | None:
    """Return a flow as a tool, or None if it needs a path."""
    given = dict(_arguments(flow.inputs))
    required = [name for name, schema in flow.inputs.items() if _is_required(schema)]
    if not given.keys() >= {*required}:
        return None
    schema: dict[str, Any] = {"type": "object", "properties": given, "additionalProperties": False}
    if required:
        schema["required"] = required
    title = printable(flow.compiled.get("title") or flow.id)[:_LONGEST_TITLE]
    description = (
        f"{title}\n\nRuns the flow '{flow.id}'. Returns its outputs, or, if that takes long or a "
        f"person has to decide, what it waits for. '{STATUS}' shows the result later."
    )
    return FlowTool(flow.id, title, description, schema)


def _arguments(inputs: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the inputs that a caller may give."""
    for name, schema in inputs.items():
        if not names_path(schema):
            yield name, schema


def _is_required(schema: Any) -> bool:
    return not isinstance(schema, Mapping) or "default" not in schema
