"""Failures that are held back, so that the failed work can restart in place (`retry`, forks).

A `retry` applies the events of a failed execution again, from the first failure on. During that
time `State["hold"]` names the units, activations and scopes whose failure ended the execution.
These do not fail. Each stays in its place, with the entry that restarts it in `then`, and all other
work continues as before.

They are found by cause. During replay, `Transition.blame` records the causes of each failed place.
A place without a recorded cause is where an error was raised.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flowengine.kernel.expressions import provenance
from flowengine.kernel.limits import locks
from flowengine.kernel.state import moves
from flowengine.kernel.state.entries import Entry
from flowengine.kernel.state.moves import move
from flowengine.kernel.state.records import Activation, PlaceKind, Scope, State, Unit
from flowengine.kernel.transition import Transition

WITH_PAST = frozenset({"group_ended", "test_until"})
"""Agenda entries whose last argument can be a past."""


def is_held(tx: Transition, kind: PlaceKind, number: int) -> bool:
    """Return whether a failure of a place must be held back."""
    hold = tx.state.get("hold")
    return hold is not None and number in hold.get(kind, ())


def hold_unit(tx: Transition, unit: Unit, then: Entry) -> bool:
    """Hold a unit that is about to fail for good, if requested.

    Args:
        unit: The unit, whose attempt has ended.
        then: The entry to process when it begins again.

    Returns:
        True if it is held. Otherwise it fails.
    """
    if not is_held(tx, "unit", unit["id"]):
        if tx.blame is not None:
            tx.blame.see(("unit", unit["id"]), tx.address(unit))
        return False
    locks.leave_lock(tx, unit)
    move(unit, "held")
    unit["then"] = list(then)
    if then[0] in WITH_PAST and then[-1]:
        provenance.share(tx.state, then[-1])
    _give_places(tx, [unit, *tx.units_around(tx.act_of(unit))])
    return True


def hold_act(tx: Transition, act: Activation, then: Entry) -> bool:
    """Hold an activation that is about to fail, if requested. See `hold_unit`."""
    if not is_held(tx, "act", act["id"]):
        if tx.blame is not None:
            tx.blame.see(("act", act["id"]), tx.step_address(act))
        return False
    act["then"] = list(then)
    _give_places(tx, tx.units_around(act))
    return True


def hold_scope(tx: Transition, scope: Scope, then: Entry) -> bool:
    """Hold a scope that is about to fail, if requested. See `hold_unit`."""
    if not is_held(tx, "scope", scope["id"]):
        if tx.blame is not None:
            tx.blame.forget(("scope", scope["id"]))
            tx.blame.see(("scope", scope["id"]), scope["path"].rstrip("/"))
        return False
    moves.hold(scope, then)
    if scope["unit"]:
        unit = tx.state["units"][scope["unit"]]
        _give_places(tx, [unit, *tx.units_around(tx.act_of(unit))])
    return True


def _give_places(tx: Transition, units: Iterable[Unit]) -> None:
    """Free the places of items around held work, in maps that continued without them."""
    for unit in units:
        act = tx.act_of(unit)
        if unit["item"] >= 0 and act["units"][unit["id"]]:
            spec = tx.node(act).map
            assert spec is not None
            if "need" in act or act.get("left_early") or spec["on_item_error"] != "stop":
                act["units"][unit["id"]] = False
                act["busy"] -= 1
                tx.freed_places[act["id"]] = True


def begins_held(tx: Transition, act: Activation, unit: Unit | None = None) -> bool:
    """Return whether a place must be held before its work begins, as requested by forks."""
    at = tx.state["hold"].get("at")
    return at is not None and at == (tx.step_address(act) if unit is None else tx.address(unit))


def hold_unbegun(tx: Transition, act: Activation, unit: Unit, then: Entry) -> bool:
    """Hold a unit, or its next round, before its work begins, if a fork requests it.

    Args:
        tx: The transition.
        act: The activation of the unit.
        unit: In phase `ready`.
        then: The entry to process when it begins.

    Returns:
        Whether it is held.
    """
    if "hold" not in tx.state or not begins_held(tx, act, unit):
        return False
    move(unit, "held")
    unit["then"] = list(then)
    return True


def drop_then(state: State, owner: Any) -> None:
    """Remove the next entry of held work that is withdrawn, with its reference to a past."""
    then = owner.pop("then", None)
    if then is not None and then[0] in WITH_PAST and then[-1]:
        provenance.drop(state, then[-1])
