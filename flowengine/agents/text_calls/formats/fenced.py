"""Calls as JSON in a code fence, and code fences that hold no calls.

Only a fence that holds nothing but calls is read as calls. What else stands in a fence is quoted,
not called, whatever it looks like.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from flowengine.agents.text_calls.formats.bare_json import is_call
from flowengine.agents.text_calls.formats.base import Format, Found, broken_call, fault
from flowengine.agents.text_calls.formats.fences import FENCE, Fence, read_fence
from flowengine.agents.text_calls.formats.json_calls import calls_of, name_in, written
from flowengine.agents.text_calls.json_text import BrokenJson, read_json
from flowengine.agents.text_calls.source import Source

_OF_CALLS = {"tool_call", "tool_calls", "tool", "tool_use", "function_call"}
_OF_JSON = {"json", "jsonc", "json5", "", *_OF_CALLS}
_MARKED = re.compile(
    r"\s*(?:<tool_call>|<function=|<function_calls>|<invoke\s|\[TOOL_CALLS\]|<\|tool_call)"
)


def _read(source: Source, start: int) -> Found | None:
    fence = read_fence(source, start)
    if fence is None:
        return None
    if source.open_fence and not fence.language:
        source.open_fence = False
        return Found(fence.inside)
    if _MARKED.match(source.text, fence.inside):
        source.open_fence = fence.closed
        return Found(fence.inside)
    inside = source.skip(fence.inside)
    if fence.language in _OF_JSON and source.text[inside : inside + 1] in {"{", "["}:
        found = _read_json(source, start, fence)
        if found:
            return found
    if not fence.closed:
        return None
    return Found(fence.end, content=source.text[start : fence.end])


def _read_json(source: Source, start: int, fence: Fence) -> Found | None:
    """Read the JSON in a fence; None: it holds no calls."""
    found = Found(fence.end)
    ours = fence.language in _OF_CALLS
    inside = Source(source.text[fence.inside : fence.inside_end], source.ended, source.tools)
    body, at = inside.text, inside.skip(0)
    while at < len(body):
        try:
            value, at, repairs = read_json(body, at, complete=fence.closed or source.complete)
        except BrokenJson as broken:
            return _broken(source, start, fence, broken, ours)
        calls = calls_of(value)
        if calls is None or not (ours or all(is_call(call, source) for call in calls)):
            if not ours:
                return None
            reason = "it needs a name and arguments"
            found.items.append(fault(source, start, fence.end, reason))
        found.items += calls or []
        found.repairs += repairs
        at = inside.skip(at)
        if at < len(body) and body[at] not in "{[":
            if not found.items:
                return None
            found.repairs.append("text after the JSON of a call was left out")
            break
    return found if found.items else None


def _broken(
    source: Source, start: int, fence: Fence, broken: BrokenJson, ours: bool
) -> Found | None:
    name = name_in(source, fence.inside)
    if not ours and name not in source.tools:
        return None
    end = fence.end
    return Found(end, [broken_call(source, start, end, broken, name)])


def _write(calls: Sequence[tuple[str, dict[str, Any]]]) -> str:
    blocks = (written(name, arguments) for name, arguments in calls)
    return "\n".join(f"```tool_call\n{block}\n```" for block in blocks)


FENCED = Format("fenced", (FENCE,), _read, _write)
