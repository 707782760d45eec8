"""Calls as JSON at the beginning of a line, with nothing that announces them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from flowengine.agents.text_calls.formats.base import Format, Found, Mark, broken_call
from flowengine.agents.text_calls.formats.json_calls import calls_of, name_in, written
from flowengine.agents.text_calls.json_text import BrokenJson, read_json
from flowengine.agents.text_calls.records import RawCall
from flowengine.agents.text_calls.source import Source

_KEY = (
    "(?:name|tool|function|tool_name|arguments|parameters|args|input|id|type|tool_calls?"
    "|function_call)"
)
_NEXT = re.compile(r"\s*+[;,]?\s*+(?=[{\[])")
_LAST = re.compile(r"\s*<\|(?:eom_id|eot_id|eot)\|>")


def is_call(call: RawCall, source: Source) -> bool:
    """Say whether JSON that nothing announces is meant as a call.

    It is one of a known tool, or has an object of arguments: a misspelt name is told, a table of
    people is left alone.

    Args:
        call: As it was read.
        source: The reply.
    """
    return call.name in source.tools or isinstance(call.arguments, dict)


def _read(source: Source, start: int) -> Found | None:
    text, at = source.text, source.skip(start)
    found = Found(at)
    while True:
        try:
            value, end, repairs = read_json(text, at, complete=source.complete)
        except BrokenJson as broken:
            return _broken(source, start, at, broken, found)
        calls = calls_of(value)
        if calls is None or not all(is_call(call, source) for call in calls):
            if found.items:
                return found
            return Found(end, content=text[start:end])
        found.items += calls
        found.repairs += repairs
        found.end = end
        following = _NEXT.match(text, end)
        if following is None:
            break
        at = following.end()
    if last := _LAST.match(text, found.end):
        found.end = last.end()
    return found


def _broken(source: Source, start: int, at: int, broken: BrokenJson, found: Found) -> Found:
    end = min(len(source.text), max(broken.at, at + 1))
    name = name_in(source, at)
    if name not in source.tools:
        if found.items:
            return found
        return Found(end, content=source.text[start:end])
    found.items.append(broken_call(source, start, end, broken, name))
    found.end = end
    return found


def _write(calls: Sequence[tuple[str, dict[str, Any]]]) -> str:
    return "\n".join(written(name, arguments, key="parameters") for name, arguments in calls)


_MARK = Mark(
    r"(?:\[\s*)?\{\s*[\"']" + _KEY + r"[\"']\s*:",
    r"(?:\[\s*)?(?:\{\s*(?:[\"'](?:[a-z_]{0,14}(?:[\"']\s*:?)?)?)?)?",
    at_line_start=True,
)
BARE_JSON = Format("json", (_MARK,), _read, _write)
