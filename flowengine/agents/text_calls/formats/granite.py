"""Granite: `<|tool_call|>` before a JSON list, or `<function_call>` before an object."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from flowengine.agents.text_calls.formats.base import Format, Found, literal
from flowengine.agents.text_calls.formats.json_calls import read_calls, written_list
from flowengine.agents.text_calls.source import Source

_OPENING = re.compile(r"<\|tool_call\|>|<function_call>")
_CLOSING = re.compile(r"<\|/tool_call\|>|</function_call>")


def _read(source: Source, start: int) -> Found | None:
    opening = _OPENING.match(source.text, start)
    if opening is None:
        return None
    inside = source.skip(opening.end())
    if source.text[inside : inside + 1] not in {"{", "[", ""}:
        return None
    return read_calls(source, start, inside, closing=_CLOSING)


def _write(calls: Sequence[tuple[str, dict[str, Any]]]) -> str:
    return f"<|tool_call|>{written_list(calls)}"


GRANITE = Format("granite", (literal("<|tool_call|>"), literal("<function_call>")), _read, _write)
