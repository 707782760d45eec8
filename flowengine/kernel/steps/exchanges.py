"""Calls that a task makes: its result names them, and its next round receives their answers.

    attempt ─► result with `calls`? ─ no ─► the task ends
       ▲          │ yes: a scope, in which each call is an activation of its callee's step
       └──────────┘ the answers, in the order of the calls


A call begins once all calls before it have been answered. Calls that may run `beside` others run
together with those next to them, and so do calls whose order a lock keeps. An error of a callee is
an answer. So is an error of the task itself, if it `catches` it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowengine.kernel import flow_state
from flowengine.kernel.ending.cleanup import clean_first
from flowengine.kernel.ending.closing import close_activation, remove_scope
from flowengine.kernel.ending.leftovers import hand_over
from flowengine.kernel.errors import StepFailure, as_error
from flowengine.kernel.events import ErrorData
from flowengine.kernel.expressions import provenance
from flowengine.kernel.expressions.names import Names
from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.graph.linked import Node
from flowengine.kernel.held_failures import hold_unbegun
from flowengine.kernel.limits.locks import park
from flowengine.kernel.state import entries
from flowengine.kernel.state.records import Activation, Calls, Scope, Unit
from flowengine.kernel.steps.scopes import open_scope
from flowengine.kernel.tokens import routing
from flowengine.kernel.tokens.activations import begin_new, put_activation
from flowengine.kernel.transition import Transition
from flowengine.kernel.waiting import call_questions, input_questions
from flowengine.kernel.waiting.waits import open_wait


def round_ended(tx: Transition, node: Node, unit: Unit, result: Plain) -> bool:
    """Write the state of a round, and make its calls.

    Args:
        node: The step, which makes calls.
        unit: Its unit, whose attempt has succeeded.
        result: Its result.

    Returns:
        Whether another round follows. Otherwise the task has ended.

    Raises:
        StepFailure: The state does not fit.
    """
    spec = node.exchange
    assert spec is not None
    act = tx.act_of(unit)
    fields: dict[str, Any] = unit  # type: ignore[assignment]
    heeded = not unit.get("replaced_reads", {}).keys().isdisjoint(spec["heeds"])
    if "reading" in tx.state:
        flow_state.stop_reading(tx, unit)
    unit.pop("replaced_reads", None)
    for field in ("answers", "caught", "unlimited"):
        fields.pop(field, None)
    pairs: list[list[Any]] = []
    for key, part in spec["keeps"]:
        if part in result:
            pairs.append([key, ["const", result[part]]])
    flow_state.write(tx, Names(tx, act, unit), pairs, act)
    if tx.observe is not None:
        tx.note(act, "succeeded", unit=unit, outcome="ok", output=result)
    if result.get("waits"):
        open_wait(tx, unit)
        park(tx, unit)
        return True
    made: list[Any] | None = result.get("calls")
    if made is None and not heeded:
        return False
    if not made:
        next_round(tx, unit, [])
        return True
    calls: Calls = {"made": made, "next": 0, "open": {}, "answers": [None] * len(made)}
    unit["calls"] = calls
    open_scope(tx, node.child, unit)
    _begin_calls(tx, unit)
    return True


def _begin_calls(tx: Transition, unit: Unit) -> None:
    """Begin the calls of a unit that need not wait for others, or end its calls."""
    calls = unit["calls"]
    made = calls["made"]
    while calls["next"] < len(made):
        number = calls["next"]
        if calls["open"] and not all(
            _is_beside(tx, unit, made[other]) for other in (*calls["open"], number)
        ):
            return
        calls["next"] += 1
        _begin_call(tx, unit, number)
    if not calls["open"]:
        tx.agenda.append(entries.calls_ended(unit["id"]))


def _is_beside(tx: Transition, unit: Unit, call: Mapping[str, Any]) -> bool:
    spec = tx.node(tx.act_of(unit)).exchange
    assert spec is not None
    callee = spec["callees"].get(call["callee"])
    lock = None if callee is None else tx.graph.node(callee).lock
    return bool(call.get("beside")) or (lock is not None and lock.get("ordered", False))


def _begin_call(tx: Transition, unit: Unit, number: int) -> None:
    caller = tx.node(tx.act_of(unit))
    assert caller.exchange is not None
    calls, scope = unit["calls"], tx.state["scopes"][unit["scope"]]
    call = calls["made"][number]
    step = caller.exchange["callees"].get(call["callee"])
    if step is None:  # the execution has moved to a flow without it
        gone = StepFailure("Refused", f"{call['callee']!r} no longer exists", retryable=False)
        calls["answers"][number] = {"error": as_error(gone, tx.address(unit))}
        return
    token: Any = {
        "past": provenance.share(tx.state, scope["past"]),
        "line": [*tx.act_of(unit)["line"], number],
        "marks": {},
    }
    act = put_activation(tx, scope, step, [], token)
    act["call"], act["local"] = number, {"call": call}
    flow_state.learn(act, scope.get("knows"))
    calls["open"][number] = True
    begin_new(tx, act)


def answered(tx: Transition, act: Activation, output: Plain, error: ErrorData | None) -> None:
    """Store the answer to a call, and begin those that waited for it.

    Args:
        act: The activation of the callee, which has no running work.
        output: Its output.
        error: Its error, if it has failed.
    """
    again = entries.answered(act["id"], output, error)
    if error is not None and clean_first(tx, "act", act, again, error):
        return
    scope = tx.scope_of(act)
    unit = tx.state["units"][scope["unit"]]
    calls, number = unit["calls"], act["call"]
    answer: dict[str, Plain] = {"output": output} if error is None else {"error": error}
    said: Any = act.get("approval") or {}
    if notes := {key: said[key] for key in ("edits", "comment") if said.get(key)}:
        answer["approval"] = notes
    calls["answers"][number] = answer
    del calls["open"][number]
    if error is not None and calls["made"][number].get("ends"):
        _withdraw_others(tx, unit, act)
    hand_over(tx, act)
    routing.forget_activation(tx, act)
    provenance.drop(tx.state, act["past"])
    _begin_calls(tx, unit)


def _withdraw_others(tx: Transition, unit: Unit, failed: Activation) -> None:
    """Withdraw the other calls of a round, because one of them has failed."""
    calls = unit["calls"]
    for number in list(tx.scope_of(failed)["live"]):
        if number != failed["id"]:
            close_activation(tx, tx.state["acts"][number])
    why = StepFailure("Cancelled", "a call beside it has failed", retryable=False)
    error = as_error(why, tx.address(unit))
    calls["answers"] = [answer or {"error": error} for answer in calls["answers"]]
    calls["next"], calls["open"] = len(calls["made"]), {}


def calls_ended(tx: Transition, unit: Unit) -> None:
    """Close the scope of the calls of a unit, which are all answered."""
    calls = unit.pop("calls")
    scope: Scope = tx.state["scopes"][unit["scope"]]
    remove_scope(tx, scope)
    then = entries.calls_answered(unit["id"], calls)
    if "finals" not in unit or not clean_first(tx, "unit", unit, then):
        tx.agenda.append(then)


def keep_answers(tx: Transition, unit: Unit, calls: Calls) -> None:
    """Add the answers to calls with an `entry` to the state, and begin the next round."""
    act = tx.act_of(unit)
    spec = tx.node(act).exchange
    assert spec is not None
    kept: dict[str, list[Any]] = {}
    for call, answer in zip(calls["made"], calls["answers"], strict=True):
        if "entry" in call:
            key = call.get("into", spec["answers"])
            kept.setdefault(key, []).append({**call["entry"], **answer})
    pairs = [[key, ["const", entries]] for key, entries in kept.items()]
    flow_state.write(tx, Names(tx, act, unit), pairs, act)
    next_round(tx, unit, calls["answers"])


def next_round(tx: Transition, unit: Unit, answers: list[Any]) -> None:
    """Begin the next round of a task, with answers."""
    unit["answers"] = answers
    unit["round"] += 1
    unit["tries"] = 0
    if "shown" in unit or "answers" in tx.state:
        call_questions.forget_question(tx, unit)
        input_questions.forget(tx, unit)
    then = entries.attempt(unit["id"])
    if not hold_unbegun(tx, tx.act_of(unit), unit, then):
        tx.agenda.append(then)


def catches(tx: Transition, unit: Unit, error: ErrorData) -> bool:
    """Pass an error of a task to its next round, if the task catches it.

    A round that learns of an exhausted budget is not limited by it. A round that received an error
    must not fail: a task that only raises would go on without end.

    Args:
        unit: The unit, whose attempt has failed.
        error: The error.
    """
    spec = tx.node(tx.act_of(unit)).exchange
    if spec is None or not {error["type"], "*"}.intersection(spec["catches"]):
        return False
    if error["type"] == "Cancelled" or "caught" in unit:
        return False
    tx.note(tx.act_of(unit), "failed", unit=unit, error=error)
    if error["type"] == "BudgetExceeded":
        unit["unlimited"] = True
    unit["caught"] = error
    next_round(tx, unit, unit.get("answers", []))
    return True
