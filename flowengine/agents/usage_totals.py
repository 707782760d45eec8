"""What the turns of an execution have used together, by its journal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass
class UsageTotals:
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

    def add(self, usage: Mapping[str, Any]) -> None:
        """Add what one reply used."""
        self.replies += 1
        for name in _TOKENS:
            setattr(self, name, getattr(self, name) + usage.get(name, 0))
        self.cost_usd += usage.get("cost_usd") or 0.0
        self.unpriced |= usage.get("cost_usd") is None
        self.estimated |= bool(usage.get("estimated"))


_ASKED = frozenset({"message", "left_out"})
"""What the outputs of turns and of reductions have."""
_TOKENS = ("input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens")


def total_usage(entries: Iterable[Mapping[str, Any]]) -> UsageTotals:
    """Return what the calls of models in a journal used.

    Args:
        entries: Of the journal, as an engine gives them.
    """
    total = UsageTotals()
    for _, usage in _replies(entries):
        total.add(usage)
    return total


def usage_by_model(entries: Iterable[Mapping[str, Any]]) -> dict[str, UsageTotals]:
    """Return what the calls of each model in a journal used.

    Args:
        entries: Of the journal, as an engine gives them.
    """
    found: dict[str, UsageTotals] = {}
    for model, usage in _replies(entries):
        found.setdefault(model, UsageTotals()).add(usage)
    return found


def _replies(entries: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the model and the usage of each reply."""
    for entry in entries:
        value = entry.get("value") if entry["type"] == "succeeded" else None
        if not isinstance(value, Mapping) or _ASKED.isdisjoint(value):
            continue
        usage = value.get("usage")
        if isinstance(usage, Mapping):
            yield str(value.get("model")), usage
