"""The events and their effects. `usual_events` has those of executions whose steps succeed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flowengine.kernel import decisions, flows, timers
from flowengine.kernel.ending import compensation, cut_attempts
from flowengine.kernel.flow_state import variables
from flowengine.kernel.limits import budgets
from flowengine.kernel.messages import signals
from flowengine.kernel.recovery import interrupted, retrying
from flowengine.kernel.state.moves import move
from flowengine.kernel.steps import attempt_outcomes, attempts, cancelling
from flowengine.kernel.transition import Transition
from flowengine.kernel.usual_events import USUAL
from flowengine.kernel.waiting import approval_ownership, call_questions, grants, permissions

if TYPE_CHECKING:
    from flowengine.kernel.events import (
        Asked,
        CutOff,
        Described,
        Failed,
        Lost,
        Measured,
        RetryAsked,
        StateSet,
        Used,
        Warned,
    )
    from flowengine.kernel.state.records import Unit


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
        interrupted.resume_cut(tx, unit, event.get("process"))
    else:
        interrupted.begin_put_off(tx, unit)


ATTEMPTS: dict[str, Callable[[Transition, Unit, Any], None]] = {
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
    elif event["type"] == "failed" and unit is not None and interrupted.is_asked(tx, unit, event):
        interrupted.answer(tx, unit)
        attempt_outcomes.attempt_failed(tx, unit, event["error"])
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


EVENTS: dict[str, Callable[[Transition, Any], None]] = {
    **USUAL,
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
