"""The answers to an agent's calls: the message for the model, and what else follows from a call.

An answer is `{messages, context, handoff, value}`: the messages, the changes of the context, the
agent to hand off to (or the empty text), and the value for clients.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from flowengine.sdk import Plain, ToolError, ValidationError
from flowengine.sdk.texts import untrusted
from flowengine.sdk.texts.untrusted import FAILED, all_unmarked
from flowengine.sdk.values.plain_values import to_plain

Answer = dict[str, Any]
_Call = Mapping[str, Any]
"""A call of a reply: its `id` and `name`."""
FLOW, ADAPTED, OTHERS = "flow", "adapted", "others"
"""Kinds of results: data of the project, what `tool_answers.envelope` made, and data that may
contain text by others."""
_OWN = frozenset({"Rejected", "Refused", "Expired", "BudgetExceeded", "LimitExceeded"})
"""Types of errors whose messages quote nothing that others wrote."""
_OBJECT = re.compile(r"<(?:[^<>]|<\w+>){0,200} at 0x[0-9a-fA-F]+>?")
"""The text of an object without its own text."""
ERROR = "Error: "
"""How the message of a failed call begins."""
_ENVELOPE = {"content": str, "more": list, "context": dict, "handoff": str}
_NOTES = re.compile(
    r"(?:\[(?:Before the call was made, a person changed|Who approved the call says).*?\]\n\n)+",
    re.DOTALL,
)


def tool_message(id: Plain, name: Plain, content: str) -> dict[str, Plain]:
    """Return the message that answers a call."""
    return {"role": "tool", "tool_call_id": id, "name": name, "content": content}


def image_message(addresses: Sequence[Plain], text: str) -> dict[str, Plain]:
    """Return a message with images, which messages of tools cannot contain."""
    shown = [{"type": "image_url", "image_url": {"url": address}} for address in addresses]
    return {"role": "user", "content": [{"type": "text", "text": text}, *shown]}


def address(image: Mapping[str, Plain]) -> str:
    """Return the URL of an image attached to a decision, which is an artifact."""
    return f"artifact:{image['sha256']}"


def said_by_people(approval: Plain) -> list[str]:
    """Return the edits and the comment of the approver of a call, for the model."""
    notes = []
    if isinstance(approval, Mapping) and approval.get("edits"):
        edits = json.dumps(approval["edits"], ensure_ascii=False, default=str)
        notes.append(f"[Before the call was made, a person changed these arguments: {edits}]")
    if isinstance(approval, Mapping) and approval.get("comment"):
        notes.append(f"[Who approved the call says: {approval['comment']}]")
    return notes


def without_notes(content: str) -> str:
    """Return the result of a call without the notes of its approvers."""
    notes = _NOTES.match(content)
    return content[notes.end() :] if notes else content


def answer(
    call: _Call,
    result: Plain,
    approval: Plain,
    handed: Plain,
    kind: Plain,
) -> Answer:
    """Return the answer to a call that was made.

    Args:
        call: The call.
        result: The result. A person may have given it in place of the tool: then it is data, even
            if those of this tool are adapted.
        approval: The approval of the call, or None.
        handed: The agent that an earlier call of the reply handed off to, or the empty text. Only
            the first handoff is taken, others are refused.
        kind: The kind of the result.
    """
    made = envelope_in(result)
    if made is not None and kind == ADAPTED:
        first = tool_message(call["id"], call["name"], made["content"])
        more, context, handoff = made["more"], made["context"], made["handoff"]
        return first_handoff([first, *more], context, handoff, result, handed)
    content = marked_data(result, call["name"]) if kind == OTHERS else data_text(result)
    content = "\n\n".join([*said_by_people(approval), content])
    if made is not None:  # data that looks like an envelope
        result = {"envelope": {**{key: made[key] for key in _ENVELOPE}, "value": result}}
    return first_handoff([tool_message(call["id"], call["name"], content)], {}, "", result, handed)


def failure(call: _Call, error: Mapping[str, Any], foreign: Plain) -> Answer:
    """Return the answer to a call that failed or was not made.

    Args:
        call: The call.
        error: The error.
        foreign: Whether the message may quote what others wrote even if the error names no source.
    """
    if foreign and error["type"] not in _OWN:
        why = f"{error['type']}: {marked_data(error['message'], call['name'])}"
    else:
        why = reason(error)
    messages = [tool_message(call["id"], call["name"], f"{ERROR}{why}")]
    data = error.get("data")
    shown = data.get("images") if error["type"] == "Rejected" and isinstance(data, dict) else None
    if isinstance(shown, list):
        kept = [
            one for one in shown if isinstance(one, dict) and isinstance(one.get("sha256"), str)
        ]
        said = "From the person who rejected the call:"
        messages.append(image_message([address(one) for one in kept], said))
    return {"messages": messages, "context": {}, "handoff": "", "value": None}


def reason(error: Mapping[str, Any]) -> str:
    """Return an error for a model: its type, and its message, which may quote what others wrote."""
    said = error["message"]
    if error.get("source") is not None:
        said = FAILED + marked_data(said, error["source"])
    return f"{error['type']}: {said}"


def text_of(content: Any, between: str = "\n") -> str:
    """Return the text of a message's content, which can consist of parts.

    Args:
        content: Text, parts or None. Parts without text are left out.
        between: Separator between parts.
    """
    if content is None or isinstance(content, str):
        return content or ""
    texts = [part.get("text", "") for part in content if isinstance(part, Mapping)]
    return between.join(filter(None, texts))


def first_handoff(
    messages: Any, context: Plain, handoff: Plain, value: Plain, handed: Plain
) -> Answer:
    """Return an answer, whose handoff is refused if an earlier one of its reply was taken."""
    if handoff and handed:
        refused = f"{ERROR}not taken, as {handed} is active now."
        messages, handoff = [{**messages[0], "content": refused}], ""
    return {"messages": messages, "context": context, "handoff": handoff, "value": value}


def as_text(value: Any) -> str:
    """Return a value as the text of a message.

    Raises:
        ToolError: A part of it is no data but an object such as an iterator.
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "backslashreplace")
    try:
        text = json.dumps(value, ensure_ascii=False, default=_as_data)
    except (TypeError, ValueError, RecursionError):  # such as a map with other keys
        made = _as_data(value)
        text = made if isinstance(made, str) else json.dumps(made, ensure_ascii=False)
    return text.encode("utf-8", "replace").decode()


