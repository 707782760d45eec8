"""Calls as tags: an opening that names the tool, one tag for each parameter, a closing.

They look like XML and are not: a value stands there as it is, with its `<`, `&lt;` and quotes. It
ends at the closing tag behind which the next parameter, or the end of the call, follows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from flowengine.agents.text_calls.formats.base import Found, fault
from flowengine.agents.text_calls.formats.json_calls import read_named
from flowengine.agents.text_calls.json_text import BrokenJson, read_json
from flowengine.agents.text_calls.records import RawCall, Untyped
from flowengine.agents.text_calls.source import Source


@dataclass(frozen=True, eq=False, slots=True)
class Tags:
    """The tags of one format, each a regular expression."""

    head: re.Pattern[str]
    """Opens a call; the group `name` is its tool."""
    half: re.Pattern[str]
    """A head that the end of the reply cut off; the group `name` is what there is of the name."""
    parameter: re.Pattern[str]
    """Opens a parameter: `name`, and `string` where the format says whether it is text."""
    value_end: re.Pattern[str]
    """Closes a value for certain."""
    end: re.Pattern[str]
    """Closes the call."""
    outer: re.Pattern[str]
    """Closes what may stand around calls."""


def read_tags(source: Source, at: int, tags: Tags) -> Found | None:
    """Read one call; None: what stands there only looks like the beginning of one.

    Args:
        source: The reply.
        at: Where the head stands.
        tags: Of the format.
    """
    head = tags.head.match(source.text, at)
    if head is None:
        half = tags.half.match(source.text, at)
        if half is None:
            return None
        reason = "it ends in its first tag"
        item = fault(source, at, half.end(), reason, half["name"], cut=True)
        return Found(half.end(), [item])
    inside = source.skip(head.end())
    if source.text[inside : inside + 1] == "{":
        return read_named(source, at, inside, head["name"], closing=tags.end)
    return _Call(source, at, tags, head["name"]).read(inside)


def read_block(source: Source, start: int, at: int, tags: Tags) -> Found | None:
    """Read the calls inside an outer tag, and the tag that closes it.

    Args:
        source: The reply.
        start: Where the outer tag stands.
        at: Where its content begins.
        tags: Of the format.
    """
    block = Found(at)
    at = source.skip(at)
    while found := read_tags(source, at, tags):
        block.items += found.items
        block.repairs += found.repairs
        block.end = found.end
        at = source.skip(found.end)
    if not block.items:
        return None
    outer = tags.outer.match(source.text, at)
    block.end = outer.end() if outer else block.end
    return block


class _Call:
    """Reads the parameters of a call from left to right."""

    def __init__(self, source: Source, start: int, tags: Tags, name: str) -> None:
        self.source = source
        self.start = start
        self.tags = tags
        self.name = name
        self.arguments: dict[str, Any] = {}
        self.repairs: list[str] = []

    def read(self, at: int) -> Found | None:
        source, tags = self.source, self.tags
        while opening := tags.parameter.match(source.text, at):
            close = source.search(tags.value_end, opening.end())
            if close is None:
                return self._unclosed(opening)
            if refused := self._take(opening, source.text[opening.end() : close.start()]):
                return self._given_up(refused, close.end())
            at = source.skip(close.end())
        if end := tags.end.match(source.text, at):
            return self._made(end.end())
        if source.is_over(at) and not source.complete:
            return self._given_up("it has no end", at, cut=True)
        if tags.outer.match(source.text, at) or (self.arguments and source.is_over(at)):
            self.repairs.append(f"the missing end of a call of {self.name} was added")
            return self._made(at)
        if self.arguments or source.is_over(at):
            return self._given_up("something else is where a parameter or its end should be", at)
        end = source.search(tags.end, at)
        head = source.search(tags.head, at)
        if end is None or (head and head.start() < end.start()):
            return None  # the name of a tag in the middle of a sentence
        return self._given_up("its parameters are not written as parameters", at)

    def _take(self, opening: re.Match[str], value: str) -> str | None:
        """Take a parameter, or return why it cannot be one."""
        name = opening["name"]
        if name in self.arguments:
            return f"'{name}' is given twice"
        kind = opening.groupdict().get("string")
        if kind == "false":
            try:
                self.arguments[name], end, repairs = read_json(value)
                self.repairs += repairs
            except BrokenJson as broken:
                return f"'{name}' is not JSON: {broken.reason}"
            if value[end:].strip():
                return f"there is something after the JSON of '{name}'"
        else:
            untyped = Untyped(without_line_ends(value))
            self.arguments[name] = value if kind == "true" else untyped
        return None

    def _made(self, end: int) -> Found:
        return Found(end, [RawCall(self.name, self.arguments)], self.repairs)

    def _unclosed(self, opening: re.Match[str]) -> Found:
        reason = f"the parameter '{opening['name']}' has no end"
        end = self.source.search(self.tags.end, opening.end())
        return self._given_up(reason, len(self.source.text), cut=end is None)

    def _given_up(self, reason: str, at: int, *, cut: bool = False) -> Found:
        end = self.source.search(self.tags.end, at)
        place = end.end() if end else at
        return Found(place, [fault(self.source, self.start, place, reason, self.name, cut=cut)])


def without_line_ends(value: str) -> str:
    """Leave out the line feed after an opening tag and that before a closing one."""
    return value.removeprefix("\n").removesuffix("\n")


def as_value(value: str) -> str:
    """Write text so that reading it gives it back: line feeds at its ends need one more."""
    return f"\n{value}\n" if "\n" in value else value
