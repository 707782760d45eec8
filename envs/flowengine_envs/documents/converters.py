"""From the bytes of a file to a document: one converter for each format."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any

from flowengine_envs.documents.document import Damaged, Document, LimitReached, Limits, Unreadable
from flowengine_envs.documents.formats import detect, encoding_of
from flowengine_envs.documents.markdown import Full, Writer

MODULES = {
    "pdf": "pdf",
    "docx": "docx",
    "pptx": "pptx",
    "xlsx": "xlsx",
    "html": "html",
    "epub": "epub",
    "csv": "delimited",
    "ipynb": "notebook",
    "eml": "mail",
    "image": "picture",
    "text": "text",
}
"""Format → the module here whose function `convert` takes the bytes and a writer."""
_LIBRARIES = {
    "pdf": ["pypdf"],
    "docx": ["docx"],
    "pptx": ["pptx"],
    "xlsx": ["openpyxl"],
    "html": ["lxml.etree"],
    "epub": ["lxml.etree"],
    "eml": ["flowengine_envs.documents.html", "lxml.etree"],
    "image": ["PIL.PngImagePlugin", "PIL.JpegImagePlugin", "PIL.ImageOps"],
    "text": ["charset_normalizer"],
}
"""Format → what its converter imports when it is called."""
Converter = Callable[[bytes, str], str | None]
"""Gets the bytes of a file and its name; returns Markdown, or None if the file is not its own."""
_DECLARED = {"html", "csv", "text"}
"""Formats whose converters want to know the declared encoding."""


def convert(
    data: bytes,
    name: str = "",
    media_type: str = "",
    limits: Limits | None = None,
    password: str = "",
    base: str = "",
    picture: bool = False,
    added: Mapping[str, Converter] | None = None,
    comments: bool = False,
    first: int = 1,
    seconds: float = 0.0,
) -> Document:
    """Convert a file.

    Args:
        data: Its bytes.
        name: Its name, in case the content does not tell the format.
        media_type: The type that a server declares for it.
        limits: What it may take.
        password: Of an encrypted PDF.
        base: The address of a page, against which its links are resolved.
        picture: Whether of an image, and of scanned pages, copies are made that may be sent to a
            model.
        added: Converters that are tried before the built-in ones, by name.
        comments: Whether comments of people in office documents and PDFs are read, too.
        first: The page of a PDF to begin with.
        seconds: Processor time after which a PDF is left, behind a page; the document's `following`
            then says with which page to go on. 0: it is read to its end.

    Returns:
        The document.

    Raises:
        Unreadable: It cannot be converted; the message says why.
    """
    limits = limits or Limits()
    if not data:
        raise Damaged("the file is empty")
    if len(data) > limits.bytes:
        raise LimitReached("bytes", limits.bytes, f"the file has {len(data):,} bytes")
    if (brought := _by_added(data, name, added or {}, limits)) is not None:
        return brought
    found = detect(data, name, media_type)
    digest = hashlib.sha256(data).hexdigest()
    document = Document(found.format, size=len(data), sha256=digest)
    out = Writer(document, limits)
    if found.note:
        out.note(found.note)
    own: dict[str, dict[str, Any]] = {
        **{format: {"comments": comments} for format in ("docx", "pptx", "xlsx")},
        "html": {"base": base},
        "image": {"picture": picture},
        "pdf": {
            **{"password": password, "comments": comments},
            **{"first": first, "seconds": seconds, "picture": picture},
        },
    }
    options = own.get(found.format, {})
    if found.format in _DECLARED:
        options["declared"] = encoding_of(data, media_type)
    _fill(out, data, options)
    return document


def _fill(out: Writer, data: bytes, options: Mapping[str, Any]) -> None:
    """Have the converter of its format fill a document.

    Raises:
        Unreadable: It cannot be converted.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # libraries warn of what they put right
            _converter(out.document.format)(data, out, **options)
    except Full:
        pass
    except (Unreadable, MemoryError):
        raise
    except RecursionError:
        raise Damaged("it is nested too deeply") from None
    except Exception as error:  # whatever a library trips over is a fault of the file
        raise Damaged(f"it cannot be read: {type(error).__name__}: {error}") from error
    finally:
        out.finish()


def _by_added(
    data: bytes, name: str, added: Mapping[str, Converter], limits: Limits
) -> Document | None:
    """Return what the first of the added converters made of a file whose own it is."""
    for label, convert in added.items():
        try:
            markdown = convert(data, name)
        except (Unreadable, MemoryError):
            raise
        except Exception as error:
            raise Damaged(f"converter {label}: {type(error).__name__}: {error}") from error
        if markdown is not None:
            digest = hashlib.sha256(data).hexdigest()
            document = Document(label, size=len(data), sha256=digest)
            out = Writer(document, limits)
            with suppress(Full):
                out.block(str(markdown))
            out.finish()
            return document
    return None


def modules(formats: Iterable[str]) -> list[str]:
    """Return the modules that conversions of some formats import; others have none."""
    known = [each for each in formats if each in MODULES]
    own = (f"flowengine_envs.documents.{MODULES[each]}" for each in known)
    return [*own, *(library for each in known for library in _LIBRARIES.get(each, ()))]


def _converter(format: str) -> Callable[..., None]:
    module = import_module(f"flowengine_envs.documents.{MODULES[format]}")
    found: Callable[..., None] = module.convert
    return found
