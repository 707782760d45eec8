"""The state of a flow: typed values, as long-lived as the execution, written through reducers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from math import isfinite
from typing import Any

from flowengine.kernel.errors import StepFailure
from flowengine.kernel.expressions.names import Names, evaluate
from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.graph.linked import GraphFlow, Node
from flowengine.kernel.held_failures import is_held
from flowengine.kernel.limits.locks import locks_around
from flowengine.kernel.notation.changes import change, changed
from flowengine.kernel.state.records import Activation, Scope, Unit
from flowengine.kernel.transition import Transition
from flowengine.kernel.view import state_name

# Causality of state writes, which distinguishes parallel writes from later ones.
#
# Each write that replaces a key has a number, one more than the previous write. Everything that
# can write (a token, an item of a map, a scope) has `knows`: key → the number of the latest write
# that happened before it. A split copies `knows`, and a merge takes the maximum. A scope knows all
# writes made in it, and passes them to its successor regardless of how it ended.
#
# `knows` is absent while it would be empty, and its value is never changed in place. The keys are
# those of `view.state_name`, because each subflow has separate state.

Knowledge = dict[str, int]


def learn(who: Any, knows: Mapping[str, int] | None) -> None:
    """Add writes to those that a token, item, scope or cleanup knows.

    Args:
        who: The record with `knows`.
        knows: The `knows` of a predecessor.
    """
    if not knows:
        return
    mine = who.get("knows")
    if mine is None:
        who["knows"] = {**knows}
        return
    for key, number in knows.items():
        if number > mine.get(key, 0):
            mine = who["knows"] = {**mine, key: number}


def learn_own(who: Any, name: str, number: int) -> None:
    """Add a write that was just made, so its number is the highest of its key.

    Args:
        who: The record with `knows`.
        name: The key that was replaced.
        number: Number of the write.
    """
    mine = who.get("knows")
    who["knows"] = {name: number} if mine is None else {**mine, name: number}


def writer(act: Activation, unit: Unit | None) -> Any:
    """Return the record that writes in a place: the unit of a map item, else the activation."""
    return unit if unit is not None and unit["item"] >= 0 else act


def pass_out(tx: Transition, scope: Scope, unit: Unit) -> None:
    """Pass the writes made in a scope to its successor.

    A subflow has separate state, which cannot be written after it has ended.

    Args:
        scope: The scope that ends.
        unit: The unit that opened it.
    """
    if tx.graph.body(scope["body"]).kind == "flow":
        return
    act = tx.act_of(unit)
    learn(writer(act, unit), scope.get("knows"))
    if "final" not in act:  # a `finally` runs outside the scope that it belongs to
        learn(tx.scope_of(act), scope.get("knows"))


def of_frame(knows: Mapping[str, int], frame: int) -> Knowledge:
    """Return the part of `knows` about the state of one running flow."""
    whose = str(frame) if frame else ""
    return {key: number for key, number in knows.items() if key.rpartition("/")[0] == whose}


# Readers: attempts that receive values of state by reference.
#
# A step can read state that is not part of its input (`StepSpec.reads`), such as a list that grows
# with every step. As part of the input, it would be copied into every attempt and snapshot. The
# attempt receives the values themselves, which are never changed in place.
#
# An attempt that runs again after a crash reads the same values as before. The first write to a
# key stores the old value for the units that read it.


def begin_reading(tx: Transition, node: Node, unit: Unit) -> None:
    """Record that an attempt of a unit begins and reads the current state."""
    unit.pop("replaced_reads", None)
    reading = tx.state.setdefault("reading", {})
    frame = tx.frame_of(tx.act_of(unit))
    for key in node.reads:
        reading.setdefault(state_name(frame, key), {})[unit["id"]] = True


def values(tx: Transition, node: Node, unit: Unit) -> dict[str, Plain]:
    """Return the state that an attempt of a unit reads, as of the start of the attempt."""
    return {**read(tx, node, tx.frame_of(tx.act_of(unit))), **unit.get("replaced_reads", {})}


def read(tx: Transition, node: Node, frame: int) -> dict[str, Plain]:
    """Return the current values of the state keys that a step reads."""
    cells = tx.vars_of(frame)
    return {key: cells[key][0] for key in node.reads if key in cells}


def put_aside(tx: Transition, frame: int, key: str) -> None:
    """Store the value of a key that is about to be written, for the attempts that read it.

    Called only if an attempt reads state.
    """
    readers = tx.state["reading"].pop(state_name(frame, key), None)
    if readers is None:
        return
    if not tx.state["reading"]:
        del tx.state["reading"]
    old = tx.vars_of(frame)[key][0]
    for number in readers:
        tx.state["units"][number].setdefault("replaced_reads", {})[key] = old


def stop_reading(tx: Transition, unit: Unit) -> None:
    """Remove a unit that has finished reading."""
    reading = tx.state["reading"]
    for name in [name for name, readers in reading.items() if unit["id"] in readers]:
        del reading[name][unit["id"]]
        if not reading[name]:
            del reading[name]
    if not reading:
        del tx.state["reading"]


# Reducers: functions that combine the old value of a state key with a written value.
#
# Some are built in, others are functions of the user. The result of a user's function is stored in
# the event that it was called for (`reduced`). The function is therefore not called again during
# replay, when its code could have changed or a clock it reads has advanced. Only the change is
# stored, because most of these functions add to a growing value.


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


# The state of a flow: typed values that live as long as the execution, written through reducers.
#
# Values are never changed in place because an expression may have passed them on. Two parallel
# tokens must not replace the same key. A token may replace a value that was written before it, or
# under a lock that it holds, see `causality`.


def initial(flow: GraphFlow) -> dict[str, list[Plain]]:
    """Return the initial state of a flow, with the default of every key."""
    return {key: [spec.get("default"), 0] for key, spec in flow.state.items()}


def write(tx: Transition, names: Names, pairs: list[list[Any]], act: Activation) -> list[list[Any]]:
    """Write state according to a step's `set`. All values read the state before the writes.

    Args:
        names: The names that the values can read.
        pairs: `[key, value]` in the order of the file.
        act: The activation that writes.

    Returns:
        `[key, data]` of the writes that map items make later.

    Raises:
        StepFailure: A value does not fit, or a parallel token has replaced the key.
    """
    values = []
    for key, value in pairs:
        values.append([key, evaluate(names, value)])
    later = []
    node = tx.graph.nodes[act["step"]]
    spec, cells = tx.flow_of(names.frame).state, tx.vars_of(names.frame)
    who = writer(act, names.unit)
    shares = names.unit is not None and "shares" in names.unit
    kept_back = who is not act and not node.each and (node.lock is None or shares)
    under = locks_around(tx, act, names.unit)
    for key, value in values:
        if replaces(spec[key]):
            name, number = _replace(tx, names.frame, spec[key], cells, key, value, under, who)
            learn_own(who, name, number)
            learn_own(tx.state["scopes"][act["scope"]], name, number)
        elif kept_back:
            later.append([key, value])
        else:
            _reduce(tx, names.frame, key, value, [act["id"]])
    return later


def write_for_flow(tx: Transition, names: Names, pairs: list[list[Any]], scope: Scope) -> None:
    """Write state according to a handler of a flow that has no tokens left.

    Args:
        names: The names that the values can read.
        pairs: `[key, value]` in the order of the file.
        scope: The scope of the flow.

    Raises:
        StepFailure: A value does not fit.
    """
    spec, cells = tx.flow_of(names.frame).state, tx.vars_of(names.frame)
    for key, value in [(key, evaluate(names, value)) for key, value in pairs]:
        if replaces(spec[key]):
            learn_own(scope, *_replace(tx, names.frame, spec[key], cells, key, value, []))
        else:
            _reduce(tx, names.frame, key, value, [0])


def put(tx: Transition, key: str, value: Plain, frame: int = 0) -> None:
    """Set a state key to a value from outside, which every token may replace.

    Args:
        tx: The transition.
        key: The state key.
        value: The value.
        frame: The frame of the state's flow, or 0 for the main flow.
    """
    if "reading" in tx.state:
        put_aside(tx, frame, key)
    cells = tx.vars_of(frame)
    cells[key] = from_outside(value, cells[key])
    tx.changed.add(state_name(frame, key))


def write_message(tx: Transition, frame: int, key: str, data: Plain) -> None:
    """Write the data of a message to a state key that receives it.

    Raises:
        StepFailure: It does not fit.
    """
    flow = tx.flow_of(frame)
    if not replaces(flow.state[key]):
        _reduce(tx, frame, key, data, [0])
        return
    fault = tx.graph.validate(*flow.received(key, data))
    if fault is not None:
        raise StepFailure("ValidationError", f"state.{key}: {fault}", {"key": key})
    put(tx, key, data, frame)


def from_outside(value: Plain, before: list[Plain]) -> list[Plain]:
    """Return the cell of a key whose value comes from outside.

    The number of writes continues from the previous cell, so that no number is already known.

    Args:
        before: The previous cell.
    """
    return [value, -abs(before[1])]


def replaces(spec: dict[str, Plain]) -> bool:
    """Return whether a write to a key replaces its value."""
    return bool(spec.get("reducer", "replace") == "replace")


def make_writes(tx: Transition, act: Activation) -> None:
    """Make the delayed writes of map items, in the order of the items.

    Args:
        tx: The transition.
        act: The map's activation.

    Raises:
        StepFailure: A value does not fit.
    """
    left, act["writes"] = act["writes"], {}
    pairs = [pair for item in sorted(left) for pair in left[item]]
    for number, (key, value) in enumerate(pairs):
        try:
            _reduce(tx, tx.frame_of(act), key, value, [act["id"]])
        except StepFailure:
            if is_held(tx, "act", act["id"]):
                act["writes"] = {0: pairs[number:]}  # made when the map begins again
            raise


def make_fitting(tx: Transition, act: Activation) -> None:
    """Make the delayed writes of items of a map that has ended, ignoring those that do not fit.

    Args:
        tx: The transition.
        act: The map's activation.
    """
    left, act["writes"] = act["writes"], {}
    for item in sorted(left):
        for key, value in left[item]:
            with suppress(StepFailure):
                _reduce(tx, tx.frame_of(act), key, value, [act["id"]])


def _replace(
    tx: Transition,
    frame: int,
    spec: dict[str, Plain],
    cells: dict[str, list[Plain]],
    key: str,
    value: Plain,
    under: list[str],
    who: Any = None,
) -> tuple[str, int]:
    """Replace a key, and return its name in the execution and the number of the write.

    Args:
        tx: The transition.
        frame: The frame of the state's flow.
        spec: The declaration of the key.
        cells: The state.
        key: The state key.
        value: The written value.
        under: The locks held during the write.
        who: The record that writes. None: a flow without tokens, so nothing runs in parallel.

    Raises:
        StepFailure: The value does not fit, or a parallel token has replaced the key.
    """
    name, before = state_name(frame, key), cells[key]
    known = before[1] if who is None else who.get("knows", {}).get(name)
    number = before[1]
    if number > 0 and known != number:
        _refuse_conflict(key, before, under)
    fault = tx.graph.validate(spec.get("schema") or {}, value)
    if fault is not None:
        raise StepFailure("ValidationError", f"state.{key}: {fault}", {"key": key})
    number = abs(number) + 1
    if "reading" in tx.state:
        put_aside(tx, frame, key)
    cells[key] = [value, number, under] if under else [value, number]
    tx.changed.add(name)
    return name, number


def _refuse_conflict(key: str, cell: list[Plain], under: list[str]) -> None:
    """Raise `StateConflict` for a key last replaced in parallel, unless under a lock held now."""
    locked = cell[2] if len(cell) > 2 else ()
    if any(name in locked for name in under):
        return
    raise StepFailure(
        "StateConflict",
        f"state.{key} was replaced by a parallel branch: give it a reducer, or join first",
        {"key": key},
    )


def _reduce(tx: Transition, frame: int, key: str, value: Plain, mark: list[Plain]) -> None:
    """Write one state key through its reducer.

    Args:
        frame: The frame of the state's flow.
        key: The state key.
        value: The written value.
        mark: The part of the key's cell after the value.

    Raises:
        StepFailure: The value does not fit the reducer or the key's schema.
    """
    spec, cells = tx.flow_of(frame).state[key], tx.vars_of(frame)
    schema = spec.get("schema") or {}
    reducer = spec.get("reducer", "replace")
    try:
        new = reduced(tx, reducer, cells[key][0], value)
    except (TypeError, ValueError) as error:
        name = reducer if isinstance(reducer, str) else reducer["python"]
        raise StepFailure("ValidationError", f"state.{key}: {name}: {error}") from None
    if reducer == "append":
        # Existing items were validated when they were added.
        added = value if isinstance(value, list) else [value]
        fault = tx.graph.validate(tx.flow_of(frame).added(key), added)
    else:
        fault = tx.graph.validate(schema, new)
    if fault is not None:
        raise StepFailure("ValidationError", f"state.{key}: {fault}", {"key": key})
    if "reading" in tx.state:
        put_aside(tx, frame, key)
    cells[key] = [new, *mark]
    tx.changed.add(state_name(frame, key))
