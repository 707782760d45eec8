"""The items of a map: which items exist, their keys, when each begins (docs/language.md: map).

    over ─► kept messages of `more` ─► keys ─► up to `concurrency` items at once

A map begins its items in order and keeps `concurrency` of them running. An item whose tokens all
wait holds no place. Items that have not begun are only a number, and an item that has ended is a
short row. Each key is unique. A message of the signal in `more` adds an item while the map runs.

The end of items and maps is in `steps.maps`.
"""

from __future__ import annotations

from contextlib import suppress

from flowengine.kernel.errors import StepFailure
from flowengine.kernel.expressions.names import Names, evaluate
from flowengine.kernel.flow_state import learn
from flowengine.kernel.graph.compiled import EvaluationError, Plain
from flowengine.kernel.graph.linked import Node
from flowengine.kernel.held_failures import hold_unbegun
from flowengine.kernel.limits.locks import unpark
from flowengine.kernel.notation.times import share
from flowengine.kernel.state import entries
from flowengine.kernel.state.records import Activation, Scope, Unit
from flowengine.kernel.transition import Transition, require
from flowengine.kernel.waiting.waits import is_for, listen, watch


def begin_unit(tx: Transition, act: Activation, item: int) -> None:
    """Begin the unit of a plain step, or of a map item.

    Args:
        tx: The transition.
        act: The activation.
        item: Index of the item, or -1 without a map.
    """
    unit = new_unit(tx, tx.state["scopes"][act["scope"]], act, item)
    if item >= 0 and "knows" in act:
        learn(unit, act["knows"])
    node = tx.graph.nodes[act["step"]]
    then = (entries.attempt if node.loop is None else entries.begin_round)(unit["id"])
    has_address = item >= 0
    if node.exchange is not None:
        unit["round"], has_address = 1, True
    if has_address and "hold" in tx.state and hold_unbegun(tx, act, unit, then):
        return
    tx.agenda.append(then)


def new_unit(tx: Transition, scope: Scope, act: Activation, item: int) -> Unit:
    """Add a new unit of an activation to the state and return it.

    The surrounding scopes take their places again.
    """
    state = tx.state
    number = state["last"] = state["last"] + 1
    unit: Unit = {
        "id": number,
        "act": act["id"],
        "item": item,
        "phase": "ready",
        "round": 0,
        "attempt": 0,
        "tries": 0,
    }
    state["units"][number] = unit
    act["units"][number] = True
    act["busy"] += 1
    owner = scope["unit"]
    if owner:
        unpark(tx, state["units"][owner])
    return unit


MAX_ITEMS = 1_000_000
"""Maximum for a map over a number, as of `range`, so that a typing error cannot fill the memory."""


OF_MAP = ("over", "keys", "next", "places", "results", "failed", "max_failures", "succeeded",
          "need", "writes")  # fmt: skip
"""Fields that only the activation of a map has."""


def begin_map(tx: Transition, node: Node, act: Activation, names: Names) -> None:
    spec = node.map
    assert spec is not None
    over = evaluate(names, spec["over"])
    if isinstance(over, int) and not isinstance(over, bool) and over >= 0:
        require(
            over <= MAX_ITEMS,
            "ValidationError",
            f"'map.over' of {node.id!r} is {over}: at most {MAX_ITEMS} items",
        )
        over = list(range(over))
    require(
        isinstance(over, list),
        "ValidationError",
        f"'map.over' of {node.id!r} is {_kind(over)}, not a list or a whole number",
    )
    places = evaluate(names, spec["concurrency"]) if "concurrency" in spec else 8
    require(
        isinstance(places, int) and not isinstance(places, bool) and places >= 1,
        "ValidationError",
        f"'map.concurrency' of {node.id!r} is {places!r}, not 1 or more",
    )
    act.update(
        {
            "over": _with_kept(tx, names.frame, spec["more"], over) if "more" in spec else over,
            "keys": [],
            "next": 0,
            "places": places,
            "results": [],
            "failed": 0,
            "succeeded": 0,
            "writes": {},
        }
    )
    act["results"] = [None] * len(act["over"])
    _bound_failures(tx, node, act)
    act["keys"] = _keys(tx, node, act)
    if "need" in spec:
        need_now(tx, act)
        watch(tx, act["id"], tx.watched(act, spec.get("watches", ())))
    if "more" in spec:
        listen(tx, act["id"], spec["more"])
    tx.agenda.append(entries.fill(act["id"]))


