"""Where in a reply something stands: at the beginning of a line, in code, between empty tags."""

from __future__ import annotations

import re

FENCE = r"(?<![^\n])[ \t]*(?P<ticks>`{3,}|~{3,})"
INDENT = 1_000
"""Characters of a line that are looked at in front of a place."""
AROUND = 300
"""Characters of a line that are looked at around a place, for inline code."""
_LONGEST_FENCE = 100
_TICKS = re.compile("`+")
_SPAN_END = re.compile(rf"[^`\n]{{0,{AROUND}}}`")
_NAMES = "tool_calls?|function_calls?|tool_use|tool_code"
WRAPPERS = ("<tool_call>", "<tool_calls>", "<function_call>", "<function_calls>", "<tool_use>")
"""What models put around calls; with nothing inside, it is no content."""
_ENDS = re.compile(rf"(?:\s*</(?:{_NAMES})>)+")
_EMPTY = rf"(?:\s|</?(?:{_NAMES})>|(?:`{{3,}}|~{{3,}})[\w-]*(?![^\n]))*"
_NOTHING = re.compile(_EMPTY)
_NOTHING_YET = re.compile(rf"{_EMPTY}(?:</?[\w:]{{0,20}}|(?:`{{1,}}|~{{1,}})[\w-]*(?![^\n]))?")


def begins_line(text: str, at: int, first: int) -> bool:
    """Say whether nothing but blanks, and what is put around calls, is before it in its line.

    Args:
        text: The reply.
        at: The place.
        first: Where what was cut out of the reply before it ended; a line begins there, too.
    """
    line = max(first, at - INDENT)
    line = max(line, text.rfind("\n", line, at) + 1)
    begins = line == first or text[line - 1] == "\n"
    return begins and not text[line : unwrapped(text, at, line)].strip()


def in_code(text: str, start: int, end: int, first: int, *, more: bool = False) -> bool | None:
    """Say whether a tag stands in inline code: between backticks, in one line.

    Args:
        text: The reply.
        start: Where the tag begins.
        end: Where it ends.
        first: As for `begins_line`.
        more: Whether more of the reply may come.

    Returns:
        None: what comes decides it.
    """
    line = max(first, start - AROUND)
    line = max(line, text.rfind("\n", line, start) + 1)
    if text.find("`", line, start) < 0 or len(_TICKS.findall(text, line, start)) % 2 == 0:
        return False
    if _SPAN_END.match(text, end):
        return True
    known = not more or len(text) - end > AROUND or text.find("\n", end) >= 0
    return False if known else None


def closing_of(ticks: str, before: str = r"^[ \t]*") -> re.Pattern[str]:
    """Return the line that closes a code fence.

    Args:
        ticks: Those that opened it.
        before: What stands before the ticks that close it.
    """
    length = min(len(ticks), _LONGEST_FENCE)
    closing = rf"{re.escape(ticks[0])}{{{length},}}[ \t]*(?:\n|\Z)"
    return re.compile(before + closing, re.MULTILINE)


def unwrapped(text: str, end: int, first: int = 0) -> int:
    """Return where the blanks and openings of wrappers at the end of a text begin.

    Args:
        text: The text.
        end: Its end.
        first: Its beginning.
    """
    while end > first:
        rest = text[max(first, end - INDENT) : end].rstrip()
        end = max(first, end - INDENT) + len(rest)
        wrapper = next((one for one in WRAPPERS if rest.endswith(one)), "")
        if wrapper:
            end -= len(wrapper)
        elif rest:
            break
    return end


def without_wrappers(text: str, *, before: bool, after: bool) -> str:
    """Return what stands beside calls without the tags that were around these.

    Args:
        text: What stands there.
        before: Whether calls are before it.
        after: Whether calls follow.
    """
    if before and (ends := _ENDS.match(text)):
        text = text[ends.end() :]
    end = unwrapped(text, len(text)) if after else len(text)
    return text[:end] if text[end:].strip() else text


def says_nothing(text: str, *, more: bool = False) -> bool:
    """Say whether a text has nothing but blanks, empty fences and empty tags around calls.

    Args:
        text: The text.
        more: Whether more of it may come, that ends a tag.
    """
    return bool((_NOTHING_YET if more else _NOTHING).fullmatch(text))
