"""Deployed flows as tools, and questions to users as forms of MCP (elicitation)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import mcp_types as types

from flowengine.engines.flows import LoadedFlow
from flowengine.sdk.texts.json_values import plain
from flowengine.sdk.texts.visible_text import printable, printable_lines
from flowengine.server.calls import ApiCall, deployed_flow
from flowengine.server.rights import Right
from flowengine.server.sent_values import names_path

# Deployed flows as tools: their names, descriptions and schemas.

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
            "description": "its open waits, and where a person decides them",
            "items": {"type": "object"},
        },
        "next": {"type": "string", "description": "what to do to learn how it ends"},
        "executions": {"type": "array", "items": {"type": "object"}},
    },
}
"""JSON Schema of the structured result of each tool."""
STATUS_TOOL = types.Tool(
    name=STATUS,
    title="Status of an execution",
    description="Show an execution of a flow: its status, its outputs or its error, and what it "
    "waits for. Approvals are decided by people, not by this tool.",
    input_schema={
        "type": "object",
        "properties": {
            "execution": {
                "type": "string",
                "minLength": 1,
                "description": "its id. Without it, the newest executions that you started are "
                "listed",
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
    },
    output_schema=OUTPUT,
    annotations=types.ToolAnnotations(read_only_hint=True),
)


class ToolPage(NamedTuple):
    """A page of the list of tools."""

    tools: list[types.Tool]
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
    tools: list[types.Tool] = []
    for id in ids:
        if len(tools) == PAGE:
            return ToolPage(tools, tools[-1].name)
        tool = _tool(deployed_flow(call, id))
        if tool is not None:
            tools.append(tool)
    return ToolPage(tools, None)


def is_tool(call: ApiCall, name: str) -> bool:
    """Return whether the list of tools has one with this name, besides `STATUS`."""
    return name in _startable(call) and _tool(deployed_flow(call, name)) is not None


def _startable(call: ApiCall) -> list[str]:
    deployed = (item["flow"] for item in call.engine.flows.versions() if item["current"])
    return sorted(id for id in deployed if call.may(Right.SEE, id) and call.may(Right.START, id))


def _tool(flow: LoadedFlow) -> types.Tool | None:
    """Return a flow as a tool, or None if it needs a path."""
    inputs = flow.inputs.items()
    given = {name: schema for name, schema in inputs if not names_path(schema)}
    required = [n for n, one in inputs if not isinstance(one, Mapping) or "default" not in one]
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
    return types.Tool(
        name=flow.id,
        title=title,
        description=description,
        input_schema=schema,
        output_schema=OUTPUT,
    )


# Questions to users as forms of MCP (elicitation), and decisions from their answers.
#
# A form of MCP has flat fields of simple types. Other questions are not asked there, so that an
# approver never decides on a part of the approval.

LONGEST = 8_000
"""Characters of a question. A longer one is answered elsewhere."""
_SHOWN = ("body", "tool", "subject", "preview", "difference", "found", "request", "note", "about")
"""Parts of a wait that its decider reads, after the title."""
_UNFIT = ("attachments", "claim", "images")
"""Parts of a wait for which a form of MCP has no place."""
_TYPES = {
    "string": ("minLength", "maxLength"),
    "integer": ("minimum", "maximum"),
    "number": ("minimum", "maximum"),
    "boolean": (),
}
"""Type of a field → the limits that a form may have. The engine checks all of them."""
_CHOICE, _COMMENT, _ANSWER = "choice", "comment", "answer"
_NEEDS_VALUE = ("result", "respond")
"""Choices that supply the result of a call, which can have any schema."""


class QuestionForm(NamedTuple):
    """A form."""

    message: str
    schema: dict[str, Any]
    """JSON Schema of its fields."""


def question_of(wait: Mapping[str, Any]) -> QuestionForm | None:
    """Return the form for a wait, or None if it does not fit.

    Args:
        wait: As `GET /v1/approvals/{approval}` shows it.
    """
    choices = _choices(wait)
    message = "\n".join(_lines(wait))
    if not choices or len(message) > LONGEST or any(wait.get(part) for part in _UNFIT):
        return None
    fields = _fields(wait)
    if fields is None:
        return None
    properties: dict[str, Any] = {}
    required = []
    if len(choices) > 1:
        ids = [choice["id"] for choice in choices]
        labels = [printable(choice.get("label") or choice["id"]) for choice in choices]
        properties[_CHOICE] = {"type": "string", "enum": ids, "enumNames": labels}
        required.append(_CHOICE)
    else:
        needed = (wait.get("form") or {}).get("required", ())
        required += [field for field, name in fields.names.items() if name in needed]
    properties |= fields.schemas
    if any(choice.get("comment", "optional") != "none" for choice in choices):
        needs = [choice["id"] for choice in choices if choice.get("comment") == "required"]
        hint = {"description": f"required for: {', '.join(needs)}"} if needs else {}
        properties[_COMMENT] = {"type": "string", **hint}
    return QuestionForm(message, {"type": "object", "properties": properties, "required": required})


def decision_of(wait: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of `POST /v1/approvals/{approval}/decision` for a filled-in form.

    Args:
        wait: The wait.
        content: Field → value. The engine checks it.
    """
    choices = _choices(wait)
    named = content.get(_CHOICE) if len(choices) > 1 else choices[0]["id"]
    choice = next((choice for choice in choices if choice["id"] == named), {"id": str(named or "")})
    body: dict[str, Any] = {"choice": choice["id"]}
    if content.get(_COMMENT) and choice.get("comment", "optional") != "none":
        body["comment"] = str(content[_COMMENT])
    fields = _fields(wait)
    if fields is None or (choice.get("counts_as") != "approve" and wait["kind"] != "ask"):
        return body
    given = {name: content[field] for field, name in fields.names.items() if field in content}
    if fields.is_value:
        body["form"] = given.get(_ANSWER)
    elif given:
        body["form"] = given
    return body


