"""What follows when an attempt has ended (docs/language.md: Steps).

    succeeded ─► output ─► set ─► emit ─► loop? ─► unit ─► item of a map? ─► activation ─► next
    failed ─► retry? ─► unit ─► item of a map? ─► activation ─► on_error ─► the scope fails

`unit_outcomes` and `activation_outcomes` have the later parts; `retries`, `loops` and `maps` have
those with a question mark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from flowengine.kernel.ending import cleaning, leftovers
from flowengine.kernel.ending.closing import stop_attempt
from flowengine.kernel.errors import StepFailure, as_error
from flowengine.kernel.expressions.names import Names, evaluate
from flowengine.kernel.flow_state import variables
from flowengine.kernel.graph.compiled import EvaluationError, Plain
from flowengine.kernel.graph.linked import Node
from flowengine.kernel.limits import budgets, call_counts, locks
from flowengine.kernel.limits.suspension import unpark
from flowengine.kernel.machine import Machine
from flowengine.kernel.messages import signals
from flowengine.kernel.state import entries
from flowengine.kernel.state.moves import move
from flowengine.kernel.steps.loops import round_ended
from flowengine.kernel.steps.retries import pause_before_attempt, tries_again
from flowengine.kernel.steps.unit_outcomes import unit_ended, unit_failed
from flowengine.kernel.tokens import routing
from flowengine.kernel.waiting import call_questions

if TYPE_CHECKING:
    from flowengine.kernel.events import ErrorData
    from flowengine.kernel.state.entries import Entry
    from flowengine.kernel.state.records import Activation, Unit


Failure: TypeAlias = "StepFailure | EvaluationError | ErrorData"


def attempt_ended(
    m: Machine, unit: Unit, raw: Plain, outcome: str, past: int | None = None
) -> None:
    """Take the result of an attempt that ended well.

    Args:
        m: The advance at work.
        unit: The unit.
        raw: What the action gave.
        outcome: How it ended.
        past: What the step's own expressions see of the steps inside a group.
    """
    act = m.state["acts"][unit["act"]]
    node = m.graph.nodes[act["step"]]
    if "timer" in unit:
        m.clear_timer(unit.pop("timer"))
    if not act["units"][unit["id"]]:
        unpark(m, unit)
    move(unit, "ready")
    unit.pop("counted", None)  # its next round makes another call
    if node.raises and outcome in node.raises and not routing.routes(node, outcome):
        attempt_failed(m, unit, _raised(node.raises[outcome], node, raw, unit.get("facts", {})))
        return
    output = raw
    if node.lock is not None and not _has_lock(m, unit, raw, outcome, past):
        return
    if node.output is not None or node.set or node.emit:
        extra: dict[str, Plain] = {"result": raw, "outcome": outcome, **_people(m, node, unit)}
        names = Names(m, act, unit, past, extra)
        try:
            if node.output is not None:
                output = evaluate(names, node.output)
            extra["output"] = output
            _write(m, node, act, unit, names)
            if node.emit:
                signals.emit(m, names, node.emit, f"{unit['id']}/{unit['attempt']}")
        except (StepFailure, EvaluationError) as failure:
            # The action has acted, whatever became of its result.
            leftovers.note_done(m, act, unit, raw, past)
            error = as_error(failure, m.address(unit), unit["tries"])
            unit_failed(m, unit, error, _ended_again(unit, raw, outcome, past))
            return
    if node.compensate >= 0:
        leftovers.note_done(m, act, unit, output, past)
    if "lock" in unit:
        locks.leave(m, unit)
    if node.loop is not None:
        round_ended(m, node, unit, output, outcome, past)
    else:
        unit_ended(m, unit, output, outcome)


def _people(m: Machine, node: Node, unit: Unit) -> dict[str, Plain]:
    """Return who approved a call that a model makes, and what they changed, for its output."""
    return {} if node.adapter is None else {"approval": call_questions.permission(m, unit)}


def _has_lock(m: Machine, unit: Unit, raw: Plain, outcome: str, past: int | None) -> bool:
    """Take the lock for what follows a wait or approval that did not hold it; others have it."""
    try:
        return locks.take(m, unit, entries.ended(unit["id"], raw, outcome))
    except (StepFailure, EvaluationError) as failure:
        leftovers.note_done(m, m.act_of(unit), unit, raw, past)
        error = as_error(failure, m.address(unit), unit["tries"])
        unit_failed(m, unit, error, _ended_again(unit, raw, outcome, past))
        return False


def _ended_again(unit: Unit, raw: Plain, outcome: str, past: int | None) -> Entry:
    """Return what follows when what comes after an attempt begins anew: the attempt stands."""
    if past is None:
        return entries.ended(unit["id"], raw, outcome)
    return entries.group_ended(unit["id"], raw, past)


def _raised(type: str, node: Node, raw: Plain, facts: dict[str, Plain]) -> StepFailure:
    """Return the error of an outcome that raises.

    Args:
        type: Its type.
        node: The step.
        raw: What its action gave.
        facts: What the flow that it ran gave beside that; `reason` says why.
    """
    why = f": {facts['reason']}" if facts.get("reason") else ""
    by = f" by {raw['by']}" if isinstance(raw, dict) and raw.get("by") else ""
    comment = f": {raw['comment']}" if isinstance(raw, dict) and raw.get("comment") else ""
    what = {
        "Rejected": f"{node.id!r} was rejected{by}{comment}",
        "Expired": f"{node.id!r} expired: nobody decided in time",
        "Timeout": f"{node.id!r} timed out: what it waited for did not come",
    }
    return StepFailure(type, what.get(type, f"{node.id!r} ended in {type}{why}"), raw)


def _write(m: Machine, node: Node, act: Activation, unit: Unit, names: Names) -> None:
    if node.set:
        later = variables.write(m, names, node.set, act)
        if later:
            act["writes"].setdefault(unit["item"], []).extend(later)


def attempt_failed(m: Machine, unit: Unit, failure: Failure) -> None:
    """Take the failure of an attempt: try again, or the unit has failed.

    Args:
        m: The advance at work.
        unit: The unit.
        failure: What the attempt ended with.
    """
    act = m.act_of(unit)
    budgets.forget_needs(unit)
    if isinstance(failure, dict):
        whose: ErrorData = {"step": m.address(unit), "attempt": unit["tries"], "cause": None}
        error: ErrorData = {**whose, **failure}
    else:
        error = as_error(failure, m.address(unit), unit["tries"])
    if error["type"] == "Refused":
        call_counts.forget(m, unit)
    again = (entries.uncertain if unit["phase"] == "run" else entries.attempt)(unit["id"])
    stop_attempt(m, unit)
    if not act["units"][unit["id"]]:
        unpark(m, unit)
    if not tries_again(m, unit, error):
        unit_failed(m, unit, error, again)
    elif not cleaning.first(m, "unit", unit, entries.pause(unit["id"], error), error):
        pause_before_attempt(m, unit, error)
