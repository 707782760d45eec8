"""Images in conversations.

The journal stores the digest of an artifact, and a model receives its bytes:

{"type": "image_url", "image_url": {"url": "artifact:8f43…"}}
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from flowengine.agents.models.known_messages import parted
from flowengine.sdk import Plain
from flowengine.sdk.read_only import Joined, plain, unwrapped

_REFERENCE = re.compile(r"artifact:([0-9a-f]{64})")
_DATA = re.compile(r"data:image/[a-z0-9.+-]+;base64,(.*)", re.DOTALL | re.ASCII)
_GONE = "(An image was left out here: its file is no longer kept.)"


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
    return {**message, "content": [_kept(part, artifacts) for part in content]}


def _kept(part: Any, artifacts: ImageStore) -> Any:
    url = _url(part)
    return part if url is None else _with_url(part, keep(artifacts, url))


def _url(part: Any) -> str | None:
    """Return the URL of an image part, or None for any other part."""
    image = part.get("image_url") if isinstance(part, dict) else None
    url = image.get("url") if isinstance(image, dict) else None
    return url if isinstance(url, str) else None


def _with_url(part: Any, url: str) -> Any:
    return {**part, "image_url": {**part["image_url"], "url": url}}


def address(image: Mapping[str, Plain]) -> str:
    """Return the URL of an image attached to a decision, which is an artifact."""
    return f"artifact:{image['sha256']}"


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
        return {"type": "text", "text": _GONE}
    address = f"data:image/{_type(data)};base64,{b64encode(data).decode()}"
    return _with_url(part, address)


def _type(data: bytes | bytearray) -> str:
    from flowengine.sdk.tool_calls import media_type

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
