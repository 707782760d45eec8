"""What a format is: marks at which its calls may begin, a reader and a writer."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from flowengine.agents.text_calls.json_text import BrokenJson
from flowengine.agents.text_calls.records import Fault, FaultCode, RawCall
from flowengine.agents.text_calls.source import Source

_SHOWN = 300
LINE_START = r"(?<![^\n])[ \t]*"
"""The beginning of a line, with the blanks that it begins with."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a call may begin."""

    pattern: str
    """A regular expression without capturing groups."""
    begun: str
    """A regular expression that matches every beginning of it; a stream holds that back."""
    at_line_start: bool = False
    """Both expressions begin where a line does, behind its blanks."""


def literal(text: str) -> Mark:
    """Return the mark of a text that stands anywhere.

    Args:
        text: As it stands in a reply.
    """
    begun = ""
    for character in reversed(text[1:]):
        begun = f"(?:{re.escape(character)}{begun})?"
    return Mark(re.escape(text), re.escape(text[:1]) + begun)


@dataclass(slots=True)
class Found:
    """What a reader made of the text at a mark."""

    end: int
    items: list[RawCall | Fault] = field(default_factory=list)
    """Calls and faults in the order of the reply."""
    repairs: list[str] = field(default_factory=list)
    content: str = ""
    """Text among it that is meant for people."""
    reasoning: str = ""


@dataclass(frozen=True, eq=False, slots=True)
class Format:
    """One way in which models write calls.

    Args:
        name: What it is called in settings.
        marks: Where its calls may begin.
        read: Reads what stands at a mark; None: it is no call of this format. A reader that has
            looked far ahead in vain returns what it looked at as content instead.
        write: Writes calls; `read` understands them.
        write_result: Writes the result of a call, under the name of the tool.
    """

    name: str
    marks: tuple[Mark, ...]
    read: Callable[[Source, int], Found | None]
    write: Callable[[Sequence[tuple[str, dict[str, Any]]]], str]
    write_result: Callable[[str, str], str] = field(
        default=lambda name, text: f'<tool_result name="{name}">\n{text}\n</tool_result>'
    )


def fault(
    source: Source, start: int, end: int, reason: str, tool: str | None = None, *, cut: bool = False
) -> Fault:
    """Return what the model is told of a call that cannot be read.

    Args:
        source: The reply.
        start: Where the call begins.
        end: Where it ends.
        reason: Why it cannot be read.
        tool: Which was meant, where that is known.
        cut: The text ended before the call did.
    """
    known = tool if tool in source.tools else None
    call = f"A call of {known}" if known else "A call"
    code: FaultCode = "cut" if cut else "unreadable"
    if cut and not source.complete:
        message = f"{call} was cut off by the limit of length, and was not made."
    else:
        message = f"{call} cannot be read, and was not made: {reason}."
    written = source.text[start : min(end, start + _SHOWN)]
    return Fault(code, message, known, written)


def broken_call(
    source: Source, start: int, end: int, broken: BrokenJson, tool: str | None = None
) -> Fault:
    """Return what the model is told of a call whose JSON is broken."""
    cut = broken.cut and source.is_over(end)
    return fault(source, start, end, broken.reason, tool, cut=cut)
