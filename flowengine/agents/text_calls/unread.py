"""Detection of calls that a model wrote in an unsupported form, so that it can be corrected.

Such calls are never made. Text that the model shows as a quotation is ignored: in a code fence, in
backticks or quotation marks, in a quoted line, a list or a table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from flowengine.agents.text_calls.places import FENCE, INDENT, closing_of

_LONGEST = 300
_CANDIDATES = 1_000
"""Maximum places to check in one reply."""
_BAR = "\uff5c"
_BEGINS = re.compile(
    rf"(?P<fence>{FENCE}(?P<info>[^`\n]*))"
    rf"|(?P<tag><(?!/)[\w:.|\u2581{_BAR}]{{0,30}}?"
    r"(?:tool|call|func|invoke|action|plugin|python|channel|start)|\bto=functions\.)"
    r"|(?P<word>\[TOOL_CALLS\]|functools(?=\[)|\u273fFUNCTION\u273f)"
    r"|(?<![^\n])[ \t]*(?:(?P<react>Action:)|(?P<bracket>\[?\s{0,9}\{|\[(?=\w)))",
    re.IGNORECASE,
)
"""Starts of calls in the forms that models were trained on: a tag, a word, a bracket."""
_NAME = (
    r"<[^<>\n\"'=]{0,60}=\s*[\"']?(?:functions?\.)?NAME",
    r"[\"'](?:name|tool|tool_name|function|recipient_name)[\"']\s*:\s*[\"'](?:functions?\.)?NAME[\"']",
    r"\{\s*[\"']NAME[\"']\s*:\s*[\[{]",
    r"(?:print\()?(?:\w{1,40}\.)?NAME\s*\(",
    r"(?:functions?\.)?NAME(?::\d+)?\s*?(?=\n|<|\[ARGS|\[CALL|\{|\Z)",
    r"to=(?:functions?\.)?NAME",
)
"""Ways in which a call names its tool."""
_SYNTAX = (
    r"<[^<>\n]{0,200}>|\s|[\[{(:,]|\"[^\"\n]{0,80}\"|'[^'\n]{0,80}'|(?:```|~~~)\w{0,12}\n"
    r"|(?:functions?|json|commentary|assistant|analysis|call)\b"
)
"""Text allowed between the start of a call and the name of its tool."""
_ARGUMENTS = re.compile(r"[\"'](?:arguments|parameters|args|input|params)[\"']\s*:")
_INPUT = re.compile(r"\s*Action Input:", re.IGNORECASE)
_OF_CALLS = re.compile(r"[ \t]*(?:tool_code|tool_calls?|tool_use|function_calls?)[ \t]*", re.I)
"""Info string of a code fence around a call."""
_PLAIN = re.compile(r"[ \t]*(?:json|xml|text|plaintext)?[ \t]*", re.IGNORECASE)
_SHOWN = re.compile(r"[ \t]*(?:>|\||[-*+][ \t]|\d{1,9}[.)][ \t])")
"""Start of a line in a quotation, a table or a list."""
_TICKS = re.compile("`+")
_MARKS = "\"'`\u2018\u2019\u201a\u201c\u201d\u201e\u00ab\u00bb\u2039\u203a"
_PAIRS = (("\u201c", "\u201d"), ("\u201e", "\u201c"), ("\u00ab", "\u00bb"), ("\u00bb", "\u00ab"))


class Unread(NamedTuple):
    """A call in an unsupported form."""

    tool: str
    written: str
    """Its beginning."""


def may_hold_call(text: str) -> bool:
    """Return whether a reply contains anything that looks like a call of any tool."""
    return bool(_BEGINS.search(text)) or text.rstrip().endswith(")")


def unread_call(text: str, names: Mapping[str, str], *, bare: bool = True) -> Unread | None:
    """Return the first call in a reply that is written in an unsupported form.

    Args:
        text: The content of the reply.
        names: Names by which the model may know the tools → the tools.
        bare: Whether bare JSON counts as a call. If not, it may be the answer.
    """
    if not names or not may_hold_call(text):
        return None
    call, python = _forms(tuple(sorted(names)))
    match = python.match(text) if text.rstrip().endswith(")") else None
    if match and "\n\n" not in text.strip():
        return _unread(text, match, names)
    at, looked = 0, 0
    while (begun := _BEGINS.search(text, at)) and (looked := looked + 1) <= _CANDIDATES:
        if begun["fence"]:
            match, at = _fenced(text, begun, call, bare=bare)
        else:
            match = call.match(text, begun.start() if not _is_word(begun) else begun.end())
            at = max(match.end() if match else 0, begun.end())
            if match and not _counts(text, begun, match, bare=bare):
                match = None
        if match:
            return _unread(text, match, names)
    return None


@lru_cache(maxsize=64)
def _forms(names: tuple[str, ...]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return patterns for calls of tools, and for calls in function syntax."""
    longest_first = sorted(names, key=len, reverse=True)
    name = rf"({'|'.join(map(re.escape, longest_first))})(?![\w-]|\.\w)"
    written = "|".join(form.replace("NAME", name) for form in _NAME)
    python = _NAME[3].replace("NAME", name)
    return re.compile(f"(?:{_SYNTAX}){{0,60}}?(?:{written})"), re.compile(rf"\s*{python}")


def _unread(text: str, match: re.Match[str], names: Mapping[str, str]) -> Unread:
    return Unread(names[match[match.lastindex or 0]], text[match.start() :][:_LONGEST].strip())


def _is_word(begun: re.Match[str]) -> bool:
    return bool(begun["word"] or begun["react"])


def _counts(text: str, begun: re.Match[str], match: re.Match[str], *, bare: bool) -> bool:
    """Return whether a match is a call and not a quotation."""
    if begun["react"]:
        return bool(_INPUT.match(text, match.end()) or "```" in match[0])
    if begun["bracket"]:
        if text[match.start() : match.end()].rstrip().endswith("("):
            return True  # such as [add(a=1)]
        end = text.find("\n\n", match.start())
        return bare and bool(_ARGUMENTS.search(text, match.start(), end if end >= 0 else len(text)))
    return not _is_shown(text, begun.start())


def _fenced(
    text: str, fence: re.Match[str], call: re.Pattern[str], *, bare: bool
) -> tuple[re.Match[str] | None, int]:
    """Return the call in a code fence that contains only a call, and the end of the fence."""
    inside = fence.end() + 1
    close = closing_of(fence["ticks"]).search(text, min(inside, len(text)))
    end = close.end() if close else len(text)
    if _OF_CALLS.fullmatch(fence["info"]):
        return call.match(text, inside), end
    is_all = not text[: fence.start()].strip() and not text[end:].strip()
    begun = _BEGINS.match(text, inside) if is_all and _PLAIN.fullmatch(fence["info"]) else None
    match = call.match(text, begun.end() if _is_word(begun) else inside) if begun else None
    if begun and match and _counts(text, begun, match, bare=bare):
        return match, end
    return None, end


def _is_shown(text: str, at: int) -> bool:
    """Return whether a place is in a quotation, in inline code, in a list or in a table."""
    line = max(0, at - INDENT)
    before = text[max(line, text.rfind("\n", line, at) + 1) : at]
    if not before.strip():
        return False
    return bool(
        _SHOWN.match(before)
        or before[-1] in _MARKS
        or before.count('"') % 2
        or len(_TICKS.findall(before)) % 2
        or any(before.rfind(begin) > before.rfind(end) for begin, end in _PAIRS)
    )
