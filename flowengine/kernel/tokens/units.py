"""Units: what performs the action of an activation, one for a plain step, one per item of a map."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.kernel import held_failures
from flowengine.kernel.flow_state.causality import learn
from flowengine.kernel.limits.suspension import unpark
from flowengine.kernel.machine import Machine
from flowengine.kernel.state import entries

if TYPE_CHECKING:
    from flowengine.kernel.state.records import Activation, Scope, Unit


def begin_unit(m: Machine, act: Activation, item: int) -> None:
    """Begin the unit of a plain step, or that of a map item.

    Args:
        m: The advance at work.
        act: The activation.
        item: Index of the item; -1 without a map.
    """
    unit = new_unit(m, m.state["scopes"][act["scope"]], act, item)
    if item >= 0 and "knows" in act:
        learn(unit, act["knows"])
    looping = m.graph.nodes[act["step"]].loop is not None
    then = (entries.begin_round if looping else entries.attempt)(unit["id"])
    if item < 0 or not held_failures.hold_unbegun(m, act, unit, then):
        m.agenda.append(then)


def new_unit(m: Machine, scope: Scope, act: Activation, item: int) -> Unit:
    """Return a new unit of an activation, put into the state; the scopes around it are awake."""
    state = m.state
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
        unpark(m, state["units"][owner])
    return unit
