"""Timers: what follows when one fires.

Whoever set a timer clears it when what it bounds is over, so one that fires has an owner.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from flowengine.kernel import decisions, held_failures
from flowengine.kernel.ending import closing
from flowengine.kernel.errors import StepFailure, as_error
from flowengine.kernel.machine import Machine
from flowengine.kernel.state import entries
from flowengine.kernel.state.moves import move
from flowengine.kernel.steps import activation_outcomes, attempt_outcomes, retries, scopes
from flowengine.kernel.waiting import approvals, budget_questions, waits

if TYPE_CHECKING:
    from flowengine.kernel.events import TimerFired
    from flowengine.kernel.state.phases import Why
    from flowengine.kernel.state.records import Unit


def fire(m: Machine, event: TimerFired) -> None:
    """Do what a timer is for, if it has not been cleared.

    Args:
        event: Says which.
    """
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
    failure = StepFailure("Timeout", f"{m.address(unit)} did not end within its timeout")
    if unit["phase"] == "scope":
        if _goes_on(m, unit, failure):
            return
        closing.close_scope(m, m.state["scopes"][unit["scope"]])
    attempt_outcomes.attempt_failed(m, unit, failure)


def _goes_on(m: Machine, unit: Unit, failure: StepFailure) -> bool:
    """Return whether a group or subflow is held as it is, to be given more time."""
    if not held_failures.is_held(m, "unit", unit["id"]):
        return False
    if retries.tries_again(m, unit, as_error(failure, m.address(unit), unit["tries"])):
        return False
    unit["then"] = list(entries.limit(unit["id"]))
    return True


def _deadline(m: Machine, number: int, _arg: int) -> None:
    act = m.state["acts"][number]
    units = [m.state["units"][n] for n in act["units"]]
    last = units[0].get("last") if len(units) == 1 else None
    act.pop("deadline", None)
    if held_failures.hold_act(m, act, entries.deadline(number)):
        return
    closing.close_units(m, act)
    failure = StepFailure(
        "Deadline", f"{m.step_address(act)} did not end within its deadline", {"last": last}
    )
    activation_outcomes.activation_failed(m, act, as_error(failure, m.step_address(act)))


def _pause(m: Machine, number: int, arg: int) -> None:
    unit = m.state["units"][number]
    unit.pop("timer", None)
    move(unit, "ready")
    m.agenda.append((entries.begin_round if arg else entries.attempt)(number))


def _duration(m: Machine, number: int, _arg: int) -> None:
    limit = m.flow_of(m.state["scopes"][number].get("frame", 0)).limits["duration"]
    failure = StepFailure("LimitExceeded", f"ran longer than {limit} (limits.duration)")
    if held_failures.hold_scope(m, m.state["scopes"][number], entries.duration(number)):
        return
    if m.blame is not None:
        m.blame.note(("scope", number))
    m.agenda.append(entries.scope_failed(number, as_error(failure, "")))


def _idle(m: Machine, number: int, _arg: int) -> None:
    scope = m.state["scopes"][number]
    del scope["idle"]
    closing.empty_scope(m, scope)
    scopes.succeed_scope(m, scope)


OF_WAITS = frozenset({"wait", "expire", "remind", "escalate"})
"""Timers whose `ref` is a wait."""

TIMERS: dict[Why, Callable[[Machine, int, int], None]] = {
    "timeout": _timeout,
    "deadline": _deadline,
    "pause": _pause,
    "duration": _duration,
    "wall_time": budget_questions.time_used_up,
    "idle": _idle,
    "wait": lambda m, number, index: waits.occur(m, m.state["waits"][number], index, None),
    "expire": decisions.expire,
    "remind": lambda m, number, _: approvals.remind(m, m.state["waits"][number]),
    "escalate": lambda m, number, index: approvals.escalate(m, m.state["waits"][number], index),
}
"""What a timer does when it fires, by its `why`; `phases.TIMERS` says it in words."""
