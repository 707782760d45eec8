"""Misspelled error types in `retry` and `on_error` (W419).

Python functions and packages raise errors of any name, so an unknown name can be correct.
One that differs only slightly from a known type most likely means that type, and would never match.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from functools import cache

from flowengine.flow.loading.files import FlowFile
from flowengine.flow.models import Fail, Handler, Loc, Retry
from flowengine.flow.models.base import Part
from flowengine.kernel.errors import FINAL, RETRYABLE
from flowengine.sdk import errors
from flowengine.sdk.near_words import nearest

CLOSE = 0.85
"""The least similarity of a misspelling, from 0 to 1."""


def check_error_types(files: Iterable[FlowFile]) -> None:
    """Warn of error types that are not known but nearly have the name of a known one.

    Args:
        files: All files of a compilation, because each may raise errors that another handles.
    """
    parts = [(file, part) for file in files for part in _parts(file.model)]
    raised = {part.type for _, part in parts if isinstance(part, Fail) and part.error is None}
    known = known_types() | raised
    for file, part in parts:
        for name, loc in _named(part):
            if name in known or name.endswith("*"):
                continue
            meant = nearest(name, known)
            if meant is not None and _is_close(name, meant):
                message = f"the error type {name!r} is not known"
                file.report.at("W419", message, loc, f"did you mean {meant!r}?")


def _is_close(name: str, meant: str) -> bool:
    return SequenceMatcher(None, name.lower(), meant.lower()).ratio() >= CLOSE


@cache
def known_types() -> frozenset[str]:
    """Return the error types of the language, and those of Python."""
    of_steps = {
        member.type
        for member in vars(errors).values()
        if isinstance(member, type)
        and issubclass(member, errors.StepError)
        and member.type is not None
    }
    of_python = {
        name
        for name, value in vars(builtins).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    return RETRYABLE | FINAL | of_steps | of_python


def _parts(model: Part) -> Iterator[Part]:
    """Yield a part of a file and all parts inside it, in no particular order."""
    left: list[object] = [model]
    while left:
        match left.pop():
            case Part() as part:
                yield part
                left += part.__dict__.values()
            case list() as items:
                left += items
            case dict() as items:
                left += items.values()


def _named(part: Part) -> Iterator[tuple[str, Loc]]:
    """Yield the error types that a part names, with their places."""
    if isinstance(part, Handler):
        named = {"type": part.type}
    elif isinstance(part, Retry):
        named = {"only": part.only, "except": part.except_}
    else:
        return
    for key, types in named.items():
        for number, name in enumerate(types or ()):
            yield name, (*part.loc, key, number)
