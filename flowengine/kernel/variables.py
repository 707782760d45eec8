"""State of a flow: typed values that live as long as the execution, written through reducers.

Values are never changed in place: an expression may have handed one on.

Two parallel tokens must not replace the same key. Each replacing write is remembered in the past of
its token, under a negative number; a token may replace what lies behind it, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from math import isfinite
from typing import TYPE_CHECKING, Any

from flowengine.kernel import locks, pasts
from flowengine.kernel.errors import StepFailure
from flowengine.kernel.graph import Plain
from flowengine.kernel.linked import Flow
from flowengine.kernel.machine import Machine, state_name
from flowengine.kernel.names import Names, evaluate

if TYPE_CHECKING:
    from flowengine.kernel.state import Activation


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


def initial(flow: Flow) -> dict[str, list[Plain]]:
    """Return the state of a flow that begins: every key has its default."""
    return {key: [spec.get("default"), 0] for key, spec in flow.state.items()}


def write(m: Machine, names: Names, pairs: list[list[Any]], act: Activation) -> list[list[Any]]:
    """Write state as a step's `set` says; all values see the state before.

    Args:
        m: The advance at work.
        names: What the values see.
        pairs: `[key, value]` in the order of the file.
        act: The activation that writes.

    Returns:
        `[key, data]` of those writes that are made later, because items of a map make them.

    Raises:
        StepFailure: A value does not fit, or a parallel token has replaced the key.
    """
    values = [[key, evaluate(names, value)] for key, value in pairs]
    later = []
    node = m.node(act)
    spec = m.flow_of(names.frame).state
    item = names.unit["id"] if names.unit is not None and names.unit["item"] >= 0 else 0
    kept_back = item and not node.each and node.lock is None
    under = locks.held(m, act, names.unit)
    for key, value in values:
        reducer = spec[key].get("reducer", "replace")
        if kept_back and reducer != "replace":
            later.append([key, value])
            continue
        if reducer == "replace":
            _refuse_conflict(m, key, names, item, under)
        reduce(m, names.frame, key, value, act["id"], item, under)
        if reducer == "replace":
            number = mark(m, names.frame, key)
            act["past"] = pasts.remember(m.state, act["past"], number, {"writer": act["id"]})
    return later


def make_writes(m: Machine, act: Activation) -> None:
    """Make the writes that items of a map have left, in the order of the items.

    Args:
        m: The advance at work.
        act: The map's activation.

    Raises:
        StepFailure: A value does not fit.
    """
    left, act["writes"] = act["writes"], {}
    for item in sorted(left):
        for key, value in left[item]:
            reduce(m, m.frame_of(act), key, value, act["id"])


def make_fitting(m: Machine, act: Activation) -> None:
    """Make the writes that items have left to a map that is over anyway; what does not fit is lost.

    Args:
        m: The advance at work.
        act: The map's activation.
    """
    left, act["writes"] = act["writes"], {}
    for item in sorted(left):
        for key, value in left[item]:
            with suppress(StepFailure):
                reduce(m, m.frame_of(act), key, value, act["id"])


def mark(m: Machine, frame: int, key: str) -> int:
    """Return the number under which a past remembers who replaced a key."""
    return -1 - list(m.flow_of(frame).state).index(key)


def _refuse_conflict(m: Machine, key: str, names: Names, item: int, under: list[str]) -> None:
    """Raise `StateConflict` if the last write is neither behind the token nor under its lock."""
    act = names.act
    assert act is not None
    _value, writer, *how = m.vars_of(names.frame)[key]
    by_item, locked = how or (0, [])
    if not writer or any(name in locked for name in under):
        return
    if writer == act["id"] and by_item == item:
        return
    record = pasts.find(m.state, act["past"], mark(m, names.frame, key))
    if record is None or record["writer"] != writer or writer == act["id"]:
        raise StepFailure(
            "StateConflict",
            f"state.{key} was replaced by a parallel branch; give it a reducer, or join first",
            {"key": key},
        )


def reduce(
    m: Machine,
    frame: int,
    key: str,
    value: Plain,
    writer: int,
    item: int = 0,
    under: list[str] | None = None,
) -> None:
    """Write one state key through its reducer.

    Args:
        m: The advance at work.
        frame: Of the flow whose state it is.
        key: The state key.
        value: What is written.
        writer: The activation that writes.
        item: The unit of the item that writes, if one does.
        under: The locks that it has.

    Raises:
        StepFailure: The value does not fit the reducer or the key's schema.
    """
    spec, cells = m.flow_of(frame).state[key], m.vars_of(frame)
    schema = spec.get("schema") or {}
    reducer = spec.get("reducer", "replace")
    try:
        new = _function(m, reducer)(cells[key][0], value)
    except (TypeError, ValueError) as error:
        name = reducer if isinstance(reducer, str) else reducer["python"]
        raise StepFailure("ValidationError", f"state.{key}: {name}: {error}") from None
    if reducer == "append":
        # What is there already has been looked at when it came.
        added = value if isinstance(value, list) else [value]
        fault = m.graph.validate({"type": "array", "items": schema.get("items", True)}, added)
    else:
        fault = m.graph.validate(schema, new)
    if fault is not None:
        raise StepFailure("ValidationError", f"state.{key}: {fault}", {"key": key})
    cells[key] = [new, writer, item, under or []] if item or under else [new, writer]
    m.changed.add(state_name(frame, key))


def _function(m: Machine, reducer: Plain) -> Callable[[Plain, Plain], Plain]:
    """Return the function of a reducer: a built-in word, or a Python function."""
    if isinstance(reducer, str):
        return REDUCERS[reducer]
    if m.graph.function is None:
        raise StepFailure("ValidationError", "reducers in Python are not available here")
    return m.graph.function(reducer)
