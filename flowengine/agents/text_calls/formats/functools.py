"""`functools[{"name": "add", "arguments": {...}}]`, of FireFunction and Phi."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flowengine.agents.text_calls.formats.base import Format, Found, literal
from flowengine.agents.text_calls.formats.json_calls import read_calls, written_list
from flowengine.agents.text_calls.source import Source


def _read(source: Source, start: int) -> Found | None:
    at = start + len("functools")
    inside = source.skip(at + 1)
    if source.text[inside : inside + 1] not in {"{", ""}:
        return None
    return read_calls(source, start, at)


def _write(calls: Sequence[tuple[str, dict[str, Any]]]) -> str:
    return f"functools{written_list(calls)}"


FUNCTOOLS = Format("functools", (literal("functools["),), _read, _write)
