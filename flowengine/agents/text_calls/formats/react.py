"""ReAct: `Action: add` and, on the next line, `Action Input: {...}`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from json import dumps
from typing import Any

from flowengine.agents.text_calls.formats.base import Format, Found, fault, literal
from flowengine.agents.text_calls.formats.json_calls import read_named
from flowengine.agents.text_calls.records import RawCall
from flowengine.agents.text_calls.source import Source

_HEAD = re.compile(
    r"[ \t]*Action:[ \t]*`?(?P<name>[\w.-]{1,128})`?[ \t]*+"
    r"(?:\n++[ \t]*+Action Input:[ \t]*+|\s*+\Z)"
)
_OBSERVATION = re.compile(r"\s*Observation:")
_EMPTY = re.compile(r"(?:none|n/a|null)?[ \t]*(?=\n|\Z)", re.IGNORECASE)


def _read(source: Source, start: int) -> Found | None:
    head = _HEAD.match(source.text, start)
    if head is None:
        return None
    name, at = head["name"], head.end()
    if "Action Input:" not in head[0]:
        if name not in source.tools:
            return None
        item = fault(source, start, at, "no Action Input follows", name, cut=True)
        return Found(at, [item])
    if empty := _EMPTY.match(source.text, at):
        found = Found(empty.end(), [RawCall(name, None)])
    elif source.text[source.skip(at) : source.skip(at) + 1] == "{":
        found = read_named(source, start, at, name)
    else:
        line_end = source.text.find("\n", at)
        end = len(source.text) if line_end < 0 else line_end
        found = Found(end, [fault(source, start, end, "Action Input must be JSON", name)])
    if _OBSERVATION.match(source.text, found.end):
        found.end = len(source.text)
        found.repairs.append("a result that the model made up, and what follows it, was left out")
    return found


def _write(calls: Sequence[tuple[str, dict[str, Any]]]) -> str:
    lines = (
        f"Action: {name}\nAction Input: {dumps(arguments, ensure_ascii=False)}"
        for name, arguments in calls
    )
    return "\n".join(lines)


def _write_result(name: str, text: str) -> str:
    return f"Observation: {text}"


REACT = Format(
    "react",
    (replace(literal("Action:"), at_line_start=True),),
    _read,
    _write,
    _write_result,
)
