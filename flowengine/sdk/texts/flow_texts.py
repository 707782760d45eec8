"""Text in flows that looks like an expression but is none: `$${{` stands for `${{`."""

from __future__ import annotations

from typing import Any

from flowengine.util.plain_data import with_leaves


def literal_text(value: Any) -> Any:
    """Return data as written in a flow, with text that looks like an expression escaped."""
    return with_leaves(value, lambda text: text.replace("${{", "$${{"), str)


def plain_text(value: Any) -> Any:
    """Return the data that a constant of a flow stands for. Constants are not evaluated."""
    return with_leaves(value, lambda text: text.replace("$${{", "${{"), str)
