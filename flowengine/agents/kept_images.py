"""Images in conversations: the journal has the digest of a kept file, a model is sent its bytes.

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


class Keeper(Protocol):
    """Keeps images: the files of an execution, for example."""

    def put(self, source: bytes, name: str) -> Mapping[str, Any]:
        """Keep bytes under a name, and return their digest as `sha256`."""


Find = Callable[[str], str]
"""Returns where the file of a digest can be read, or raises `KeyError`."""


def keep(artifacts: Keeper, image: bytes | str) -> str:
    """Keep an image, and return the address by which a message names it.

    Args:
        artifacts: Of the execution.
        image: Its bytes, or its address; only that of data is kept.
    """
    if isinstance(image, str):
        found = _DATA.fullmatch(image)
        try:
            data = b64decode(found[1], validate=True) if found is not None else None
        except NotBase64:
            data = None
        if data is None:
            return image
        image = data
    kept = artifacts.put(bytes(image), f"image.{_type(image)}")
    return f"artifact:{kept['sha256']}"


def with_kept(message: dict[str, Any], artifacts: Keeper) -> dict[str, Any]:
    """Return a message whose images are kept files, where they were `data:` URLs.

    Args:
        message: The message; it is not changed.
        artifacts: Of the execution.
    """
    content = message.get("content")
    if not isinstance(content, list):
        return message
    return {**message, "content": [_kept(part, artifacts) for part in content]}


def _kept(part: Any, artifacts: Keeper) -> Any:
    url = _url(part)
    return part if url is None else _with_url(part, keep(artifacts, url))


def _url(part: Any) -> str | None:
    """Return the address of the image that a part is; None: it is none."""
    image = part.get("image_url") if isinstance(part, dict) else None
    url = image.get("url") if isinstance(image, dict) else None
    return url if isinstance(url, str) else None


def _with_url(part: Any, url: str) -> Any:
    return {**part, "image_url": {**part["image_url"], "url": url}}


def address(image: Plain) -> str:
    """Return the address of an image of a decision, which is a kept file.

    Args:
        image: It; a `data:` URL in journals of earlier versions.
    """
    return image if isinstance(image, str) else f"artifact:{image['sha256']}"


def with_data(message: dict[str, Any], find: Find) -> dict[str, Any]:
    """Return a message with the data of its images in place of their addresses.

    Args:
        message: The message; it is not changed.
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
    """Return the messages of a request with their images; the same where there are none.

    Args:
        messages: What the model is to see.
        find: Finds the files.
    """
    places = parted(messages)
    if not places:
        return messages
    shown = [*unwrapped(messages)]
    for place in places:
        shown[place] = with_data(shown[place], find)
    return Joined([], shown)
