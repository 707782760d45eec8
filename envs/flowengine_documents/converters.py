"""Conversion of the bytes of a file to a document, with one converter for each format."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any

from flowengine_documents.document import (
    ConversionLimits,
    Damaged,
    Document,
    LimitReached,
    Unreadable,
)
from flowengine_documents.formats import detect, encoding_of
from flowengine_documents.markdown import Full, Visible, Writer

MODULES = {
    **{name: name for name in ("pdf", "docx", "pptx", "xlsx", "xls", "xlsb", "odt", "ods")},
    **{name: name for name in ("html", "epub", "rtf", "msg", "text")},
    **{"csv": "delimited", "ipynb": "notebook", "eml": "mail", "feed": "feeds"},
    **{"zip": "zip_files", "image": "picture"},
}
"""Format → the module here whose function `convert` takes the bytes and a writer."""
_LIBRARIES = {
    "xls": ["openpyxl", "olefile"],
    "xlsb": ["openpyxl"],
    "msg": ["olefile"],
    "image": ["PIL.PngImagePlugin", "PIL.JpegImagePlugin", "PIL.ImageOps"],
    "text": ["charset_normalizer"],
}
"""Format → the modules that its converter imports when it is called."""
Converter = Callable[[bytes, str], str | None]
"""Takes the bytes of a file and its name, and returns Markdown, or None for other formats."""
_DECLARED = {"html", "csv", "feed", "text"}
"""Formats whose converters take the declared encoding."""


def convert(
    data: bytes,
    name: str = "",
    media_type: str = "",
    limits: ConversionLimits | None = None,
    password: str = "",
    base: str = "",
    picture: bool = False,
    added: Mapping[str, Converter] | None = None,
    comments: bool = False,
    first: int = 1,
    seconds: float = 0.0,
    *,
    visible: Visible,
) -> Document:
    """Convert a file.

    Args:
        data: Its bytes.
        name: Its name, used if the content does not show the format.
        media_type: The type declared by a server.
        limits: The limits.
        password: The password of an encrypted PDF.
        base: The address of a page, against which its links are resolved.
        picture: Whether to make copies of an image, and of scanned pages, that may be sent to a
            model.
        added: Converters that are tried before the built-in ones, by name. Their exceptions are the
            caller's.
        comments: Whether comments in office documents and PDFs are included.
        first: The first page of a PDF.
        seconds: Processor time after which the conversion of a PDF stops after a page. The
            document's `following` is then the page to continue with. 0 means no limit.
        visible: Removes invisible characters.

    Returns:
        The document.

    Raises:
        Unreadable: It cannot be converted. The message contains the reason.
    """
    options: dict[str, dict[str, Any]] = {
        **{
            format: {"comments": comments}
            for format in ("docx", "pptx", "xlsx", "odt", "ods", "rtf")
        },
        **{format: {"base": base} for format in ("html", "feed")},
        "image": {"picture": picture},
        "zip": {"password": password},
        "pdf": {
            **{"password": password, "comments": comments},
            **{"first": first, "seconds": seconds, "picture": picture},
        },
    }
    limits = limits or ConversionLimits()
    return _written(data, name, media_type, limits, added or {}, options, visible).document


def _written(
    data: bytes,
    name: str,
    media_type: str,
    limits: ConversionLimits,
    added: Mapping[str, Converter],
    all_options: Mapping[str, Mapping[str, Any]],
    visible: Visible,
    depth: int = 0,
) -> Writer:
    """Convert a file. Its converter receives the options of its format.

    Args:
        data: Its bytes.
        name: Its name.
        media_type: The type declared by a server.
        limits: The limits.
        added: Converters that are tried first.
        all_options: Format → options of its converter.
        visible: Removes invisible characters.
        depth: How many archives enclose it.

    Raises:
        Unreadable: It cannot be converted.
    """
    if not data:
        raise Damaged("the file is empty")
    if len(data) > limits.bytes:
        raise LimitReached("bytes", limits.bytes, f"the file has {len(data):,} bytes")
    digest = hashlib.sha256(data).hexdigest()
    for label, convert in added.items():
        if (markdown := convert(data, name)) is not None:
            out = Writer(Document(label, size=len(data), sha256=digest), limits, visible)
            with suppress(Full):
                out.block(str(markdown))
            out.finish()
            return out
    detected = detect(data, name, media_type)
    out = Writer(Document(detected.format, size=len(data), sha256=digest), limits, visible)
    if detected.note:
        out.note(detected.note)
    options = dict(all_options.get(detected.format, {}))
    if detected.format in _DECLARED:
        options["declared"] = encoding_of(data, media_type)
    if detected.format == "zip":

        def read(data: bytes, name: str, limits: ConversionLimits) -> Writer:
            pdf = {**all_options["pdf"], "first": 1, "seconds": 0.0, "picture": False}
            inner = {**all_options, "image": {}, "pdf": pdf}
            return _written(data, name, "", limits, added, inner, visible, depth + 1)

        options |= {"read": read, "depth": depth}
    _fill(out, data, options)
    return out


def _fill(out: Writer, data: bytes, options: Mapping[str, Any]) -> None:
    """Fill a document with the converter of its format.

    Raises:
        Unreadable: It cannot be converted.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # libraries warn about repaired errors
            module = import_module(f"flowengine_documents.{MODULES[out.document.format]}")
            module.convert(data, out, **options)
    except Full:
        pass
    except (Unreadable, MemoryError):
        raise
    except RecursionError:
        raise Damaged("it is nested too deeply") from None
    except Exception as error:  # an exception of a library is a fault of the file
        raise Damaged(f"it cannot be read: {type(error).__name__}: {error}") from error
    finally:
        out.finish()


def modules(formats: Iterable[str]) -> list[str]:
    """Return the modules that conversions of some formats import. Others import none."""
    known = [each for each in formats if each in MODULES]
    own = (f"flowengine_documents.{MODULES[each]}" for each in known)
    return [*own, *(library for each in known for library in _LIBRARIES.get(each, ()))]
