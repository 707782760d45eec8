"""Equality of values of plain data."""

from __future__ import annotations

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


def in_order(items: list[Any]) -> list[Any]:
    """Return the items of a set in an order that depends on them alone."""
    try:
        return sorted(items)
    except TypeError:
        import json

        return sorted(items, key=lambda item: json.dumps(item, sort_keys=True, default=repr))
