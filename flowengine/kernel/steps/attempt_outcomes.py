"""The end of an attempt, of its round and of its unit (docs/language.md: Steps).

    succeeded ─► output ─► set ─► emit ─► loop? ─► unit ─► item of a map? ─► activation ─► next
    failed ─► retry? ─► unit ─► item of a map? ─► activation ─► on_error ─► the scope fails

A plain step has one unit and ends with it. Under `map` each item has a unit, and `maps` counts
them. `activation_outcomes` handles the end of the whole step.
"""

from __future__ import annotations

from typing import TypeAlias

from flowengine.kernel import flow_state
from flowengine.kernel.ending.cleanup import clean_first
from flowengine.kernel.ending.closing import release_region, stop_attempt
from flowengine.kernel.ending.leftovers import note_done, pass_finals
from flowengine.kernel.errors import StepFailure, as_error
from flowengine.kernel.events import ErrorData
from flowengine.kernel.expressions import provenance
from flowengine.kernel.expressions.names import Names, evaluate, holds
from flowengine.kernel.flow_state import learn, stop_reading
from flowengine.kernel.graph.compiled import EvaluationError, Plain
from flowengine.kernel.graph.linked import Node
from flowengine.kernel.held_failures import hold_unit
from flowengine.kernel.limits.background import withdraw
from flowengine.kernel.limits.call_counts import uncount
from flowengine.kernel.limits.locks import acquire, leave_lock, unpark
from flowengine.kernel.messages import emit
from flowengine.kernel.state import entries
from flowengine.kernel.state.entries import Entry
from flowengine.kernel.state.moves import move
from flowengine.kernel.state.records import Activation, Unit
from flowengine.kernel.steps.activation_outcomes import activation_ended, activation_failed
from flowengine.kernel.steps.exchanges import catches, next_round
from flowengine.kernel.steps.exchanges import round_ended as round_follows
from flowengine.kernel.steps.loops import (
    begin_round,
    of_loop,
    pause_before_attempt,
    pause_before_round,
    tries_again,
)
from flowengine.kernel.steps.maps import counted, item_failed, item_leaves
from flowengine.kernel.tokens import routing
from flowengine.kernel.transition import Transition
from flowengine.kernel.waiting.call_questions import permission

Failure: TypeAlias = "StepFailure | EvaluationError | ErrorData"


def attempt_ended(
    tx: Transition, unit: Unit, raw: Plain, outcome: str, past: int | None = None
) -> None:
    """Process the result of an attempt that succeeded.

    Args:
        tx: The transition.
        unit: The unit.
        raw: The result of the action.
        outcome: The outcome of the action.
        past: The past of the steps inside a group, for the expressions of its step.
    """
    act = tx.state["acts"][unit["act"]]
    node = tx.graph.nodes[act["step"]]
    if "timer" in unit:
        tx.clear_timer(unit.pop("timer"))
    if not act["units"][unit["id"]]:
        unpark(tx, unit)
    has_waited = unit["phase"] == "wait"
    move(unit, "ready")
    unit.pop("counted", None)  # its next round makes another call
    if node.raises and outcome in node.raises and not routing.routes(node, outcome):
        attempt_failed(tx, unit, _raised(node.raises[outcome], node, raw, unit.get("facts", {})))
        return
    if node.exchange is not None:
        _end_round(tx, node, unit, raw, has_waited=has_waited)
    elif node.lock is None or _has_lock(tx, unit, raw, outcome, past):
        _apply(tx, node, act, unit, raw, outcome, past)


def _apply(
    tx: Transition,
    node: Node,
    act: Activation,
    unit: Unit,
    raw: Plain,
    outcome: str,
    past: int | None,
) -> None:
    """Evaluate the output of an attempt, make its writes, and end its round or unit."""
    output = raw
    if node.output is not None or node.set or node.emit:
        extra: dict[str, Plain] = {"result": raw, "outcome": outcome}
        names = Names(tx, act, unit, past, extra)
        try:
            if node.output is not None:
                output = evaluate(names, node.output)
            extra["output"] = output
            _write(tx, node, act, unit, names)
            if node.emit:
                emit(tx, names, node.emit, f"{unit['id']}/{unit['attempt']}")
        except (StepFailure, EvaluationError) as failure:
            # The action has taken effect, even if its result cannot be used.
            note_done(tx, act, unit, raw, past)
            error = as_error(failure, tx.address(unit), unit["tries"])
            unit_failed(tx, unit, error, _ended_again(unit, raw, outcome, past))
            return
    if node.compensate >= 0:
        note_done(tx, act, unit, output, past)
    if "lock" in unit:
        leave_lock(tx, unit)
    if node.loop is not None:
        round_ended(tx, node, unit, output, outcome, past)
    else:
        unit_ended(tx, unit, output, outcome)


