"""Detection of calls that a model wrote in another form, so that it can be corrected.

Such calls are never made. A part of the reply counts if it begins a line with a tag, a bracket, a
label such as `Action:` or the name of a tool, and also has the name of the tool and of one of its
arguments. What the model only shows is ignored: code fences, inline code, quoted lines, lists and
tables.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from flowengine.agents.text_calls.json_text import STRAIGHT
from flowengine.agents.text_calls.marked_form import ToolOffer
from flowengine.agents.text_calls.reading import FENCE, closing_of

_LONGEST = 300
_AROUND = 5_000
"""Maximum characters that are read before and after a name."""
_CANDIDATES = 200
"""Maximum number of names that are read in one reply."""
_ARGUMENTS = r"arguments|parameters|args|input|params|kwargs"
_LABEL = (
    rf"[*_]{{0,2}}(?:[a-z]+[ _])?(?:action|tool|function|call|name|{_ARGUMENTS})[*_]{{0,2}}\s*:"
)
_CALLING = r"tool|call|func|invoke|action|plugin|python|channel|start|open\||param|arg"
_TAGGED = re.compile(
    rf"[ \t]*(?:[<\[](?![/(])[^\s<>\[\]\"'=(]{{0,30}}?(?:{_CALLING})|\w+ to=functions\.|functools\["
    r"|\u273f(?:FUNCTION|ARGS)|(?:tools? )?call\s+tool\s*=)",
    re.IGNORECASE,
)
"""A line that begins with a tag or a token of calls."""
_OPENED = re.compile(rf"[ \t]*(?:[<\[{{]|{_LABEL})", re.IGNORECASE)
"""A line that may begin a call."""
_CALLED = re.compile(
    r"[*_]{0,2}(?:(?:\.call)?\s*\((?:[^\n]*[()\[{,])?[ \t;\])]*$|[ \t]*:?\d*[ \t]*\{|\s*\n\{)",
    re.MULTILINE,
)
"""What follows a name that begins a call: brackets up to the end of a line, or an object."""
_GIVEN = re.compile(rf"(?:{_ARGUMENTS})[*_\"']{{0,3}}\s*[:=>]", re.IGNORECASE)
_SHOWN = re.compile(r"^[ \t]*(?:>|\||[-*+][ \t]|\d{1,9}[.)][ \t]).*$|`[^`\n]*`", re.MULTILINE)
"""A line of a quotation, a table or a list, and inline code."""
_FENCE = re.compile(rf"{FENCE}(?P<info>[^`\n]*)")
_LABELED = re.compile(rf"[ \t]*{_LABEL}[*_]{{0,2}}[ \t]*", re.IGNORECASE)
_OF_CALLS = re.compile(r"[ \t]*(?:tool|function)_\w+[ \t]*", re.IGNORECASE)
_OF_DATA = re.compile(r"[ \t]*(?:json|xml|text)?[ \t]*", re.IGNORECASE)
_GAP = re.compile(r"\n[ \t]*\n")


class Unread(NamedTuple):
    """A call in an unsupported form."""

    tool: str
    written: str
    """Its beginning."""


def unread_call(text: str, tools: Mapping[str, ToolOffer], *, bare: bool = True) -> Unread | None:
    """Return the first call in a reply that is written in an unsupported form.

    Args:
        text: The content of the reply.
        tools: Names by which the model may know the tools → the tools.
        bare: Whether bare JSON counts as a call. If not, it may be the answer.
    """
    known = tuple(sorted((name for name in tools if name in text), key=len, reverse=True))
    if not known:
        return None
    text = _unquoted(text.translate(STRAIGHT))
    for match in islice(_names(known).finditer(text), _CANDIDATES):
        start = _start(text, match, bare=bare)
        if start is not None and _has_arguments(text, start, match, tools[match["name"]]):
            return Unread(tools[match["name"]].name, text[start:][:_LONGEST].strip())
    return None


@lru_cache(maxsize=64)
def _names(known: tuple[str, ...]) -> re.Pattern[str]:
    """Return a pattern for names where a call has them: after punctuation, or in a new line."""
    names = "|".join(map(re.escape, known))
    return re.compile(
        r"(?:(?P<first>(?<![^\n])[ \t]*[*_]{0,2}(?:\w+\s*=\s*)?(?:await )?(?:print\()?(?:\w+\.)?)"
        rf"|(?<=[\"'=:>(<\[{{\].}}*])[ \t]*)(?P<name>{names})(?![\w-]|\.(?!call\()\w)"
    )


def _start(text: str, match: re.Match[str], *, bare: bool) -> int | None:
    """Return the start of the line that begins the call around a name, or None."""
    name, least = match.start("name"), max(0, match.start() - _AROUND)
    least = max((gap.end() for gap in _GAP.finditer(text, least, name)), default=least)
    for line in re.finditer(r"(?m)^", text[least : name + 1]):
        start = least + line.start()
        if _TAGGED.match(text, start):
            return start
        if (begun := _OPENED.match(text, start)) and (bare or begun[0].strip() not in {"{", "["}):
            return start
    is_named = match["first"] is not None and _CALLED.match(text, match.end())
    return match.start() if is_named else None


def _has_arguments(text: str, start: int, match: re.Match[str], tool: ToolOffer) -> bool:
    """Return whether the text around a name has an argument of its tool."""
    gap = _GAP.search(text, match.end(), match.end() + _AROUND)
    part = text[start : gap.start() if gap else match.end() + _AROUND]
    after = part[match.end() - start :]
    if _TAGGED.match(part) or _GIVEN.search(part) or re.match(r"[(\[]\d", after):
        return True
    if not tool.schema["properties"]:
        return bool(re.match(r"[\"']?(?:\s*\(\s*\)|:?\s*\{\s*\})", after))
    names = "|".join(map(re.escape, tool.schema["properties"]))
    return bool(re.search(rf"(?<![\w-])(?:{names})[\"']?\s*[:=>]", part))


def _unquoted(text: str) -> str:
    """Return a reply without the text that it only shows.

    A code fence is part of the reply if its info or the line before says that it is a call, or if
    there is nothing else.
    """
    parts, at = list[str](), 0
    for fence in _FENCE.finditer(text):
        if fence.start() < at:
            continue
        close = closing_of(fence["ticks"]).search(text, fence.end())
        inside = text[fence.end() : close.start() if close else len(text)]
        before, at = text[at : fence.start()], close.end() if close else len(text)
        is_all = text[: fence.start()].isspace() or not fence.start()
        is_all = is_all and not text[at:].strip() and bool(_OF_DATA.fullmatch(fence["info"]))
        is_call = (
            is_all
            or _OF_CALLS.fullmatch(fence["info"])
            or _LABELED.fullmatch(before.rstrip().rpartition("\n")[2])
        )
        parts += [_SHOWN.sub("", before), "\n", inside if is_call else "", "\n"]
    return "".join([*parts, _SHOWN.sub("", text[at:])])
