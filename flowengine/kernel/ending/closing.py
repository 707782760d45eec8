"""Closing: withdrawing what is at work, from the inside outwards (patterns 19, 20, 25-27).

No expression is evaluated and no handler is looked for while something closes. An attempt that runs
and that could be undone is noted as *cut off*: whether it acted is open, and a scope that
compensates settles it first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from flowengine.kernel.commands import ReleaseRegion, Stop
from flowengine.kernel.ending.leftovers import (
    cut_off,
    final_of,
    hand_over,
    interrupt,
    no_longer_wait,
    pass_finals,
)
from flowengine.kernel.expressions import provenance
from flowengine.kernel.flow_state import readers
from flowengine.kernel.flow_state.causality import learn, pass_out
from flowengine.kernel.flow_state.variables import make_fitting
from flowengine.kernel.held_failures import drop_then
from flowengine.kernel.limits import budgets
from flowengine.kernel.limits.locks import leave
from flowengine.kernel.machine import Machine, has_items
from flowengine.kernel.state import entries
from flowengine.kernel.state.moves import end_round, move
from flowengine.kernel.tokens import routing
from flowengine.kernel.view import held_arrivals, number_held
from flowengine.kernel.waiting.listeners import unlisten, unwatch
from flowengine.kernel.waiting.shared_questions import forget_answers, leave_questions
from flowengine.kernel.waiting.waits import close_wait

if TYPE_CHECKING:
    from flowengine.kernel.state.phases import Phase
    from flowengine.kernel.state.records import Activation, Arrival, Scope, Unit


def close_activation(m: Machine, act: Activation) -> None:
    """Withdraw an activation with all that it does; its token is gone.

    Args:
        act: The activation; it is removed from the state.
    """
    close_units(m, act)
    scope = m.scope_of(act)
    hand_over(m, act)
    m.note(act, "cancelled")
    routing.forget(m, act)
    if "undo" in act:  # its past is that of what it undoes, which may lie in a subflow inside
        provenance.drop(m.state, act["past"])
    else:
        leave_past(m, scope, act["line"], act["past"])


def close_units(m: Machine, act: Activation) -> None:
    """Withdraw all units of an activation, and its deadline.

    What items of a map have written that succeeded before stays; what it cleans up goes on.
    """
    no_longer_wait(m, act)
    for number in list(act["units"]):
        close_unit(m, m.state["units"][number])
    if act.get("writes"):
        make_fitting(m, act)
    end_bounds(m, act)


def end_bounds(m: Machine, act: Activation) -> None:
    """Withdraw what bounds an activation from outside: its deadline, and what moves its map."""
    if "deadline" in act:
        m.clear_timer(act.pop("deadline"))
    if has_items(act):
        spec = m.node(act).map
        assert spec is not None
        if "more" in spec:
            unlisten(m, act["id"], spec["more"])
        if "need" in act:
            unwatch(m, act["id"], m.watched(act, spec.get("watches", ())))


def close_unit(m: Machine, unit: Unit) -> None:
    """Withdraw a unit: what it runs, what it waits for, the scope inside it."""
    if unit["phase"] == "scope":
        close_scope(m, m.state["scopes"][unit["scope"]])
    act = m.act_of(unit)
    waited = unit.keys() & {"lock", "budget", "asks"} or unit["id"] in m.resumed
    begun = unit["tries"] or waited
    stop_attempt(m, unit)
    if begun and (unit["item"] >= 0 or unit["round"]):
        m.note(act, "cancelled", unit=unit)
    if act["units"].pop(unit["id"], False):
        act["busy"] -= 1
    if unit["item"] >= 0:
        act["results"][unit["item"]] = ["cancelled", None, None]
    learn(act, unit.get("knows"))
    provenance.drop(m.state, unit.get("seen", 0))
    no_longer_wait(m, unit)
    pass_finals(unit, act)
    drop_then(m.state, unit)
    leave(m, unit)
    release_region(m, unit)
    if "reading" in m.state:
        readers.forget(m, unit)
    del m.state["units"][unit["id"]]


def release_region(m: Machine, unit: Unit) -> None:
    """Have the environments of a unit given back, if it is a region and they may have it.

    What was answered about them is forgotten.
    """
    forget_answers(m, unit["id"])
    if m.graph.regions:
        node = m.node(m.act_of(unit))
        if node.map is not None or node.action in {"group", "flow"}:
            m.commands.append(ReleaseRegion(unit["id"]))


def stop_attempt(m: Machine, unit: Unit) -> None:
    """Withdraw the attempt of a unit, wherever it is."""
    stop = STOP.get(unit["phase"])
    if stop is not None:
        stop(m, unit)
    stop_timeout(m, unit)
    budgets.forget_needs(unit)
    move(unit, "ready")


def _stop_run(m: Machine, unit: Unit) -> None:
    m.commands.append(Stop(unit["id"], unit["attempt"]))
    budgets.settle_unit(m, unit)
    cut_off(m, unit)


def _stop_waiting(m: Machine, unit: Unit) -> None:
    if "wait" in unit:  # else it has just ended, and what follows is on the agenda
        close_wait(m, m.state["waits"][unit["wait"]], "withdrawn")


def _stop_asking(m: Machine, unit: Unit) -> None:
    """Withdraw a question about an attempt: whether it acted stays open."""
    if "wait" in unit and m.state["waits"][unit["wait"]]["record"]["ran"] == "maybe":
        cut_off(m, unit)
    _stop_waiting(m, unit)


STOP: dict[Phase, Callable[[Machine, Unit], None]] = {
    "run": _stop_run,
    "budget": budgets.leave,
    "asked": leave_questions,
    "wait": _stop_waiting,
    "ask": _stop_asking,
}
"""How an attempt is withdrawn, by the phase of its unit; locks and scopes stay with the unit."""


def stop_timeout(m: Machine, unit: Unit) -> None:
    """Withdraw the timer of a unit: that of its timeout, or of a pause."""
    if "timer" in unit:
        m.clear_timer(unit.pop("timer"))


def close_scope(m: Machine, scope: Scope) -> None:
    """Withdraw all that is in a scope, and the scope.

    What its steps leave to be undone goes to the activation that it belongs to.

    Args:
        scope: The scope; it is removed from the state.
    """
    empty_scope(m, scope)
    remove_scope(m, scope)


def empty_scope(m: Machine, scope: Scope) -> None:
    """Withdraw all tokens of a scope: at work, held at joins, under way; the scope stays."""
    interrupt(m, scope)
    if "idle" in scope:
        m.clear_timer(scope.pop("idle"))
    for number in list(scope["live"]):
        act = m.state["acts"].get(number)
        if act is not None and "final" not in act:
            close_activation(m, act)
    for join in scope["joins"].values():
        for arrival in held_arrivals(join):
            leave_past(m, scope, arrival["line"], arrival["past"])
    scope["joins"] = {}
    scope["held"] = 0
    scope["at"] = {}
    for step in scope["live"].values():
        routing.count_token(m, scope, step, 1)
    withdraw_under_way(m, scope)


def leave_past(m: Machine, scope: Scope, line: list[int], past: int) -> None:
    """Release the past of a withdrawn token; the `finally` of its scope still sees it."""
    if m.graph.body(scope["body"]).final < 0:
        provenance.drop(m.state, past)
    else:
        routing.end_token(m, scope, line, past)


def remove_scope(m: Machine, scope: Scope) -> None:
    """Take an empty scope out of the state; its `finally` is now due."""
    if "timer" in scope:
        m.clear_timer(scope["timer"])
    owner = m.state["units"].get(scope["unit"])
    if owner is not None:
        pass_finals(scope, owner)
        if m.graph.body(scope["body"]).final >= 0:
            owner.setdefault("finals", []).append(final_of(m, scope))
    for _line, past in scope["ended"]:
        provenance.drop(m.state, past)
    provenance.drop(m.state, scope["past"])
    if owner is not None:
        pass_out(m, scope, owner)
        act = m.act_of(owner)
        act.setdefault("done", []).extend(scope["done"])
        act.setdefault("cut", []).extend(scope["cut"])
        del owner["scope"]
        move(owner, "ready")
    del m.state["scopes"][scope["id"]]


def withdraw_under_way(m: Machine, scope: Scope) -> None:
    """Withdraw the tokens of a scope that are under way, and what else it has on the agenda."""
    left = []
    for entry in m.agenda:
        arrivals = entries.arrivals_of(entry)
        if arrivals and arrivals[0]["scope"] == scope["id"]:
            for arrival in arrivals:
                leave_past(m, scope, arrival["line"], arrival["past"])
        elif entry[0] != "end_all" or entry[1] != scope["id"]:
            left.append(entry)
        else:
            provenance.drop(m.state, entry[3])
    m.agenda.clear()
    m.agenda.extend(left)


def cancel_late(m: Machine, scope: Scope, join: int) -> None:
    """Withdraw the tokens of a scope that can still reach a join that has fired (pattern 29).

    The token that has just left through the join is spared, though a cycle may bring it back.
    """
    body = m.graph.body(scope["body"])
    left = []
    withdrawn: list[Arrival | Activation] = []
    for entry in m.agenda:
        arrivals = entries.arrivals_of(entry)
        step = arrivals[0]["step"] if arrivals and arrivals[0]["scope"] == scope["id"] else -1
        if (step >= 0 and step != join and body.reaches(step, join)) or (
            step == join and entry[0] == "arrive"
        ):
            withdrawn += arrivals
            for arrival in arrivals:
                provenance.drop(m.state, arrival["past"])
        else:
            left.append(entry)
    m.agenda.clear()
    m.agenda.extend(left)
    for number, step in list(scope["live"].items()):
        if body.reaches(step, join) and number in m.state["acts"]:
            act = m.state["acts"][number]
            close_activation(m, act)
            withdrawn.append(act)
    for other, other_join in list(scope["joins"].items()):
        if other != join and body.reaches(other, join) and number_held(other_join):
            node = m.graph.node(other)
            count = number_held(other_join)
            withdrawn += held_arrivals(other_join)
            for arrival in held_arrivals(other_join):
                provenance.drop(m.state, arrival["past"])
            scope["held"] -= count
            routing.count_token(m, scope, node.index, -count, other)
            scope["joins"][other] = end_round(other_join)
    for entry in m.agenda:
        if entry[0] == "activate" and entry[1] == join and entry[2][0]["scope"] == scope["id"]:
            for one in withdrawn:
                learn(entry[2][0], one.get("knows"))
    m.touch(scope["id"])
