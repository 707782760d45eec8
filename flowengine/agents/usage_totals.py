"""Total usage of the turns of an execution, from its journal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass
class UsageTotals:
    """The total usage of turns. Unknown costs count as zero."""

    replies: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float = 0.0
    estimated: bool = False
    """Whether a part was estimated here, because the provider did not report it."""
    unpriced: bool = False
    """Whether the cost of a reply is unknown."""

    def add(self, usage: Mapping[str, Any]) -> None:
        """Add the usage of one reply."""
        self.replies += 1
        for name in _TOKENS:
            setattr(self, name, getattr(self, name) + usage.get(name, 0))
        self.cost_usd += usage.get("cost_usd") or 0.0
        self.unpriced |= usage.get("cost_usd") is None
        self.estimated |= bool(usage.get("estimated"))


_ASKED = frozenset({"message", "left_out"})
"""Keys found only in the outputs of turns and of reductions."""
_TOKENS = ("input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens")


def usage_of(entries: Iterable[Mapping[str, Any]]) -> tuple[UsageTotals, dict[str, UsageTotals]]:
    """Return the usage of all model calls in a journal, in total and by model.

    Args:
        entries: Journal entries, as returned by an engine.
    """
    total, models = UsageTotals(), dict[str, UsageTotals]()
    for entry in entries:
        value = entry.get("value") if entry["type"] == "succeeded" else None
        if not isinstance(value, Mapping) or _ASKED.isdisjoint(value):
            continue
        usage = value.get("usage")
        if isinstance(usage, Mapping):
            total.add(usage)
            models.setdefault(str(value.get("model")), UsageTotals()).add(usage)
    return total, models
