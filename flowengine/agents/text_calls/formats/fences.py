"""Code fences: where one opens, what it says it holds, and where it closes."""

from __future__ import annotations

import re
from typing import NamedTuple

from flowengine.agents.text_calls.formats.base import Mark
from flowengine.agents.text_calls.source import Source

FENCE = Mark(
    r"`{3,}[^\n`]{0,100}(?:\n|\Z)",
    r"(?:`{1,2}|`{3,}[^\n`]{0,100}\n?)?",
    at_line_start=True,
)
_OPENING = re.compile(r"[ \t]*(`{3,})[ \t]*([\w+.-]*)[^\n`]{0,100}(?:\n|\Z)")
_CLOSINGS = {
    count: re.compile(rf"(?<![^\n])[ \t]*`{{{count},}}[ \t]*(?:\n|\Z)") for count in range(3, 10)
}


class Fence(NamedTuple):
    """A fenced block."""

    language: str
    inside: int
    inside_end: int
    end: int
    closed: bool


def read_fence(source: Source, at: int) -> Fence | None:
    """Return the fence that opens at a place.

    Args:
        source: The reply.
        at: Where its line begins.
    """
    opening = _OPENING.match(source.text, at)
    if opening is None:
        return None
    language = opening[2].lower()
    close = source.search(closing_of(opening[1]), opening.end())
    if close is None:
        size = len(source.text)
        return Fence(language, opening.end(), size, size, closed=False)
    return Fence(language, opening.end(), close.start(), close.end(), closed=True)


def closing_of(ticks: str) -> re.Pattern[str]:
    """Return what matches the line that closes a fence.

    Args:
        ticks: Those that open it.
    """
    return _CLOSINGS[min(len(ticks), 9)]
