"""Images: what is known of them without looking at them."""

from __future__ import annotations

import io
import warnings
from base64 import b64encode
from typing import TYPE_CHECKING, Any

from flowengine_envs.documents.document import Damaged, LimitReached
from flowengine_envs.documents.markdown import Writer

if TYPE_CHECKING:
    from pypdf import PageObject

_TAGS = {271: "camera", 272: "model", 306: "date", 270: "description", 315: "artist"}
"""Numbers of EXIF fields. Where a picture was taken is left out on purpose."""
_LONGEST = 1_000
NO_DESCRIPTION = (
    "there is no description of the image: it takes a vision model, and none is used here"
)


_LONGEST_SIDE = 1_568
"""Pixels; models see no more of a larger one."""
_LARGEST_PNG = 1_500_000
_SMALLEST_SIDE = 200
"""Pixels; what is smaller is no scan of a page."""
_SMALLEST_PAGE = 400 * 400
"""Pixels of all images of a page; with less it is no scan in strips."""
_ALMOST = 0.5
"""A scan has one image; others have less of its pixels."""
_QUALITY = 85


def convert(data: bytes, out: Writer, picture: bool = False) -> None:
    """Tell format, size and what its maker wrote into it.

    Args:
        data: Its bytes.
        out: Where it goes.
        picture: Whether a copy is made that may be sent to a model.

    Raises:
        Damaged: It is no image.
        LimitReached: It has too many pixels.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the number of pixels is judged below
            image = Image.open(io.BytesIO(data), formats=["PNG", "JPEG", "GIF", "WEBP"])
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError) as error:
        raise Damaged(f"the image cannot be read: {error}") from None
    except Image.DecompressionBombError as error:
        raise LimitReached("pixels", out.limits.pixels, str(error)) from None
    with image:
        width, height = image.size
        if width * height > out.limits.pixels:
            told = f"the image has {width} x {height} pixels"
            raise LimitReached("pixels", out.limits.pixels, told)
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
    """Return the first frame, upright and scaled, without anything but its pixels."""
    from PIL import Image, ImageOps

    image.seek(0)
    image.draft("RGB", (_LONGEST_SIDE, _LONGEST_SIDE))  # large JPEGs are read smaller
    small = ImageOps.exif_transpose(image)
    small.thumbnail((_LONGEST_SIDE, _LONGEST_SIDE))
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


def copy_of_scan(page: PageObject, most_pixels: int) -> str:
    """Return a copy of the image that a page of a scan consists of; empty: it is none.

    Args:
        page: A page without text.
        most_pixels: Width times height that the image may have.

    Raises:
        Exception: The image cannot be read: the libraries have errors of many types.
    """
    sizes: dict[str, int] = {}
    pixels: list[int] = []
    for name, each in page["/Resources"]["/XObject"].items():  # type: ignore[index]
        image = each.get_object()
        if image.get("/Subtype") == "/Image":
            wide, high = int(image["/Width"]), int(image["/Height"])
            pixels.append(wide * high)
            sizes[name] = wide * high if min(wide, high) >= _SMALLEST_SIDE else 0
    largest = max(sizes, key=lambda name: sizes[name], default="")
    others = [size for name, size in sizes.items() if name != largest]
    if not sizes.get(largest) or max(others, default=0) > _ALMOST * sizes[largest]:
        if len(pixels) > 1 and sum(pixels) >= _SMALLEST_PAGE:
            raise ValueError(f"it is in {len(pixels)} pieces")
        return ""
    if sizes[largest] > most_pixels:
        raise ValueError(f"it has {sizes[largest]:,} pixels; the limit 'pixels' is {most_pixels:,}")
    scan = page.images[largest].image
    if scan is None:
        return ""
    return copy_of(scan.rotate(-page.rotation, expand=True) if page.rotation else scan)
