"""Requests to models without function calling: tools, calls and results as text.

Each request is derived anew from the conversation, so nothing accumulates in it. All text is
inserted verbatim. Braces, percent signs and backslashes have no special meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from json import dumps
from math import ceil, inf
from typing import Any

from flowengine.agents.call_answers import text_of
from flowengine.agents.text_calls.json_text import BrokenJson, read_json
from flowengine.agents.text_calls.marked_form import CallFault, MarkedForm, ToolOffer
from flowengine.errors import InputError
from flowengine.sdk.values.validation import as_plain, shared

_LONGEST = 200
"""Maximum length of a text in an example, and maximum number of items in a list."""
_MOST_PARTS = 200
"""Maximum number of parts of an example. A type that contains itself would nest without end."""
_MOST_APPLIED = 500
"""Maximum number of parts of a schema that apply to an example."""
_BY_FORMAT: Mapping[str, str] = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T09:30:00Z",
    "aware-date-time": "2026-01-31T09:30:00Z",
    "naive-date-time": "2026-01-31T09:30:00",
    "iso-date-time": "2026-01-31T09:30:00",
    "time": "09:30:00Z",
    "iso-time": "09:30:00",
    "duration": "PT15M",
    "email": "name@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "uuid": "3f2b8c1e-7d4a-4e0b-9c55-0a6f1d2e3b4c",
    "path": ".",
}


def example_of(schema: Any) -> Any:
    """Return a simple object that fits a schema, or None if none is easily found.

    Args:
        schema: The schema of an object, such as the arguments of a tool.
    """
    # Where a reference leads to no schema, or a number is extreme, there is no example.
    with suppress(InputError, AttributeError, TypeError, ArithmeticError):
        validator = shared(schema)
        value = _likely(schema, schema, iter(range(_MOST_PARTS)))
        if isinstance(value, dict) and not validator.misfits(value, _MOST_APPLIED):
            return validator.check(as_plain(value, "it"), "it")
    return None


def _likely(schema: Any, root: Any, left: Iterator[int], place: int = 1) -> Any:
    """Return a value that probably fits a part of a schema.

    Args:
        schema: The part.
        root: The whole schema.
        left: Has an item for each part that is still allowed.
        place: Place of the value among others, so that numbers differ.
    """
    if not isinstance(schema, dict) or next(left, None) is None:
        return "text"
    if schema.get("$ref", "").startswith("#/"):
        part = root
        for key in schema["$ref"][2:].split("/"):
            part = part.get(key) if isinstance(part, dict) else None
        return _likely(part, root, left, place)
    declared = [schema[key] for key in ("default", "const") if key in schema]
    for value in (*schema.get("examples", ()), *declared, *schema.get("enum", ())):
        return value
    forms = [one for one in (*schema.get("anyOf", ()), *schema.get("oneOf", ())) if one != _NULL]
    members: dict[str, Any] = {}
    for part in (*schema.get("allOf", ()), *forms[:1]):
        value = _likely(part, root, left, place)
        if not isinstance(value, dict):
            return value
        members |= value
    for at, name in enumerate(schema.get("required", ()), 1):
        members[name] = _likely(schema.get("properties", {}).get(name), root, left, at)
    types = schema.get("type", "object" if members or "properties" in schema else "string")
    match types if isinstance(types, str) else next((one for one in types if one != "null"), ""):
        case "object":
            return members
        case "array":
            first = schema.get("prefixItems", [])
            more = [schema.get("items")] * int(min(schema.get("minItems", 0), _LONGEST))
            parts = [*first, *more[len(first) :]]
            return [_likely(part, root, left, at) for at, part in enumerate(parts, 1)]
        case "string":
            text = _BY_FORMAT.get(schema.get("format", ""), "text")
            shortest = int(min(schema.get("minLength", 0), _LONGEST))
            text = text if len(text) >= shortest else (text * shortest)[:shortest]
            return text[: int(schema.get("maxLength", _LONGEST))]
        case "integer" | "number":
            return _likely_number(schema, place)
        case "boolean":
            return True
    return None


_NULL = {"type": "null"}


def _likely_number(schema: Mapping[str, Any], number: float) -> float:
    """Return a number within the bounds of a schema, the given one if possible."""
    above, below = schema.get("exclusiveMinimum", -inf), schema.get("exclusiveMaximum", inf)
    number = min(max(number, schema.get("minimum", -inf)), schema.get("maximum", inf))
    if not above < number < below:
        near = above + 1 if above > -inf else below - 1
        number = near if above < near < below else (above + below) / 2
    step = schema.get("multipleOf")
    return ceil(number / step) * step if step else number


Message = dict[str, Any]
_SHOWN_FAULTS = 5
MUST_CALL = "Your reply must have a call."


def instructions(tools: Sequence[ToolOffer], form: MarkedForm, *, must_call: bool = False) -> str:
    """Return a description of tools and call syntax, for the start of the system message.

    Args:
        tools: Tools on offer. Without tools, the description is empty.
        form: The form in which the model writes calls.
        must_call: Whether each reply must contain a call.
    """
    if not tools:
        return ""
    parts = ["You can call these tools:"]
    parts += [_described(tool) for tool in tools]
    parts += [
        "Write a call exactly like this, on separate lines, outside of code fences:",
        next(
            filter(None, (_example(tool, form) for tool in tools)), form.placeholder(tools[0].name)
        ),
        (
            f"The mark {form.mark} makes it a call: keep it to yourself, and do not give it to a "
            "tool. You may say something before the calls. Write several calls one below the "
            "other, then stop: the next message brings their results. Never write a result "
            f"yourself. {MUST_CALL if must_call else 'Without a call, your reply is your answer.'}"
        ),
    ]
    return "\n\n".join(parts)


def _described(tool: ToolOffer) -> str:
    schema = dumps(tool.schema, ensure_ascii=False)
    heading = f"Tool: {tool.name}"
    return "\n".join(filter(None, [heading, tool.description, f"Parameters: {schema}"]))


def _example(tool: ToolOffer, form: MarkedForm) -> str:
    """Return a correct call, or the empty text if no fitting arguments are found."""
    example = example_of(tool.schema)
    return "" if example is None else form.write([(tool.name, example)])


def faults_told(faults: Sequence[CallFault], tools: Iterable[ToolOffer], form: MarkedForm) -> str:
    """Return a message about invalid calls, with a correct example for each tool, if one is found.

    Args:
        faults: Faults of one reply.
        tools: Tools on offer.
        form: The form in which the model writes calls.
    """
    by_name = {tool.name: tool for tool in tools}
    parts = []
    for fault in faults[:_SHOWN_FAULTS]:
        parts.append(fault.message)
        if fault.written:
            parts.append(f"You wrote:\n{fault.written}")
    if len(faults) > _SHOWN_FAULTS:
        parts.append(f"And {len(faults) - _SHOWN_FAULTS} more calls were wrong.")
    meant = dict.fromkeys(fault.name for fault in faults if fault.name in by_name)
    shown = [by_name[name] for name in meant] or list(by_name.values())[:1]
    examples = ((tool.name, _example(tool, form)) for tool in shown)
    parts += [f"A right call of {name}:\n{example}" for name, example in examples if example]
    return "\n\n".join(parts)


def request_messages(
    messages: Iterable[Mapping[str, Any]],
    tools: Sequence[ToolOffer],
    form: MarkedForm,
    *,
    must_call: bool = False,
) -> list[Message]:
    """Return the messages of a request that needs no function calling.

    Calls and results become text, and adjacent messages of one role are merged. The instructions
    are put at the start of the system message, which is created if missing.

    Args:
        messages: The conversation, with `tool_calls` and messages of the role `tool`.
        tools: Tools on offer.
        form: The form in which the model writes calls.
        must_call: Whether each reply must contain a call.
    """
    rules = instructions(tools, form, must_call=must_call)
    sent: list[Message] = [{"role": "system", "content": rules}]
    if not tools:
        sent.clear()
    names: dict[str, str] = {}
    for message in messages:
        _add(sent, _as_text(message, names, form))
    return sent


def _as_text(message: Mapping[str, Any], names: dict[str, str], form: MarkedForm) -> Message:
    role, content = message["role"], message.get("content")
    if role == "tool":
        name = message.get("name") or names.get(message.get("tool_call_id", ""), "tool")
        return {"role": "user", "content": form.write_result(name, text_of(content))}
    if role != "assistant":
        return {"role": role, "content": "" if content is None else content}
    calls = message.get("tool_calls") or ()
    for call in calls:
        names[call.get("id", "")] = call["function"]["name"]
    written = [_call_as_text(call["function"], form) for call in calls]
    text = text_of(content)
    return {"role": role, "content": "\n".join([*([text] if text else []), *written])}


def _call_as_text(function: Mapping[str, Any], form: MarkedForm) -> str:
    name, arguments = function["name"], function.get("arguments") or "{}"
    try:
        value = read_json(arguments).value if isinstance(arguments, str) else arguments
    except BrokenJson:
        value = None
    if not isinstance(value, Mapping):
        return f"{name}: {arguments}"
    return form.write([(name, dict(value))])


def _add(messages: list[Message], message: Message) -> None:
    """Append a message, merging it with the last one if both have the same role."""
    if not messages or messages[-1]["role"] != message["role"]:
        messages.append(message)
        return
    last = messages[-1]
    if isinstance(last["content"], str) and isinstance(message["content"], str):
        last["content"] = "\n\n".join(filter(None, [last["content"], message["content"]]))
    else:  # parts: text and images
        last["content"] = [*_parts(last["content"]), *_parts(message["content"])]


def _parts(content: Any) -> list[Any]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return list(content)
