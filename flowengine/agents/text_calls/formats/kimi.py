"""Kimi: `<|tool_call_begin|>functions.add:0<|tool_call_argument_begin|>{...}<|tool_call_end|>`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from json import dumps
from typing import Any

from flowengine.agents.text_calls.formats.base import Format, Found, fault, literal
from flowengine.agents.text_calls.formats.json_calls import read_named
from flowengine.agents.text_calls.source import Source

_SECTION, _SECTION_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
_BEGIN, _ARGUMENTS, _END = (
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
)
_HEAD = re.compile(
    rf"{re.escape(_BEGIN)}\s*(?:functions\.)?(?P<name>[\w.-]{{1,128}})(?::\d{{1,6}})?\s*"
    rf"{re.escape(_ARGUMENTS)}"
)
_CLOSING = re.compile(re.escape(_END))


def _read(source: Source, start: int) -> Found | None:
    in_section = source.text.startswith(_SECTION, start)
    block = Found(start + len(_SECTION) if in_section else start)
    at = source.skip(block.end)
    while head := _HEAD.match(source.text, at):
        found = read_named(source, at, head.end(), head["name"], closing=_CLOSING)
        block.items += found.items
        block.repairs += found.repairs
        block.end = found.end
        at = source.skip(found.end)
    if not block.items:
        cut = len(source.text) - at < 200
        block.end = len(source.text) if cut else max(at, start + len(_BEGIN))
        reason = "no call follows its first token"
        block.items.append(fault(source, start, block.end, reason, cut=cut))
    elif source.text.startswith(_SECTION_END, at):
        block.end = at + len(_SECTION_END)
    return block


def _write(calls: Sequence[tuple[str, dict[str, Any]]]) -> str:
    each = (
        f"{_BEGIN}functions.{name}:{place}{_ARGUMENTS}{dumps(arguments, ensure_ascii=False)}{_END}"
        for place, (name, arguments) in enumerate(calls)
    )
    return f"{_SECTION}{''.join(each)}{_SECTION_END}"


KIMI = Format("kimi", (literal(_SECTION), literal(_BEGIN)), _read, _write)
