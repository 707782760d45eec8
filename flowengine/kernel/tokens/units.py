"""Units perform the action of an activation: one for a plain step, one per item of a map."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.kernel.flow_state.causality import learn
from flowengine.kernel.state import entries
from flowengine.kernel.transition import Transition

if TYPE_CHECKING:
    from flowengine.kernel.state.records import Activation, Scope, Unit


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
    looping = tx.graph.nodes[act["step"]].loop is not None
    then = (entries.begin_round if looping else entries.attempt)(unit["id"])
    if item >= 0 and "hold" in tx.state:
        from flowengine.kernel.held_failures import hold_unbegun

        if hold_unbegun(tx, act, unit, then):
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
        from flowengine.kernel.limits.suspension import unpark

        unpark(tx, state["units"][owner])
    return unit
