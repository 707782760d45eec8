"""Closing: withdrawal of running work, from the inside outwards (patterns 19, 20, 25-27).

No expression is evaluated and no handler is used during a withdrawal. A running attempt that could
be undone is recorded as *cut off*: its outcome is unknown, and a scope that compensates settles it
first.
"""

from __future__ import annotations

from collections.abc import Callable

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
from flowengine.kernel.flow_state import learn, make_fitting, pass_out, stop_reading
from flowengine.kernel.held_failures import drop_then
from flowengine.kernel.limits.background import release, withdraw
from flowengine.kernel.limits.budgets import charge_unit, stop_waiting
from flowengine.kernel.limits.locks import leave_lock
from flowengine.kernel.state import entries
from flowengine.kernel.state.moves import end_round, move
from flowengine.kernel.state.phases import Phase
from flowengine.kernel.state.records import Activation, Arrival, Scope, Unit
from flowengine.kernel.tokens import routing
from flowengine.kernel.transition import Transition, has_items
from flowengine.kernel.view import number_waiting, waiting_arrivals
from flowengine.kernel.waiting.call_questions import forget_answers, leave_questions
from flowengine.kernel.waiting.waits import close_wait, unlisten, unwatch


def close_activation(tx: Transition, act: Activation, *, told: bool = False) -> None:
    """Withdraw an activation with all its work and its token.

    Args:
        act: The activation. It is removed from the state.
        told: Whether observers know already how it ended.
    """
    close_units(tx, act)
    scope = tx.scope_of(act)
    hand_over(tx, act)
    if not told:
        tx.note(act, "cancelled")
    routing.forget_activation(tx, act)
    if "undo" in act:  # its past is that of the step it undoes, possibly in an inner subflow
        provenance.drop(tx.state, act["past"])
    else:
        leave_past(tx, scope, act["line"], act["past"])


def close_units(tx: Transition, act: Activation) -> None:
    """Withdraw all units of an activation, and its deadline.

    Writes of map items that have succeeded are kept, and cleanups continue.
    """
    no_longer_wait(tx, act)
    for number in list(act["units"]):
        close_unit(tx, tx.state["units"][number])
    if act.get("writes"):
        make_fitting(tx, act)
    end_bounds(tx, act)


def end_bounds(tx: Transition, act: Activation) -> None:
    """Withdraw an activation's deadline, and the listeners and watchers of its map."""
    if "deadline" in act:
        tx.clear_timer(act.pop("deadline"))
    if has_items(act):
        spec = tx.node(act).map
        assert spec is not None
        if "more" in spec:
            unlisten(tx, act["id"], spec["more"])
        if "need" in act:
            unwatch(tx, act["id"], tx.watched(act, spec.get("watches", ())))


def close_unit(tx: Transition, unit: Unit) -> None:
    """Withdraw a unit: its attempt, its waits, the scope inside it."""
    if unit["phase"] == "scope":
        close_scope(tx, tx.state["scopes"][unit["scope"]])
    act = tx.act_of(unit)
    waited = unit.keys() & {"lock", "budget", "asks"} or unit["id"] in tx.resumed
    waited = waited or unit["phase"] == "budget"  # one that executions share
    begun = unit["tries"] or waited
    stop_attempt(tx, unit)
    if begun and (unit["item"] >= 0 or unit["round"]):
        tx.note(act, "cancelled", unit=unit)
    if act["units"].pop(unit["id"], False):
        act["busy"] -= 1
    if unit["item"] >= 0:
        act["results"][unit["item"]] = ["cancelled", None, None]
    learn(act, unit.get("knows"))
    provenance.drop(tx.state, unit.get("seen", 0))
    no_longer_wait(tx, unit)
    pass_finals(unit, act)
    drop_then(tx.state, unit)
    leave_lock(tx, unit)
    release_region(tx, unit)
    if "reading" in tx.state:
        stop_reading(tx, unit)
    del tx.state["units"][unit["id"]]


def release_region(tx: Transition, unit: Unit) -> None:
    """Release the environments of a unit, if it is a region that can own them.

    The answers about them are removed.
    """
    forget_answers(tx, unit["id"])
    if tx.graph.regions:
        node = tx.node(tx.act_of(unit))
        if node.map is not None or node.action in {"group", "flow"}:
            tx.commands.append(ReleaseRegion(unit["id"]))


def stop_attempt(tx: Transition, unit: Unit) -> None:
    """Withdraw the attempt of a unit in any phase."""
    stop = STOP.get(unit["phase"])
    if stop is not None:
        stop(tx, unit)
    stop_timeout(tx, unit)
    unit.pop("needs", None)
    move(unit, "ready")


def _stop_run(tx: Transition, unit: Unit) -> None:
    tx.commands.append(Stop(unit["id"], unit["attempt"]))
    if "children" in tx.state and tx.node(tx.act_of(unit)).background is not None:
        withdraw(tx, unit)
    charge_unit(tx, unit)
    cut_off(tx, unit)


def _stop_waiting(tx: Transition, unit: Unit) -> None:
    if "wait" in unit:  # otherwise it has just ended, and its entry is on the agenda
        close_wait(tx, tx.state["waits"][unit["wait"]], "withdrawn")


def _stop_asking(tx: Transition, unit: Unit) -> None:
    """Withdraw a question about an attempt, whose outcome stays unknown."""
    if "wait" in unit and tx.state["waits"][unit["wait"]]["record"]["ran"] == "maybe":
        cut_off(tx, unit)
    _stop_waiting(tx, unit)


