"""Images attached to a decision about a call, which are shown to the model that made the call.

They are kept as files of the execution, so the journal only contains their digests.
"""

from __future__ import annotations

import os
from base64 import b64decode
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from flowengine.errors import Hint, InputError
from flowengine.sdk.sizes import size_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flowengine.sdk import File

MOST = 8
LARGEST = 10 * 1024 * 1024
"""Maximum size of one image in bytes."""


def checked_images(
    record: Mapping[str, Any], choice: str, images: Sequence[str | os.PathLike[str] | bytes]
) -> list[bytes]:
    """Return the bytes of images.

    Args:
        record: Record of the wait.
        choice: The choice.
        images: Paths, the bytes of images, or `data:` URLs.

    Raises:
        InputError: The decision accepts no images, or a model cannot be shown one of them.
    """
    counts_as = next((each["counts_as"] for each in record["choices"] if each["id"] == choice), "")
    if "digest" not in record or counts_as not in ("approve", "reject"):
        raise InputError(
            "images go with the approval or rejection of a call",
            field="image",
            hint=Hint(
                "attach files to other decisions: attach=[FILE]",
                "attach files to other decisions: --attach FILE",
            ),
        )
    if len(images) > MOST:
        raise InputError(f"{len(images)} images are given; at most {MOST} may be", field="image")
    return contents(images)


def contents(images: Sequence[str | os.PathLike[str] | bytes]) -> list[bytes]:
    """Return the bytes of images.

    Raises:
        InputError: One is not an image, or is too large.
    """
    return [_checked(image) for image in images]


def digests(images: Sequence[str | os.PathLike[str] | bytes]) -> list[str]:
    """Return the digests by which images are kept.

    Raises:
        InputError: One is not an image, or is too large.
    """
    return [sha256(image).hexdigest() for image in contents(images)]


def name_of(image: bytes) -> str:
    """Return the name under which an image is kept, with the extension of its type."""
    from flowengine.sdk.tool_calls import media_type

    return f"image.{(media_type(image[:16]) or '').removeprefix('image/')}"


def view(image: File) -> dict[str, Any]:
    """Return an image of a decision, as shown to users.

    Args:
        image: The kept file.
    """
    type = image["name"].rpartition(".")[2]
    return {"media_type": f"image/{type}", "size": image["size"], "sha256": image["sha256"]}


def _checked(image: str | os.PathLike[str] | bytes) -> bytes:
    from pydantic import ValidationError

    from flowengine.sdk.tool_calls import Image

    named = "the image"
    given: Any = image
    if not isinstance(image, bytes) and not str(image).startswith("data:"):
        named = f"image {os.fspath(image)}"
        given = _content(os.fspath(image), named)
    try:
        return b64decode(Image.model_validate(given).data)
    except ValidationError:
        raise InputError(
            f"{named} is not one that models accept",
            field="image",
            hint="give PNG, JPEG, GIF or WebP",
        ) from None


def _content(path: str, named: str) -> bytes:
    try:
        with open(path, "rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise InputError(f"{named}: {error.strerror}", field="image") from None
    if len(data) > LARGEST:
        raise InputError(f"{named} is larger than {size_text(LARGEST)}", field="image")
    return data
