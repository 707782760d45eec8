"""The kernel's entry point: `advance(graph, state, event) -> commands`.

Every event is processed in the same order:

1. *Apply* the event to the record that it names. If that record is no longer open, nothing changes.
2. *Agenda*: process one first-in-first-out queue until it is empty. A step's own work (`output`,
   `set`, `next`) is done in one entry. Its effects are appended to the queue.
3. *Quiet work*: when the agenda is empty, do one piece of quiet work, then process the agenda
   again. First come the waits and maps that watch changed state, oldest first. Then come the scopes
   in which a token has moved, innermost first: joins that no other token can reach, and scopes
   without a token, which end. Then come stuck joins, and finally the map places freed by items that
   began to wait.
4. *End of the event*: derive the status from the open work.

The agenda is empty between events, so the state does not contain it.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop
from typing import TYPE_CHECKING, Any

from flowengine.kernel import decisions, flows, timers
from flowengine.kernel.agenda import AGENDA
from flowengine.kernel.causes import added
from flowengine.kernel.commands import Command, Observation, OpenWait, SetTimer
from flowengine.kernel.ending import compensation, cut_attempts
from flowengine.kernel.flow_state import variables
from flowengine.kernel.graph.linked import Graph
from flowengine.kernel.limits import budgets
from flowengine.kernel.limits.suspension import rest
from flowengine.kernel.messages import signals, triggers
from flowengine.kernel.recovery import interrupted, retrying
from flowengine.kernel.state import entries
from flowengine.kernel.state.moves import move
from flowengine.kernel.steps import attempt_outcomes, attempts, cancelling, maps, scopes
from flowengine.kernel.tokens import joins
from flowengine.kernel.transition import Transition
from flowengine.kernel.waiting import (
    approval_ownership,
    budget_questions,
    call_questions,
    grants,
    listeners,
    permissions,
    waits,
)

if TYPE_CHECKING:
    from flowengine.kernel.causes import Blame
    from flowengine.kernel.events import (
        Asked,
        CutOff,
        Described,
        Event,
        Failed,
        Lost,
        Measured,
        RetryAsked,
        StateSet,
        Succeeded,
        Upgraded,
        Used,
        Warned,
    )
    from flowengine.kernel.state.records import State, Unit

ENDED = frozenset({"succeeded", "failed", "cancelled"})
"""Statuses of an execution that has ended."""
UNWATCHED = frozenset({"cut", "retry", "state"})
"""Events that imply that no process was driving the execution until now."""


def advance(
    graph: Graph,
    state: State,
    event: Event,
    observe: list[Observation] | None = None,
    blame: Blame | None = None,
    after: Graph | None = None,
) -> list[Command]:
    """Apply an event to an execution.

    Args:
        graph: The flow of the execution.
        state: The state of the execution. It is changed in place.
        event: The event. If functions of the user are called to apply it, their results are stored
            in its `reduced`. An event that already has `reduced` needs no such calls.
        observe: Receives the changes of each activation for display. None costs nothing.
        blame: Receives the causes of each failure, see `held_failures`. None costs nothing.
        after: The flow of the execution from this event on, if the event is `upgraded`. It is the
            form named by the event, and `moving.obstacles` has found no obstacle to it.

    Returns:
        The commands, in order. They may be carried out once the event is on disk.
    """
    state["events"] += 1
    before, state["now"] = state["now"], max(state["now"], event["at"])
    if graph.timed and event["type"] in UNWATCHED:
        budgets.skip(state, before)
    if state["status"] in ENDED:
        return []
    more: Any = event.get("holds")
    if more is not None:  # the event is applied again for a retry or fork
        state["hold"] = added(state.get("hold"), more)
    tx = Transition(graph if after is None else after, state, observe, event, blame)
    tx.stood = state["now"] - before
    if event["type"] == "upgraded":
        _upgraded(tx, graph, event)
    else:
        EVENTS[event["type"]](tx, event)
    _work(tx)
    if tx.reduced:
        happened: Any = event
        happened["reduced"] = tx.reduced
    if tx.idle_questions:
        budget_questions.withdraw_idle(tx)
    if tx.state["status"] not in ENDED:
        tx.state["status"] = "running" if tx.state["running"] else _status(tx)
    return tx.commands


def pending(state: State) -> list[Command]:
    """Return commands for the open waits and the timers that are set.

    For running attempts, see `running`.
    """
    commands: list[Command] = [
        OpenWait(dict(wait["record"])) for wait in state["waits"].values() if wait["shown"]
    ]
    commands += [
        SetTimer(number, timer["due"], timer["why"]) for number, timer in state["timers"].items()
    ]
    return commands


def running(state: State) -> list[tuple[int, int]]:
    """Return unit and attempt number of all running attempts. A crash cuts off each of them."""
    units = [(n, u["attempt"]) for n, u in state["units"].items() if u["phase"] == "run"]
    return units + [(n, c["attempt"]) for n, c in state["cuts"].items() if c["phase"] == "run"]


# --- 1 Apply -----------------------------------------------------------------------------------


def _succeeded(tx: Transition, unit: Unit, event: Succeeded) -> None:
    budgets.settle_result(tx, unit, event["value"])
    attempt_outcomes.attempt_ended(tx, unit, event["value"], "ok")


def _failed(tx: Transition, unit: Unit, event: Failed) -> None:
    if event.get("began", True):
        budgets.settle_result(tx, unit, event["error"].get("data"))
    else:
        budgets.settle_unit(tx, unit, ran=False)
    move(unit, "ready")
    attempt_outcomes.attempt_failed(tx, unit, event["error"])


def _lost(tx: Transition, unit: Unit, event: Lost) -> None:
    budgets.settle_unit(tx, unit, ran=event["ran"] != "no")
    interrupted.lose(tx, unit, event["ran"], event["error"])


def _asked(tx: Transition, unit: Unit, event: Asked) -> None:
    budgets.settle_unit(tx, unit, ran=False)
    move(unit, "ready")
    permissions.ask_late(tx, unit, event)


def _measured(tx: Transition, unit: Unit, event: Measured) -> None:
    attempts.measured(tx, unit, event["needs"])


def _used(tx: Transition, unit: Unit, event: Used) -> None:
    budgets.count_run(tx, unit, event["run"], event["amounts"])


def _cut(tx: Transition, unit: Unit, event: CutOff) -> None:
    if event.get("began", True):
        interrupted.resume_cut(tx, unit)
    else:
        interrupted.begin_put_off(tx, unit)


ATTEMPTS: dict[str, Callable[[Transition, Unit, Any], None]] = {
    "succeeded": _succeeded,
    "failed": _failed,
    "lost": _lost,
    "asked": _asked,
    "measured": _measured,
    "used": _used,
    "cut": _cut,
}
"""Event type → its effect on the unit that runs the attempt. See also `cut_attempts`."""


def _attempt(tx: Transition, event: Any) -> None:
    """Apply an event about an attempt, of a unit or of a cut-off attempt that is being settled."""
    unit = tx.state["units"].get(event["unit"])
    if unit is not None and unit["phase"] == "run" and unit["attempt"] == event["attempt"]:
        ATTEMPTS[event["type"]](tx, unit, event)
    else:
        cut_attempts.apply_result(tx, event)


def _described(tx: Transition, event: Described) -> None:
    wait = tx.state["waits"].get(event["wait"])
    if wait is not None and wait["owner"] == "permission":
        call_questions.describe(tx, wait, event)


def _retry(tx: Transition, event: RetryAsked) -> None:
    """Restart failed work. Compensations that another execution has run are not repeated."""
    compensation.leave_out(tx, event.get("undone", ()))
    retrying.retry(tx, event, tx.stood)


def _state_set(tx: Transition, event: StateSet) -> None:
    for key, value in event["values"].items():
        variables.put(tx, key, value)


def _warned(tx: Transition, event: Warned) -> None:
    if event["about"] == "budget":
        tx.state.setdefault("warned", {})[event["message"]] = True


def _upgraded(tx: Transition, before: Graph, event: Upgraded) -> None:
    from flowengine.kernel.moving.upgrading import upgrade  # few executions are upgraded

    upgrade(tx, before, event["mapping"])


EVENTS: dict[str, Callable[[Transition, Any], None]] = {
    "started": flows.begin_execution,
    **dict.fromkeys(ATTEMPTS, _attempt),
    "described": _described,
    "timer": timers.fire,
    "decided": decisions.decide,
    **dict.fromkeys(approval_ownership.EVENTS, approval_ownership.hand),
    "revoked": grants.revoke,
    "message": signals.arrived,
    "granted": flows.lock_granted,
    "cancel": lambda tx, event: cancelling.cancel_flow(tx, event["reason"], event["now"]),
    "retry": _retry,
    "state": _state_set,
    "warning": _warned,
}
"""Event type → its effect. `upgraded` is handled separately because it needs two flows."""


# --- 2 Agenda ----------------------------------------------------------------------------------


def _work(tx: Transition) -> None:
    agenda: Any = tx.agenda
    tables: Any = tx.state
    while True:
        while agenda:
            entry = agenda.popleft()
            table, do = AGENDA[entry[0]]
            if table is None:
                do(tx, *entry[1:])
            elif (named := tables[table].get(entry[1])) is not None:
                do(tx, named, *entry[2:])
        quiet = tx.changed or tx.watchers or tx.moved or tx.calm or tx.freed_places
        if not (quiet and _quiet(tx)):
            return


# --- 3 Quiet work ------------------------------------------------------------------------------


def _quiet(tx: Transition) -> bool:
    """Do one piece of quiet work and return whether there was any."""
    if tx.changed:
        fired = tx.graph.state_triggers and triggers.on_state(tx)
        listeners.wake(tx)
        if fired:
            return True
    while tx.watchers:
        number = listeners.next_watcher(tx)
        if _look(tx, number):
            return True
    while tx.moved:
        number = -heappop(tx.moved)
        tx.marked.discard(number)
        scope = tx.state["scopes"].get(number)
        if scope is not None:
            if (scope["joins"] and joins.settle_joins(tx, scope)) or (
                not scope["live"] and scopes.end_if_empty(tx, scope)
            ):
                return True
            if scope["joins"]:
                tx.calm[number] = True
            if scope["mapped"]:
                rest(tx, scope)
    if tx.calm and _settle_stuck(tx):
        return True
    if tx.freed_places:
        _fill_places(tx)
    return bool(tx.agenda)


def _settle_stuck(tx: Transition) -> bool:
    """Settle a stuck join in one of the checked scopes and return whether there was one."""
    for number in sorted(tx.calm, reverse=True):
        del tx.calm[number]
        scope = tx.state["scopes"].get(number)
        if scope is not None and joins.settle_stuck(tx, scope):
            return True
    return False


def _look(tx: Transition, number: int) -> bool:
    """Check a wait or map again after a change of state, and return whether there is work now."""
    wait = tx.state["waits"].get(number)
    if wait is not None:
        return waits.look_at_state(tx, wait)
    act = tx.state["acts"].get(number)
    if act is not None:
        maps.counted(tx, act)
    return bool(tx.agenda)


def _fill_places(tx: Transition) -> None:
    """Begin items in the places that waiting items have freed."""
    for number in list(tx.freed_places):
        del tx.freed_places[number]
        if number in tx.state["acts"]:
            tx.agenda.append(entries.fill(number))


# --- 4 End of the event ------------------------------------------------------------------------


def _status(tx: Transition) -> str:
    """Return the status that the open work implies while no attempt runs."""
    state = tx.state
    if (
        "claims" in state
        or state["timers"]
        or any(w["kind"] != "question" for w in state["waits"].values())
    ):
        return "waiting"
    return "waiting" if triggers.may_free(tx) else "stalled"
