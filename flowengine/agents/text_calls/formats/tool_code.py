"""Gemma and Gemini: Python calls in a block of `tool_code`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from flowengine.agents.text_calls.formats.base import Format, Found, fault, literal
from flowengine.agents.text_calls.formats.fences import FENCE, read_fence
from flowengine.agents.text_calls.python_calls import BrokenPython, read_python, written_python
from flowengine.agents.text_calls.source import Source

_NAME = re.compile(r"([\w.]{1,128})\(")
_TAG, _CLOSING = "<tool_code>", re.compile(r"</tool_code>")


def _read(source: Source, start: int) -> Found | None:
    fence = read_fence(source, start)
    if fence is not None:
        if fence.language != "tool_code":
            return None
        return _calls(source, start, fence.inside, fence.inside_end, fence.end, fence.closed)
    if not source.text.startswith(_TAG, start):
        return None
    inside = start + len(_TAG)
    close = source.search(_CLOSING, inside)
    if close is None:
        return _calls(source, start, inside, len(source.text), len(source.text), False)
    return _calls(source, start, inside, close.start(), close.end(), True)


def _calls(
    source: Source, start: int, inside: int, inside_end: int, end: int, closed: bool
) -> Found:
    code = source.text[inside:inside_end]
    names = _NAME.findall(code[:2000])
    tool = next((name for name in names if name in source.tools), None)
    if not closed and not source.complete:
        return Found(end, [fault(source, start, end, "it has no end", tool, cut=True)])
    try:
        calls, repairs = read_python(code)
    except BrokenPython as broken:
        return Found(end, [fault(source, start, end, str(broken), tool)])
    return Found(end, list(calls), repairs)


def _write(calls: Sequence[tuple[str, dict[str, Any]]]) -> str:
    lines = (written_python(name, arguments) for name, arguments in calls)
    return "\n".join(["```tool_code", *lines, "```"])


TOOL_CODE = Format("tool_code", (FENCE, literal(_TAG)), _read, _write)
