"""The answers to an agent's calls: the message for the model, and what else follows from a call.

An answer is `{messages, context, handoff, value}`: the messages, the changes of the context, the
agent to hand off to (or the empty text), and the value for clients.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from flowengine.kernel.graph.compiled import Plain
from flowengine.sdk.texts.untrusted import FAILED, all_unmarked, has_text, marked

Answer = dict[str, Any]
_Call = Mapping[str, Any]
"""A call of a reply: its `id` and `name`."""
FLOW, ADAPTED, OTHERS = "flow", "adapted", "others"
"""Kinds of results: data of the project, what `tool_answers.envelope` made, and data that may
contain text by others."""
_OWN = frozenset({"Rejected", "Refused", "Expired", "BudgetExceeded", "LimitExceeded"})
"""Types of errors whose messages quote nothing that others wrote."""
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
    text: Callable[..., str],
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
        text: Returns data as text.
    """
    made = envelope_in(result)
    if made is not None and kind == ADAPTED:
        first = tool_message(call["id"], call["name"], made["content"])
        more, context, handoff = made["more"], made["context"], made["handoff"]
        return first_handoff([first, *more], context, handoff, result, handed)
    content = marked_data(result, call["name"], text) if kind == OTHERS else data_text(result, text)
    content = "\n\n".join([*said_by_people(approval), content])
    if made is not None:  # data that looks like an envelope
        result = {"envelope": {**{key: made[key] for key in _ENVELOPE}, "value": result}}
    return first_handoff([tool_message(call["id"], call["name"], content)], {}, "", result, handed)


def failure(
    call: _Call, error: Mapping[str, Any], foreign: Plain, text: Callable[..., str]
) -> Answer:
    """Return the answer to a call that failed or was not made.

    Args:
        call: The call.
        error: The error.
        foreign: Whether the message may quote what others wrote even if the error names no source.
        text: Returns data as text.
    """
    if foreign and error["type"] not in _OWN:
        why = f"{error['type']}: {marked_data(error['message'], call['name'], text)}"
    else:
        why = reason(error, text)
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


def reason(error: Mapping[str, Any], text: Callable[..., str]) -> str:
    """Return an error for a model: its type, and its message, which may quote what others wrote."""
    said = error["message"]
    if error.get("source") is not None:
        said = FAILED + marked_data(said, error["source"], text)
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


def data_text(value: Plain, text: Callable[..., str]) -> str:
    """Return data as text, which a text is already."""
    return value if isinstance(value, str) else text(value)


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


def marked_data(value: Plain, source: Plain, text: Callable[..., str]) -> str:
    """Return data for a model, in a block if it contains any text. Others may have written it.

    Args:
        value: The data. Without any text, it cannot give instructions and needs no block.
        source: Its origin.
        text: Returns data as text.
    """
    value = all_unmarked(value)
    content = data_text(value, text)
    return marked(content, str(source)) if has_text(value) else content
