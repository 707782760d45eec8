"""Jupyter notebooks: text, code, and what the code printed."""

from __future__ import annotations

import json
import re
from typing import Any

from flowengine_envs.documents.document import Damaged
from flowengine_envs.documents.markdown import Writer
from flowengine_envs.documents.text import decode, lines

_TERMINAL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def convert(data: bytes, out: Writer) -> None:
    """Convert a notebook.

    Args:
        data: Its bytes.
        out: Where it goes.

    Raises:
        Damaged: It is no notebook.
    """
    try:
        book = json.loads(decode(data)[0])
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
        out.code(_TERMINAL.sub("", _joined(output.get("text", ""))))
        return
    if output.get("output_type") == "error":
        out.code(f"{output.get('ename', '')}: {output.get('evalue', '')}")
        return
    data = output.get("data") or {}
    if "text/markdown" in data:
        out.block(_joined(data["text/markdown"]).strip("\n"))
    elif "text/plain" in data:
        out.code(_joined(data["text/plain"]))
    if any(type.startswith("image/") for type in data):
        out.note("images that code made are left out")


def _joined(text: Any) -> str:
    return "".join(text) if isinstance(text, list) else str(text)
