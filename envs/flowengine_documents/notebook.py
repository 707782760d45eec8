"""Jupyter notebooks: text, code, and the output of code."""

from __future__ import annotations

import json
import re
from typing import Any

from flowengine_documents import html
from flowengine_documents.document import Damaged
from flowengine_documents.markdown import Writer, image
from flowengine_documents.terminal_text import clean
from flowengine_documents.text import lines, noted

_OBJECT = re.compile(r"<(?:[\w.]+\.)?([^<>]*?)(?: at 0x[0-9A-Fa-f]+)?>")
"""Python's default representation of an object."""
_TEXTS = ("text/html", "text/markdown", "text/latex", "text/plain")


def convert(data: bytes, out: Writer) -> None:
    """Convert a notebook.

    Args:
        data: Its bytes.
        out: Receives the text.

    Raises:
        Damaged: It is not a notebook.
    """
    try:
        book = json.loads(noted(data, out))
        cells = book["cells"]
        metadata = book.get("metadata") or {}
        language = str((metadata.get("language_info") or {}).get("name", "python"))
        out.document.title = str(metadata.get("title") or "")
        for cell in cells:
            _cell(cell, language, out)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(f"the notebook cannot be read: {error}") from None
    except RecursionError:
        raise Damaged("the notebook cannot be read: it is nested too deeply") from None


def _cell(cell: Any, language: str, out: Writer) -> None:
    text = lines(_joined(cell.get("source", "")))
    kind = cell.get("cell_type")
    if kind == "code":
        out.code(text, language)
        for output in cell.get("outputs") or ():
            _output(output, out)
    elif kind == "raw":
        out.code(text)
    else:
        out.block(text.strip("\n"))


def _output(output: Any, out: Writer) -> None:
    if output.get("output_type") == "stream":
        out.code(_printed(_joined(output.get("text", ""))))
        return
    if output.get("output_type") == "error":
        out.code(f"{output.get('ename', '')}: {output.get('evalue', '')}")
        return
    data = output.get("data") or {}
    texts = {type: _joined(data[type]) for type in _TEXTS if type in data}
    drawn = any(type.startswith("image/") for type in data)
    if drawn:
        out.note("images that code made are left out")
    if _page(texts.get("text/html", ""), out):
        return
    for type in ("text/markdown", "text/latex"):
        if type in texts:
            out.block(texts[type].strip("\n"))
            return
    text = texts.get("text/plain", "")
    named = _OBJECT.fullmatch(text.strip())
    if drawn and (named or not text.strip()):
        out.block(image(named[1] if named else "image", "").text)
    else:
        out.code(_printed(text))


def _printed(text: str) -> str:
    """Return text as a terminal would show it."""
    return clean(text.encode("utf-8", "replace"))


def _page(text: str, out: Writer) -> bool:
    """Write an HTML result, and return whether it has any visible text."""
    before, title = out.length, out.document.title
    html.convert_text(text, out)
    out.document.title = title
    return out.length > before


def _joined(text: Any) -> str:
    return "".join(text) if isinstance(text, list) else str(text)
