"""The past of a token: the steps behind it and their results.

A past is a chain of layers. A token refers to the top layer and writes into it as long as it has
the only reference. After a split, several tokens refer to one layer, and each token that writes
adds a new layer on top. A merge searches upwards for the common ancestor and processes only the
layers of the branches. Layer number 0 is the empty past.

A layer is a list `[up, height, references, records]`. `records` maps a step to its record, a dict
with the fields that expressions name, and `n`, the number of activations of the step in the past.
"""

from __future__ import annotations

from typing import Any

from flowengine.kernel.events import ErrorData
from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.graph.linked import Node
from flowengine.kernel.notation.times import format_time
from flowengine.kernel.state import moves
from flowengine.kernel.state.records import Activation, State
from flowengine.kernel.transition import Transition, has_items

UP, HEIGHT, REFERENCES, RECORDS = range(4)
Record = dict[str, Any]


def share(state: State, layer: int) -> int:
    """Add a reference to a layer, and return the layer."""
    if layer:
        state["layers"][layer][REFERENCES] += 1
    return layer


def drop(state: State, layer: int) -> None:
    """Remove a reference to a layer, and all layers that have none left."""
    layers = state["layers"]
    while layer:
        entry = layers[layer]
        entry[REFERENCES] -= 1
        if entry[REFERENCES]:
            return
        del layers[layer]
        if layer in state.get("frames", ()):
            _forget_frame(state, layer)
        layer = entry[UP]


def _forget_frame(state: State, layer: int) -> None:
    """Remove the data of a subflow, since no record refers to a past inside it any more."""
    del state["frames"][layer]
    if not state["frames"]:
        del state["frames"]


def find(state: State, layer: int, step: int) -> Record | None:
    """Return the latest record of a step in a past, or None if there is none."""
    layers = state["layers"]
    while layer:
        entry = layers[layer]
        record: Record | None = entry[RECORDS].get(step)
        if record is not None:
            return record
        layer = entry[UP]
    return None


def remember(state: State, layer: int, step: int, record: Record) -> int:
    """Add the record of a step to a past.

    Args:
        layer: The past. The caller's reference to it is consumed.
        step: The step that ended.
        record: The fields to store. `n` is filled in.

    Returns:
        The past with the record, with one reference.
    """
    entry = state["layers"].get(layer)
    before = None
    if entry is not None:
        before = entry[RECORDS].get(step)
        if before is None and entry[UP]:
            before = find(state, entry[UP], step)
    record["n"] = 1 if before is None else before["n"] + 1
    if entry is not None and entry[REFERENCES] == 1:
        entry[RECORDS][step] = record
        if entry[UP]:
            fold(state, layer)
        return layer
    return put(state, layer, {step: record})


def forget_steps(state: State, layer: int, steps: list[int]) -> None:
    """Reduce the records of steps that no later step names to their number of activations.

    Layers with other references stay unchanged. A record that a merge has taken over may be in
    several layers.

    Args:
        state: The state.
        layer: The past of a token.
        steps: The steps.
    """
    entry = state["layers"].get(layer)
    if entry is None or entry[REFERENCES] != 1:
        return
    records = entry[RECORDS]
    for step in steps:
        record = records.get(step)
        if record is not None:
            records[step] = {"n": record["n"]}


def put(state: State, up: int, records: dict[int, Record]) -> int:
    """Add a layer on top of `up`, taking over the caller's reference to `up`, and return it."""
    number = moves.inner_number(state)
    height = state["layers"][up][HEIGHT] + 1 if up else 1
    state["layers"][number] = [up, height, 1, records]
    return number


def fold(state: State, layer: int) -> None:
    """Combine a layer with those below that only it refers to.

    The lowest layer of a subflow stays, because its number is that of the frame.
    """
    layers = state["layers"]
    entry = layers[layer]
    frames = state.get("frames", ())
    while entry[UP] and layers[entry[UP]][REFERENCES] == 1 and entry[UP] not in frames:
        below = layers.pop(entry[UP])
        below[RECORDS].update(entry[RECORDS])
        entry[UP], entry[HEIGHT], entry[RECORDS] = below[UP], below[HEIGHT], below[RECORDS]


def merge(state: State, first: int, second: int) -> int:
    """Merge two pasts. The caller's references to both are consumed.

    Of two records of a step, the one with more activations is kept. With equal numbers it is the
    one of `second`, which is later in the order of the file.

    Args:
        first: A past.
        second: Another past.

    Returns:
        The merged past, with one reference.
    """
    if first == second:
        drop(state, second)
        return first
    layers = state["layers"]
    ancestor, above_first, above_second = branches(state, first, second)
    if not above_first or not above_second:
        ahead, behind = (second, first) if not above_first else (first, second)
        drop(state, behind)
        return ahead
    records: dict[int, Record] = {}
    for layer in [*reversed(above_first), *reversed(above_second)]:
        for step, record in layers[layer][RECORDS].items():
            other = records.get(step)
            if other is None or record["n"] >= other["n"]:
                records[step] = record
    merged = put(state, share(state, ancestor), records)
    drop(state, first)
    drop(state, second)
    fold(state, merged)
    return merged


def branches(state: State, first: int, second: int) -> tuple[int, list[int], list[int]]:
    """Return the common ancestor of two pasts and the layers of each above it, top first."""
    layers = state["layers"]
    above_first: list[int] = []
    above_second: list[int] = []
    while first != second:
        high = layers[first][HEIGHT] if first else 0
        other = layers[second][HEIGHT] if second else 0
        if high >= other:
            above_first.append(first)
            first = layers[first][UP]
        if other >= high:
            above_second.append(second)
            second = layers[second][UP]
    return first, above_first, above_second


# Records of steps: the fields that some expression names


_OUTPUT = ["output"]


def record(
    tx: Transition,
    act: Activation,
    node: Node,
    status: str,
    outcome: str | None,
    output: Plain,
    error: ErrorData | None,
) -> None:
    """Store the named fields of a step in the past of its token."""
    if node.named == _OUTPUT:  # the most common case
        kept = {"output": output}
    else:
        kept = known(tx, act, node, status, outcome, output, error)
    act["past"] = remember(tx.state, act["past"], act["step"], kept)


def known(
    tx: Transition,
    act: Activation,
    node: Node,
    status: str,
    outcome: str | None,
    output: Plain,
    error: ErrorData | None,
) -> dict[str, Any]:
    """Return the named fields of a step that has ended, or of an item that continues separately."""
    named = node.named or ()
    fields: dict[str, Any] = {
        "status": status,
        "outcome": outcome,
        "output": output,
        "error": error,
        "rounds": act.get("rounds", 0),
        "attempts": act.get("attempts", 0),
        "agent": None,
        **act.get("facts", {}),
    }
    if "items" in named:
        fields["items"] = _items(tx, act) if has_items(act) and not node.each else None
    if "started_at" in named:
        fields["started_at"] = format_time(act["at"])
    if "ended_at" in named:
        fields["ended_at"] = format_time(tx.now)
    return {field: fields[field] for field in named if field in fields}


def _items(tx: Transition, act: Activation) -> list[Plain]:
    """Return `steps.x.items`, the results of the items.

    Items still running stay so in this past.
    """
    at_work = {tx.state["units"][number]["item"] for number in act["units"]}
    rows = []
    for index, key in enumerate(act["keys"]):
        status, output, error = act["results"][index] or [
            "running" if index in at_work else "none", None, None,
        ]  # fmt: skip
        rows.append(
            {"key": key, "index": index, "status": status, "output": output, "error": error}
        )
    return rows
