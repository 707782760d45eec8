"""Locks: steps that never run at the same time (docs/language.md: lock. Patterns 17, 39, 40).

    request ─► free? ─► held ─► released ─► passes to the next in the queue
                 └─ no ─► queued, in order of arrival

A lock has one exclusive holder (or as many as it permits), or any number of holders that share it.
A queued unit is never overtaken, even by one that could share the lock with the holders.

A unit holds the lock of its step during all attempts of a round and its writes. A wait or approval
holds it only from its decision on, unless it declares `hold`. With an `ordered` lock, a unit keeps
its place in the queue during the questions about its attempt. If a surrounding scope already holds
a lock, taking it inside that scope uses a separate lock, named after the holder of the outer one.

A lock shared with other executions is claimed. The store of the journals grants it in the order of
the claims, and the unit waits for the event `granted`.
"""

from __future__ import annotations

from typing import Literal

from flowengine.kernel.commands import Claim, GiveBack
from flowengine.kernel.errors import StepFailure
from flowengine.kernel.expressions.names import Names, evaluate
from flowengine.kernel.graph.compiled import EvaluationError, Plain
from flowengine.kernel.state.entries import Entry
from flowengine.kernel.state.moves import move
from flowengine.kernel.state.records import Activation, Lock, Scope, Unit
from flowengine.kernel.transition import Transition, has_items, require
from flowengine.kernel.view import is_shared


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
    tx.agenda.append(tuple(unit.pop("then")))


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


WITHIN = frozenset({"execution", "run"})
"""Scopes of locks that no other execution can hold."""


def acquire(tx: Transition, unit: Unit, then: Entry) -> bool:
    """Acquire the lock of a unit's step, or queue for it.

    Args:
        then: The entry to process once a unit that had to queue has the lock.

    Returns:
        Whether the unit holds it now.

    Raises:
        StepFailure: `LockCycle`: its holder waits for a lock that this unit's scopes hold.
        EvaluationError: The key has no value.
    """
    if "lock" not in unit:
        line_up(tx, unit, then)
    if unit.get("has_lock"):
        return True
    if unit["phase"] != "lock":
        suspend(tx, unit, "lock", then)
    return False


def line_up(tx: Transition, unit: Unit, then: Entry) -> None:
    """Acquire the lock of a unit's step, or a place in its queue, before the unit is ready for it.

    Args:
        unit: The unit, which has no lock and no place yet. Its attempt may still need an approval.
        then: As for `acquire`.

    Raises:
        StepFailure: As for `acquire`.
        EvaluationError: As for `acquire`.
    """
    act = tx.act_of(unit)
    node = tx.node(act)
    assert node.lock is not None
    names = Names(tx, act, unit)
    key = _key(evaluate(names, node.lock["key"]), node.id)
    scope = node.lock.get("scope", "execution")
    outer = _taken_around(tx, act, key, scope)
    if scope != "execution":
        unit["across"] = scope
    if scope not in WITHIN and not outer:
        _claim(tx, unit, shared_name(tx, scope, key), node.lock["permits"], then)
        return
    if "shared" in node.lock and _shares(evaluate(names, node.lock["shared"]), node.id):
        unit["shares"] = True
    whose = str(outer) if outer or scope == "execution" else f"{tx.frame_of(act)}/"
    name = f"{whose}:{key}"
    locks = tx.state.setdefault("locks", {})
    lock = locks.setdefault(name, {"holders": [], "queue": {}})
    if not lock["queue"] and _has_room(tx, lock, unit):
        lock["holders"].append(unit["id"])
        unit["lock"], unit["has_lock"] = name, True
        return
    if _closes_circle(tx, unit, name):
        message = f"{tx.address(unit)} waits for the lock {key!r}, whose holder waits for its scope"
        raise StepFailure("LockCycle", message, {"key": key}, retryable=False)
    lock["queue"][unit["id"]] = True
    unit["lock"] = name


def shared_name(tx: Transition, scope: str, key: str) -> str:
    """Return the name of a lock that executions share, for one flow or for all."""
    return f"{scope} {tx.graph.flow['id']}:{key}" if scope == "flow" else f"{scope}:{key}"


def _claim(tx: Transition, unit: Unit, name: str, permits: int, then: Entry) -> None:
    unit["lock"] = name
    suspend(tx, unit, "lock", then)
    tx.state.setdefault("claims", {})[unit["id"]] = name
    tx.commands.append(Claim(name, unit["id"], permits, "queue"))


def lock_granted(tx: Transition, unit: Unit) -> None:
    """Resume a unit that acquired the lock it was waiting for."""
    unit["has_lock"] = True
    forget_claim(tx, unit["id"])
    resume(tx, unit)


def forget_claim(tx: Transition, number: int) -> None:
    """Remove a waiting claim that was granted or withdrawn."""
    claims = tx.state.get("claims", {})
    if claims.pop(number, None) is not None and not claims:
        del tx.state["claims"]


def _key(value: Plain, step: str) -> str:
    text = isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))
    message = f"the key of the lock of {step!r} is {value!r}, which is not text"
    require(text, "ValidationError", message, {"field": "key"})
    return str(value)


