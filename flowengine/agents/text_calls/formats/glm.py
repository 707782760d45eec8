"""GLM: the name, then pairs of `<arg_key>` and `<arg_value>`, inside `<tool_call>`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from flowengine.agents.text_calls.formats.base import Format, Found, fault
from flowengine.agents.text_calls.formats.hermes import TOOL_CALL
from flowengine.agents.text_calls.formats.tags import as_value, without_line_ends
from flowengine.agents.text_calls.formats.xml import as_text
from flowengine.agents.text_calls.records import RawCall, Untyped
from flowengine.agents.text_calls.source import Source

_HEAD = re.compile(r"<tool_call>\s*(?P<name>[\w.-]{1,128})\s*(?=<arg_key>|</tool_call>)")
_KEY = re.compile(r"<arg_key>\s*([\w.-]{1,128})\s*</arg_key>\s*<arg_value>")
_VALUE_END = re.compile(r"</arg_value>(?=\s*(?:<arg_key>|</tool_call>|\Z))")
_CLOSING = re.compile(r"</tool_call>")
_LOOKED_AT = 2_000


def _read(source: Source, start: int) -> Found | None:
    head = _HEAD.match(source.text, start)
    if head is None:
        return _unclear(source, start)
    arguments: dict[str, Any] = {}
    at, name = head.end(), head["name"]
    while key := _KEY.match(source.text, at):
        close = source.search(_VALUE_END, key.end())
        if close is None:
            end, reason = len(source.text), f"the value of '{key[1]}' has no end"
            return Found(end, [fault(source, start, end, reason, name, cut=True)])
        if key[1] in arguments:
            reason = f"'{key[1]}' is given twice"
            return Found(close.end(), [fault(source, start, close.end(), reason, name)])
        value = without_line_ends(source.text[key.end() : close.start()])
        arguments[key[1]] = Untyped(value)
        at = source.skip(close.end())
    call = RawCall(name, arguments)
    if closing := _CLOSING.match(source.text, at):
        return Found(closing.end(), [call])
    if source.is_over(at) and source.complete:
        return Found(at, [call], [f"the missing end of a call of {name} was added"])
    cut = source.is_over(at)
    reason = "something else is where a key or its end should be"
    return Found(at, [fault(source, start, at, reason, name, cut=cut)])


def _unclear(source: Source, start: int) -> Found | None:
    """Tell of tags around something that names a tool, and that no format can read."""
    close = source.search(_CLOSING, start)
    if close is None or close.start() - start > _LOOKED_AT:
        return None
    inside = source.text[start : close.start()]
    name = next((name for name in source.tools if name in inside), None)
    if name is None:
        return None
    reason = "neither JSON nor tags stand inside <tool_call>"
    return Found(close.end(), [fault(source, start, close.end(), reason, name)])


def _write(calls: Sequence[tuple[str, dict[str, Any]]]) -> str:
    blocks = []
    for name, arguments in calls:
        lines = [f"<tool_call>{name}"]
        for key, value in arguments.items():
            lines += [
                f"<arg_key>{key}</arg_key>",
                f"<arg_value>{as_value(as_text(value))}</arg_value>",
            ]
        blocks.append("\n".join([*lines, "</tool_call>"]))
    return "\n".join(blocks)


GLM = Format("glm", (TOOL_CALL,), _read, _write)
