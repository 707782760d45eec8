"""A reply as text, taken apart into content, reasoning, calls and faults."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, NamedTuple

from flowengine.agents.text_calls.arguments import bind
from flowengine.agents.text_calls.formats import FORMATS, Format
from flowengine.agents.text_calls.formats.base import LINE_START, Found, Mark
from flowengine.agents.text_calls.reasoning import BEGUN as REASONING_BEGUN
from flowengine.agents.text_calls.reasoning import CLOSINGS, OPENING, STRAY
from flowengine.agents.text_calls.records import Call, Ended, Fault, RawCall, Reading, Tool
from flowengine.agents.text_calls.source import Source

MAX_MARKS = 10_000
"""A reply with more places where a call might begin is read no further: the rest is content."""
MAX_CALLS = 1_000
NOT_MADE = f"The calls after the first {MAX_CALLS:,} were not made."
MAX_FAULTS = 20
"""A reply that has so many calls, or so many faults, is not read any further."""


@dataclass(slots=True)
class _Block:
    """A part of the reply that is no content."""

    start: int
    found: Found
    kind: Literal["part", "opens", "stray"] = "part"
    """Reasoning may open without an end, or end without having been opened."""


def read_reply(
    text: str,
    tools: Iterable[Tool],
    *,
    ended: Ended = "stop",
    formats: tuple[Format, ...] = FORMATS,
) -> Reading:
    """Read an assistant's reply.

    Only what a model answered may be given to this: text of users, tools and pages is not read for
    calls, whatever it contains.

    Args:
        text: The reply.
        tools: Those on offer.
        ended: Why the reply ended.
        formats: In the order in which they are tried.

    Returns:
        What it says, and the calls that can be made. Nothing that stands in reasoning, and nothing
        that the limit of length cut off, is a call.
    """
    by_name = {tool.name: tool for tool in tools}
    source = Source(text, ended, by_name)
    content, reasoning, blocks = _sorted_out(source, _blocks(source, formats))
    reading = _bound(blocks, by_name, ended)
    if reading.calls or reading.faults or reasoning:
        content = content.strip()
    return replace(reading, content=content, reasoning=reasoning.strip())


def content_of(text: str, tools: Iterable[Tool], ended: Ended, formats: tuple[Format, ...]) -> str:
    """Return the content of a reply, or of the rest of one, with the blanks at its ends."""
    source = Source(text, ended, {tool.name: tool for tool in tools})
    content, _, _ = _sorted_out(source, _blocks(source, formats))
    return content


class Marks(NamedTuple):
    """Where the calls of some formats may begin."""

    anywhere: re.Pattern[str]
    at_line_start: re.Pattern[str]
    users: tuple[tuple[re.Pattern[str], tuple[Format, ...]], ...]
    """The formats of each mark, in their order."""
    begun: re.Pattern[str]
    """The beginning of a mark, at the end of a text."""


@lru_cache(maxsize=16)
def marks_of(formats: tuple[Format, ...]) -> Marks:
    """Return the marks of formats, made ready.

    Args:
        formats: In the order in which they are tried.
    """
    users: dict[Mark, list[Format]] = {}
    for one in formats:
        for mark in one.marks:
            users.setdefault(mark, []).append(one)
    on_lines = [mark for mark in users if mark.at_line_start]
    others = [mark for mark in users if not mark.at_line_start]
    anywhere = "|".join([OPENING.pattern, STRAY.pattern, *(mark.pattern for mark in others)])
    at_line = "|".join(mark.pattern for mark in on_lines) or r"\Z."
    begun = "|".join([*REASONING_BEGUN, *(mark.begun for mark in others)])
    line_begun = "|".join(mark.begun for mark in on_lines)
    return Marks(
        re.compile(anywhere),
        re.compile(f"{LINE_START}(?:{at_line})"),
        tuple(
            (re.compile(LINE_START * mark.at_line_start + mark.pattern), tuple(each))
            for mark, each in users.items()
        ),
        re.compile(f"(?:{begun}|{LINE_START}(?:{line_begun}))\\Z"),
    )


def next_mark(source: Source, marks: Marks, at: int) -> re.Match[str] | None:
    """Return where a call or reasoning may begin next.

    Args:
        source: The reply.
        marks: Of the formats.
        at: Where to begin.
    """
    anywhere, on_line = source.search(marks.anywhere, at), source.search(marks.at_line_start, at)
    if anywhere and on_line:
        return anywhere if anywhere.start() < on_line.start() else on_line
    return anywhere or on_line


def _blocks(source: Source, formats: tuple[Format, ...]) -> list[_Block]:
    marks = marks_of(formats)
    blocks: list[_Block] = []
    at = calls = faults = marks_seen = 0
    while (match := next_mark(source, marks, at)) and marks_seen < MAX_MARKS:
        marks_seen += 1
        block = _at_mark(source, match, marks)
        if block is None:
            at = match.end()
            continue
        found = block.found
        at = max(found.end, match.start() + 1)
        blocks.append(block)
        calls += len(found.items)
        faults = min(MAX_FAULTS, faults + sum(isinstance(item, Fault) for item in found.items))
        if calls > MAX_CALLS or faults == MAX_FAULTS:
            found.end = len(source.text)
            break
    return blocks


def _at_mark(source: Source, match: re.Match[str], marks: Marks) -> _Block | None:
    start = match.start()
    if start and source.text[start - 1] == "`":
        return None  # quoted
    if closing := CLOSINGS.get(match[0]):
        close = source.search(closing, match.end())
        if close is None:
            return _Block(start, Found(match.end()), "opens")
        thought = source.text[match.end() : close.start()]
        return _Block(start, Found(close.end(), reasoning=thought))
    if STRAY.fullmatch(match[0]):
        return _Block(start, Found(match.end()), "stray")
    for pattern, formats in marks.users:
        if pattern.match(source.text, start):
            for one in formats:
                if found := one.read(source, start):
                    return _Block(start, found)
    return None


def _sorted_out(source: Source, blocks: list[_Block]) -> tuple[str, str, list[_Block]]:
    """Return content, reasoning, and the blocks of which they and the calls are made."""
    text, at = source.text, 0
    blocks = _with_reasoning_closed(source, _with_reasoning_opened(source, blocks))
    content: list[str] = []
    thought: list[str] = []
    before: Found | None = None
    for block in blocks:
        found, gap = block.found, text[at : block.start]
        if gap.strip() or not (before and before.items and found.items):
            content.append(gap)
        content.append(found.content)
        thought += [found.reasoning] if found.reasoning else []
        at, before = found.end, found
    content.append(text[at:])
    return "".join(content), "\n".join(thought), blocks


def _with_reasoning_opened(source: Source, blocks: list[_Block]) -> list[_Block]:
    """Make reasoning of all before its end, where a chat template has written its beginning."""
    place = next((place for place, block in enumerate(blocks) if block.kind == "stray"), None)
    if place is None:
        return blocks
    stray = blocks[place]
    if OPENING.search(source.text, 0, stray.start):
        return blocks
    thought = Found(stray.found.end, reasoning=source.text[: stray.start])
    return [_Block(0, thought), *blocks[place + 1 :]]


def _with_reasoning_closed(source: Source, blocks: list[_Block]) -> list[_Block]:
    """Close reasoning that was left open: at the end of the reply, or before its last calls."""
    for place, block in enumerate(blocks):
        if block.kind != "opens":
            continue
        last = _last_calls(source, blocks, place)
        end = blocks[last].start if last < len(blocks) else len(source.text)
        thought = Found(end, reasoning=source.text[block.found.end : end])
        if last < len(blocks):
            thought.repairs.append("reasoning without an end was closed before the calls")
        return [*blocks[:place], _Block(block.start, thought), *blocks[last:]]
    return blocks


def _last_calls(source: Source, blocks: list[_Block], opened: int) -> int:
    """Return the first block of the calls with which reasoning that has no end stops.

    A model that stops right after a call has made that call, and forgot to close its reasoning.
    What stands in front of it is thought only.
    """
    first, end = len(blocks), len(source.text)
    if not source.complete:
        return first
    for place in range(len(blocks) - 1, opened, -1):
        found = blocks[place].found
        is_call = found.items and not any(isinstance(item, Fault) for item in found.items)
        if not is_call or source.text[found.end : end].strip():
            break
        first, end = place, blocks[place].start
    return first


def _bound(blocks: list[_Block], tools: dict[str, Tool], ended: Ended) -> Reading:
    calls: list[Call] = []
    faults: list[Fault] = []
    repairs: list[str] = []
    for block in blocks:
        repairs += block.found.repairs
        for item in block.found.items:
            place = len(calls) + len(faults)
            if len(faults) == MAX_FAULTS:
                break
            if place == MAX_CALLS:
                faults.append(Fault("unreadable", NOT_MADE, place=place))
                break
            made: Call | Fault
            if isinstance(item, RawCall):
                made, mended = bind(item, tools, ended=ended, place=place)
                repairs += mended
            else:
                made = replace(item, place=place)
            if isinstance(made, Call):
                calls.append(made)
            else:
                faults.append(made)
    return Reading(calls=tuple(calls), faults=tuple(faults), repairs=tuple(repairs))
