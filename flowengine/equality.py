"""Equality of values of plain data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal. `true` is not a number, but `1` equals `1.0`."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def in_order(items: list[Any], shown: Callable[[Any], Any] = lambda item: item) -> list[Any]:
    """Return the items of a set in an order that depends on them alone.

    Args:
        items: In any order.
        shown: Returns what an item stands for.
    """
    try:
        return sorted(items, key=shown)
    except TypeError:
        import json

        return sorted(items, key=lambda one: json.dumps(shown(one), sort_keys=True, default=repr))
