"""Hermes and Qwen: `<tool_call>{"name": "add", "arguments": {...}}</tool_call>`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from flowengine.agents.text_calls.formats.base import Format, Found, fault, literal
from flowengine.agents.text_calls.formats.json_calls import read_calls, written
from flowengine.agents.text_calls.source import Source

TOOL_CALL = literal("<tool_call>")
_CLOSING = re.compile(r"</tool_call>")


def _read(source: Source, start: int) -> Found | None:
    inside = source.skip(start + len("<tool_call>"))
    if inside >= len(source.text):
        reason = "nothing follows its first tag"
        return Found(inside, [fault(source, start, inside, reason, cut=True)])
    if source.text[inside] not in "{[":
        return None
    return read_calls(source, start, inside, closing=_CLOSING)


def _write(calls: Sequence[tuple[str, dict[str, Any]]]) -> str:
    blocks = (written(name, arguments) for name, arguments in calls)
    return "\n".join(f"<tool_call>\n{block}\n</tool_call>" for block in blocks)


def _write_result(name: str, text: str) -> str:
    return f"<tool_response>\n{text}\n</tool_response>"


HERMES = Format("hermes", (TOOL_CALL,), _read, _write, _write_result)
