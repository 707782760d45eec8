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

from heapq import heappop
from typing import Any

from flowengine.kernel.agenda import AGENDA
from flowengine.kernel.commands import Command, OpenWait, SetTimer
from flowengine.kernel.event_effects import EVENTS
from flowengine.kernel.events import Event, Upgraded
from flowengine.kernel.graph.linked import Graph
from flowengine.kernel.limits.budgets import skip
from flowengine.kernel.limits.locks import rest
from flowengine.kernel.messages import may_free, on_state
from flowengine.kernel.recovery import need_anew
from flowengine.kernel.state import entries
from flowengine.kernel.state.records import State
from flowengine.kernel.steps import scopes
from flowengine.kernel.steps.maps import counted
from flowengine.kernel.tokens.joins import resolve_joins, resolve_stuck
from flowengine.kernel.transition import Blame, Transition, added
from flowengine.kernel.waiting.budget_questions import withdraw_idle
from flowengine.kernel.waiting.waits import check_state, next_watcher, wake

ENDED = frozenset({"succeeded", "failed", "cancelled"})
"""Statuses of an execution that has ended."""
UNWATCHED = frozenset({"cut", "retry", "state"})
"""Events that imply that no process was driving the execution until now."""


def advance(
    graph: Graph,
    state: State,
    event: Event,
    observe: list[Any] | None = None,
    blame: Blame | None = None,
    after: Graph | None = None,
    brief: bool = False,
) -> list[Command]:
    """Apply an event to an execution.

    Args:
        graph: The flow of the execution.
        state: The state of the execution. It is changed in place.
        event: The event. If functions of the user are called to apply it, their results are stored
            in its `reduced`. An event that already has `reduced` needs no such calls.
        observe: Receives the changes of each activation for display: an `Observation` of each. None
            costs nothing.
        blame: Receives the causes of each failure, see `held_failures`. None costs nothing.
        after: The flow of the execution from this event on, if the event is `upgraded`. It is the
            form named by the event, to which there is no obstacle.
        brief: Whether `observe` receives the usual changes in a form that costs less: the command
            `Run` of an attempt that begins, and the address of a step that has succeeded with the
            outcome `ok` and the value of the event.

    Returns:
        The commands, in order. They may be carried out once the event is on disk.
    """
    state["events"] += 1
    before, state["now"] = state["now"], max(state["now"], event["at"])
    if graph.timed and event["type"] in UNWATCHED:
        skip(state, before)
    if state["status"] in ENDED and event["type"] != "halted":
        return []
    more: Any = event.get("holds")
    if more is not None:  # the event is applied again for a retry or fork
        state["hold"] = added(state.get("hold"), more)
    tx = Transition(graph if after is None else after, state, observe, event, blame, brief)
    tx.stood = state["now"] - before
    if event["type"] == "upgraded":
        _upgraded(tx, graph, event)
    else:
        EVENTS[event["type"]](tx, event)
    if tx.agenda or tx.moved or tx.changed or tx.watchers or tx.calm or tx.freed_places:
        _work(tx)
    if tx.reduced:
        happened: Any = event
        happened["reduced"] = tx.reduced
    if tx.idle_questions:
        withdraw_idle(tx)
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


def _upgraded(tx: Transition, before: Graph, event: Upgraded) -> None:
    from flowengine.kernel.moving.move import upgrade  # few executions are upgraded

    upgrade(tx, before, event["mapping"])
    for wait in [wait for wait in tx.state["waits"].values() if wait["kind"] == "worker"]:
        need_anew(tx, wait)


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
        fired = tx.graph.state_triggers and on_state(tx)
        if tx.state["watching"]:
            wake(tx)
        tx.changed.clear()
        if fired:
            return True
    if tx.watchers and _check_all_again(tx):
        return True
    while tx.moved:
        number = -heappop(tx.moved)
        tx.marked.discard(number)
        scope = tx.state["scopes"].get(number)
        if scope is not None:
            if (scope["joins"] and resolve_joins(tx, scope)) or (
                not scope["live"] and scopes.end_if_empty(tx, scope)
            ):
                return True
            if scope["joins"]:
                tx.calm[number] = True
            if scope["mapped"]:
                rest(tx, scope)
    if tx.calm and _resolve_stuck(tx):
        return True
    if tx.freed_places:
        _fill_places(tx)
    return bool(tx.agenda)


def _check_all_again(tx: Transition) -> bool:
    """Check the watchers of changed state, until one has work."""
    while tx.watchers:
        if _check_again(tx, next_watcher(tx)):
            return True
    return False


def _resolve_stuck(tx: Transition) -> bool:
    """Resolve a stuck join in one of the checked scopes and return whether there was one."""
    for number in sorted(tx.calm, reverse=True):
        del tx.calm[number]
        scope = tx.state["scopes"].get(number)
        if scope is not None and scope["joins"] and resolve_stuck(tx, scope):
            return True
    return False


def _check_again(tx: Transition, number: int) -> bool:
    """Check a wait or map again after a change of state, and return whether there is work now."""
    wait = tx.state["waits"].get(number)
    if wait is not None:
        return check_state(tx, wait)
    act = tx.state["acts"].get(number)
    if act is not None:
        counted(tx, act)
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

    return "waiting" if may_free(tx) else "stalled"
