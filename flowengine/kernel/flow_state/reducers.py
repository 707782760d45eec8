"""Reducers: how a write changes the old value of a state key.

Some are words of the language; others are functions of the user. What a user's function gave is
kept in the event that it was called for (`reduced`), so an event that is applied again never calls
it: code may have changed since, or read a clock. Kept is what changed, as most of these functions
add something to a value that grows.
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
    """Add what is not there yet."""
    merged = list(old)
    for item in new if isinstance(new, list) else [new]:
        if item not in merged:
            merged.append(item)
    return merged


def add(old: Plain, new: Plain) -> Plain:
    """Add numbers, or put texts or lists one behind the other."""
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
    """Return what a reducer makes of an old value and what is written.

    Args:
        reducer: A word, or a user's function as `{"python", "folder"}`.
        old: The value that is there.
        new: What is written.

    Raises:
        ValueError: It cannot; of a word `TypeError` too.
        StepFailure: Nobody can call the function here.
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
    """Return a new value as what it adds to an old list or map, or else as a whole."""
    if type(old) is list and type(new) is list and _alike(new[: len(old)], old):
        return {"append": new[len(old) :]}
    if type(old) is dict and type(new) is dict:
        changed = {k: v for k, v in new.items() if k not in old or not _alike(v, old[k])}
        if list({**old, **changed}) == list(new):
            return {"merge": changed}
    return {"value": new}


def _restored(old: Plain, change: dict[str, Plain]) -> Plain:
    """Return the value of which `_change` told what is new, or raise what the function raised."""
    if "error" in change:
        raise ValueError(change["error"])
    if "append" in change:
        return [*old, *change["append"]]
    return {**old, **change["merge"]} if "merge" in change else change["value"]


def _alike(first: Plain, other: Plain) -> bool:
    """Return whether two values are the same to the byte: `1` is neither `1.0` nor `true`."""
    return first == other and repr(first) == repr(other)
