"""Images: format, size and metadata."""

from __future__ import annotations

import io
import warnings
from base64 import b64encode
from typing import Any

from flowengine_documents.document import Damaged, LimitReached
from flowengine_documents.markdown import Writer

_TAGS = {271: "camera", 272: "model", 306: "date", 270: "description", 315: "artist"}
"""Numbers of EXIF fields. The location is left out on purpose."""
_LONGEST = 1_000
NO_DESCRIPTION = (
    "there is no description of the image: it takes a vision model, and none is used here"
)
LONGEST_SIDE = 1_568
"""Pixels. Models scale larger images down to this."""
_LARGEST_PNG = 1_500_000
_QUALITY = 85


def convert(data: bytes, out: Writer, picture: bool = False) -> None:
    """Write the format, the size and the metadata of an image.

    Args:
        data: Its bytes.
        out: Receives the text.
        picture: Whether to make a copy that may be sent to a model.

    Raises:
        Damaged: It is not an image.
        LimitReached: It has too many pixels.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the number of pixels is checked below
            image = Image.open(io.BytesIO(data), formats=["PNG", "JPEG", "GIF", "WEBP"])
    except UnidentifiedImageError:
        message = "the image cannot be read: it is not a PNG, JPEG, GIF or WebP file"
        raise Damaged(message) from None
    except (OSError, ValueError, SyntaxError) as error:
        raise Damaged(f"the image cannot be read: {error}") from None
    except Image.DecompressionBombError as error:
        raise LimitReached("pixels", out.limits.pixels, str(error)) from None
    with image:
        width, height = image.size
        if width * height > out.limits.pixels:
            message = f"the image has {width} x {height} pixels"
            raise LimitReached("pixels", out.limits.pixels, message)
        frames = getattr(image, "n_frames", 1)
        out.block(f"Image: {image.format}, {width} x {height} pixels")
        if frames > 1:
            out.item(0, f"frames: {frames}")
        for tag, name in _TAGS.items():
            value = image.getexif().get(tag)
            if isinstance(value, str) and value.strip("\0 "):
                out.item(0, f"{name}: {value.strip(chr(0) + ' ')[:_LONGEST]}")
        if picture:
            try:
                out.document.pictures[""] = copy_of(image)
            except (OSError, ValueError, SyntaxError) as error:
                out.note(f"there is no description of the image: it cannot be read: {error}")
        else:
            out.note(NO_DESCRIPTION)


def copy_of(image: Any) -> str:
    """Return the first frame, upright and scaled, without metadata."""
    from PIL import Image, ImageOps

    image.seek(0)
    image.draft("RGB", (LONGEST_SIDE, LONGEST_SIDE))  # reduces large JPEGs while decoding
    small = ImageOps.exif_transpose(image)
    small.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    small = small.convert("RGBA")
    flat = Image.new("RGB", small.size, "white")
    flat.paste(small, mask=small.getchannel("A"))
    made = io.BytesIO()
    flat.save(made, "PNG")
    kind = "png"
    if made.tell() > _LARGEST_PNG:
        made, kind = io.BytesIO(), "jpeg"
        flat.save(made, "JPEG", quality=_QUALITY)
    return f"data:image/{kind};base64,{b64encode(made.getvalue()).decode()}"
