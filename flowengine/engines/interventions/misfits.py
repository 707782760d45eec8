"""Checks whether a step of another graph can replace a step that a state refers to.

The requirements depend on the purpose of the reference. A running step must be able to continue,
and a join must accept the remaining tokens. A step that can be undone must declare a compensation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flowengine.kernel.graph.linked import Node
from flowengine.kernel.moving.counterparts import Pairing
from flowengine.kernel.state.records import State
from flowengine.kernel.view import number_waiting, waiting_arrivals

_WORDS = {"none": "a step without an action", "flow": "a subflow"}


def other_type(old: Node, new: Node) -> str | None:
    """Return how the type of a step differs from that of its counterpart, or None."""
    if (old.action, old.kind) == (new.action, new.kind):
        return None
    before, after = (_WORDS.get(one.action) or f"of the kind '{one.kind}'" for one in (old, new))
    name = "" if old.id == new.id else f"'{new.id}' "
    return f"it was {before} and {name}is {after}"


def misfit(pairing: Pairing, state: State, old: int, new: int, use: str, record: Any) -> str | None:
    """Return the reason why a step cannot be the counterpart of another, or None if it can.

    Args:
        pairing: The two graphs.
        state: The state that refers to the old step.
        old: Step of the old graph.
        new: Step of the new graph.
        use: The purpose of the reference, see `fields.FIELDS`.
        record: The record that contains the reference.
    """
    check = CHECKS.get(use)
    before, after = pairing.old.node(old), pairing.new.node(new)
    return None if check is None else check(pairing, state, before, after, record)


def _type(_p: Pairing, _state: State, old: Node, new: Node, _record: Any) -> str | None:
    return other_type(old, new)


def _live(pairing: Pairing, state: State, old: Node, new: Node, act: Any) -> str | None:
    """Compare a running step."""
    if _begins_anew(state, act) and not (new.map or new.loop):
        return None
    if fault := other_type(old, new):
        return fault
    if (old.map is None) != (new.map is None) or old.each != new.each:
        return "it is running, and 'map' was added, removed, or passes its items on differently"
    for word in ("loop", "lock"):
        if (getattr(old, word) is None) != (getattr(new, word) is None):
            return f"it is running, and '{word}' was added or removed"
    if old.lock and new.lock and old.lock.get("scope") != new.lock.get("scope"):
        return "it is running, and the scope of its lock changed"
    if old.loop and new.loop and old.loop.get("keep") != new.loop.get("keep"):
        return "it is running, and 'loop.keep' was added or removed"
    if fault := _map(pairing, old, new) or _subflow(pairing, old, new):
        return fault
    faults = [_unit(pairing, old, new, state["units"][number], state) for number in act["units"]]
    for source, _ in act["arrivals"]:
        if fault := _uncarried(pairing, source):
            faults.append(f"it is running, and its branch came {fault}")
    return next((fault for fault in faults if fault), None)


def _begins_anew(state: State, act: Any) -> bool:
    """Return whether the whole activation will restart because it failed before it did any work."""
    if act.get("then", [""])[0] == "begin_act":
        return True
    units = [state["units"][number] for number in act["units"]]
    held = [unit for unit in units if unit["phase"] == "held" and unit["then"][0] == "attempt"]
    plain = [unit for unit in held if unit["item"] < 0 and not unit["round"]]
    return bool(units) and len(plain) == len(units)


def _map(pairing: Pairing, old: Node, new: Node) -> str | None:
    if old.map is None or new.map is None:
        return None
    if ("need" in old.map) != ("need" in new.map):
        return "it is running, and the 'need' of its map was added or removed"
    more = old.map.get("more")
    if (None if more is None else pairing.signal(more)) != new.map.get("more"):
        return "it is running, and the signal that adds items to its map changed"
    return None


def _subflow(pairing: Pairing, old: Node, new: Node) -> str | None:
    if old.action != "flow":
        return None
    before, after = pairing.old.body(old.child).flow, pairing.new.body(new.child).flow
    same = pairing.old.flows[before].id == pairing.new.flows[after].id
    if not same or pairing.flows.get(before, after) != after:
        return "it is running, and runs another subflow"
    return None


def _unit(pairing: Pairing, old: Node, new: Node, unit: Any, state: State) -> str | None:
    if unit["phase"] == "wait":
        wait = state["waits"][unit["wait"]]
        return _wait(pairing, old, new) or _choices(old, new, wait["record"])
    if unit["phase"] in ("run", "ask"):
        return _attempt(old, new) or _secrets(pairing, unit)
    return None


def _attempt(old: Node, new: Node) -> str | None:
    for word in ("effect", "on_crash"):
        if getattr(old, word) != getattr(new, word):
            return f"an attempt of it is running or was interrupted, and its '{word}' changed"
    return None


def _secrets(pairing: Pairing, record: Any) -> str | None:
    declared = pairing.new.flow.get("secrets", {})
    for _path, parts in record.get("secrets", ()):
        for part in parts:
            if isinstance(part, list) and part[0] not in declared:
                what = f"the secret '{part[0]}' was removed"
                return f"an attempt of it is running or was interrupted, and {what}"
    return None


def _wait(pairing: Pairing, old: Node, new: Node) -> str | None:
    """Compare the alternatives of an open wait. Evaluated times and keys stay unchanged."""
    if old.wait is None or new.wait is None:
        return None
    earlier, later = old.wait["alternatives"], new.wait["alternatives"]
    if old.wait["mode"] != new.wait["mode"] or len(earlier) != len(later):
        return "it is waiting, and its wait changed"
    for before, after in zip(earlier, later, strict=True):
        signal = before.get("signal")
        alike = [
            before["id"] == after["id"],
            (None if signal is None else pairing.signal(signal)) == after.get("signal"),
            *((word in before) == (word in after) for word in ("after", "until", "when", "count")),
            before.get("transient", False) == after.get("transient", False),
        ]
        if not all(alike):
            return f"it is waiting, and the alternative '{before['id']}' changed"
    return None


def _choices(old: Node, new: Node, record: Any) -> str | None:
    """Check that every choice offered to approvers still has a target."""
    outcomes = [choice["id"] for choice in record.get("choices", ())]
    if "due" in record and outcomes:
        outcomes.append(record.get("on_expire") or "expired")
    for outcome in outcomes:
        if _leads(old, outcome) and not _leads(new, outcome):
            return f"it is an approval, and its choice '{outcome}' leads nowhere"
    return None


def _leads(node: Node, outcome: str) -> bool:
    split = node.split
    if split is None or split["kind"] != "outcome" or (node.raises and outcome in node.raises):
        return True
    return outcome in split["outcomes"] or "otherwise" in split


def _held(pairing: Pairing, _state: State, _old: Node, new: Node, arrival: Any) -> str | None:
    """Check that the edge of a held token still exists."""
    source = arrival["source"]
    if source >= 0:
        source = pairing.steps.get(source)
    if source is not None and source not in new.sources:  # without a counterpart: see `obstacles`
        came = arrival["source"]
        name = f"from '{pairing.step_name(came)}'" if came >= 0 else "at its start"
        return f"its join holds a branch that came {name}, and no such edge leads to it"
    if fault := _uncarried(pairing, arrival["source"]):
        return f"its join holds a branch that came {fault}"
    return None


def _uncarried(pairing: Pairing, old: int) -> str | None:
    """Return why the output of a step that a token has left is missing, if a join reads it."""
    new = pairing.steps.get(old)
    if new is None or not pairing.new.node(new).carries or pairing.old.node(old).carries:
        return None
    name = pairing.step_name(old)
    return f"from '{name}' without its output, which only the new flow reads from 'join'"


def _join(pairing: Pairing, state: State, old: Node, new: Node, held: Any) -> str | None:
    if not number_waiting(held) and held["phase"] == "waiting":
        return None
    before, after = old.join or {}, new.join or {}
    if before.get("kind") != after.get("kind") or before.get("late") != after.get("late"):
        return "its join holds branches, and changed its kind"
    faults = [_held(pairing, state, old, new, arrival) for arrival in waiting_arrivals(held)]
    return next((fault for fault in faults if fault), None)


def _done(pairing: Pairing, state: State, old: Node, new: Node, record: Any) -> str | None:
    if new.compensate < 0:
        return "it has acted and can be undone, and 'compensate' was removed"
    return _type(pairing, state, old, new, record)


def _cut(pairing: Pairing, state: State, old: Node, new: Node, record: Any) -> str | None:
    return (
        _done(pairing, state, old, new, record) or _attempt(old, new) or _secrets(pairing, record)
    )


CHECKS: dict[str, Callable[[Pairing, State, Node, Node, Any], str | None]] = {
    "live": _live,
    "arrival": _type,
    "join": _join,
    "done": _done,
    "cut": _cut,
    "final": _type,
}
"""Purpose of a reference → comparison. Steps with other purposes are only remembered."""
