"""Images that come with a decision about a call: the model that made the call is shown them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from flowengine.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MOST = 8
LARGEST = 10 * 1024 * 1024
"""Bytes of one image."""


def checked_images(
    record: Mapping[str, Any], choice: str, images: Sequence[str | os.PathLike[str] | bytes]
) -> list[str]:
    """Return images as `data:` URLs.

    Args:
        record: Of the wait.
        choice: What is decided.
        images: Paths, the bytes of images, or `data:` URLs.

    Raises:
        InputError: The decision takes none, or they are none that a model can be shown.
    """
    counts_as = next((one["counts_as"] for one in record["choices"] if one["id"] == choice), "")
    if "digest" not in record or counts_as not in ("approve", "reject"):
        raise InputError(
            "images go with the approval or rejection of a call",
            field="image",
            hint="attach files to other decisions: --attach FILE",
        )
    if len(images) > MOST:
        raise InputError(f"{len(images)} images are given; at most {MOST} may be", field="image")
    return image_urls(images)


def image_urls(images: Sequence[str | os.PathLike[str] | bytes]) -> list[str]:
    """Return images as `data:` URLs.

    Raises:
        InputError: One is none, or too large.
    """
    return [_url(one) for one in images]


def _url(image: str | os.PathLike[str] | bytes) -> str:
    from pydantic import ValidationError

    from flowengine.sdk.tool_calls import Image

    named = "the image"
    given: Any = image
    if not isinstance(image, bytes) and not str(image).startswith("data:"):
        named = f"image {os.fspath(image)}"
        given = _content(os.fspath(image), named)
    try:
        return Image.model_validate(given).url
    except ValidationError:
        raise InputError(
            f"{named} is not one that models take",
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
        raise InputError(f"{named} is larger than {LARGEST // 2**20} MiB", field="image")
    return data