class _Fields(NamedTuple):
    schemas: dict[str, Any]
    names: dict[str, str]
    """Field of the form of MCP → field of the form of the wait."""
    is_value: bool = False
    """Whether the only field is the answer itself."""


def _fields(wait: Mapping[str, Any]) -> _Fields | None:
    """Return the fields of a form, or None if one that is required does not fit."""
    form = wait.get("form")
    if not form:
        return _Fields({}, {})
    if form.get("type", "object") != "object":
        schema = _simple(form)
        return None if schema is None else _Fields({_ANSWER: schema}, {_ANSWER: _ANSWER}, True)
    schemas, names = {}, {}
    required = form.get("required", ())
    for name, given in form.get("properties", {}).items():
        schema = _simple(given)
        if schema is None and name in required:
            return None
        if schema is not None:
            field = f"{name}_" if name in (_CHOICE, _COMMENT) else name
            schemas[field], names[field] = schema, name
    return _Fields(schemas, names)


def _simple(schema: Any) -> dict[str, Any] | None:
    """Return the schema of a field in the subset of MCP, or None if it has another type."""
    if not isinstance(schema, Mapping):
        return None
    options = schema.get("enum")
    kind = schema.get("type")
    answer: dict[str, Any]
    if options is not None:
        if not options or not all(isinstance(option, str) for option in options):
            return None
        answer = {"type": "string", "enum": list(options)}
    elif kind in _TYPES and schema.get("format") != "path":
        answer = {"type": kind} | {key: schema[key] for key in _TYPES[kind] if key in schema}
    else:
        return None
    for key in ("title", "description"):
        if schema.get(key):
            answer[key] = printable(schema[key])
    if isinstance(schema.get("default"), str | int | float):
        answer["default"] = schema["default"]
    return answer


def _choices(wait: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    choices = wait.get("choices") or ()
    return [choice for choice in choices if choice["id"] not in _NEEDS_VALUE]


def _lines(wait: Mapping[str, Any]) -> Iterator[str]:
    """Yield the text for the decider. Values are indented, so that none imitates another part."""
    yield printable(wait.get("title") or f"{wait['flow']}: {wait['step']}")
    for part in _SHOWN:
        value = wait.get(part)
        if value in (None, "", {}, []):
            continue
        yield f"{part}:"
        if not isinstance(value, str):
            value = json.dumps(value, ensure_ascii=False, indent=2, default=plain)
        yield from (f"  {line}" for line in printable_lines(value).split("\n"))
