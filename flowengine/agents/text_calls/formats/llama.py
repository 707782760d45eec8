"""Llama: JSON behind `<|python_tag|>`, and lists of calls as Python writes them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from flowengine.agents.text_calls.formats.base import (
    Format,
    Found,
    Mark,
    fault,
    literal,
)
from flowengine.agents.text_calls.formats.json_calls import read_calls, written
from flowengine.agents.text_calls.python_calls import (
    BrokenPython,
    end_of_brackets,
    read_python,
    written_python,
)
from flowengine.agents.text_calls.records import RawCall
from flowengine.agents.text_calls.source import Source

_TAG = re.compile(r"<\|python_tag\|>|<\|python_start\|>")
_NEXT = re.compile(r"\s*[;,]\s*(?=\{)")
_LAST = re.compile(r"\s*<\|(?:python_end|eom_id|eot_id|eot)\|>")
_HEAD = re.compile(r"\[\s*([A-Za-z_][\w.]{0,127})\(")
_NAMES = re.compile(r"(?<![\w.])([A-Za-z_][\w.]{0,127})\(")


def read_json_list(source: Source, start: int, at: int) -> Found:
    """Read JSON calls that stand one behind the other, separated by semicolons.

    Args:
        source: The reply.
        start: Where the mark stands.
        at: Where the first begins.
    """
    block = read_calls(source, start, at)
    while following := _NEXT.match(source.text, block.end):
        found = read_calls(source, following.end(), following.end())
        block.items += found.items
        block.repairs += found.repairs
        block.end = found.end
    return block


def _read_json(source: Source, start: int) -> Found | None:
    tag = _TAG.match(source.text, start)
    inside = source.skip(tag.end() if tag else start)
    opening = source.text[inside : inside + 2]
    if opening[:1] == "{" or re.match(r"\[\s*\{", source.text[inside : inside + 20]):
        return _ended(source, read_json_list(source, start, inside))
    if inside >= len(source.text):
        reason = "nothing follows its first token"
        return Found(inside, [fault(source, start, inside, reason, cut=True)])
    return None


def _read_python(source: Source, start: int) -> Found | None:
    tag = _TAG.match(source.text, source.skip(start))
    inside = source.skip(tag.end() if tag else start)
    head = _HEAD.match(source.text, inside)
    if head is None:
        if tag is None:
            return None
        return _single(source, start, inside)
    end, closed = end_of_brackets(source.text, inside)
    named = set(_NAMES.findall(source.text, inside, end))
    if tag is None and not named & set(source.tools):
        return Found(end, content=source.text[start:end])
    tool = head[1]
    if not closed:
        cut = source.is_over(end)
        return Found(end, [fault(source, start, end, "its brackets do not close", tool, cut=cut)])
    return _ended(source, _python(source, start, inside, end, tool))


def _single(source: Source, start: int, inside: int) -> Found | None:
    """Read one call without a list around it, behind a token."""
    name = re.compile(r"([A-Za-z_][\w.]{0,127})(?=\()").match(source.text, inside)
    if name is None:
        return None
    end, closed = end_of_brackets(source.text, name.end())
    if not closed:
        cut = source.is_over(end)
        item = fault(source, start, end, "its brackets do not close", name[1], cut=cut)
        return Found(end, [item])
    return _ended(source, _python(source, start, inside, end, name[1]))


def _python(source: Source, start: int, inside: int, end: int, tool: str) -> Found:
    try:
        calls, repairs = read_python(source.text[inside:end])
    except BrokenPython as broken:
        return Found(end, [fault(source, start, end, str(broken), tool)])
    items: list[RawCall | Any] = list(calls)
    return Found(end, items, repairs)


def _ended(source: Source, found: Found) -> Found:
    if last := _LAST.match(source.text, found.end):
        found.end = last.end()
    return found


def _write_json(calls: Sequence[tuple[str, dict[str, Any]]]) -> str:
    each = (written(name, arguments, key="parameters") for name, arguments in calls)
    return f"<|python_tag|>{'; '.join(each)}"


def _write_python(calls: Sequence[tuple[str, dict[str, Any]]]) -> str:
    return f"[{', '.join(written_python(name, arguments) for name, arguments in calls)}]"


_TOKENS = (literal("<|python_tag|>"), literal("<|python_start|>"))
LLAMA_JSON = Format("llama_json", _TOKENS, _read_json, _write_json)
_LIST = Mark(
    r"\[\s*[A-Za-z_][\w.]{0,127}\(",
    r"(?:\[\s*(?:[A-Za-z_][\w.]{0,127}\(?)?)?",
    at_line_start=True,
)
PYTHONIC = Format("pythonic", (*_TOKENS, _LIST), _read_python, _write_python)
