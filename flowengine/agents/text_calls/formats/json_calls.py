"""Calls as JSON objects: their shapes, and readers that the formats around them share."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from json import dumps
from typing import Any

from flowengine.agents.text_calls.formats.base import Found, broken_call, fault
from flowengine.agents.text_calls.json_text import BrokenJson, read_json
from flowengine.agents.text_calls.records import RawCall
from flowengine.agents.text_calls.source import Source

_NAMES = ("name", "tool", "function", "tool_name")
_ARGUMENTS = ("arguments", "parameters", "args", "input")
_BESIDE = {"id", "type", "index", "call_id"}
_WRAPPERS = ("tool_calls", "tool_call", "function_call")
_NAME = re.compile(r"""["'](?:name|tool|function)["']\s*:\s*["']([\w.-]{1,64})["']""")
_LOOKED_AT = 400


def calls_of(value: Any) -> list[RawCall] | None:
    """Return the calls that a JSON value is; None: it is something else.

    Args:
        value: An object, or a list of them.
    """
    if isinstance(value, list):
        found = [calls_of(item) for item in value]
        calls = [call for one in found for call in one or ()]
        return calls if calls and all(found) else None
    if not isinstance(value, Mapping):
        return None
    for wrapper in _WRAPPERS:
        if wrapper in value and value.keys() <= {wrapper, "content", "role"}:
            return calls_of(value[wrapper])
    if isinstance(value.get("function"), Mapping) and value.keys() <= {"function", *_BESIDE}:
        return calls_of(value["function"])
    return _call_of(value)


def _call_of(value: Mapping[str, Any]) -> list[RawCall] | None:
    names = [key for key in _NAMES if isinstance(value.get(key), str)]
    arguments = [key for key in _ARGUMENTS if key in value]
    if len(names) != 1 or len(arguments) > 1:
        return None
    if value.keys() - {names[0], *arguments, *_BESIDE}:
        return None
    return [RawCall(value[names[0]].strip(), value[arguments[0]] if arguments else None)]


def name_in(source: Source, at: int) -> str | None:
    """Return the name of the tool that broken JSON means, where it says so early.

    Args:
        source: The reply.
        at: Where the JSON begins.
    """
    name = _NAME.search(source.text, at, at + _LOOKED_AT)
    return name[1] if name else None


def read_calls(
    source: Source, start: int, at: int, *, closing: re.Pattern[str] | None = None
) -> Found:
    """Read the JSON of one call, or of a list of them, that a mark announces.

    Args:
        source: The reply.
        start: Where the mark stands.
        at: Where the JSON should begin.
        closing: What closes it; it may be missing.
    """
    try:
        value, end, repairs = read_json(source.text, at, complete=source.complete, ends=closing)
    except BrokenJson as broken:
        return _given_up(source, start, broken, closing, name_in(source, at))
    found = Found(end, repairs=list(repairs))
    calls = calls_of(value)
    if calls is None and value != []:
        reason = "it needs a name and arguments"
        found.items.append(fault(source, start, end, reason))
    found.items += calls or []
    return _closed(source, found, closing)


def read_named(
    source: Source, start: int, at: int, name: str, *, closing: re.Pattern[str] | None = None
) -> Found:
    """Read the JSON of a call's arguments; the name stood before it.

    Args:
        source: The reply.
        start: Where the mark stands.
        at: Where the JSON should begin.
        name: Of the tool.
        closing: What closes it; it may be missing.
    """
    if closing and closing.match(source.text, source.skip(at)):
        return _closed(source, Found(source.skip(at), [RawCall(name, None)]), closing)
    try:
        value, end, repairs = read_json(source.text, at, complete=source.complete, ends=closing)
    except BrokenJson as broken:
        return _given_up(source, start, broken, closing, name)
    return _closed(source, Found(end, [RawCall(name, value)], list(repairs)), closing)


def _given_up(
    source: Source,
    start: int,
    broken: BrokenJson,
    closing: re.Pattern[str] | None,
    name: str | None,
) -> Found:
    close = source.search(closing, broken.at) if closing else None
    end = close.end() if close else max(broken.at, start + 1)
    if not close and broken.cut:
        end = len(source.text)
    return Found(end, [broken_call(source, start, end, broken, name)])


def _closed(source: Source, found: Found, closing: re.Pattern[str] | None) -> Found:
    """Step over what closes a call; stray text before it is left out."""
    if closing is None:
        return found
    close = closing.match(source.text, source.skip(found.end))
    if close is None:
        close = source.search(closing, found.end)
        between = source.text[found.end : close.start()] if close else ""
        if close is None or len(between) > 200 or "\n\n" in between or "<" in between:
            return found
        found.repairs.append("text after the JSON of a call was left out")
    found.end = close.end()
    return found


def written(name: str, arguments: Mapping[str, Any], *, key: str = "arguments") -> str:
    """Write a call as one JSON object.

    Args:
        name: Of the tool.
        arguments: Plain data.
        key: What its arguments are called.
    """
    return dumps({"name": name, key: arguments}, ensure_ascii=False)


def written_list(calls: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """Write calls as a JSON list."""
    return f"[{', '.join(written(name, arguments) for name, arguments in calls)}]"
