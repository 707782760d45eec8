"""Timers: the effects of each.

The code that ends an activity clears its timers, so the owner of a timer that fires exists.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from flowengine.kernel import decisions, held_failures
from flowengine.kernel.ending import closing
from flowengine.kernel.errors import StepFailure, as_error
from flowengine.kernel.state import entries
from flowengine.kernel.state.moves import move
from flowengine.kernel.steps import activation_outcomes, attempt_outcomes, retries, scopes
from flowengine.kernel.transition import Transition
from flowengine.kernel.waiting import approvals, budget_questions, waits

if TYPE_CHECKING:
    from flowengine.kernel.events import TimerFired
    from flowengine.kernel.state.phases import Why
    from flowengine.kernel.state.records import Unit


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
    "expire": decisions.expire,
    "remind": lambda tx, number, _: approvals.remind(tx, tx.state["waits"][number]),
    "escalate": lambda tx, number, index: approvals.escalate(tx, tx.state["waits"][number], index),
}
"""Reason for a timer → its effect when it fires. `phases.TIMERS` describes the effects."""