def _end_round(tx: Transition, node: Node, unit: Unit, result: Plain, *, has_waited: bool) -> None:
    """End a round of a task that makes calls, and the task unless another round follows."""
    if has_waited:
        next_round(tx, unit, [])
        return
    try:
        if round_follows(tx, node, unit, result):
            return
    except StepFailure as failure:
        unit_failed(tx, unit, as_error(failure, tx.address(unit), unit["tries"]))
        return
    if "error" in result:
        unit_failed(tx, unit, result["error"])
    else:
        # Its rounds have their results, and what it keeps of them is in the state.
        unit_ended(tx, unit, None, result.get("outcome", "ok"))


def _has_lock(tx: Transition, unit: Unit, raw: Plain, outcome: str, past: int | None) -> bool:
    """Acquire the lock for the writes after a wait or approval that did not hold it."""
    try:
        return acquire(tx, unit, entries.ended(unit["id"], raw, outcome))
    except (StepFailure, EvaluationError) as failure:
        note_done(tx, tx.act_of(unit), unit, raw, past)
        error = as_error(failure, tx.address(unit), unit["tries"])
        unit_failed(tx, unit, error, _ended_again(unit, raw, outcome, past))
        return False


def _ended_again(unit: Unit, raw: Plain, outcome: str, past: int | None) -> Entry:
    """Return the entry that processes the result of an attempt again."""
    if past is None:
        return entries.ended(unit["id"], raw, outcome)
    return entries.group_ended(unit["id"], raw, past)


def _raised(type: str, node: Node, raw: Plain, facts: dict[str, Plain]) -> StepFailure:
    """Return the error of an outcome that raises one.

    Args:
        type: The error type.
        node: The step.
        raw: The result of its action.
        facts: Facts beside the result of its subflow. `reason` explains the outcome.
    """
    why = f": {facts['reason']}" if facts.get("reason") else ""
    by = f" by {raw['by']}" if isinstance(raw, dict) and raw.get("by") else ""
    comment = f": {raw['comment']}" if isinstance(raw, dict) and raw.get("comment") else ""
    what = {
        "Rejected": f"{node.id!r} was rejected{by}{comment}",
        "Expired": f"{node.id!r} expired without a decision",
        "Timeout": f"{node.id!r} timed out: its event did not come",
    }
    return StepFailure(type, what.get(type, f"{node.id!r} ended in {type}{why}"), raw)


def _write(tx: Transition, node: Node, act: Activation, unit: Unit, names: Names) -> None:
    if node.set:
        later = flow_state.write(tx, names, node.set, act)
        if later:
            act["writes"].setdefault(unit["item"], []).extend(later)


def attempt_failed(tx: Transition, unit: Unit, failure: Failure) -> None:
    """Process the failure of an attempt: try again, or fail the unit.

    Args:
        tx: The transition.
        unit: The unit.
        failure: The failure of the attempt.
    """
    act = tx.act_of(unit)
    unit.pop("needs", None)
    if "children" in tx.state and tx.node(act).background is not None:
        withdraw(tx, unit, failure)
    if isinstance(failure, dict):
        whose: ErrorData = {"step": tx.address(unit), "attempt": unit["tries"], "cause": None}
        error: ErrorData = {**whose, **failure}
    else:
        error = as_error(failure, tx.address(unit), unit["tries"])
    if error["type"] == "Refused":
        uncount(tx, unit)
    again = (entries.uncertain if unit["phase"] == "run" else entries.attempt)(unit["id"])
    stop_attempt(tx, unit)
    unit.pop("calls", None)
    if not act["units"][unit["id"]]:
        unpark(tx, unit)
    if not tries_again(tx, unit, error):
        if not catches(tx, unit, error):
            unit_failed(tx, unit, error, again)
    elif not clean_first(tx, "unit", unit, entries.pause(unit["id"], error), error):
        pause_before_attempt(tx, unit, error)


# Rounds


def round_ended(
    tx: Transition, node: Node, unit: Unit, output: Plain, outcome: str, past: int | None
) -> None:
    """Test `until` after a round. The next round begins after its pause.

    The caller does nothing after this.
    """
    assert node.loop is not None
    unit["last"] = output
    if node.loop.get("keep"):
        unit.setdefault("outputs", []).append(output)
    if past is not None and "before" in node.loop:
        provenance.drop(tx.state, unit.get("seen", 0))
        unit["seen"] = provenance.share(tx.state, past)
    if tx.observe is not None:
        tx.note(tx.act_of(unit), "succeeded", unit=unit, outcome=outcome, output=output)
    unit["tries"] = 0
    test_until(tx, unit, output, outcome, past)


