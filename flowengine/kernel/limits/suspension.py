"""Units that cannot continue yet: they are suspended, or they wait.

A unit that is suspended for a lock or a budget stores its next entry, and keeps its place in the
map that it is an item of. A unit that waits for a decision or an external event frees its place for
another item, and takes it again when it continues.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from flowengine.kernel.state.entries import Entry
from flowengine.kernel.state.moves import move
from flowengine.kernel.transition import Transition, has_items

if TYPE_CHECKING:
    from flowengine.kernel.state.records import Scope, Unit


def suspend(tx: Transition, unit: Unit, phase: Literal["lock", "budget"], then: Entry) -> None:
    """Suspend a unit until it is resumed.

    Args:
        phase: The reason: `lock` or `budget`.
        then: The entry to process when it is resumed.
    """
    move(unit, phase)
    unit["then"] = list(then)
    tx.note(tx.act_of(unit), "waiting", unit=unit)


def resume(tx: Transition, unit: Unit) -> None:
    """Resume a suspended unit."""
    move(unit, "ready")
    tx.resumed.add(unit["id"])
    tx.agenda.append(Entry(unit.pop("then")))


def park(tx: Transition, unit: Unit) -> None:
    """Free the place of a unit that waits. The scopes around it may wait with it."""
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
    """Free the place of the item around a scope in which no work is running.

    Args:
        scope: A scope in which a token has moved. Its remaining tokens wait or are held at joins.
    """
    if scope["mapped"] and not _awake(tx, scope):
        park(tx, tx.state["units"][scope["unit"]])


def _awake(tx: Transition, scope: Scope) -> bool:
    """Return whether work in a scope is running, or held back so that it can begin again."""
    acts = tx.state["acts"]
    return any(acts[number]["busy"] or "then" in acts[number] for number in scope["live"])


def unpark(tx: Transition, unit: Unit) -> None:
    """Let a unit that waited, and the scopes around it, take their places again.

    This is a loop for speed: every step inside a group calls it, usually without any effect.
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