def _as_data(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "backslashreplace")

    try:
        return to_plain(value, number_keys=True)
    except ValidationError:
        pass
    try:
        text = str(value)
    except Exception as error:  # such as of a value that is nested too deeply
        return f"{type(value).__name__} without a text: {type(error).__name__}"
    if (match := _OBJECT.search(text)) or isinstance(value, Iterator):
        what = match[0] if match else text
        raise ToolError(
            f"the tool was called, but its result contains {what}, which is no data: it has to "
            "return text, numbers, lists or maps",
            retryable=False,
        )
    return text


def data_text(value: Plain) -> str:
    """Return data as text, which a text is already."""
    return value if isinstance(value, str) else as_text(value)


def value_of(result: Plain) -> Plain:
    """Return the result of a tool, as plain data without marks.

    Args:
        result: The result of its step: an envelope, or the value itself.
    """
    made = envelope_in(result)
    return all_unmarked(result if made is None else made.get("value", made["content"]))


def context_of(result: Plain) -> Mapping[str, Plain]:
    """Return the context variables that the result of a tool sets."""
    made = envelope_in(result)
    return {} if made is None else made["context"]


def is_in_file(result: Plain) -> bool:
    """Return whether the result of a tool is so large that its value only refers to a file."""
    made = envelope_in(result)
    return made is not None and "in_file" in made


def envelope_in(result: Any) -> Mapping[str, Any] | None:
    """Return what `tool_answers.envelope` has made of a result, or None for other data."""
    made: Any = result.get("envelope") if isinstance(result, Mapping) else None
    is_made = isinstance(made, Mapping) and len(result) == 1
    if is_made and all(isinstance(made.get(key), kind) for key, kind in _ENVELOPE.items()):
        return cast("Mapping[str, Any]", made)
    return None


def marked_data(value: Plain, source: Plain) -> str:
    """Return data for a model, in a block if it contains any text. Others may have written it."""
    return untrusted.marked_data(value, source, as_text)