def _shares(value: Plain, step: str) -> bool:
    is_bool = isinstance(value, bool)
    message = f"'shared' of the lock of {step!r} is {value!r}, but must be true or false"
    require(is_bool, "ValidationError", message, {"field": "shared"})
    return bool(value)


def _has_room(tx: Transition, lock: Lock, unit: Unit) -> bool:
    """Return whether a unit can join a lock's holders, which share it or are all exclusive."""
    holders = lock["holders"]
    if not holders:
        return True
    if "shares" in tx.state["units"][holders[0]] or "shares" in unit:
        return "shares" in tx.state["units"][holders[0]] and "shares" in unit
    spec = tx.node(tx.act_of(unit)).lock
    assert spec is not None
    return len(holders) < spec["permits"]


def would_keep(tx: Transition, unit: Unit) -> bool:
    """Return whether a unit that restarts already has the same lock that it would acquire.

    Releasing that lock would let the units queued behind it pass.
    """
    spec = tx.node(tx.act_of(unit)).lock
    if spec is None or not unit.get("has_lock") or is_shared(unit["lock"]):
        return False
    names = Names(tx, tx.act_of(unit), unit)
    try:
        key = _key(evaluate(names, spec["key"]), "")
        shares = "shared" in spec and _shares(evaluate(names, spec["shared"]), "")
    except (StepFailure, EvaluationError):
        return False  # its attempt fails for the same reason
    return unit["lock"].partition(":")[2] == key and shares == ("shares" in unit)


def leave_lock(tx: Transition, unit: Unit) -> None:
    """Release the lock of a unit, or its place in the queue, if it has one."""
    name = unit.pop("lock", None)
    if name is None:
        return
    unit.pop("then", None)
    unit.pop("across", None)
    if is_shared(name):
        unit.pop("has_lock", None)
        forget_claim(tx, unit["id"])
        tx.commands.append(GiveBack(name, unit["id"]))
        return
    lock = tx.state["locks"][name]
    if unit.pop("has_lock", False):
        lock["holders"].remove(unit["id"])
    else:
        del lock["queue"][unit["id"]]
    unit.pop("shares", None)
    _grant(tx, lock)
    if not lock["holders"]:
        del tx.state["locks"][name]
        if not tx.state["locks"]:
            del tx.state["locks"]


def _grant(tx: Transition, lock: Lock) -> None:
    """Grant a lock to the first units in its queue, as far as its permits allow."""
    while lock["queue"]:
        unit = tx.state["units"][next(iter(lock["queue"]))]
        if not _has_room(tx, lock, unit):
            return
        del lock["queue"][unit["id"]]
        lock["holders"].append(unit["id"])
        unit["has_lock"] = True
        if unit["phase"] == "lock":
            resume(tx, unit)


def locks_around(tx: Transition, act: Activation, unit: Unit | None) -> list[str]:
    """Return the exclusive locks that protect a place: those of its unit and the scopes around."""
    is_outermost = not tx.state["scopes"][act["scope"]]["unit"] and "final" not in act
    if is_outermost and (unit is None or "lock" not in unit):
        return []
    units = [*([] if unit is None else [unit]), *tx.enclosing(act)]
    return [unit["lock"] for unit in units if unit.get("has_lock") and "shares" not in unit]


def _taken_around(tx: Transition, act: Activation, key: str, scope: str) -> int:
    """Return the innermost surrounding unit that holds a lock of this key and scope, or 0."""
    run = tx.frame_of(act)
    for outer in tx.enclosing(act):
        same = outer.get("across", "execution") == scope
        if scope == "run" and tx.frame_of(tx.act_of(outer)) != run:
            return 0  # a lock outside the run does not belong to it
        if same and outer.get("has_lock") and outer["lock"].partition(":")[2] == key:
            return outer["id"]
    return 0


def _closes_circle(tx: Transition, unit: Unit, wanted: str) -> bool:
    """Return whether a lock becomes free only after this unit has held it."""
    mine = {outer["id"] for outer in tx.enclosing(tx.act_of(unit)) if outer.get("has_lock")}
    if not mine:
        return False
    waiting: dict[int, list[str]] = {}
    for name, lock in tx.state["locks"].items():
        for number in lock["queue"]:
            for outer in tx.enclosing(tx.act_of(tx.state["units"][number])):
                if outer.get("has_lock"):
                    waiting.setdefault(outer["id"], []).append(name)
    return _never_free(tx, wanted, mine, waiting, set())


def _never_free(
    tx: Transition, name: str, mine: set[int], waiting: dict[int, list[str]], seen: set[str]
) -> bool:
    """Return whether a lock's holders directly or indirectly wait for one of `mine`.

    With exclusive holders, all of them must do so, because one free place is enough. With shared
    ones, one is enough, because an exclusive request needs all of them to leave.
    """
    if name in seen:
        return False
    seen.add(name)
    holders = tx.state["locks"][name]["holders"]
    waits = (
        holder in mine
        or any(_never_free(tx, other, mine, waiting, seen) for other in waiting.get(holder, ()))
        for holder in holders
    )
    return any(waits) if "shares" in tx.state["units"][holders[0]] else all(waits)
