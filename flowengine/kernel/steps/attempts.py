"""Attempts: a unit performs its step's action (docs/language.md: Actions, Modifiers).

attempt ─► permitted? ─► budget? ─► lock? ─► none, fail, cancel   end inside this event
                                             task                 runs outside: `Run`, then
                                                                  `succeeded` or `failed`
                                             group, flow          opens a scope
                                             wait, approval       opens a wait

`retries` and `loops` repeat attempts. `attempt_outcomes` processes their end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowengine.kernel.commands import Run
from flowengine.kernel.ending.cleanup import clean_first
from flowengine.kernel.ending.closing import close_scope, stop_attempt
from flowengine.kernel.ending.leftovers import no_longer_wait
from flowengine.kernel.errors import StepFailure
from flowengine.kernel.events import ErrorData
from flowengine.kernel.expressions.names import (
    Names,
    evaluate,
    regions,
)
from flowengine.kernel.flow_state import begin_reading, values
from flowengine.kernel.graph.compiled import EvaluationError, Plain, join_secrets, split_secrets
from flowengine.kernel.graph.linked import Node
from flowengine.kernel.limits import shared_budgets
from flowengine.kernel.limits.background import begin, child_of
from flowengine.kernel.limits.budgets import charge_unit, grant, is_low, reserve
from flowengine.kernel.limits.call_counts import count, uncount
from flowengine.kernel.limits.locks import acquire, leave_lock, line_up, park, unpark, would_keep
from flowengine.kernel.limits.meters import has_to_measure, needs_as_counted
from flowengine.kernel.limits.shared_budgets import waits
from flowengine.kernel.state import entries
from flowengine.kernel.state.moves import move
from flowengine.kernel.state.records import Activation, Unit
from flowengine.kernel.steps.scopes import open_scope
from flowengine.kernel.steps.subflows import enter
from flowengine.kernel.transition import Transition
from flowengine.kernel.waiting import budget_questions, input_questions
from flowengine.kernel.waiting.approvals import open_approval
from flowengine.kernel.waiting.call_questions import arguments, forget_question, permission
from flowengine.kernel.waiting.input_questions import given as inputs_of
from flowengine.kernel.waiting.permissions import ask_anew, may_begin, without_approvals
from flowengine.kernel.waiting.waits import duration_of, open_wait

BUDGETED = frozenset({"budget", "frames"})
"""Keys of a state in which calls are counted."""
SUPERVISED = frozenset({"budget", "frames", "answers"})
"""Keys of a state in which an attempt may have to wait, or has an answer to a question."""
PREPARED = frozenset({"asks", "shown", "needs", "granted", "fallback", "args", "key", "secrets"})
"""Fields of a unit that are set if more than the input of its attempts was prepared."""


def attempt(tx: Transition, unit: Unit) -> None:
    """Begin an attempt of a unit's action.

    Args:
        unit: The unit, in phase `ready` or `pause`.
    """
    act = tx.state["acts"][unit["act"]]
    node = tx.graph.nodes[act["step"]]
    if tx.blame is not None:
        tx.blame.forget(("unit", unit["id"]))
    if node.bare and SUPERVISED.isdisjoint(tx.state) and PREPARED.isdisjoint(unit):
        _run_bare(tx, node, act, unit)
    elif node.lock is not None and "lock" not in unit and not _has_place(tx, node, unit):
        return
    elif not (node.asks or node.approval or "asks" in unit) or may_begin(tx, unit):
        _begin_permitted(tx, node, unit)


def _begin_permitted(tx: Transition, node: Node, unit: Unit) -> None:
    """Begin a permitted attempt, once budget and lock allow it."""
    refused: StepFailure | None = None
    # Before the lock, so that it is not held during a human decision.
    if _is_budgeted(tx, node, unit):
        try:
            if budget_questions.waits(tx, unit, entries.attempt(unit["id"])):
                return
        except StepFailure as failure:
            refused = failure
    if refused is None and not _has_claims(tx, node, unit):
        return
    unit["attempt"] += 1
    unit["tries"] += 1
    try:
        if refused is not None:
            uncount(tx, unit)
            raise refused
        if node.timeout is not None:
            limit(tx, node, unit)
        if node.action == "task":
            # Otherwise it keeps the input that was approved, or that its needs were computed from.
            if "shown" not in unit and "needs" not in unit:
                _prepare(tx, node, unit)
            if node.background is not None:
                begin(tx, unit, node)
            run(tx, unit)
        else:
            _act(tx, node, unit)
    except (StepFailure, EvaluationError) as failure:
        if "reserved" in tx.state:
            shared_budgets.give_back(tx, unit["id"], None, ran=False)
        tx.agenda.append(entries.attempt_failed(unit["id"], failure))


def _run_bare(tx: Transition, node: Node, act: Activation, unit: Unit) -> None:
    """Run an attempt that needs only its input, in place of `_prepare` and `run`."""
    unit["attempt"] += 1
    unit["tries"] += 1
    if node.input is not None:
        try:
            make = node.make_input
            assert make is not None
            unit["input"] = node.input[1] if node.fixed else make(Names(tx, act, unit))
        except (StepFailure, EvaluationError) as failure:
            tx.agenda.append(entries.attempt_failed(unit["id"], failure))
            return
    move(unit, "run")
    tx.state["running"] += 1
    tx.begun.add(unit["id"])
    is_alone = unit["item"] < 0 and not unit["round"]
    address = tx.step_address(act) if is_alone else tx.address(unit)
    given = unit.get("input")
    command = Run(unit["id"], unit["attempt"], node.index, address, None, given, None, at=tx.now)
    tx.commands.append(command)
    if tx.observe is not None:
        if tx.brief:
            tx.observe.append(command)
        else:
            tx.note(act, "running", unit=unit)


def _has_place(tx: Transition, node: Node, unit: Unit) -> bool:
    """Return whether a unit has its place for an ordered lock, or needs none.

    If not, it has failed. This comes before any question, so that the unit keeps its position in
    the queue regardless of when the answer comes.
    """
    assert node.lock is not None
    if not node.lock.get("ordered"):
        return True

    try:
        line_up(tx, unit, entries.attempt(unit["id"]))
    except (StepFailure, EvaluationError) as failure:
        tx.agenda.append(entries.attempt_failed(unit["id"], failure))
        return False
    return True


def _has_claims(tx: Transition, node: Node, unit: Unit) -> bool:
    """Acquire the lock of a step, then the reservations of a call in budgets that are shared."""
    if node.lock is not None and not _has_lock(tx, node, unit):
        return False
    return not _is_budgeted(tx, node, unit) or not waits(tx, unit, entries.attempt(unit["id"]))


def _is_budgeted(tx: Transition, node: Node, unit: Unit) -> bool:
    """Return whether a budget can limit an attempt."""
    return node.action == "task" and not BUDGETED.isdisjoint(tx.state) and "unlimited" not in unit


def _has_lock(tx: Transition, node: Node, unit: Unit) -> bool:
    """Acquire the lock of a step before its action, unless it waits without the lock."""
    assert node.lock is not None
    if node.action in ("wait", "approval") and not node.lock.get("hold"):
        return True

    try:
        return acquire(tx, unit, entries.attempt(unit["id"]))
    except (StepFailure, EvaluationError) as failure:
        tx.agenda.append(entries.attempt_failed(unit["id"], failure))
        return False


def limit(tx: Transition, node: Node, unit: Unit) -> None:
    """Set the timer of `timeout`, if declared."""
    if node.timeout is not None:
        delay = duration_of(evaluate(Names(tx, tx.act_of(unit), unit), node.timeout), "timeout")
        unit["timer"] = tx.set_timer(delay, "timeout", unit["id"])


def _act(tx: Transition, node: Node, unit: Unit) -> None:
    """Perform an action that ends, or waits, inside the flow."""
    action = node.action
    if action == "none":
        tx.agenda.append(entries.ended(unit["id"], None, "ok"))
    elif action == "group":
        tx.note(tx.act_of(unit), "running", unit=unit)
        open_scope(tx, node.child, unit)
    elif action == "flow":
        enter(tx, unit)
    elif action == "wait":
        open_wait(tx, unit)
        park(tx, unit)
    elif action == "approval":
        open_approval(tx, unit)
        park(tx, unit)
    elif action == "fail":
        _fail(tx, node, unit)
    else:
        tx.agenda.append(entries.cancel(unit["id"]))


def _prepare(tx: Transition, node: Node, unit: Unit) -> None:
    """Evaluate the input of a task. Texts that name secrets are stored as references."""
    if node.reads:
        begin_reading(tx, node, unit)
    unit.pop("fallback", None)
    if node.meters is not None and is_low(tx, unit):
        unit["fallback"] = True
    if node.fixed and not node.asks:
        if node.input is not None:
            unit["input"] = node.input[1]
        return
    names = Names(tx, tx.state["acts"][unit["act"]], unit)
    if node.args is not None:
        unit["args"] = arguments(tx, unit, names)
        names.extra = {"args": unit["args"]}
    if node.key is not None:
        unit["key"] = str(evaluate(names, node.key))
    if node.input is not None:
        make = node.make_input
        given = evaluate(names, node.input) if make is None else make(names)
        if node.asks:
            given = {**given, "environments": without_approvals(given["environments"])}
        if node.secret:
            unit["secrets"] = []
            given = split_secrets(given, [], unit["secrets"])
        unit["input"] = given
    if node.counts and node.approval is None:
        _count(tx, node, unit)


def _count(tx: Transition, node: Node, unit: Unit) -> None:
    """Count a call without an approval, now that its arguments are known."""
    given: Any = unit["input"]["input"] if node.environments else unit["input"]
    tool = node.tool
    if tool.endswith(".*"):
        tool = f"{tool[:-1]}{given['offered']['tool']}"
    args: Any = unit["args"] if node.args is not None else given["args"]
    if node.args is None and "bind" in given:
        args = {**args, **given["bind"]}
    count(tx, unit, args, tool)


def run(tx: Transition, unit: Unit) -> None:
    """Run the prepared attempt of a unit."""
    move(unit, "run")
    act = tx.state["acts"][unit["act"]]
    node = tx.graph.nodes[act["step"]]
    measures = False
    if node.meters is not None and "unlimited" not in unit:
        measures = has_to_measure(tx, unit, node)
    if "needs" in unit:
        grant(tx, unit)
    else:
        unit.pop("granted", None)
    if "budget" in tx.state or "frames" in tx.state:
        reserve(tx, unit["id"], act)
    else:
        tx.state["running"] += 1
        tx.begun.add(unit["id"])
    if tx.observe is not None and not measures:
        tx.note(act, "running", unit=unit)
    given = unit.get("input")
    if "secrets" in unit:
        given = join_secrets(given, unit["secrets"])
    around: tuple[int, ...] = ()
    environments: Plain = None
    if node.environments:
        assert given is not None
        around, environments, given = regions(tx, unit), given["environments"], given["input"]
    read = given_by = inputs = None
    if node.reads:
        read = values(tx, node, unit)
    if "answers" in tx.state:
        given_by, inputs = permission(tx, unit), inputs_of(tx, unit)
    child = None
    if node.background is not None:
        child = child_of(tx, unit)
    tx.commands.append(
        Run(
            unit["id"],
            unit["attempt"],
            act["step"],
            tx.address(unit),
            unit.get("args"),
            given,
            unit.get("key"),
            around,
            environments,
            read,
            "fallback" in unit,
            given_by,
            measures,
            unit.get("granted"),
            tx.now,
            child,
            inputs,
            unit.get("answers"),
            unit.get("caught"),
        )
    )


def measured(tx: Transition, unit: Unit, needs: Mapping[str, Plain]) -> None:
    """Begin an attempt whose needs have been computed, if the budgets have room.

    Args:
        unit: The unit, in phase `run`. Its attempt has not done any work yet.
        needs: As in the event.
    """
    charge_unit(tx, unit, ran=False)
    move(unit, "ready")
    if "timer" in unit:
        tx.clear_timer(unit.pop("timer"))
    unit["attempt"] -= 1
    unit["tries"] -= 1
    unit["needs"] = needs_as_counted(needs)
    tx.agenda.append(entries.attempt(unit["id"]))


def _fail(tx: Transition, node: Node, unit: Unit) -> None:
    assert node.input is not None
    given = evaluate(Names(tx, tx.act_of(unit), unit), node.input)
    tx.agenda.append(entries.attempt_failed(unit["id"], raised(given)))


def raised(given: Plain) -> StepFailure | ErrorData:
    """Return the error that a `fail` describes as `{type, message, data, retryable}`.

    `{error}` is a caught error, which stays unchanged.

    Args:
        given: The value of the `fail`.

    Raises:
        StepFailure: `ValidationError`: the value to be raised again is not an error.
    """
    if "error" in given:
        return _caught(given["error"])
    return StepFailure(
        given.get("type") or "Failed",
        given.get("message") or "",
        given.get("data"),
        bool(given.get("retryable", False)),
    )


def _caught(value: Plain) -> ErrorData:
    named = isinstance(value, dict) and isinstance(value.get("type"), str) and value["type"]
    if not named or not isinstance(value.get("message"), str):
        kinds: dict[type, str] = {dict: "a map without 'type' and 'message'", str: "text"}
        kinds |= {list: "a list", type(None): "null"}
        what = kinds.get(type(value), repr(value))
        message = f"'fail' can only raise an error again, but this is {what}"
        raise StepFailure("ValidationError", message)
    error: ErrorData = {"type": value["type"], "message": value["message"]}
    for key, kind in (("data", object), ("step", str), ("attempt", int), ("retryable", bool),
                      ("retry_after", int), ("source", str), ("cause", dict | None)):  # fmt: skip
        if key in value and isinstance(value[key], kind):
            error[key] = value[key]  # type: ignore[literal-required]
    return error


def begin_anew(tx: Transition, unit: Unit) -> None:
    """Restart the attempt of a unit and evaluate its input again (`retry`, forks).

    Args:
        unit: The unit, in any phase. If its attempt was running, it has ended.
    """
    if unit["phase"] == "run":
        charge_unit(tx, unit)
        move(unit, "ready")
    elif unit["phase"] == "scope":
        close_scope(tx, tx.state["scopes"][unit["scope"]])
        unit.pop("calls", None)
    elif unit["phase"] == "asked":
        ask_anew(tx, unit)
    forget_question(tx, unit)
    input_questions.forget(tx, unit)
    stop_attempt(tx, unit)
    unpark(tx, unit)
    no_longer_wait(tx, unit)
    if not would_keep(tx, unit):
        leave_lock(tx, unit)
    unit["tries"] = 0
    if not clean_first(tx, "unit", unit, entries.attempt(unit["id"])):
        attempt(tx, unit)
