"""Reducers: functions that combine the old value of a state key with a written value.

Some are built in, others are functions of the user. The result of a user's function is stored in
the event that it was called for (`reduced`). The function is therefore not called again during
replay, when its code could have changed or a clock it reads has advanced. Only the change is
stored, because most of these functions add to a growing value.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any

from flowengine.kernel.errors import StepFailure
from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.transition import Transition


def append(old: Plain, new: Plain) -> Plain:
    """Add an item, or the items of a list, at the end."""
    return [*old, *new] if isinstance(new, list) else [*old, new]


def union(old: Plain, new: Plain) -> Plain:
    """Add items that are missing."""
    merged = list(old)
    for item in new if isinstance(new, list) else [new]:
        if item not in merged:
            merged.append(item)
    return merged


def add(old: Plain, new: Plain) -> Plain:
    """Add numbers, or concatenate texts or lists."""
    total = old + new
    if isinstance(total, float):
        fits = isfinite(total)
    else:
        fits = not isinstance(total, int) or -(2**63) <= total < 2**63
    if not fits:
        raise ValueError("the sum is out of the range of numbers")
    return total


REDUCERS: dict[str, Callable[[Plain, Plain], Plain]] = {
    "replace": lambda _old, new: new,
    "append": append,
    "union": union,
    "merge": lambda old, new: {**old, **new},
    "add": add,
    "max": max,
    "min": min,
}


def reduced(tx: Transition, reducer: Any, old: Plain, new: Plain) -> Plain:
    """Combine an old value with a written one.

    Args:
        reducer: Name of a built-in reducer, or a user's function as `{"python", "folder"}`.
        old: The current value.
        new: The written value.

    Raises:
        ValueError: The reducer rejects the values. Built-in ones also raise `TypeError`.
        StepFailure: The function cannot be called here.
    """
    if isinstance(reducer, str):
        return REDUCERS[reducer](old, new)
    recorded = tx.event.get("reduced")
    if recorded is not None:
        if len(tx.reduced) == len(recorded):
            raise StepFailure("ValidationError", "the journal has no result of this function")
        change = recorded[len(tx.reduced)]
        tx.reduced.append(change)
        return _restored(old, change)
    if tx.graph.function is None:
        raise StepFailure("ValidationError", "reducers in Python are not available here")
    try:
        value = tx.graph.function(reducer)(old, new)
    except ValueError as error:
        tx.reduced.append({"error": str(error)})
        raise
    tx.reduced.append(_change(old, value))
    return value


def _change(old: Plain, new: Plain) -> dict[str, Plain]:
    """Return a new value as an addition to an old list or map, or else as a whole."""
    if type(old) is list and type(new) is list and _alike(new[: len(old)], old):
        return {"append": new[len(old) :]}
    if type(old) is dict and type(new) is dict:
        changed = {k: v for k, v in new.items() if k not in old or not _alike(v, old[k])}
        if list({**old, **changed}) == list(new):
            return {"merge": changed}
    return {"value": new}


def _restored(old: Plain, change: dict[str, Plain]) -> Plain:
    """Return the value of a recorded change, or raise the error that the function raised."""
    if "error" in change:
        raise ValueError(change["error"])
    if "append" in change:
        return [*old, *change["append"]]
    return {**old, **change["merge"]} if "merge" in change else change["value"]


def _alike(first: Plain, other: Plain) -> bool:
    """Return whether two values are the same to the byte. `1` differs from `1.0` and `true`."""
    return first == other and repr(first) == repr(other)
