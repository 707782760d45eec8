"""Conversion of a tool's return value for the model.

A tool can return text, data, bytes, an image, a `Result` or an agent. The journal stores an
envelope of plain data: the content of the tool's message, further messages, changes of the context,
the agent to hand off to, and the value itself, unless it is the text of the content.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from flowengine.agents.call_answers import (
    ERROR,
    address,
    as_text,
    image_message,
    said_by_people,
)
from flowengine.agents.models.conversations import parted
from flowengine.sdk import Plain, StepContext, ToolError
from flowengine.sdk.steps.step_kind import AsText
from flowengine.sdk.texts.received import received_json
from flowengine.sdk.texts.untrusted import all_unmarked, has_text, marked
from flowengine.sdk.texts.visible_text import Ends, ends_in_bytes, ends_in_characters
from flowengine.sdk.tools.tool_calls import LARGEST_IMAGE, MOST_IMAGES, media_type
from flowengine.sdk.values.read_only import Joined, plain, unwrapped

_REFERENCE = re.compile(r"artifact:([0-9a-f]{64})")
_DATA = re.compile(r"data:image/[a-z0-9.+-]+;base64,(.*)", re.DOTALL | re.ASCII)


class ImageStore(Protocol):
    """A store for images, such as the artifacts of an execution."""

    def put(self, source: bytes, name: str) -> Mapping[str, Any]:
        """Store bytes under a name, and return their digest as `sha256`."""


Find = Callable[[str], str]
"""Returns the path of the file with a digest, or raises `KeyError`."""


def keep(artifacts: ImageStore, image: bytes | str) -> str:
    """Store an image, and return the URL that refers to it in a message.

    Args:
        artifacts: Artifacts of the execution.
        image: Its bytes or its URL. Only a `data:` URL is stored, any other is returned unchanged.
    """
    if isinstance(image, str):
        match = _DATA.fullmatch(image)
        try:
            data = b64decode(match[1], validate=True) if match is not None else None
        except NotBase64:
            data = None
        if data is None:
            return image
        image = data
    kept = artifacts.put(bytes(image), f"image.{_type(image)}")
    return f"artifact:{kept['sha256']}"


def with_kept(message: dict[str, Any], artifacts: ImageStore) -> dict[str, Any]:
    """Return a message in which `data:` URLs of images are replaced by artifacts.

    Args:
        message: The message, which is not changed.
        artifacts: Artifacts of the execution.
    """
    content = message.get("content")
    if not isinstance(content, list):
        return message
    urls = [(part, _url(part)) for part in content]
    kept = [part if url is None else _with_url(part, keep(artifacts, url)) for part, url in urls]
    return {**message, "content": kept}


def _url(part: Any) -> str | None:
    """Return the URL of an image part, or None for any other part."""
    image = part.get("image_url") if isinstance(part, dict) else None
    url = image.get("url") if isinstance(image, dict) else None
    return url if isinstance(url, str) else None


def _with_url(part: Any, url: str) -> Any:
    return {**part, "image_url": {**part["image_url"], "url": url}}


def with_data(message: dict[str, Any], find: Find) -> dict[str, Any]:
    """Return a message with its images as data in place of references.

    Args:
        message: The message, which is not changed.
        find: Finds the files.
    """
    content = dict.get(message, "content")
    if not isinstance(content, list):
        return message
    return {**plain(message), "content": [_with_data(part, find) for part in plain(content)]}


def _with_data(part: Any, find: Find) -> Any:
    named = _REFERENCE.fullmatch(_url(part) or "")
    if named is None:
        return part
    try:
        data = Path(find(named[1])).read_bytes()
    except (KeyError, OSError):
        return {"type": "text", "text": "(An image was left out here: its file is no longer kept.)"}
    address = f"data:image/{_type(data)};base64,{b64encode(data).decode()}"
    return _with_url(part, address)


def _type(data: bytes | bytearray) -> str:
    return (media_type(bytes(data[:16])) or "image/png").removeprefix("image/")


def illustrated(messages: Sequence[Any], find: Find) -> Sequence[Any]:
    """Return the messages of a request with their images, or unchanged if there are none.

    Args:
        messages: The messages for the model.
        find: Finds the files.
    """
    places = parted(messages)
    if not places:
        return messages
    shown = [*unwrapped(messages)]
    for place in places:
        shown[place] = with_data(shown[place], find)
    return Joined([], shown)


LIMIT = 10_000
"""Maximum characters of a result shown to the model."""
TEXT_FILE = "result.txt"
"""Name of a file with a value that is text. Others have JSON."""
_LARGEST_VALUE = 64 * 1024
"""Maximum bytes of a value that is stored beside the text. A larger one is a file."""


def envelope(
    context: StepContext, task: Mapping[str, Plain], result: Any, text: AsText
) -> dict[str, Plain]:
    """Return the envelope for the return value of a tool.

    Args:
        context: The attempt of the call.
        task: `agents`: the possible handoff targets, with their names in the flow. `bytes`,
            otherwise `limit` in characters: the maximum size of a result. `source`: the origin of
            content that others wrote.
        result: The return value of the tool.
        text: Formats the result for the kind of the tool, if the kind does so.

    Raises:
        ToolError: A change of the context is not plain data.
    """
    made: dict[str, Plain] = {"content": "", "more": [], "context": {}, "handoff": ""}
    to = None
    if all(hasattr(result, name) for name in ("value", "agent", "context_variables")):
        made["context"] = _plain_context(result.context_variables or {})
        made["more"] = _image_messages(context, getattr(result, "image", None))
        to, result = result.agent, result.value
    elif all(hasattr(result, name) for name in ("name", "instructions", "functions")):
        to, result = result, ""
    # A result that is marked as a whole has no inner marks, such as those of a page.
    try:
        value = all_unmarked(result) if "source" in task else result
    except RecursionError:  # it contains itself
        value = result = as_text(result)
    room: _Room = task.get("limit", LIMIT), ends_in_characters
    if "bytes" in task:
        room = task["bytes"], ends_in_bytes
    content = text(value, room[0])
    if content is None:
        content = as_text(value)
    if to is not None:
        content = _handed_over(made, task.get("agents", {}), to, content)
    made["more"] = made["more"] or _image_messages(context, _kept_images(context, value))
    shown = (context.approval or {}).get("images")
    if shown:
        urls = [address(image) for image in shown]
        made["more"] = [
            *made["more"],
            image_message(urls, "From the person who approved the call:"),
        ]
    people = "\n\n".join(said_by_people(context.approval))
    whole, content = content, _cut(context, content, room)
    if people or content is not whole or not isinstance(value, str):
        made |= _kept(context, value)
    if to is None and "source" in task and has_text(result):
        content = marked(content, str(task["source"]))
    parts = [_cut(context, people, room), content]
    made["content"] = "\n\n".join(filter(None, parts))
    return {"envelope": made}


def _kept(context: StepContext, value: Any) -> dict[str, Plain]:
    """Return a value as plain data, or the reference to a file with it if it is large."""
    if value is None:
        return {"value": None}
    text = data = as_text(value)
    name = TEXT_FILE
    if not isinstance(value, str | bytes | bytearray):
        try:
            data = received_json(text, lenient=True)  # the call was made
            name = "result.json"
        except ValueError:
            pass
    if len(text) <= _LARGEST_VALUE and len(text.encode(errors="replace")) <= _LARGEST_VALUE:
        return {"value": data}
    file = context.execution.artifacts.put(context.mask(text).encode(errors="replace"), name)
    return {"value": {**file}, "in_file": True}


def _plain_context(update: Mapping[str, Any]) -> dict[str, Plain]:
    for key, value in update.items():
        try:
            json.dumps(value)
        except (TypeError, ValueError, RecursionError):
            what = type(value).__name__
            raise ToolError(
                f"context variable {key!r} is a {what}: only plain data is kept. Nothing was "
                "changed",
                retryable=False,
            ) from None
    return dict(update)


def _handed_over(made: dict[str, Plain], known: Mapping[str, str], to: Any, content: str) -> str:
    name = getattr(to, "name", to)
    if name not in known:
        there = ", ".join(known) or "none"
        return f"{ERROR}there is no agent {name!r} in this flow to hand over to; there is {there}."
    made["handoff"] = known[name]
    return content or f"Handed over to {name}."


def _image_messages(context: StepContext, image: Any) -> list[Plain]:
    """Return the message with the images of a result, or an empty list."""
    images = image if isinstance(image, list | tuple) else [image]
    urls = [keep(context.execution.artifacts, image) for image in images if image]
    if not urls:
        return []
    return [image_message(urls, "The image:" if len(urls) == 1 else "The images:")]


def _kept_images(context: StepContext, value: Any) -> list[str]:
    """Return the images among the parts of an MCP result, in the formats that models accept."""
    urls: list[str] = []
    for part in value if isinstance(value, list) else ():
        file = part.get("file") if isinstance(part, Mapping) else None
        if not isinstance(file, Mapping) or part.get("type") not in {"image", "resource"}:
            continue

        digest = str(file.get("sha256"))
        with suppress(KeyError, OSError):
            data = Path(context.execution.artifacts.path(digest)).read_bytes()
            if media_type(data[:16]) and len(data) <= LARGEST_IMAGE and len(urls) < MOST_IMAGES:
                urls.append(f"artifact:{digest}")
    return urls


_Room = tuple[int, Callable[[str, int], Ends | None]]


def _cut(context: StepContext, text: str, room: _Room) -> str:
    """Return a text, without its middle if it is too long. An artifact keeps the whole text."""
    most, find = room
    if find(text, most) is None:
        return text
    text = context.mask(text)  # first, because half a secret would not be recognized
    ends = find(text, most)
    if ends is None:
        return text
    head, tail = ends
    file = context.execution.artifacts.put(text.encode(errors="replace"), TEXT_FILE)
    left = len(text) - len(head) - len(tail)
    note = f"\n[… {left} characters left out; all of it is kept as {file['sha256']} …]\n"
    return head + note + tail