STOP: dict[Phase, Callable[[Transition, Unit], None]] = {
    "run": _stop_run,
    "budget": stop_waiting,
    "asked": leave_questions,
    "wait": _stop_waiting,
    "ask": _stop_asking,
}
"""Phase of a unit → withdrawal of its attempt. Locks and scopes stay with the unit."""


def stop_timeout(tx: Transition, unit: Unit) -> None:
    """Withdraw the timer of a unit: that of its timeout, or of a pause."""
    if "timer" in unit:
        tx.clear_timer(unit.pop("timer"))


def close_scope(tx: Transition, scope: Scope) -> None:
    """Withdraw a scope and everything in it.

    Steps that must be undone are passed to the activation that the scope belongs to.

    Args:
        scope: The scope. It is removed from the state.
    """
    empty_scope(tx, scope)
    remove_scope(tx, scope)


def empty_scope(tx: Transition, scope: Scope) -> None:
    """Withdraw all tokens of a scope: running, held at joins, or moving. The scope stays."""
    if "cleaning" in scope or tx.state["undos"]:
        interrupt(tx, scope)
    if "idle" in scope:
        tx.clear_timer(scope.pop("idle"))
    for number in list(scope["live"]):
        act = tx.state["acts"].get(number)
        if act is not None and "final" not in act:
            close_activation(tx, act)
    for join in scope["joins"].values():
        for arrival in waiting_arrivals(join):
            leave_past(tx, scope, arrival["line"], arrival["past"])
    scope["joins"] = {}
    scope["at_joins"] = 0
    scope["at"] = {}
    for step in scope["live"].values():
        routing.count_token(tx, scope, step, 1)
    withdraw_under_way(tx, scope)


def leave_past(tx: Transition, scope: Scope, line: list[int], past: int) -> None:
    """Release the past of a withdrawn token, or keep it for the `finally` of its scope."""
    if tx.graph.body(scope["body"]).final < 0:
        provenance.drop(tx.state, past)
    else:
        routing.end_token(tx, scope, line, past)


def remove_scope(tx: Transition, scope: Scope) -> None:
    """Remove an empty scope from the state. Its `finally` becomes due."""
    if "timer" in scope:
        tx.clear_timer(scope["timer"])
    if "children" in tx.state and tx.graph.body(scope["body"]).kind == "flow":
        release(tx, scope.get("frame", 0))
    owner = tx.state["units"].get(scope["unit"])
    if owner is not None:
        if "finals" in scope:
            pass_finals(scope, owner)
        if tx.graph.body(scope["body"]).final >= 0:
            owner.setdefault("finals", []).append(final_of(tx, scope))
    for _line, past in scope["ended"]:
        provenance.drop(tx.state, past)
    provenance.drop(tx.state, scope["past"])
    if owner is not None:
        pass_out(tx, scope, owner)
        act = tx.act_of(owner)
        act.setdefault("done", []).extend(scope["done"])
        act.setdefault("cut", []).extend(scope["cut"])
        del owner["scope"]
        move(owner, "ready")
    del tx.state["scopes"][scope["id"]]


def withdraw_under_way(tx: Transition, scope: Scope) -> None:
    """Withdraw the moving tokens of a scope, and its other entries on the agenda."""
    left = []
    for entry in tx.agenda:
        arrivals = entries.arrivals_of(entry)
        if arrivals and arrivals[0]["scope"] == scope["id"]:
            for arrival in arrivals:
                leave_past(tx, scope, arrival["line"], arrival["past"])
        elif entry[0] != "end_all" or entry[1] != scope["id"]:
            left.append(entry)
        else:
            provenance.drop(tx.state, entry[3])
    tx.agenda.clear()
    tx.agenda.extend(left)


def cancel_late(tx: Transition, scope: Scope, join: int) -> None:
    """Withdraw the tokens of a scope that can still reach a join that has fired (pattern 29).

    The token that has just left through the join is kept, although a cycle could bring it back.
    """
    body = tx.graph.body(scope["body"])
    left = []
    withdrawn: list[Arrival | Activation] = []
    for entry in tx.agenda:
        arrivals = entries.arrivals_of(entry)
        step = arrivals[0]["step"] if arrivals and arrivals[0]["scope"] == scope["id"] else -1
        if (step >= 0 and step != join and body.reaches(step, join)) or (
            step == join and entry[0] == "arrive"
        ):
            withdrawn += arrivals
            for arrival in arrivals:
                provenance.drop(tx.state, arrival["past"])
        else:
            left.append(entry)
    tx.agenda.clear()
    tx.agenda.extend(left)
    for number, step in list(scope["live"].items()):
        if body.reaches(step, join) and number in tx.state["acts"]:
            act = tx.state["acts"][number]
            close_activation(tx, act)
            withdrawn.append(act)
    for other, other_join in list(scope["joins"].items()):
        if other != join and body.reaches(other, join) and number_waiting(other_join):
            node = tx.graph.node(other)
            count = number_waiting(other_join)
            withdrawn += waiting_arrivals(other_join)
            for arrival in waiting_arrivals(other_join):
                provenance.drop(tx.state, arrival["past"])
            scope["at_joins"] -= count
            routing.count_token(tx, scope, node.index, -count, other)
            scope["joins"][other] = end_round(other_join)
    for entry in tx.agenda:
        if entry[0] == "activate" and entry[1] == join and entry[2][0]["scope"] == scope["id"]:
            for token in withdrawn:
                learn(entry[2][0], token.get("knows"))
    tx.touch(scope["id"])
