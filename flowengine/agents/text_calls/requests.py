"""Requests to models without function calling: tools, calls and results as text.

Each request is derived anew from the conversation, so nothing accumulates in it. All text is
inserted verbatim. Braces, percent signs and backslashes have no special meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from json import dumps
from typing import Any

from flowengine.agents.text_calls.example_values import example_of
from flowengine.agents.text_calls.json_text import BrokenJson, read_json
from flowengine.agents.text_calls.marked_form import MarkedForm
from flowengine.agents.text_calls.records import InvalidCall, ToolOffer, text_of

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


def faults_told(faults: Sequence[InvalidCall], tools: Iterable[ToolOffer], form: MarkedForm) -> str:
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
    meant = dict.fromkeys(fault.tool for fault in faults if fault.tool and fault.tool in by_name)
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
