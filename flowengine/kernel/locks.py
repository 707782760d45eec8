"""Locks: steps that never run at the same time (language reference, §9.4; patterns 17, 39, 40).

    want ─► free? ─► held ─► given back ─► the next in the queue has it
             └─ no ─► queued, in order of arrival

A unit has the lock of its step over all attempts of a round and over its writes; a wait or approval
only from its decision on, unless it says `hold`. A lock that a scope around a step holds already is
taken again inside that scope: it is a lock of its own there, named by who holds the outer one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from flowengine.kernel.errors import StepFailure
from flowengine.kernel.graph import Plain
from flowengine.kernel.machine import Machine, require
from flowengine.kernel.names import Names, evaluate

if TYPE_CHECKING:
    from flowengine.kernel.state import Activation, Cleanup, Lock, Unit


def take(m: Machine, unit: Unit, then: tuple[Any, ...]) -> bool:
    """Take the lock of a unit's step, or queue for it.

    Args:
        m: The advance at work.
        unit: The unit.
        then: What follows, for the agenda, once the unit has a lock for which it had to queue.

    Returns:
        Whether the unit has it now.

    Raises:
        StepFailure: `LockCycle`: who has it waits for what this unit's scopes hold.
        EvaluationError: The key has no value.
    """
    if unit.get("held"):
        return True
    act = m.act_of(unit)
    node = m.node(act)
    assert node.lock is not None
    key = _key(evaluate(Names(m, act, unit), node.lock["key"]), node.id)
    name = f"{_taken_around(m, act, key)}:{key}"
    locks = m.state.setdefault("locks", {})
    lock = locks.setdefault(name, {"holders": [], "queue": {}})
    if not lock["queue"] and len(lock["holders"]) < node.lock.get("permits", 1):
        lock["holders"].append(unit["id"])
        unit["lock"], unit["held"] = name, True
        return True
    if _closes_circle(m, unit, name):
        message = f"{m.address(unit)} waits for the lock {key!r}, whose holder waits for its scope"
        raise StepFailure("LockCycle", message, {"key": key}, retryable=False)
    lock["queue"][unit["id"]] = True
    unit["lock"], unit["phase"], unit["then"] = name, "lock", list(then)
    m.note(act, "waiting", unit=unit)
    return False


def _key(value: Plain, step: str) -> str:
    text = isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))
    require(text, "ValidationError", f"the key of the lock of {step!r} is {value!r}, no text")
    return str(value)


def leave(m: Machine, unit: Unit) -> None:
    """Give back the lock of a unit, or its place in the queue, if it has one."""
    name = unit.pop("lock", None)
    if name is None:
        return
    unit.pop("then", None)
    lock = m.state["locks"][name]
    if unit.pop("held", False):
        lock["holders"].remove(unit["id"])
    else:
        del lock["queue"][unit["id"]]
    _grant(m, lock)
    if not lock["holders"]:
        del m.state["locks"][name]
        if not m.state["locks"]:
            del m.state["locks"]


def _grant(m: Machine, lock: Lock) -> None:
    """Give a lock to those who are first in its queue, as far as it has permits."""
    while lock["queue"]:
        unit = m.state["units"][next(iter(lock["queue"]))]
        spec = m.node(m.act_of(unit)).lock
        assert spec is not None
        if len(lock["holders"]) >= spec.get("permits", 1):
            return
        del lock["queue"][unit["id"]]
        lock["holders"].append(unit["id"])
        unit["held"], unit["phase"] = True, "ready"
        m.agenda.append(tuple(unit.pop("then")))


def held(m: Machine, act: Activation, unit: Unit | None) -> list[str]:
    """Return the locks under which a place writes: its unit's, and those of the scopes around."""
    units = [*([] if unit is None else [unit]), *_around(m, act)]
    return [one["lock"] for one in units if one.get("held")]


def _taken_around(m: Machine, act: Activation, key: str) -> int:
    """Return the innermost unit around an activation that holds a lock of this key, or 0."""
    for outer in _around(m, act):
        if outer.get("held") and outer["lock"].partition(":")[2] == key:
            return outer["id"]
    return 0


def _around(m: Machine, act: Activation) -> Iterator[Unit]:
    """Yield the units around an activation, innermost first; a `finally` is inside its group."""
    while True:
        number = m.scope_of(act)["unit"]
        if "final" in act:
            number = _cleaned_up(m, m.state["cleanups"][act["final"]])
        if not number:
            return
        unit = m.state["units"][number]
        yield unit
        act = m.act_of(unit)


def _cleaned_up(m: Machine, cleanup: Cleanup) -> int:
    """Return the unit that waits for a cleanup, or around what does; 0 if none."""
    kind = cleanup.get("kind")
    if kind == "unit":
        return cleanup["of"]
    if kind == "act":
        return m.scope_of(m.state["acts"][cleanup["of"]])["unit"]
    return m.state["scopes"][cleanup["of"]]["unit"] if kind == "scope" else 0


def _closes_circle(m: Machine, unit: Unit, wanted: str) -> bool:
    """Return whether a lock comes free only after this unit has had it."""
    mine = {outer["id"] for outer in _around(m, m.act_of(unit)) if outer.get("held")}
    if not mine:
        return False
    waiting: dict[int, list[str]] = {}
    for name, lock in m.state["locks"].items():
        for number in lock["queue"]:
            for outer in _around(m, m.act_of(m.state["units"][number])):
                if outer.get("held"):
                    waiting.setdefault(outer["id"], []).append(name)
    return _never_free(m, wanted, mine, waiting, set())


def _never_free(
    m: Machine, name: str, mine: set[int], waiting: dict[int, list[str]], seen: set[str]
) -> bool:
    """Return whether all holders of a lock wait, in the end, for one of `mine`."""
    if name in seen:
        return False
    seen.add(name)
    return all(
        holder in mine
        or any(_never_free(m, other, mine, waiting, seen) for other in waiting.get(holder, ()))
        for holder in m.state["locks"][name]["holders"]
    )
