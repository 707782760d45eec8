"""What a tool returned, as the model is told of it.

A tool may return anything: text, data, bytes, an image, a `Result`, an agent. What enters the
journal is an envelope of plain data: the content of the tool's message, further messages, changes
of the context, and to whom the conversation is handed over.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flowengine.agents.kept_images import address, keep
from flowengine.sdk import Plain, StepContext, ToolError
from flowengine.sdk.text_ends import Ends, ends_in_bytes, ends_in_characters
from flowengine.sdk.untrusted import all_unmarked, has_text, marked

if TYPE_CHECKING:
    from flowengine.sdk.step_kind import AsText

LIMIT = 10_000
"""Characters of a result that the model is shown."""


def envelope(
    context: StepContext, task: Mapping[str, Plain], result: Any, text: AsText
) -> dict[str, Plain]:
    """Return what a tool's return means.

    Args:
        context: The attempt of the call.
        task: `agents`, those that the conversation can be handed over to, with the names that the
            flow has for them; how much of a result the
            model is shown: `bytes`, else `limit`, in characters; `source`, if others wrote it.
        result: What the tool returned.
        text: Returns what the kind of the tool says of how its result reads.

    Raises:
        ToolError: A change of the context is not plain data.
    """
    made: dict[str, Plain] = {"content": "", "more": [], "context": {}, "handoff": ""}
    to = None
    if _is_result(result):
        made["context"] = _plain_context(result.context_variables or {})
        made["more"] = _image_messages(context, getattr(result, "image", None))
        to, result = result.agent, result.value
    elif _is_agent(result):
        to, result = result, ""
    value = _opened(result, task)
    room = _room(task)
    content = text(value, room[0])
    if content is None:
        content = as_text(value)
    if to is not None:
        content = _handed_over(made, task.get("agents", {}), to, content)
    shown = (context.approval or {}).get("images")
    if shown:
        urls = [address(one) for one in shown]
        made["more"] = [*made["more"], _image_message(urls, "From whoever approved the call:")]
    people = "\n\n".join(_said_by_people(context))
    content = _cut(context, content, room)
    if to is None and has_text(result):
        content = _framed(content, task)
    told = [_cut(context, people, room), content]
    made["content"] = "\n\n".join(filter(None, told))
    return {"envelope": made}


def _framed(text: str, task: Mapping[str, Plain]) -> str:
    """Return what others wrote in a block that it cannot close, and anything else as it is."""
    if "source" not in task:
        return text
    return marked(text, str(task["source"]))


def _opened(result: Any, task: Mapping[str, Plain]) -> Any:
    """Return a result without the marks in it, such as those of a page, if all of it gets one."""
    return all_unmarked(result) if "source" in task else result


def _said_by_people(context: StepContext) -> Iterator[str]:
    """Yield what whoever approved the call has changed of it, and says about it."""
    approval = context.approval or {}
    if approval.get("edits"):
        edits = json.dumps(approval["edits"], ensure_ascii=False)
        yield f"[Before the call was made, a person changed these arguments: {edits}]"
    if approval.get("comment"):
        yield f"[Who approved the call says: {approval['comment']}]"


def as_text(value: Any) -> str:
    """Return a value as the text of a message; never fails."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "backslashreplace")
    try:
        return json.dumps(value, ensure_ascii=False, default=_as_data)
    except (TypeError, ValueError, RecursionError):
        return str(value)


def _as_data(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "backslashreplace")
    if hasattr(value, "model_dump"):
        return value.model_dump()
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    return str(value)


def _is_result(value: Any) -> bool:
    """Return whether a value says what follows from a call, as `Result` does."""
    return all(hasattr(value, name) for name in ("value", "agent", "context_variables"))


def _is_agent(value: Any) -> bool:
    """Return whether a value is an agent, as `Agent` is."""
    return all(hasattr(value, name) for name in ("name", "instructions", "functions"))


def _plain_context(update: Mapping[str, Any]) -> dict[str, Plain]:
    for key, value in update.items():
        try:
            json.dumps(value)
        except (TypeError, ValueError, RecursionError):
            what = type(value).__name__
            raise ToolError(
                f"context variable {key!r} is a {what}: only plain data is kept; nothing was "
                "changed",
                retryable=False,
            ) from None
    return dict(update)


def _handed_over(made: dict[str, Plain], known: Mapping[str, str], to: Any, content: str) -> str:
    name = getattr(to, "name", to)
    if name not in known:
        there = ", ".join(known) or "none"
        return f"Error: there is no agent {name!r} in this flow to hand over to; there is {there}."
    made["handoff"] = known[name]
    return content or f"Handed over to {name}."


def _image_messages(context: StepContext, image: Any) -> list[Plain]:
    """Return the message with the images of a result; none, if it has none."""
    images = image if isinstance(image, list | tuple) else [image]
    urls = [keep(context.execution.artifacts, one) for one in images if one]
    if not urls:
        return []
    return [_image_message(urls, "The image:" if len(urls) == 1 else "The images:")]


def _image_message(urls: Sequence[str], text: str) -> dict[str, Plain]:
    shown = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return {"role": "user", "content": [{"type": "text", "text": text}, *shown]}


_Room = tuple[int, Callable[[str, int], Ends | None]]


def _room(task: Mapping[str, Plain]) -> _Room:
    """Return how much of a result the model is shown, and what finds the ends of a longer one."""
    if "bytes" in task:
        return task["bytes"], ends_in_bytes
    return task.get("limit", LIMIT), ends_in_characters


def _cut(context: StepContext, text: str, room: _Room) -> str:
    """Return a text with its middle left out if it is long; all of it is kept as a file."""
    most, find = room
    if find(text, most) is None:
        return text
    text = context.mask(text)  # half a secret would not be recognized
    ends = find(text, most)
    if ends is None:
        return text
    head, tail = ends
    file = context.execution.artifacts.put(text.encode(errors="replace"), "result.txt")
    left = len(text) - len(head) - len(tail)
    note = f"\n[… {left} characters left out; all of it is kept as {file['sha256']} …]\n"
    return head + note + tail
