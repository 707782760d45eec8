"""The state of a flow: typed values that live as long as the execution, written through reducers.

Values are never changed in place because an expression may have passed them on. Two parallel tokens
must not replace the same key. A token may replace a value that was written before it, or under a
lock that it holds, see `causality`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from flowengine.kernel.errors import StepFailure
from flowengine.kernel.expressions.names import Names, evaluate
from flowengine.kernel.flow_state.causality import learn_own, writer
from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.graph.linked import GraphFlow
from flowengine.kernel.transition import Transition
from flowengine.kernel.view import state_name

if TYPE_CHECKING:
    from flowengine.kernel.state.records import Activation, Scope


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
    from flowengine.kernel.limits.locks import locks_around

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


def put(tx: Transition, key: str, value: Plain) -> None:
    """Set a key of the main flow to a value from outside, which every token may replace."""
    if "reading" in tx.state:
        from flowengine.kernel.flow_state.readers import put_aside

        put_aside(tx, 0, key)
    tx.state["vars"][key] = from_outside(value, tx.state["vars"][key])
    tx.changed.add(key)


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
    from flowengine.kernel.held_failures import is_held

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
        from flowengine.kernel.flow_state.readers import put_aside

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
        f"state.{key} was replaced by a parallel branch; give it a reducer, or join first",
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
        from flowengine.kernel.flow_state.reducers import reduced

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
        from flowengine.kernel.flow_state.readers import put_aside

        put_aside(tx, frame, key)
    cells[key] = [new, *mark]
    tx.changed.add(state_name(frame, key))
