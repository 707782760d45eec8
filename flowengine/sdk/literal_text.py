"""Text in flows that is no expression, whatever it looks like: `$${{` stands for `${{`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def literal_text(value: Any) -> Any:
    """Return data as a flow has it: what looks like an expression in a text is none."""
    return _replaced(value, "${{", "$${{")


def plain_text(value: Any) -> Any:
    """Return the data that a constant of a flow means: nothing evaluates those."""
    return _replaced(value, "$${{", "${{")


def _replaced(value: Any, old: str, new: str) -> Any:
    if isinstance(value, str):
        return value.replace(old, new)
    if isinstance(value, Mapping):
        return {key: _replaced(item, old, new) for key, item in value.items()}
    return [_replaced(item, old, new) for item in value] if isinstance(value, list) else value
