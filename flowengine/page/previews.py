"""Files beside an approval: pictures, texts, and documents converted by the document reader."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from flowengine.errors import FlowEngineError
from flowengine.execution_environment import manager
from flowengine.page.looks import LONGEST_TEXT
from flowengine.sdk.errors import StepError
from flowengine.sdk.files.file_names import SIGNATURES
from flowengine.sdk.texts.sizes import size_text
from flowengine.server import executions
from flowengine.server.calls import ApiCall

_LARGEST_PICTURE, _LARGEST_DOCUMENT = 10 << 20, 16 << 20
"""Bytes of files that are shown."""
_LONGEST_BEGINNING = 4 * LONGEST_TEXT
"""Bytes of a text that are read."""
_STRUCTURED = frozenset({".csv", ".tsv", ".html", ".htm", ".eml", ".ipynb", ".rtf", ".xml"})
"""Endings of texts whose structure the reader of documents shows."""
_PICTURES = frozenset({".png", ".jpg", ".jpeg", ".gif", ".webp"})
_PLACE = re.compile("^<!-- (.+) -->$", re.MULTILINE)
"""Marks the beginning of a page or slide, as a comment in HTML."""
_READER = {
    "kind": "documents",
    "scope": "session",
    "owner_id": "page",
    "limits": {"time": "15s", "memory": "512MiB"},
    "config": {"bytes": _LARGEST_DOCUMENT, "characters": LONGEST_TEXT, "pages": 20, "pictures": 1},
}


class FilePreview(NamedTuple):
    """A file with its preview."""

    file: Mapping[str, Any]
    is_picture: bool = False
    text: str = ""
    markdown: str = ""
    is_offered: bool = False
    """Whether it is read on request."""
    why_not: str = ""


def previews(call: ApiCall, files: Iterable[Mapping[str, Any]], wanted: str) -> list[FilePreview]:
    """Return files of an execution with their previews.

    Pictures are loaded by the browser. Of texts, the beginning is read. Other files are converted
    in a sandbox, one at a time, when the user asks for it.

    Args:
        call: The request.
        files: The files, as values name them.
        wanted: The digest of the file to convert.
    """
    return [_preview(call, file, is_wanted=file["sha256"] == wanted) for file in files]


def _preview(call: ApiCall, file: Mapping[str, Any], *, is_wanted: bool) -> FilePreview:
    suffix = PurePath(str(file["name"])).suffix.lower()
    try:
        path = executions.download(call._replace(path={**call.path, "sha256": file["sha256"]}))
        size = path.stat().st_size
        with path.open("rb") as opened:
            start = opened.read(_LONGEST_BEGINNING)
    except (FlowEngineError, OSError) as error:
        return FilePreview(file, why_not=str(error))
    if suffix in _PICTURES and start.startswith(SIGNATURES[suffix]):
        return FilePreview(file, is_picture=size <= _LARGEST_PICTURE)
    if suffix not in _STRUCTURED and (text := _as_text(start)):
        left_out = size - len(start)
        more = f"\n… {size_text(left_out)} more" if left_out > 0 else ""
        return FilePreview(file, text=text + more)
    if not is_wanted or size > _LARGEST_DOCUMENT:
        return FilePreview(file, is_offered=size <= _LARGEST_DOCUMENT)
    try:
        return FilePreview(file, markdown=_converted(str(path), str(file["name"])))
    except (FlowEngineError, StepError) as error:
        return FilePreview(file, why_not=str(error))


def _as_text(start: bytes) -> str:
    """Return the beginning of a file as text. Empty: it is something else."""
    if b"\0" in start or start.startswith(b"%PDF-"):
        return ""
    for cut in range(4):  # the last character may be incomplete
        try:
            return start[: len(start) - cut].decode()
        except UnicodeDecodeError:
            continue
    return ""


@lru_cache(maxsize=32)
def _converted(path: str, name: str) -> str:
    """Return a file as Markdown. The content of a path, which has its digest, never changes."""
    with manager().use(_READER) as reader:
        document = reader.read(Path(path).read_bytes(), name)
    notes = "".join(f"\n\n*{note}*" for note in document.notes)
    return _PLACE.sub(r"*\1*", document.markdown) + notes