def test_until(tx: Transition, unit: Unit, output: Plain, outcome: str, past: int | None) -> None:
    """Test `until` after a round whose output has been stored."""
    act = tx.state["acts"][unit["act"]]
    node = tx.graph.nodes[act["step"]]
    if node.loop is not None and "until" in node.loop:
        names = Names(tx, act, unit, past, {"output": output, "outcome": outcome})
        try:
            done = holds(names, node.loop["until"])
        except EvaluationError as failure:
            again = entries.test_until(unit["id"], output, outcome, past)
            unit_failed(tx, unit, as_error(failure, tx.address(unit)), again)
            return
        if done:
            unit_ended(tx, unit, of_loop(node, unit, output), outcome)
            return
    if past is not None or tx.agenda or node.loop is None or "every" in node.loop:
        pause_before_round(tx, unit)
    else:  # no other work can come between
        begin_round(tx, unit)


# Units


def unit_ended(tx: Transition, unit: Unit, output: Plain, outcome: str = "ok") -> None:
    """End a unit that has succeeded. Its step continues, or its map counts an item."""
    act = tx.state["acts"][unit["act"]]
    if unit["item"] >= 0 and tx.node(act).each:
        _leave_map(tx, act, unit, output, outcome)
        return
    _remove_unit(tx, act, unit)
    if unit["item"] < 0:
        activation_ended(tx, act, "succeeded", outcome, output)
        return
    if tx.observe is not None:
        tx.note(act, "succeeded", unit=unit, outcome=outcome, output=output)
    act["results"][unit["item"]] = ["succeeded", output, None]
    act["succeeded"] += 1

    counted(tx, act)


def unit_failed(tx: Transition, unit: Unit, error: ErrorData, again: Entry | None = None) -> None:
    """End a unit that has failed for good.

    Args:
        tx: The transition.
        unit: The unit.
        error: The error.
        again: The entry to process if it begins again. None: its attempt.
    """
    act = tx.act_of(unit)
    stop_attempt(tx, unit)
    if hold_unit(tx, unit, again or entries.attempt(unit["id"])):
        return
    is_item = unit["item"] >= 0
    holds_on = is_item or "has_lock" in unit
    if holds_on and clean_first(tx, "unit", unit, entries.unit_failed(unit["id"], error), error):
        return
    if unit["round"] and unit["tries"] and not is_item:
        tx.note(act, "failed", unit=unit, error=error)
    _remove_unit(tx, act, unit)
    if not is_item:
        if tx.blame is not None:
            tx.blame.note(("act", act["id"]), ("unit", unit["id"]))
        activation_failed(tx, act, error)
    else:
        item_failed(tx, act, unit, error)


def _leave_map(tx: Transition, act: Activation, unit: Unit, output: Plain, outcome: str) -> None:
    """Send an item along `next` as a separate token. If it has no target, the item fails."""
    node = tx.node(act)
    try:
        targets = routing.choose(
            node, Names(tx, act, extra={"output": output, "outcome": outcome}), outcome
        )
    except (StepFailure, EvaluationError) as failure:
        again = entries.unit_ended(unit["id"], output, outcome)
        unit_failed(tx, unit, as_error(failure, tx.address(unit)), again)
        return
    _remove_unit(tx, act, unit)

    item_leaves(tx, act, unit, targets, output, outcome)


def _remove_unit(tx: Transition, act: Activation, unit: Unit) -> None:
    if "call" in act:
        act["approval"] = permission(tx, unit)
    if act["units"].pop(unit["id"]):
        act["busy"] -= 1
        if act["units"] and not act["busy"]:
            tx.touch(act["scope"])  # the remaining items wait, so the scope may rest
    if tx.graph.regions or "answers" in tx.state:
        release_region(tx, unit)
    if "reading" in tx.state:
        stop_reading(tx, unit)
    del tx.state["units"][unit["id"]]
    if "knows" in unit:
        learn(act, unit["knows"])
    if "finals" in unit:
        pass_finals(unit, act)
    if "lock" in unit:
        leave_lock(tx, unit)
    if "seen" in unit:
        provenance.drop(tx.state, unit["seen"])
    act["rounds"] = unit["round"]
    act["attempts"] = unit["attempt"]
    if "facts" in unit:
        act["facts"] = unit["facts"]
