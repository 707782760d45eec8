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
from flowengine.kernel.notation.changes import change, changed
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
        found = recorded[len(tx.reduced)]
        tx.reduced.append(found)
        return changed(old, found)
    if tx.graph.function is None:
        raise StepFailure("ValidationError", "reducers in Python are not available here")
    try:
        value = tx.graph.function(reducer)(old, new)
    except ValueError as error:
        tx.reduced.append({"error": str(error)})
        raise
    tx.reduced.append(change(old, value))
    return value
