"""Units that cannot go on yet: they are held back for something, or wait.

A unit that is held back - for a lock, for a budget - says what follows, and keeps its place in the
map that it is an item of. One that waits - for people, for the world - gives its place back, so
that another item can begin, and takes it again when it goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from flowengine.kernel.state.entries import Entry
from flowengine.kernel.state.moves import move
from flowengine.kernel.transition import Transition, has_items

if TYPE_CHECKING:
    from flowengine.kernel.state.records import Scope, Unit


def suspend(tx: Transition, unit: Unit, phase: Literal["lock", "budget"], then: Entry) -> None:
    """Hold a unit back until somebody lets it on.

    Args:
        phase: What for: `lock` or `budget`.
        then: What follows, for the agenda.
    """
    move(unit, phase)
    unit["then"] = list(then)
    tx.note(tx.act_of(unit), "waiting", unit=unit)


def resume(tx: Transition, unit: Unit) -> None:
    """Resume a unit that was held back."""
    move(unit, "ready")
    tx.resumed.add(unit["id"])
    tx.agenda.append(Entry(unit.pop("then")))


def park(tx: Transition, unit: Unit) -> None:
    """Give back the place of a unit that waits; the scopes around it may wait with it."""
    for parked in (unit, *tx.units_around(tx.act_of(unit))):
        act = tx.act_of(parked)
        if not act["units"].get(parked["id"]):
            return
        act["units"][parked["id"]] = False
        act["busy"] -= 1
        if has_items(act):
            tx.freed_places[act["id"]] = True
        scope = tx.scope_of(act)
        if act["busy"] or not scope["unit"] or _awake(tx, scope):
            return


def rest(tx: Transition, scope: Scope) -> None:
    """Give back the place of the item around a scope in which nothing works any more.

    Args:
        scope: A scope in which a token has moved; those that are left wait, or are held at joins.
    """
    if scope["mapped"] and not _awake(tx, scope):
        park(tx, tx.state["units"][scope["unit"]])


def _awake(tx: Transition, scope: Scope) -> bool:
    """Return whether something in a scope works, or is held back so that it can begin anew."""
    acts = tx.state["acts"]
    return any(acts[number]["busy"] or "then" in acts[number] for number in scope["live"])


def unpark(tx: Transition, unit: Unit) -> None:
    """Put a unit that waited back in its place, and the scopes around it in theirs.

    It climbs by hand: every step inside a group comes by here, and most find nothing to do.
    """
    while True:
        act = tx.act_of(unit)
        if act["units"][unit["id"]]:
            return
        act["units"][unit["id"]] = True
        act["busy"] += 1
        owner = tx.scope_of(act)["unit"]
        if not owner:
            return
        unit = tx.state["units"][owner]
