"""Detection of calls that a model wrote in an unsupported form, so that it can be corrected.

Such calls are never made. Whatever looks like a call of an offered tool counts, in any order of its
parts. Text that the model shows as a quotation is ignored: in a code fence, in backticks or
quotation marks, in a quoted line, a list or a table. So is a mention in a sentence, such as
`add(a=1)`, and JSON about a tool that is not a call, such as a result.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import islice
from typing import NamedTuple

from flowengine.agents.text_calls.call_syntax import (
    BEFORE_FENCE,
    LABELED_INPUT,
    OF_CALLS,
    PLAIN_FENCE,
    CallPatterns,
    closing_bracket,
    patterns_of,
    skipped_token,
)
from flowengine.agents.text_calls.json_text import STRAIGHT, BrokenJson, read_json
from flowengine.agents.text_calls.marked_form import ToolOffer, skipped
from flowengine.agents.text_calls.reading import FENCE, INDENT, closing_of

_LONGEST = 300
_CANDIDATES = 1_000
"""Maximum places to check in one reply, for each kind of form."""
_TOKENS = 20_000
"""Maximum tokens to read in one reply."""
_TRIES = 50
"""Maximum number of arguments to read in one reply."""
_AROUND = 20_000
"""Maximum characters of arguments that are read."""
_BRACKETS = "<([{"
_HINT = re.compile(
    r"\btool\s*=|(?:action|input|arguments|parameters|args|params)\W*:", re.IGNORECASE
)
"""Every call has a bracket or this."""
_BRACES = re.compile(r"[{}]|\n\s*\n")
_GAP = re.compile(r"\n[ \t]*\n")
_LINE_END = re.compile(r"[ \t);\]]*(?:\n|\Z)")
_FENCE = re.compile(rf"{FENCE}(?P<info>[^`\n]*)")
_SHOWN = re.compile(r"[ \t]*(?:>|\||[-*+][ \t]|\d{1,9}[.)][ \t])")
"""Start of a line in a quotation, a table or a list."""
_TICKS = re.compile("`+")
_MARKS = "\"'`\u2018\u2019\u201a\u201c\u201d\u201e\u00ab\u00bb\u2039\u203a"
_PAIRS = {"\u201c": "\u201d", "\u201e": "\u201c", "\u00ab": "\u00bb", "\u00bb": "\u00ab"}
_ARGUMENTS = re.compile(
    r"(?:[\"']|(?<=[{,\s]))(?:(?:tool|function|action)_?)?"
    r"(?:arguments|parameters|args|input|params|kwargs)[\"']?\s*:(?P<object>\s*\"?\s*\{)?",
    re.IGNORECASE,
)
_RESULT = re.compile(r"[\"'](?:results?|outputs?|response|answer|error|status)[\"']\s*:")
_RESULT_KEYS = frozenset({"result", "results", "output", "outputs", "response", "error", "status"})


class Unread(NamedTuple):
    """A call in an unsupported form."""

    tool: str
    written: str
    """Its beginning."""


def may_hold_call(text: str) -> bool:
    """Return whether a reply may contain a call of any tool."""
    return any(bracket in text for bracket in _BRACKETS) or bool(_HINT.search(text))


def unread_call(text: str, tools: Mapping[str, ToolOffer], *, bare: bool = True) -> Unread | None:
    """Return the first call in a reply that is written in an unsupported form.

    Args:
        text: The content of the reply.
        tools: Names by which the model may know the tools → the tools.
        bare: Whether bare JSON counts as a call. If not, it may be the answer.
    """
    known = {name: tool for name, tool in tools.items() if name in text}
    if not known or not may_hold_call(text):
        return None
    search = _Search(text, known, bare=bare)
    found = min(search.found(), key=lambda match: match.start(), default=None)
    if found is None:
        return None
    name = found[found.lastindex or 0]
    return Unread(known[name].name, text[found.start() :][:_LONGEST].strip())


class _Search:
    """A search for calls in one reply.

    Args:
        text: The reply.
        tools: As for `unread_call`, without those whose name is not in the text.
        bare: As for `unread_call`.
    """

    def __init__(self, text: str, tools: Mapping[str, ToolOffer], *, bare: bool) -> None:
        self.whole = text
        self.tools = tools
        self.bare = bare
        self.patterns: CallPatterns = patterns_of(tuple(sorted(tools)))
        self._tokens, self._tries = _TOKENS, _TRIES
        self._calls: dict[tuple[int, int], tuple[bool, bool]] = {}
        """Object → whether it is a call on separate lines, and in a sentence."""
        self._fenced: list[re.Match[str]] = []

    def found(self) -> Iterator[re.Match[str]]:
        """Yield the first call of each kind."""
        finders = (
            self._marked, self._labeled, self._named, self._elements, self._python, self._json,
        )  # fmt: skip
        _ = self.text
        yield from self._fenced
        for find in finders:
            match = next(find(), None)
            if match is not None:
                yield match

    @cached_property
    def text(self) -> str:
        """The reply with straight quotation marks, so that calls between others are found."""
        return self.written.translate(STRAIGHT)

    @cached_property
    def written(self) -> str:
        """The reply, in which code fences that only show something are blank."""
        text, parts, at = self.whole, [], 0
        for fence in _FENCE.finditer(text):
            if fence.start() < at:
                continue
            inside = min(fence.end() + 1, len(text))
            close = closing_of(fence["ticks"]).search(text, inside)
            end = close.end() if close else len(text)
            parts.append(text[at : fence.start()])
            parts.append(self._inside(fence, inside, end, close.start() if close else end))
            at = end
        return "".join([*parts, text[at:]])

    def _inside(self, fence: re.Match[str], inside: int, end: int, close: int) -> str:
        """Return the text that takes the place of a fence, of the same length."""
        text, begin = self.whole, fence.start()
        if OF_CALLS.fullmatch(fence["info"]):
            if match := self._call(text.translate(STRAIGHT), inside):
                self._fenced.append(match)
        elif BEFORE_FENCE.search(text[max(0, begin - _LONGEST) : begin]) or (
            self._is_all(begin, end) and PLAIN_FENCE.fullmatch(fence["info"])
        ):
            return "\n" * (inside - begin) + text[inside:close] + "\n" * (end - close)
        return "\n" * (end - begin)

    def _is_all(self, start: int, end: int) -> bool:
        """Return whether the reply has only blanks before and after two places."""
        text = self.whole
        return skipped(text, 0) >= start and skipped(text, end) == len(text)

    # Forms

    def _marked(self) -> Iterator[re.Match[str]]:
        """Yield calls after a tag or a word that begins calls."""
        for begun in self._places(self.patterns.begins):
            at = begun.start() if begun["tag"] else begun.end()
            if not _is_shown(self.written, begun.start()) and (match := self._call(self.text, at)):
                yield match

    def _call(self, text: str, at: int) -> re.Match[str] | None:
        """Return the name of a tool in a call that starts at a place. It can be anywhere in it."""
        while self._tokens > 0:
            self._tokens -= 1
            if match := self.patterns.name.match(text, at):
                return match
            end = skipped_token(text, at)
            if end == at:
                break
            at = end
        return None

    def _labeled(self) -> Iterator[re.Match[str]]:
        """Yield calls as labeled lines, such as `Action:` and `Action Input:`, in either order."""
        inputs = [match.start() for match in self._places(LABELED_INPUT)]
        for match in self._places(self.patterns.labeled):
            start, end = self._paragraph(match.start())
            follows = bisect_left(inputs, match.end())
            if (
                (follows < len(inputs) and inputs[follows] < end)
                or (follows and inputs[follows - 1] >= start)
                or self.text.startswith(("```", "(", "["), match.end())
            ):
                yield match

    def _named(self) -> Iterator[re.Match[str]]:
        """Yield names on separate lines, with an object of fitting arguments next to them."""
        text = self.text
        for match in self._places(self.patterns.line):
            start: int | None = match.end()
            if text[match.end() : match.end() + 1] != "{":
                start = self._object_before(match.start())
            if start is not None and self._fits(match, start):
                yield match

    def _object_before(self, at: int) -> int | None:
        """Return the start of an object on separate lines right before a line, or None."""
        end = bisect_left(self._objects, (at, at)) - 1
        if end < 0 or self.text[self._objects[end][1] : at].strip(" \t\r\n"):
            return None
        start = self._objects[end][0]
        return start if self._begins_line(start) or self._is_input(start) else None

    def _elements(self) -> Iterator[re.Match[str]]:
        """Yield elements with the name of a tool, whose first element has that of an argument."""
        for match in self._places(self.patterns.element):
            tool = self.tools[match[match.lastindex or 0]]
            if match["argument"] in tool.schema.get("properties", {}):
                yield match

    def _python(self) -> Iterator[re.Match[str]]:
        """Yield calls in function syntax: as the whole reply, on separate lines, in brackets."""
        text = self.text
        match = self.patterns.python.match(text)
        if match and text.rstrip().endswith(")") and "\n\n" not in text.strip():
            yield match
        for match in self._places(self.patterns.python_line, _TRIES):
            end = closing_bracket(text, match.end() - 1, _AROUND)
            if end is None or _LINE_END.match(text, end):
                yield match
        for match in self._places(self.patterns.bracket):
            is_link = text.find("](", match.end(), match.end() + INDENT) >= 0
            is_call = match["keyword"] is not None and not is_link
            if self._begins_line(match.start()) or (
                is_call and not _is_shown(self.written, match.start())
            ):
                yield match

    def _json(self) -> Iterator[re.Match[str]]:
        """Yield objects with the name of a tool and arguments, in either order."""
        if not self.bare:
            return
        for match in self._places(self.patterns.naming):
            place = self._object_around(match.start())
            if place is None or _is_shown(self.written, place[0]):
                continue
            is_line = self._begins_line(place[0])
            key = match[0].partition(":")[0].strip("\"' ")
            if self._is_call(place, is_line=is_line) or (
                is_line and self._fits(match, place[0], beside=key)
            ):
                yield match
        for match in self._places(self.patterns.key):
            place = self._object_around(match.start())
            is_line = place is not None and self._begins_line(place[0])
            if is_line and self._fits(match, match.end() - 1):
                yield match

    def _is_call(self, place: tuple[int, int], *, is_line: bool) -> bool:
        """Return whether an object has arguments, and in a sentence, no result."""
        if place not in self._calls:
            arguments = _ARGUMENTS.search(self.text, *place)
            is_clear = arguments is not None and arguments["object"] is not None
            is_result = is_clear and _RESULT.search(self.text, *place) is not None
            self._calls[place] = (arguments is not None, is_clear and not is_result)
        in_line, in_sentence = self._calls[place]
        return in_line if is_line else in_sentence

    # Places

    def _places(self, pattern: re.Pattern[str], most: int = _CANDIDATES) -> Iterator[re.Match[str]]:
        return islice(pattern.finditer(self.text), most)

    @cached_property
    def _objects(self) -> list[tuple[int, int]]:
        """The outermost braces. Those that are not closed end with their paragraph."""
        objects: list[tuple[int, int]] = []
        depth = start = 0
        for match in _BRACES.finditer(self.text):
            if match[0] == "{":
                start = start if depth else match.start()
                depth += 1
            elif depth:
                depth = depth - 1 if match[0] == "}" else 0
                if not depth:
                    objects.append((start, match.end()))
        return [*objects, (start, len(self.text))] if depth else objects

    def _object_around(self, at: int) -> tuple[int, int] | None:
        """Return the outermost object around a place, or None."""
        found = bisect_left(self._objects, (at + 1,)) - 1
        return self._objects[found] if found >= 0 and at < self._objects[found][1] else None

    @cached_property
    def _gaps(self) -> list[int]:
        """Ends of paragraphs."""
        return [match.start() for match in _GAP.finditer(self.text)]

    def _paragraph(self, at: int) -> tuple[int, int]:
        """Return the start and the end of the paragraph around a place."""
        follows = bisect_left(self._gaps, at)
        start = self._gaps[follows - 1] if follows else 0
        return start, self._gaps[follows] if follows < len(self._gaps) else len(self.text)

    def _begins_line(self, at: int) -> bool:
        line = self.text.rfind("\n", max(0, at - INDENT), at) + 1
        return not self.text[line:at].strip(" \t[")

    def _is_input(self, at: int) -> bool:
        """Return whether a label of arguments precedes a place in its line."""
        line = self.text.rfind("\n", max(0, at - INDENT), at) + 1
        label = LABELED_INPUT.match(self.text, line, at)
        return label is not None and not self.text[label.end() : at].strip()

    def _fits(self, match: re.Match[str], at: int, *, beside: str = "") -> bool:
        """Return whether an object could be the arguments of a tool, rather than its result.

        Args:
            match: The name of the tool.
            at: The start of the object.
            beside: The key of the name, if the object also has that.
        """
        self._tries -= 1
        if self._tries < 0:
            return False
        try:
            value = read_json(self.written[at : at + _AROUND]).value
        except BrokenJson:
            return False
        if beside and not (isinstance(value, dict) and value.pop(beside, None) and value):
            return False
        if isinstance(value, dict) and len(value) == 1:
            [(key, inner)] = value.items()
            value = inner if _ARGUMENTS.match(f'"{key}":') else value
        if not isinstance(value, dict):
            return False
        schema = self.tools[match[match.lastindex or 0]].schema
        if schema["properties"]:
            return value.keys() <= schema["properties"].keys() and (
                bool(value) or not schema.get("required")
            )
        is_open = schema.get("additionalProperties", False) is not False
        return not value or (is_open and not value.keys() & _RESULT_KEYS)


def _opens_code(before: str) -> bool:
    """Return whether inline code is open at the end of a text. As many ticks close it as open."""
    opened = ""
    for ticks in _TICKS.findall(before):
        opened = "" if ticks == opened else opened or ticks
    return bool(opened)


def _opens_quotation(before: str) -> bool:
    """Return whether typographic quotation marks are open at the end of a text."""
    closing = ""
    for mark in before:
        if mark in _PAIRS or mark == closing:
            closing = "" if mark == closing else closing or _PAIRS[mark]
    return bool(closing)


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
        or _opens_code(before)
        or _opens_quotation(before)
    )
