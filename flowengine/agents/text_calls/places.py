"""Tests for places in a reply: at the beginning of a line, in code, between empty tags."""

from __future__ import annotations

import re

FENCE = r"(?<![^\n])[ \t]*(?P<ticks>`{3,}|~{3,})"
INDENT = 1_000
"""Maximum characters of a line that are read before a place."""
AROUND = 300
"""Maximum characters of a line that are read around a place, to detect inline code."""
_LONGEST_FENCE = 100
_TICKS = re.compile("`+")
_SPAN_END = re.compile(rf"[^`\n]{{0,{AROUND}}}`")
_NAMES = "tool_calls?|function_calls?|tool_use|tool_code"
WRAPPERS = ("<tool_call>", "<tool_calls>", "<function_call>", "<function_calls>", "<tool_use>")
"""Tags that models put around calls. Empty ones do not count as content."""
_ENDS = re.compile(rf"(?:\s*</(?:{_NAMES})>)+")
_EMPTY = rf"(?:\s|</?(?:{_NAMES})>|(?:`{{3,}}|~{{3,}})[\w-]*(?![^\n]))*"
_NOTHING = re.compile(_EMPTY)
_NOTHING_YET = re.compile(rf"{_EMPTY}(?:</?[\w:]{{0,20}}|(?:`{{1,}}|~{{1,}})[\w-]*(?![^\n]))?")


def begins_line(text: str, at: int, first: int) -> bool:
    """Return whether only blanks and wrappers of calls precede a place in its line.

    Args:
        text: The reply.
        at: The place.
        first: End of the last part that was cut out. It counts as the beginning of a line.
    """
    line = max(first, at - INDENT)
    line = max(line, text.rfind("\n", line, at) + 1)
    begins = line == first or text[line - 1] == "\n"
    return begins and not text[line : unwrapped(text, at, line)].strip()


def in_code(text: str, start: int, end: int, first: int) -> bool:
    """Return whether a tag is in inline code, between backticks in one line.

    Args:
        text: The reply.
        start: Start of the tag.
        end: End of the tag.
        first: As for `begins_line`.
    """
    line = max(first, start - AROUND)
    line = max(line, text.rfind("\n", line, start) + 1)
    if text.find("`", line, start) < 0 or len(_TICKS.findall(text, line, start)) % 2 == 0:
        return False
    return bool(_SPAN_END.match(text, end))


def closing_of(ticks: str, before: str = r"^[ \t]*") -> re.Pattern[str]:
    """Return a pattern for the line that closes a code fence.

    Args:
        ticks: The ticks that opened it.
        before: Pattern for the text before the closing ticks.
    """
    length = min(len(ticks), _LONGEST_FENCE)
    closing = rf"{re.escape(ticks[0])}{{{length},}}[ \t]*(?:\n|\Z)"
    return re.compile(before + closing, re.MULTILINE)


def unwrapped(text: str, end: int, first: int = 0) -> int:
    """Return the start of the blanks and opening wrappers at the end of a text.

    Args:
        text: The text.
        end: Its end.
        first: Its start.
    """
    while end > first:
        rest = text[max(first, end - INDENT) : end].rstrip()
        end = max(first, end - INDENT) + len(rest)
        wrapper = next((wrapper for wrapper in WRAPPERS if rest.endswith(wrapper)), "")
        if wrapper:
            end -= len(wrapper)
        elif rest:
            break
    return end


def without_wrappers(text: str, *, before: bool, after: bool) -> str:
    """Return text next to calls, without the wrappers of these calls.

    Args:
        text: The text.
        before: Whether calls precede it.
        after: Whether calls follow it.
    """
    if before and (ends := _ENDS.match(text)):
        text = text[ends.end() :]
    end = unwrapped(text, len(text)) if after else len(text)
    return text[:end] if text[end:].strip() else text


def says_nothing(text: str, *, more: bool = False) -> bool:
    """Return whether a text contains only blanks, empty fences and empty wrappers of calls.

    Args:
        text: The text.
        more: Whether the rest of a tag may still arrive.
    """
    return bool((_NOTHING_YET if more else _NOTHING).fullmatch(text))
