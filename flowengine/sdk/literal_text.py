"""Text in flows that looks like an expression but is none: `$${{` stands for `${{`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def literal_text(value: Any) -> Any:
    """Return data as written in a flow, with text that looks like an expression escaped."""
    return _replaced(value, "${{", "$${{")


def plain_text(value: Any) -> Any:
    """Return the data that a constant of a flow stands for. Constants are not evaluated."""
    return _replaced(value, "$${{", "${{")


def _replaced(value: Any, old: str, new: str) -> Any:
    if isinstance(value, str):
        return value.replace(old, new)
    if isinstance(value, Mapping):
        return {key: _replaced(item, old, new) for key, item in value.items()}
    return [_replaced(item, old, new) for item in value] if isinstance(value, list) else value
