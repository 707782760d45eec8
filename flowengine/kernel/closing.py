"""Closing: withdrawing what is at work, from the inside outwards (patterns 19, 20, 25-27).

No expression is evaluated and no handler is looked for while something closes. An attempt that runs
and that could be undone is noted as *cut off*: whether it acted is open, and a scope that
compensates settles it first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.kernel import pasts, tokens
from flowengine.kernel.commands import ReleaseScope, Stop
from flowengine.kernel.joins import held_arrivals, number_held
from flowengine.kernel.machine import Machine
from flowengine.kernel.names import Names, local_names
from flowengine.kernel.waits import close_wait

if TYPE_CHECKING:
    from flowengine.kernel.state import Activation, Arrival, Cut, Scope, Unit
from flowengine.kernel.variables import make_fitting


def close_activation(m: Machine, act: Activation, status: str = "cancelled") -> None:
    """Withdraw an activation with all that it does; its token is gone.

    Args:
        m: The advance at work.
        act: The activation; it is removed from the state.
        status: What observers are told.
    """
    close_units(m, act)
    scope = m.scope_of(act)
    hand_over(scope, act)
    m.note(act, status)
    tokens.forget(m, act)
    pasts.drop(m.state, act["past"])


def close_units(m: Machine, act: Activation) -> None:
    """Withdraw all units of an activation, and its deadline.

    What items of a map have written that succeeded before stays.
    """
    for number in list(act["units"]):
        close_unit(m, m.state["units"][number])
    if act.get("writes"):
        make_fitting(m, act)
    if "deadline" in act:
        m.clear_timer(act["deadline"])
        del act["deadline"]


def close_unit(m: Machine, unit: Unit) -> None:
    """Withdraw a unit: what it runs, what it waits for, the scope inside it."""
    if unit["phase"] == "scope":
        close_scope(m, m.state["scopes"][unit["scope"]])
    stop_attempt(m, unit)
    act = m.act_of(unit)
    if act["units"].pop(unit["id"], False):
        act["busy"] -= 1
    if unit["item"] >= 0:
        act["results"][unit["item"]] = ["cancelled", None, None]
    pasts.drop(m.state, unit.get("seen", 0))
    del m.state["units"][unit["id"]]


def stop_attempt(m: Machine, unit: Unit) -> None:
    """Withdraw the attempt of a unit, wherever it is."""
    if unit["phase"] == "run":
        m.commands.append(Stop(unit["id"], unit["attempt"]))
        m.state["running"] -= 1
        cut_off(m, unit)
    if "wait" in unit:
        close_wait(m, m.state["waits"][unit["wait"]], "withdrawn")
    if "timer" in unit:
        m.clear_timer(unit["timer"])
        del unit["timer"]
    unit["phase"] = "ready"


def cut_off(m: Machine, unit: Unit) -> None:
    """Note an attempt that was stopped while it ran, if its step says how it is undone."""
    act = m.act_of(unit)
    if m.node(act).compensate < 0:
        return
    forget_cut(m, act, unit)
    names = Names(m, act, unit)
    cut: Cut = {
        "step": act["step"],
        "address": m.address(unit),
        "attempt": unit["attempt"],
        "args": unit.get("args"),
        "input": unit.get("input"),
        "secrets": unit.get("secrets", []),
        "key": unit.get("key"),
        "local": local_names(names),
        "past": pasts.share(m.state, act["past"]),
    }
    m.state["cuts"][unit["id"]] = cut
    m.scope_of(act)["cut"].append(unit["id"])


def forget_cut(m: Machine, act: Activation, unit: Unit) -> None:
    """Forget that an earlier attempt of a unit was cut off: a later one, under its key, counts."""
    open_ = m.scope_of(act)["cut"]
    if unit["id"] in open_:
        open_.remove(unit["id"])
        pasts.drop(m.state, m.state["cuts"].pop(unit["id"])["past"])


def close_scope(m: Machine, scope: Scope) -> None:
    """Withdraw all that is in a scope, and the scope.

    What its steps leave to be undone goes to the activation that it belongs to.

    Args:
        m: The advance at work.
        scope: The scope; it is removed from the state.
    """
    empty_scope(m, scope)
    remove_scope(m, scope)


def empty_scope(m: Machine, scope: Scope) -> None:
    """Withdraw all tokens of a scope: at work, held at joins, under way; the scope stays."""
    interrupt(m, scope)
    for number in list(scope["live"]):
        act = m.state["acts"].get(number)
        if act is not None:
            close_activation(m, act)
    for held in scope["joins"].values():
        for arrival in held_arrivals(held):
            pasts.drop(m.state, arrival["past"])
    scope["joins"] = {}
    scope["held"] = 0
    scope["at"] = {}
    withdraw_under_way(m, scope)


def remove_scope(m: Machine, scope: Scope) -> None:
    """Take an empty scope out of the state."""
    for _line, past in scope["ended"]:
        pasts.drop(m.state, past)
    pasts.drop(m.state, scope["past"])
    owner = m.state["units"].get(scope["unit"])
    if owner is not None:
        act = m.act_of(owner)
        act.setdefault("done", []).extend(scope["done"])
        act.setdefault("cut", []).extend(scope["cut"])
        del owner["scope"]
        owner["phase"] = "ready"
    del m.state["scopes"][scope["id"]]
    m.commands.append(ReleaseScope(scope["id"]))


def hand_over(scope: Scope, act: Activation) -> None:
    """Let the scope around a group keep what the group leaves to be undone."""
    scope["done"].extend(act.get("done", ()))
    scope["cut"].extend(act.get("cut", ()))


def interrupt(m: Machine, scope: Scope) -> None:
    """Give back to a scope that is withdrawn what its compensations have not undone yet."""
    for number, undo in list(m.state["undos"].items()):
        if undo["scope"] != scope["id"]:
            continue
        current = [undo["current"]] if "current" in undo else []
        scope["done"] += [*undo["todo"], *current]
        scope["cut"] += undo["cut"]
        for cut in undo["cut"]:
            stop_settling(m, cut)
        del m.state["undos"][number]


def stop_settling(m: Machine, number: int) -> None:
    """Withdraw what is being done to find out about an attempt that was cut off."""
    cut = m.state["cuts"][number]
    cut.pop("undo", None)
    if cut.pop("running", False):
        m.commands.append(Stop(number, cut["attempt"]))
        m.state["running"] -= 1
    if "wait" in cut:
        close_wait(m, m.state["waits"][cut.pop("wait")], "withdrawn")


def withdraw_under_way(m: Machine, scope: Scope) -> None:
    """Withdraw the tokens of a scope that are under way, and what else it has on the agenda."""
    left = []
    for entry in m.agenda:
        arrivals = _arrivals_of(entry)
        if arrivals and arrivals[0]["scope"] == scope["id"]:
            for arrival in arrivals:
                pasts.drop(m.state, arrival["past"])
        elif entry[0] != "end_all" or entry[1] != scope["id"]:
            left.append(entry)
        else:
            pasts.drop(m.state, entry[3])
    m.agenda.clear()
    m.agenda.extend(left)


def _arrivals_of(entry: tuple[object, ...]) -> list[Arrival]:
    """Return the tokens that an entry of the agenda moves."""
    if entry[0] == "arrive":
        return [entry[1]]  # type: ignore[list-item]
    if entry[0] in ("activate", "too_few"):
        return entry[2]  # type: ignore[return-value]
    return []


def cancel_late(m: Machine, scope: Scope, join: int) -> None:
    """Withdraw the tokens of a scope that can still reach a join that has fired (pattern 29)."""
    reachers = m.graph.body(scope["body"]).reachers[join]
    for entry in list(m.agenda):
        if entry[0] == "arrive" and entry[1]["scope"] == scope["id"]:
            arrival: Arrival = entry[1]
            if arrival["step"] == join or arrival["step"] in reachers:
                m.agenda.remove(entry)
                pasts.drop(m.state, arrival["past"])
    for number, step in list(scope["live"].items()):
        if step in reachers and number in m.state["acts"]:
            close_activation(m, m.state["acts"][number])
    for other, held in list(scope["joins"].items()):
        if other != join and other in reachers and number_held(held):
            node = m.graph.node(other)
            count = number_held(held)
            for arrival in held_arrivals(held):
                pasts.drop(m.state, arrival["past"])
            scope["held"] -= count
            tokens.place(m, scope, node.index, -count, other)
            scope["joins"][other] = {"held": {}, "round": held.get("round", 0)}
    m.touch(scope["id"])