def _with_kept(tx: Transition, frame: int, signal: str, over: list[Plain]) -> list[Plain]:
    """Return the items of a map, including those from messages sent before it began."""
    kept = tx.state["kept"].get(signal, [])
    added = [message for message in kept if is_for(tx, frame, message)]
    for message in added:
        kept.remove(message)
    return [*over, *(message["data"] for message in added)]


def _bound_failures(tx: Transition, node: Node, act: Activation) -> None:
    """Set how many items of a map may fail, if the map declares it."""
    spec = node.map
    assert spec is not None
    if "max_failures" in spec:
        failures = evaluate(Names(tx, act), spec["max_failures"])
        act["max_failures"] = _failures_allowed(failures, len(act["over"]))


def _failures_allowed(failures: Plain, items: int) -> int:
    """Return how many items may fail, from a number or a percentage of the items."""
    if isinstance(failures, str):
        with suppress(ValueError):
            return share(failures, items)
    if isinstance(failures, int) and not isinstance(failures, bool) and failures >= 0:
        return failures
    raise StepFailure(
        "ValidationError",
        f"'max_failures' is {failures!r}, not a count and not a percentage from 0% to 100%",
    )


def need_now(tx: Transition, act: Activation) -> int:
    """Return how many items of a map must succeed, according to the current state (pattern 36).

    Args:
        tx: The transition.
        act: The activation of a map with a `need`.

    Returns:
        The number, which is also stored in the activation.

    Raises:
        StepFailure: It is not an integer of at least 1.
        EvaluationError: It has no value.
    """
    node = tx.node(act)
    assert node.map is not None
    need = evaluate(Names(tx, act), node.map["need"])
    require(
        isinstance(need, int) and not isinstance(need, bool) and need >= 1,
        "ValidationError",
        f"'need' of {node.id!r} is {need!r}, not 1 or more",
    )
    act["need"] = need
    return act["need"]


def add_item(tx: Transition, act: Activation, item: Plain) -> None:
    """Add an item to a running map (pattern 15). The map fails if the item cannot be added.

    Args:
        tx: The transition.
        act: The map's activation.
        item: The data of a message.
    """
    node = tx.node(act)
    index = len(act["over"])
    try:
        key = _key(tx, node, act, index, item)
        if node.map is not None and "key" in node.map and key in act["keys"]:
            raise _same_key(node, act["keys"].index(key), index, key)
        act["over"].append(item)
        _bound_failures(tx, node, act)
    except (StepFailure, EvaluationError) as failure:
        del act["over"][index:]  # a retry continues without it
        tx.agenda.append(entries.map_broken(act["id"], failure))
        return
    act["keys"].append(key)
    act["results"].append(None)
    tx.agenda.append(entries.fill(act["id"]))


def fill(tx: Transition, act: Activation) -> None:
    """Begin items of a map while it has free places.

    Args:
        tx: The transition.
        act: The map's activation.
    """
    while act["next"] < len(act["over"]) and act["busy"] < act["places"]:
        index = act["next"]
        act["next"] += 1
        begin_unit(tx, act, index)
    if act["next"] >= len(act["over"]) and not act["units"]:
        tx.agenda.append(entries.items_ended(act["id"]))


def _keys(tx: Transition, node: Node, act: Activation) -> list[str]:
    """Return the keys of all items, and raise an error if they are not unique."""
    spec = node.map
    assert spec is not None
    if "key" not in spec:
        return [str(i) for i in range(len(act["over"]))]
    keys: dict[str, int] = {}
    for index, item in enumerate(act["over"]):
        key = _key(tx, node, act, index, item)
        if key in keys:
            raise _same_key(node, keys[key], index, key)
        keys[key] = index
    return list(keys)


def _key(tx: Transition, node: Node, act: Activation, index: int, item: Plain) -> str:
    """Return the key of an item: the value of `key`, or its index."""
    spec = node.map
    assert spec is not None
    if "key" not in spec:
        return str(index)
    item_name, index_name = spec["names"][0], spec["names"][1]
    names = Names(tx, act, extra={item_name: item, index_name: index})
    key = evaluate(names, spec["key"])
    return key if isinstance(key, str) else str(key)


def _same_key(node: Node, first: int, second: int, key: str) -> StepFailure:
    message = f"items {first} and {second} of {node.id!r} have the same key {key!r}"
    return StepFailure("ValidationError", message)


def _kind(value: Plain) -> str:
    return {dict: "a map", str: "a text", float: "a number with a fraction"}.get(
        type(value), repr(value)
    )
