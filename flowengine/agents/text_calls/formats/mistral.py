"""Mistral: `[TOOL_CALLS]` before a JSON list, or before a name, `[ARGS]` and JSON."""

from __future__ import annotations

import re
from collections.abc import Sequence
from json import dumps
from typing import Any

from flowengine.agents.text_calls.formats.base import Format, Found, fault, literal
from flowengine.agents.text_calls.formats.json_calls import read_calls, read_named, written_list
from flowengine.agents.text_calls.source import Source

_MARK = literal("[TOOL_CALLS]")
_NAMED = re.compile(
    r"\s*(?:\[TOOL_CALLS\]\s*)?(?P<name>[\w.-]{1,128})\s*(?:\[CALL_ID\]\s*\w{1,64}\s*)?(?:\[ARGS\]\s*|(?=\{))"
)


def _read(source: Source, start: int) -> Found | None:
    inside = source.skip(start + len("[TOOL_CALLS]"))
    if source.text[inside : inside + 1] in {"[", "{"}:
        return read_calls(source, start, inside)
    block = Found(inside)
    while named := _NAMED.match(source.text, block.end):
        found = read_named(source, block.end, named.end(), named["name"])
        block.items += found.items
        block.repairs += found.repairs
        block.end = found.end
    if not block.items:
        reason = "neither a list nor a name follows [TOOL_CALLS]"
        cut = len(source.text) - inside < 200 and "\n" not in source.text[inside:]
        block.end = len(source.text) if cut else inside
        block.items.append(fault(source, start, block.end, reason, cut=cut))
    return block


def _write(calls: Sequence[tuple[str, dict[str, Any]]]) -> str:
    each = (
        f"[TOOL_CALLS]{name}[ARGS]{dumps(arguments, ensure_ascii=False)}"
        for name, arguments in calls
    )
    return "".join(each)


def _write_list(calls: Sequence[tuple[str, dict[str, Any]]]) -> str:
    return f"[TOOL_CALLS]{written_list(calls)}"


MISTRAL = Format("mistral", (_MARK,), _read, _write)
MISTRAL_LIST = Format("mistral_list", (_MARK,), _read, _write_list)
