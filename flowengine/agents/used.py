"""What the turns of an execution have used together, by its journal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass
class Used:
    """The sum of what turns used; a cost that is not known counts nothing."""

    replies: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float = 0.0
    estimated: bool = False
    """Something in it was counted here, as the provider did not say it."""
    unpriced: bool = False
    """The cost of some reply is not known."""


_TOKENS = ("input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens")


def used(entries: Iterable[Mapping[str, Any]]) -> Used:
    """Return what the turns in a journal used.

    Args:
        entries: Of the journal, as an engine gives them.
    """
    total = Used()
    for entry in entries:
        value = entry.get("value") if entry["type"] == "succeeded" else None
        usage = value.get("usage") if isinstance(value, Mapping) and "message" in value else None
        if not isinstance(usage, Mapping):
            continue
        total.replies += 1
        for name in _TOKENS:
            setattr(total, name, getattr(total, name) + usage.get(name, 0))
        total.cost_usd += usage.get("cost_usd") or 0.0
        total.unpriced |= usage.get("cost_usd") is None
        total.estimated |= bool(usage.get("estimated"))
    return total
