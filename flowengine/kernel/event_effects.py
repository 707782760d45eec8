"""The events and their effects, also of decisions, expiries and timers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from flowengine.kernel import flow_state as variables
from flowengine.kernel import flows, held_failures
from flowengine.kernel import messages as signals
from flowengine.kernel import recovery as interrupted
from flowengine.kernel import recovery as retrying
from flowengine.kernel.commands import End
from flowengine.kernel.ending import cleanup as compensation
from flowengine.kernel.ending import closing
from flowengine.kernel.ending import leftovers as cut_attempts
from flowengine.kernel.errors import StepFailure, as_error
from flowengine.kernel.events import (
    Asked,
    CutOff,
    Decided,
    Described,
    Failed,
    Halted,
    Lost,
    Measured,
    Offered,
    RetryAsked,
    StateSet,
    Succeeded,
    TimerFired,
    Unoffered,
    Used,
    Warned,
)
from flowengine.kernel.limits import budgets
from flowengine.kernel.state import entries
from flowengine.kernel.state.moves import move
from flowengine.kernel.state.phases import Owner, Why
from flowengine.kernel.state.records import Unit, Wait
from flowengine.kernel.steps import (
    activation_outcomes,
    attempt_outcomes,
    attempts,
    cancelling,
    scopes,
)
from flowengine.kernel.steps import loops as retries
from flowengine.kernel.transition import Transition
from flowengine.kernel.view import DECIDABLE, STOPPABLE
from flowengine.kernel.waiting import (
    approvals,
    budget_questions,
    call_questions,
    grants,
    permissions,
    waits,
)
from flowengine.kernel.waiting import approvals as approval_ownership

# The answers to questions, by the wait's owner. Decisions and expiries take the same way.

_Settle: TypeAlias = "Callable[[Transition, Wait, str, dict[str, Any]], None]"


class Row(NamedTuple):
    """How the waits of an owner are decided, with text for the documentation."""

    who: str
    """The waiting party."""
    decided: str
    expired: str
    settle: _Settle
    """Closes the question as `decided` or `expired`, and continues with the decision."""


def decide(tx: Transition, event: Decided) -> None:
    """Apply a decision. A decision about a closed wait has no effect."""
    wait = tx.state["waits"].get(event["wait"])
    if wait is None or wait["kind"] not in DECIDABLE:
        return
    decision = approvals.voted(tx, wait, event)
    if decision is not None:
        DECISIONS[wait["owner"]].settle(tx, wait, "decided", decision)


def expire(tx: Transition, number: int, _arg: int) -> None:
    """Apply the expiry of an open wait, when its timer has fired."""
    wait = tx.state["waits"][number]
    DECISIONS[wait["owner"]].settle(tx, wait, "expired", approvals.expired(wait))


DECISIONS: dict[Owner, Row] = {
    "step": Row(
        "the unit of an `approval`, a question (`std.ask`) or a `wait`",
        "it is a vote. With enough of them the step continues with the outcome",
        "the step continues with `expired`, or with the choice that `on_expire` names",
        approvals.settle,
    ),
    "permission": Row(
        "all units that need it before their attempts begin: to call a tool, or to open an "
        "environment",
        "it is a vote. With enough of them the attempts begin, or fail with `Rejected`, or the "
        "call has the given result",
        "the attempts fail with `Expired`, or continue as `on_expire` defines. The next user "
        "of it asks again",
        permissions.settle,
    ),
    "budget": Row(
        "all units for whose calls a budget has nothing left",
        "the budget is raised, and the calls begin, or they and all further ones fail",
        "it stays open",
        budget_questions.settle,
    ),
    "attempt": Row(
        "a unit whose attempt was cut off, or that has lost its environment",
        "the attempt runs again, has the result given, or has failed",
        "it stays open",
        interrupted.settle,
    ),
    "cut": Row(
        "a compensation, for an attempt that was cut off",
        "that runs again, has acted and is undone, or has not acted",
        "it stays open",
        cut_attempts.settle,
    ),
}
"""Owner → the effects of a decision about its waits, and of their expiry."""


# Timers: the effects of each.
#
# The code that ends an activity clears its timers, so the owner of a timer that fires exists.


def fire(tx: Transition, event: TimerFired) -> None:
    """Perform the effect of a timer, if it has not been cleared.

    Args:
        event: The event with the timer's number.
    """
    timer = tx.state["timers"].pop(event["timer"], None)
    if timer is not None:
        if timer["why"] in OF_WAITS:
            tx.state["waits"][timer["ref"]]["timers"].remove(event["timer"])
        TIMERS[timer["why"]](tx, timer["ref"], timer["arg"])


def _timeout(tx: Transition, number: int, _arg: int) -> None:
    unit = tx.state["units"][number]
    unit.pop("timer", None)
    if unit["phase"] == "wait":
        waits.end_wait(tx, tx.state["waits"][unit["wait"]], "expired", None, "timeout")
        return
    failure = StepFailure("Timeout", f"{tx.address(unit)} did not end within its timeout")
    if unit["phase"] == "scope":
        if _goes_on(tx, unit, failure):
            return
        closing.close_scope(tx, tx.state["scopes"][unit["scope"]])
    attempt_outcomes.attempt_failed(tx, unit, failure)


def _goes_on(tx: Transition, unit: Unit, failure: StepFailure) -> bool:
    """Return whether a group or subflow is held unchanged, so that it can be given more time."""
    if not held_failures.is_held(tx, "unit", unit["id"]):
        return False
    if retries.tries_again(tx, unit, as_error(failure, tx.address(unit), unit["tries"])):
        return False
    unit["then"] = list(entries.limit(unit["id"]))
    return True


def _deadline(tx: Transition, number: int, _arg: int) -> None:
    act = tx.state["acts"][number]
    units = [tx.state["units"][n] for n in act["units"]]
    last = units[0].get("last") if len(units) == 1 else None
    act.pop("deadline", None)
    if held_failures.hold_act(tx, act, entries.deadline(number)):
        return
    closing.close_units(tx, act)
    failure = StepFailure(
        "Deadline", f"{tx.step_address(act)} did not end within its deadline", {"last": last}
    )
    activation_outcomes.activation_failed(tx, act, as_error(failure, tx.step_address(act)))


def _pause(tx: Transition, number: int, arg: int) -> None:
    unit = tx.state["units"][number]
    unit.pop("timer", None)
    move(unit, "ready")
    tx.agenda.append((entries.begin_round if arg else entries.attempt)(number))


def _duration(tx: Transition, number: int, _arg: int) -> None:
    limit = tx.flow_of(tx.state["scopes"][number].get("frame", 0)).limits["duration"]
    failure = StepFailure("LimitExceeded", f"ran longer than {limit} (limits.duration)")
    if held_failures.hold_scope(tx, tx.state["scopes"][number], entries.duration(number)):
        return
    if tx.blame is not None:
        tx.blame.note(("scope", number))
    tx.agenda.append(entries.scope_failed(number, as_error(failure, "")))


def _idle(tx: Transition, number: int, _arg: int) -> None:
    scope = tx.state["scopes"][number]
    del scope["idle"]
    closing.empty_scope(tx, scope)
    scopes.succeed_scope(tx, scope)


OF_WAITS = frozenset({"wait", "expire", "remind", "escalate"})
"""Timers whose `ref` is a wait."""

TIMERS: dict[Why, Callable[[Transition, int, int], None]] = {
    "timeout": _timeout,
    "deadline": _deadline,
    "pause": _pause,
    "duration": _duration,
    "wall_time": budget_questions.time_used_up,
    "idle": _idle,
    "wait": lambda tx, number, index: waits.occur(tx, tx.state["waits"][number], index, None),
    "expire": expire,
    "remind": lambda tx, number, _: approvals.remind(tx, tx.state["waits"][number]),
    "escalate": lambda tx, number, index: approvals.escalate(tx, tx.state["waits"][number], index),
}
"""Reason for a timer → its effect when it fires. `phases.TIMERS` describes the effects."""


# The events and their effects.


def _succeeded(tx: Transition, event: Succeeded) -> None:
    """Apply the result of an attempt, of a unit or of a cut-off attempt that is being settled."""
    unit = tx.state["units"].get(event["unit"])
    if unit is None or unit["phase"] != "run" or unit["attempt"] != event["attempt"]:
        _late(tx, unit, event)
        return
    if attempts.BUDGETED.isdisjoint(tx.state):
        tx.state["running"] -= 1
    else:
        budgets.charge_result(tx, unit, event["value"])
    attempt_outcomes.attempt_ended(tx, unit, event["value"], "ok")


def _late(tx: Transition, unit: Unit | None, event: Succeeded) -> None:
    """Apply the result of an attempt that counts as interrupted, or is over."""
    if unit is None or not interrupted.is_asked(tx, unit, event):
        cut_attempts.apply_result(tx, event)
        return
    interrupted.answer(tx, unit)
    attempt_outcomes.attempt_ended(tx, unit, event["value"], "ok")


def _failed(tx: Transition, unit: Unit, event: Failed) -> None:
    if event.get("began", True):
        budgets.charge_result(tx, unit, event["error"].get("data"))
    else:
        budgets.charge_unit(tx, unit, ran=False)
    move(unit, "ready")
    attempt_outcomes.attempt_failed(tx, unit, event["error"])


def _lost(tx: Transition, unit: Unit, event: Lost) -> None:
    budgets.charge_unit(tx, unit, ran=event["ran"] != "no")
    interrupted.lose(tx, unit, event["ran"], event["error"])


def _asked(tx: Transition, unit: Unit, event: Asked) -> None:
    budgets.charge_unit(tx, unit, ran=False)
    move(unit, "ready")
    permissions.ask_late(tx, unit, event)


def _measured(tx: Transition, unit: Unit, event: Measured) -> None:
    attempts.measured(tx, unit, event["needs"])


def _used(tx: Transition, unit: Unit, event: Used) -> None:
    budgets.count_run(tx, unit, event["run"], event["amounts"])


def _cut(tx: Transition, unit: Unit, event: CutOff) -> None:
    if event.get("began", True):
        interrupted.resume_cut(tx, unit, event.get("process"))
    else:
        interrupted.begin_put_off(tx, unit)


def _unoffered(tx: Transition, unit: Unit, _event: Unoffered) -> None:
    budgets.charge_unit(tx, unit, ran=False)
    interrupted.leave_to_worker(tx, unit)


ATTEMPTS: dict[str, Callable[[Transition, Unit, Any], None]] = {
    "failed": _failed,
    "lost": _lost,
    "asked": _asked,
    "measured": _measured,
    "used": _used,
    "cut": _cut,
    "unoffered": _unoffered,
}
"""Event type → its effect on the unit that runs the attempt. See also `leftovers`."""


def _attempt(tx: Transition, event: Any) -> None:
    """Apply an event about an attempt, of a unit or of a cut-off attempt that is being settled."""
    unit = tx.state["units"].get(event["unit"])
    if "by" in event:
        _stopped(tx, unit, event)
    elif unit is not None and unit["phase"] == "run" and unit["attempt"] == event["attempt"]:
        ATTEMPTS[event["type"]](tx, unit, event)
    elif unit is not None and interrupted.is_asked(tx, unit, event):
        interrupted.answer(tx, unit)
        if event["type"] == "failed":
            attempt_outcomes.attempt_failed(tx, unit, event["error"])
        else:
            interrupted.run_again(tx, unit)
    else:
        cut_attempts.apply_result(tx, event)


def _stopped(tx: Transition, unit: Unit | None, event: Failed) -> None:
    """End the attempt of a unit that a user has stopped, unless it has ended."""
    if unit is None or unit["attempt"] != event["attempt"] or unit["phase"] not in STOPPABLE:
        return
    if unit["phase"] == "scope":
        closing.close_scope(tx, tx.state["scopes"][unit["scope"]])
    attempt_outcomes.attempt_failed(tx, unit, event["error"])


def _offered(tx: Transition, event: Offered) -> None:
    """Begin the attempt of a wait for a worker."""
    wait = tx.state["waits"].get(event["wait"])
    if wait is not None and wait["kind"] == "worker":
        interrupted.offered(tx, wait)


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


def _halted(tx: Transition, event: Halted) -> None:
    if tx.state["scopes"]:  # it has not ended
        flows.close(tx, "failed", event["error"])
        return
    tx.state["status"], tx.state["outputs"], tx.state["error"] = "failed", None, event["error"]
    tx.commands.append(End("failed", None, event["error"]))


def _warned(tx: Transition, event: Warned) -> None:
    if event["about"] == "budget":
        tx.state.setdefault("warned", {})[event["message"]] = True


EVENTS: dict[str, Callable[[Transition, Any], None]] = {
    "started": flows.begin_execution,
    "succeeded": _succeeded,
    **dict.fromkeys(ATTEMPTS, _attempt),
    "described": _described,
    "offered": _offered,
    "timer": fire,
    "decided": decide,
    **dict.fromkeys(approval_ownership.EVENTS, approval_ownership.hand),
    "revoked": grants.revoke,
    "message": signals.arrived,
    "granted": flows.lock_granted,
    "cancel": lambda tx, event: cancelling.cancel_flow(tx, event["reason"], event["now"]),
    "retry": _retry,
    "state": _state_set,
    "halted": _halted,
    "warning": _warned,
}
"""Event type → its effect. `upgraded` is handled separately because it needs two flows."""
