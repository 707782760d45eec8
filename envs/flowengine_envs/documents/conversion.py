"""Conversion of files to Markdown: its libraries, and its answers and errors."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter

import flowengine
import flowengine_documents
from flowengine.sdk import LimitExceeded, StepError
from flowengine_documents.document import (
    MIB,
    Document,
    Unreadable,
)
from flowengine_envs.sandboxes.installations import is_below

_OWN = [
    Path(__file__).parents[1],
    *(Path(str(each.__file__)).parent for each in (flowengine, flowengine_documents)),
]
_NEEDED = (
    *("PIL", "charset_normalizer", "docx", "lxml", "olefile", "openpyxl", "pptx", "pypdf"),
    *("pypdfium2", "webencodings"),
)


def missing() -> list[str]:
    """Return the libraries that are not installed."""
    return [name for name in _NEEDED if find_spec(name) is None]


@cache
def folders() -> tuple[str, ...]:
    """Return the directories with the converters and their libraries, except for the system's."""
    return _not_shown([*map(str, _OWN), *_libraries()])


@cache
def search_path() -> list[str]:
    """Return the module search path for a Python process that has none by default."""
    return [*dict.fromkeys(str(package.parent) for package in _OWN), *_not_shown(_libraries())]


def _libraries() -> list[str]:
    specs = map(find_spec, _NEEDED)
    return [str(Path(spec.origin).parents[1]) for spec in specs if spec and spec.origin]


def _not_shown(places: list[str]) -> tuple[str, ...]:
    """Return the directories outside of Python's own, which every sandbox shows."""
    shown = (sys.prefix, sys.base_prefix)
    return tuple(place for place in dict.fromkeys(places) if not is_below(place, shown))


MEMORY = 1024 * MIB
"""Bytes that a conversion may use, if the spec sets no limit."""
FAULTS = {"Unreadable", *(cls.__name__ for cls in Unreadable.__subclasses__())}
"""Error types for handlers in flows."""


_DOCUMENTS = TypeAdapter(Document)


class Stretch(NamedTuple):
    """The part of a PDF to convert."""

    first: int = 1
    """The first page."""
    seconds: float = 0.0
    """Processor time after which no further page is begun. 0 means no limit."""


WHOLE = Stretch()


class UnreadableDocument(StepError):
    """A file cannot be read.

    Its type contains the reason for handlers: `Damaged`, `UnsupportedFormat`.
    """

    type = "Unreadable"


def checked(data: bytes) -> Document | Mapping[str, Any]:
    """Return a document, or the description of an error. Raise `ValueError` for anything else."""
    answer = json.loads(data)
    if isinstance(answer, dict) and isinstance(answer.get("error"), dict):
        return dict(answer["error"])
    document = answer.get("document") if isinstance(answer, dict) else None
    return _DOCUMENTS.validate_python(document, strict=None)


def about(name: str, message: str) -> str:
    return f"{name}: {message}" if name else message


def exceeded(name: str, message: str, limit: str, allowed: Any) -> LimitExceeded:
    data = {"limit": limit, "value": allowed}
    return LimitExceeded(about(name, message), data=data, retryable=False)
