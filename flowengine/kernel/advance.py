"""The one door: `advance(graph, state, event) -> commands`.

Order of work, the same for every event:

1. *Apply* the event to whom it names; if that is no longer open, nothing changes.
2. *Agenda*: one first-in-first-out list, worked off until it is empty. A step's own work (`output`,
   `set`, `next`) is done in one entry; what it sets off stands behind what was set off before.
3. *Quiet work*, when the agenda is empty, one piece at a time, each followed by the agenda again:
   what watches state that has changed, by age; then the scopes in which a token has moved,
   innermost first: joins that nobody else can reach, the end of a scope without a token; then stuck
   joins; then places of maps that items gave back when they began to wait.
4. *End of the event*: the status follows from what is open.

The agenda is empty between events, so it is no part of the state.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop
from typing import TYPE_CHECKING, Any

from flowengine.kernel import (
    activations,
    approvals,
    asking,
    attempts,
    budgets,
    cancelling,
    cleaning,
    closing,
    flows,
    handing,
    handlers,
    interrupted,
    joins,
    outcomes,
    pasts,
    raising,
    scopes,
    signals,
    triggers,
    undoing,
    waits,
    watching,
)
from flowengine.kernel.commands import Command, Observation, OpenWait, SetTimer
from flowengine.kernel.errors import StepFailure, as_error
from flowengine.kernel.graph import EvaluationError, Plain
from flowengine.kernel.linked import Graph
from flowengine.kernel.machine import Machine

if TYPE_CHECKING:
    from flowengine.kernel.events import (
        CutOff,
        Decided,
        ErrorData,
        Event,
        Failed,
        Lost,
        RetryAsked,
        StateSet,
        Succeeded,
        TimerFired,
    )
    from flowengine.kernel.state import Arrival, Cut, State, Unit

ENDED = frozenset({"succeeded", "failed", "cancelled"})
"""Statuses of an execution that is over."""
UNWATCHED = frozenset({"cut", "retry", "state"})
"""Events that tell that until now no process was there."""


def advance(
    graph: Graph, state: State, event: Event, observe: list[Observation] | None = None
) -> list[Command]:
    """Apply an event to an execution.

    Args:
        graph: The flow that it runs.
        state: Its state; changed in place.
        event: What happened.
        observe: Gets what happened to each activation, for people to see; None costs nothing.

    Returns:
        What is to be done now, in order. It may be done once the event is on disk.
    """
    state["events"] += 1
    before, state["now"] = state["now"], max(state["now"], event["at"])
    if graph.timed and event["type"] in UNWATCHED:
        budgets.skip(state, before)
    if state["status"] in ENDED:
        return []
    m = Machine(graph, state, observe)
    EVENTS[event["type"]](m, event)
    return settle(m)


def settle(m: Machine) -> list[Command]:
    """Do all that follows; the end of every event.

    Args:
        m: The advance at work.

    Returns:
        What is to be done now, in order.
    """
    _work(m)
    raising.withdraw_idle(m)
    if m.state["status"] not in ENDED:
        m.state["status"] = _status(m)
    return m.commands


def pending(state: State) -> list[Command]:
    """Return what is in force: the waits that are open, the timers that are set.

    For the attempts that run, see `running`.
    """
    commands: list[Command] = [
        OpenWait(dict(wait["record"])) for wait in state["waits"].values() if wait["shown"]
    ]
    commands += [
        SetTimer(number, timer["due"], timer["why"] == "pause")
        for number, timer in state["timers"].items()
    ]
    return commands


def running(state: State) -> list[tuple[int, int]]:
    """Return unit and attempt of all attempts that run; after a crash each was cut off."""
    units = [(n, u["attempt"]) for n, u in state["units"].items() if u["phase"] == "run"]
    return units + [(n, c["attempt"]) for n, c in state["cuts"].items() if c.get("running")]


# --- 1 Apply -----------------------------------------------------------------------------------


def _succeeded(m: Machine, event: Succeeded) -> None:
    unit = _running(m, event["unit"], event["attempt"])
    if unit is not None:
        budgets.settle(m, unit["id"], m.frame_of(m.act_of(unit)))
        outcomes.attempt_ended(m, unit, event["value"], "ok")
    elif _settles(m, event["unit"], event["attempt"]):
        undoing.result_of_cut(m, event["unit"], "succeeded", event["value"])


def _failed(m: Machine, event: Failed) -> None:
    unit = _running(m, event["unit"], event["attempt"])
    if unit is not None:
        budgets.settle(m, unit["id"], m.frame_of(m.act_of(unit)))
        unit["phase"] = "ready"
        outcomes.attempt_failed(m, unit, event["error"])
    elif _settles(m, event["unit"], event["attempt"]):
        undoing.result_of_cut(m, event["unit"], "failed", None)


def _lost(m: Machine, event: Lost) -> None:
    unit = _running(m, event["unit"], event["attempt"])
    ran = event["ran"] != "no"
    if unit is not None:
        budgets.settle(m, unit["id"], m.frame_of(m.act_of(unit)), ran=ran)
        interrupted.lose(m, unit, event["ran"], event["error"])
    elif (cut := _settling(m, event["unit"], event["attempt"])) is not None:
        del cut["running"]
        budgets.settle(m, event["unit"], cut.get("frame", 0), ran=ran)
        approvals.ask_about(m, event["unit"], cut, event["error"])


def _running(m: Machine, number: int, attempt: int) -> Unit | None:
    """Return a unit if this attempt of it runs."""
    unit = m.state["units"].get(number)
    if unit is not None and unit["phase"] == "run" and unit["attempt"] == attempt:
        return unit
    return None


def _settling(m: Machine, number: int, attempt: int) -> Cut | None:
    """Return what was cut off if this attempt to settle it runs."""
    cut = m.state["cuts"].get(number)
    if cut is not None and cut.get("running") and cut["attempt"] == attempt:
        return cut
    return None


def _settles(m: Machine, number: int, attempt: int) -> bool:
    """Say whether a result settles what was cut off: not a late one, while another attempt does."""
    cut = m.state["cuts"].get(number)
    return cut is not None and (not cut.get("running") or cut["attempt"] == attempt)


def _cut(m: Machine, event: CutOff) -> None:
    unit = _running(m, event["unit"], event["attempt"])
    if unit is not None:
        interrupted.resume_cut(m, unit)
    elif (cut := _settling(m, event["unit"], event["attempt"])) is not None:
        del cut["running"]
        budgets.settle(m, event["unit"], cut.get("frame", 0))
        cut.pop("undo", None)
        for number, undo in m.state["undos"].items():
            if event["unit"] in undo["cut"]:
                m.agenda.append(("undo", number))


def _timer(m: Machine, event: TimerFired) -> None:
    timer = m.state["timers"].pop(event["timer"], None)
    if timer is not None:
        if timer["why"] in OF_WAITS:
            m.state["waits"][timer["ref"]]["timers"].remove(event["timer"])
        TIMERS[timer["why"]](m, timer["ref"], timer["arg"])


def _timeout(m: Machine, number: int, _arg: int) -> None:
    unit = m.state["units"][number]
    unit.pop("timer", None)
    if unit["phase"] == "wait":
        waits.end_wait(m, m.state["waits"][unit["wait"]], "expired", None, "timeout")
        return
    if unit["phase"] == "scope":
        closing.close_scope(m, m.state["scopes"][unit["scope"]])
    message = f"{m.address(unit)} did not end within its timeout"
    outcomes.attempt_failed(m, unit, StepFailure("Timeout", message))


def _deadline(m: Machine, number: int, _arg: int) -> None:
    act = m.state["acts"][number]
    units = [m.state["units"][n] for n in act["units"]]
    last = units[0].get("last") if len(units) == 1 else None
    act.pop("deadline", None)
    closing.close_units(m, act)
    failure = StepFailure(
        "Deadline", f"{m.step_address(act)} did not end within its deadline", {"last": last}
    )
    outcomes.activation_failed(m, act, as_error(failure, m.step_address(act)))


def _pause(m: Machine, number: int, arg: int) -> None:
    unit = m.state["units"][number]
    unit.pop("timer", None)
    unit["phase"] = "ready"
    m.agenda.append(("round" if arg else "attempt", number))


def _duration(m: Machine, number: int, _arg: int) -> None:
    limit = m.flow_of(m.state["scopes"][number].get("frame", 0)).limits["duration"]
    failure = StepFailure("LimitExceeded", f"ran longer than {limit} (limits.duration)")
    m.agenda.append(("scope_failed", number, as_error(failure, "")))


def _idle(m: Machine, number: int, _arg: int) -> None:
    scope = m.state["scopes"][number]
    del scope["idle"]
    closing.empty_scope(m, scope)
    scopes.succeed_scope(m, scope)


OF_WAITS = frozenset({"wait", "expire", "remind", "escalate"})
"""Timers whose `ref` is a wait."""

TIMERS: dict[str, Callable[[Machine, int, int], None]] = {
    "timeout": _timeout,
    "deadline": _deadline,
    "pause": _pause,
    "duration": _duration,
    "wall_time": raising.time_over,
    "idle": _idle,
    "wait": lambda m, number, index: waits.occur(m, m.state["waits"][number], index, None),
    "expire": lambda m, number, _: approvals.expire(m, m.state["waits"][number]),
    "remind": lambda m, number, _: approvals.remind(m, m.state["waits"][number]),
    "escalate": lambda m, number, index: approvals.escalate(m, m.state["waits"][number], index),
}
"""What a timer does when it fires, by its `why`; whoever closes its owner clears it."""


def _decided(m: Machine, event: Decided) -> None:
    wait = m.state["waits"].get(event["wait"])
    if wait is None:
        return
    if "budget" in wait:
        raising.decide(m, wait, event)
    elif wait["kind"] in ("approval", "ask"):
        approvals.decide(m, wait, event)
    elif wait["kind"] == "question":
        _answered(m, event, wait.get("cut", 0), wait["unit"])


def _answered(m: Machine, event: Decided, cut: int, number: int) -> None:
    """Do what an operator says about an attempt that was cut off, or has no environment."""
    wait = m.state["waits"][event["wait"]]
    waits.close_wait(m, wait, "decided", event["choice"])
    choice = event["choice"]
    error = wait["record"].get("error")
    if cut:
        del m.state["cuts"][cut]["wait"]
        if choice == "retry":
            undoing.run_cut(m, cut, m.state["cuts"][cut])
        else:
            status = "succeeded" if choice == "result" else "failed"
            undoing.result_of_cut(m, cut, status, event.get("value"))
        return
    unit = m.state["units"][number]
    unit["phase"] = "ready"
    activations.unpark(m, unit)
    if choice == "retry":
        interrupted.run_again(m, unit)
    elif choice == "result":
        outcomes.attempt_ended(m, unit, event.get("value"), "ok")
    elif error is not None and wait["record"]["ran"] == "no":
        error["retryable"] = False
        outcomes.attempt_failed(m, unit, error)
    else:
        outcomes.attempt_failed(m, unit, interrupted.uncertain(m, unit))


def _retry(m: Machine, event: RetryAsked) -> None:
    m.state["last"] = max(m.state["last"], event.get("last", 0))
    units = m.state["units"]
    for number, _attempt in running(m.state):
        if number in units and number != event["unit"]:
            interrupted.resume_cut(m, units[number])
    if event["unit"] in units:
        attempts.begin_anew(m, units[event["unit"]])


def _state_set(m: Machine, event: StateSet) -> None:
    for key, value in event["values"].items():
        m.state["vars"][key] = [value, 0]
        m.changed.add(key)


EVENTS: dict[str, Callable[[Machine, Any], None]] = {
    "started": flows.begin,
    "succeeded": _succeeded,
    "failed": _failed,
    "lost": _lost,
    "cut": _cut,
    "timer": _timer,
    "decided": _decided,
    **dict.fromkeys(handing.EVENTS, handing.hand),
    "message": signals.arrived,
    "granted": flows.granted,
    "cancel": lambda m, event: cancelling.cancel_flow(m, event["reason"], event["now"]),
    "retry": _retry,
    "state": _state_set,
    "warning": lambda m, event: None,
}
"""What an event does, by its type."""


# --- 2 Agenda ----------------------------------------------------------------------------------


def _of_unit(do: Callable[..., None]) -> Callable[..., None]:
    """Return an entry that does something to a unit, if it is still there when its turn comes."""

    def entry(m: Machine, number: int, *more: Any) -> None:
        unit = m.state["units"].get(number)
        if unit is not None:
            do(m, unit, *more)

    return entry


def _of_act(do: Callable[..., None]) -> Callable[..., None]:
    """Return an entry that does something to an activation, if it is still there by then."""

    def entry(m: Machine, number: int, *more: Any) -> None:
        act = m.state["acts"].get(number)
        if act is not None:
            do(m, act, *more)

    return entry


def _group_over(m: Machine, number: int, output: Plain, past: int) -> None:
    unit = m.state["units"].get(number)
    if unit is not None:
        outcomes.attempt_ended(m, unit, output, "ok", past)
    pasts.drop(m.state, past)


def _unit_broken(m: Machine, number: int, failure: StepFailure | EvaluationError) -> None:
    unit = m.state["units"].get(number)
    if unit is not None:
        if not m.act_of(unit)["units"][number]:
            activations.unpark(m, unit)
        error = as_error(failure, m.address(unit))
        outcomes.unit_failed(m, unit, error)


def _act_broken(m: Machine, number: int, failure: StepFailure | EvaluationError) -> None:
    """Fail an activation before it could begin; a limit of its scope no step of it handles."""
    act = m.state["acts"].get(number)
    if act is None:
        return
    error = as_error(failure, m.step_address(act))
    if error["type"] == "LimitExceeded":
        handlers.fail(m, act, error)
    else:
        outcomes.activation_failed(m, act, error)


def _broken_join(m: Machine, step: int, scope: int, failure: Any) -> None:
    if scope in m.state["scopes"]:
        error = as_error(failure, m.state["scopes"][scope]["path"] + m.graph.node(step).id)
        flows.fail_scope(m, m.state["scopes"][scope], error)


def _too_few(m: Machine, step: int, arrivals: list[Arrival], need: int, came: list[str]) -> None:
    """Activate a join with too few arrivals, only for it to fail."""
    if not arrivals:
        return
    act = activations.new_activation(m, m.graph.node(step), arrivals)
    try:
        activations.count(m, m.scope_of(act), act)
        failure = StepFailure(
            "TooFew",
            f"{len(arrivals)} of the {need} arrivals that {m.node(act).id!r} needs came, "
            "and no more can come",
            {"from": came, "need": need},
        )
    except StepFailure as exceeded:
        failure = exceeded
    _act_broken(m, act["id"], failure)


def _trigger_broken(m: Machine, arrival: Arrival, failure: EvaluationError) -> None:
    """Fail a triggered step: whether the message is for it could not be found out."""
    if not m.root().get("over"):
        triggers.awake(m, m.root())
        act = activations.new_activation(m, m.graph.node(arrival["step"]), [arrival])
        _act_broken(m, act["id"], failure)


def _map_broken(m: Machine, number: int, failure: StepFailure | EvaluationError) -> None:
    """Fail a map that runs because of what it says of itself, not because of an item."""
    act = m.state["acts"].get(number)
    if act is not None:
        closing.close_units(m, act)
        outcomes.activation_failed(m, act, as_error(failure, m.step_address(act)))


def _map_over(m: Machine, number: int) -> None:
    act = m.state["acts"].get(number)
    if act is not None and not act["units"]:
        outcomes.map_over(m, act)


def _end_all(m: Machine, number: int, line: list[int], past: int) -> None:
    scopes.end_all(m, m.state["scopes"][number], line, past)


def _cancel_late(m: Machine, number: int, join: int) -> None:
    closing.cancel_late(m, m.state["scopes"][number], join)


def _scope_failed(m: Machine, number: int, error: ErrorData) -> None:
    scope = m.state["scopes"].get(number)
    if scope is not None and not scope.get("over"):
        flows.fail_scope(m, scope, error)


def _undo_failed(m: Machine, scope: int, error: ErrorData, then: list[Any]) -> None:
    """Go on after a compensation that could not undo everything: the scope around fails."""
    if then[0] == "handled":
        act = m.state["acts"].get(then[1])
        if act is not None:
            handlers.fail(m, act, error)
    elif scope in m.state["scopes"]:
        status = "cancelled" if m.state["cancelling"] else "failed"
        flows.end(m, status, error, None, scope)


AGENDA: dict[str, Callable[..., None]] = {
    "arrive": joins.arrive,
    "activate": activations.activate,
    "attempt": _of_unit(attempts.attempt),
    "again": _of_unit(interrupted.run_again),
    "answered": asking.answered,
    "round": _of_unit(attempts.begin_round),
    "ended": _of_unit(outcomes.attempt_ended),
    "group_over": _group_over,
    "attempt_failed": _of_unit(outcomes.attempt_failed),
    "unit_ended": _of_unit(outcomes.unit_ended),
    "unit_broken": _unit_broken,
    "act_ended": _of_act(outcomes.activation_ended),
    "act_broken": _act_broken,
    "broken": _broken_join,
    "too_few": _too_few,
    "trigger_broken": _trigger_broken,
    "fill": _of_act(activations.fill),
    "add_item": _of_act(activations.add_item),
    "map_broken": _map_broken,
    "map_over": _map_over,
    "items_left": _of_act(outcomes.items_left),
    "cancel": _of_unit(cancelling.cancel),
    "cancel_late": _cancel_late,
    "end_all": _end_all,
    "scope_failed": _scope_failed,
    "handled": _of_act(handlers.compensated),
    "opened": _of_act(scopes.opened),
    "undo": undoing.go_on,
    "undo_failed": _undo_failed,
    "clean": cleaning.first_of_scope,
    "clean_on": cleaning.go_on,
    "act_failed": _of_act(handlers.handle),
    "unit_failed": _of_unit(outcomes.unit_failed),
    "pause": _of_unit(attempts.pause_before_attempt),
    "flow_over": flows.succeed,
    "flow_handled": flows.handled,
    "flow_cancelled": cancelling.cancel_flow,
    "flow_end": flows.end,
    "flow_close": flows.close,
}
"""What an entry of the agenda does, by its name."""


def _work(m: Machine) -> None:
    agenda = m.agenda
    while True:
        while agenda:
            entry = agenda.popleft()
            AGENDA[entry[0]](m, *entry[1:])
        if not _quiet(m):
            return


# --- 3 Quiet work ------------------------------------------------------------------------------


def _quiet(m: Machine) -> bool:
    """Do one piece of quiet work; whether there was any."""
    if m.changed:
        fired = triggers.on_state(m)
        watching.wake(m)
        if fired:
            return True
    while number := watching.next_watcher(m):
        if _look(m, number):
            return True
    while m.moved:
        number = -heappop(m.moved)
        m.marked.discard(number)
        scope = m.state["scopes"].get(number)
        if scope is not None:
            if (scope["joins"] and joins.settle(m, scope)) or scopes.end_if_over(m, scope):
                return True
            if scope["joins"]:
                m.calm[number] = True
            activations.rest(m, scope)
    for number in sorted(m.calm, reverse=True):
        del m.calm[number]
        scope = m.state["scopes"].get(number)
        if scope is not None and joins.settle_stuck(m, scope):
            return True
    return _fill_places(m)


def _look(m: Machine, number: int) -> bool:
    """Look at a wait or a map again, since state has changed; whether there is work now."""
    wait = m.state["waits"].get(number)
    if wait is not None:
        return waits.look_at_state(m, wait)
    act = m.state["acts"].get(number)
    if act is not None:
        outcomes.counted(m, act)
    return bool(m.agenda)


def _fill_places(m: Machine) -> bool:
    """Begin items in the places that waiting items have given back."""
    for number in list(m.places):
        del m.places[number]
        if number in m.state["acts"]:
            m.agenda.append(("fill", number))
    return bool(m.agenda)


# --- 4 End of the event ------------------------------------------------------------------------


def _status(m: Machine) -> str:
    """Return the status that follows from what is open."""
    state = m.state
    if state["running"]:
        return "running"
    if (
        "claims" in state
        or state["timers"]
        or any(w["kind"] != "question" for w in state["waits"].values())
    ):
        return "waiting"
    return "waiting" if triggers.may_free(m) else "stalled"
