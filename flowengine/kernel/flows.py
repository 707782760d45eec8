"""A flow as a whole: its start, its error handlers, its end.

See docs/language.md: on_error, Crashes.

The main flow and subflows are processed in the same way. The end of the main flow ends the
execution. The end of a subflow lets its step continue or fail, and its `finally` runs like that of
a group.
"""

from __future__ import annotations

from typing import Any

from flowengine.kernel import flow_state
from flowengine.kernel.commands import Claim, End, Notify
from flowengine.kernel.ending.cleanup import clean_first, compensate_in
from flowengine.kernel.ending.closing import (
    close_activation,
    empty_scope,
    remove_scope,
    stop_timeout,
)
from flowengine.kernel.ending.leftovers import final_of, stop_settling
from flowengine.kernel.errors import StepFailure, as_error, caused
from flowengine.kernel.events import ErrorData, Granted, Started
from flowengine.kernel.expressions import provenance
from flowengine.kernel.expressions.names import Names, evaluate, of_scope
from flowengine.kernel.flow_state import learn
from flowengine.kernel.graph.compiled import EvaluationError, Plain
from flowengine.kernel.graph.linked import GraphFlow
from flowengine.kernel.graph.specs import HandlerSpec
from flowengine.kernel.limits import locks, shared_budgets
from flowengine.kernel.limits.background import notify_parent
from flowengine.kernel.limits.budgets import new_budget
from flowengine.kernel.limits.shared_budgets import declare
from flowengine.kernel.messages import emit, take_kept
from flowengine.kernel.notation.times import parse_duration
from flowengine.kernel.state import entries, moves
from flowengine.kernel.state.records import Scope
from flowengine.kernel.steps.handlers import find, instead
from flowengine.kernel.steps.scopes import first_line, hold_end, keep_for_finally, open_scope, start
from flowengine.kernel.tokens import routing
from flowengine.kernel.transition import Transition, require
from flowengine.kernel.waiting.budget_questions import withdraw_idle


def begin_execution(tx: Transition, event: Started) -> None:
    """Start the execution: inputs, state, signal keys, the first tokens.

    Args:
        event: The first event of the journal.
    """
    state = tx.state
    flow = tx.graph.flows[0]
    state["inputs"] = event["inputs"]
    state["execution"] = event["execution"]
    state["vars"] = flow_state.initial(flow)
    if "triggered" in tx.graph.flow:
        state["triggered"] = 0
    if flow.budget is not None or event.get("budget") is not None:
        budget = new_budget(flow.budget, event.get("budget"))
        if budget is not None:
            state["budget"] = budget
    names = Names(tx, None)
    bound = tx.graph.flow.get("concurrency")
    scope = open_scope(tx, 0, None, queued=bound is not None)
    try:
        if flow.shared_budgets or "background" in state["execution"]:
            declare(tx, names, 0)
        if bound is not None:
            _queue(tx, names, bound)
        for signal, spec in flow.signals.items():
            if spec.get("key") is not None:
                state["keys"][signal] = str(evaluate(names, spec["key"]))
    except EvaluationError as failure:
        tx.agenda.append(entries.scope_failed(scope["id"], as_error(failure, "")))
    duration = flow.limits.get("duration")
    if duration:
        tx.set_timer(parse_duration(duration), "duration", scope["id"])


def _queue(tx: Transition, names: Names, bound: dict[str, Plain]) -> None:
    """Claim a place among the executions of the flow, before any other work."""
    key = str(evaluate(names, bound["key"])) if "key" in bound else ""
    name = f"concurrency {tx.graph.flow['id']}:{key}"
    tx.state["bound"] = [name, bound["max"], bound["then"]]
    tx.state["claims"] = {0: name}
    tx.commands.append(Claim(name, 0, bound["max"], bound["then"]))


def lock_granted(tx: Transition, event: Granted) -> None:
    """Resume the holder of a lock that executions share: a unit, or the start of the flow.

    Args:
        event: The granted lock. If no claim for it is waiting, nothing changes.
    """
    number = event["unit"]
    if tx.state.get("claims", {}).get(number) != event["lock"]:
        return

    if number in tx.state.get("reserved", ()):
        shared_budgets.granted(tx, tx.state["units"][number], event)
        return
    if number:
        locks.lock_granted(tx, tx.state["units"][number])
        return
    locks.forget_claim(tx, 0)
    scope = tx.root()
    if moves.unqueue(scope):
        start(tx, scope, first_line(tx))
        if not moves.is_queued(scope):
            take_kept(tx)


def fail_scope(tx: Transition, scope: Scope, error: ErrorData) -> None:
    """End a scope with an unhandled error and withdraw its other tokens.

    Args:
        error: The first such error. It keeps its type.
    """
    empty_scope(tx, scope)
    if tx.graph.body(scope["body"]).kind != "flow":
        unit = tx.state["units"][scope["unit"]]
        scope["error"] = error
        remove_scope(tx, scope)
        if tx.blame is not None:
            tx.blame.note(("unit", unit["id"]), ("scope", scope["id"]))
        tx.agenda.append(entries.attempt_failed(unit["id"], error))
        return
    moves.end_tokens(scope)
    specs = [] if scope.get("rescued") else _flow(tx, scope).on_error
    past = routing.merged_past(tx, scope)
    scope["ended"].append([[], past])
    try:
        spec = find(tx, of_scope(tx, scope, past, {"error": error}), specs, error)
    except EvaluationError as failure:
        broken = caused(as_error(failure, _address(scope)), error)
        tx.agenda.append(entries.flow_end("failed", broken, None, scope["id"]))
        return
    if spec is None:
        tx.agenda.append(entries.flow_end("failed", error, None, scope["id"]))
        return
    then = entries.flow_handled(specs.index(spec), error, scope["id"])
    if spec.get("compensate"):
        todo, cut = scope["done"], scope["cut"]
        scope["done"], scope["cut"] = [], []

        compensate_in(tx, scope, todo, cut, error, then)
    else:
        tx.agenda.append(then)


def _flow(tx: Transition, scope: Scope) -> GraphFlow:
    """Return the declarations of a scope's flow."""
    return tx.flow_of(scope.get("frame", 0))


def _address(scope: Scope) -> str:
    """Return the address of the step that runs a flow. Empty for the main flow."""
    return scope["path"].rstrip("/")


def _at_work(tx: Transition, number: int) -> Scope | None:
    """Return the scope of a flow, or None if it was withdrawn. 0: the main flow."""
    return tx.state["scopes"].get(number) if number else tx.root()


def handled(tx: Transition, index: int, error: ErrorData, of: int = 0) -> None:
    """Perform a handler of a flow, after its compensation if it has one.

    Args:
        index: Index of the handler.
        error: The error of the flow.
        of: The scope of the flow. 0: the main flow.
    """
    scope = _at_work(tx, of)
    if scope is None:
        return
    of = scope["id"]

    if clean_first(tx, "scope", scope, entries.flow_handled(index, error, of), error):
        return
    spec: HandlerSpec = _flow(tx, scope).on_error[index]
    past = routing.merged_past(tx, scope)
    keep_for_finally(tx, scope, past)
    names = of_scope(tx, scope, past, {"error": error})
    do = spec.get("do", "raise")
    try:
        flow_state.write_for_flow(tx, names, spec.get("set", []), scope)

        emit(tx, names, spec.get("emit", []), str(of if scope["unit"] else 0))
        if do == "next":
            _rescue(tx, scope, spec["to"], provenance.share(tx.state, past))
        elif do == "fail":
            failure = instead(evaluate(names, spec["fail"]), error.get("step", ""), error)
            tx.agenda.append(entries.flow_end("failed", failure, None, of))
        elif do == "output":
            outputs = _given(tx, scope, evaluate(names, spec["output"]))
            tx.agenda.append(entries.flow_end("succeeded", None, outputs, of))
        elif do == "continue":
            tx.agenda.append(entries.flow_ended(of, provenance.share(tx.state, past)))
        else:
            tx.agenda.append(entries.flow_end("failed", error, None, of))
    except (StepFailure, EvaluationError) as failed:
        broken = caused(as_error(failed, _address(scope)), error)
        tx.agenda.append(entries.flow_end("failed", broken, None, of))
    provenance.drop(tx.state, past)


def _rescue(tx: Transition, scope: Scope, step: int, past: int) -> None:
    """Send a token back into the flow, which is possible once."""
    moves.lead_back(scope)
    arrival = routing.unsent(scope["id"], step, past, [])
    learn(arrival, scope.get("knows"))
    tx.agenda.append(entries.arrive(arrival))
    take_kept(tx)


def succeed(tx: Transition, number: int, past: int) -> None:
    """Evaluate the outputs of a flow whose tokens have all ended, and end it.

    Args:
        number: Its scope.
        past: The past of its tokens.
    """
    scope = tx.state["scopes"].get(number)
    if scope is None:
        provenance.drop(tx.state, past)
        return
    try:
        outputs, outcome = _outputs(tx, scope, past), _outcome(tx, scope, past)
    except (StepFailure, EvaluationError) as failure:
        if hold_end(tx, scope, past):
            return
        if tx.blame is not None:
            tx.blame.note(("scope", number))
        error = as_error(failure, _address(scope))
        tx.agenda.append(entries.flow_end("failed", error, None, number))
    else:
        tx.agenda.append(entries.subflow_end(outputs, number, outcome))
    keep_for_finally(tx, scope, past)
    provenance.drop(tx.state, past)


def _outputs(tx: Transition, scope: Scope, past: int) -> dict[str, Plain]:
    names = of_scope(tx, scope, past)
    outputs: dict[str, Plain] = {}
    for name, spec in _flow(tx, scope).outputs.items():
        outputs[name] = evaluate(names, spec["value"])
        _check_output(tx, name, spec, outputs[name])
    return outputs


def _check_output(tx: Transition, name: str, spec: dict[str, Plain], value: Plain) -> None:
    fault = tx.graph.validate(spec["schema"], value) if spec.get("schema") else None
    require(fault is None, "ValidationError", f"outputs.{name}: {fault}")


def _given(tx: Transition, scope: Scope, output: Plain) -> dict[str, Plain]:
    """Return the outputs of a flow from a handler, which must provide all of them."""
    declared = _flow(tx, scope).outputs
    message = "the 'output' of this handler is the outputs of the flow"
    require(isinstance(output, dict), "ValidationError", f"{message}, but no map")
    outputs: dict[str, Plain] = output
    for what, names in (("lacks", declared.keys() - outputs), ("adds", outputs.keys() - declared)):
        named = ", ".join(sorted(names))
        require(not names, "ValidationError", f"{message}, but {what} {named}")
    for name, spec in declared.items():
        _check_output(tx, name, spec, outputs[name])
    return {name: outputs[name] for name in declared}


def _outcome(tx: Transition, scope: Scope, past: int) -> str:
    """Return the declared outcome of a flow that another one runs. Others end with `ok`."""
    expression = _flow(tx, scope).outcome
    if expression is None or not (scope["unit"] or "background" in tx.state["execution"]):
        return "ok"
    outcome = evaluate(of_scope(tx, scope, past), expression)
    is_name = isinstance(outcome, str) and outcome != ""
    require(is_name, "ValidationError", f"outcome: expected text, got {outcome!r}")
    return str(outcome)


def end(
    tx: Transition,
    status: str,
    error: ErrorData | None,
    outputs: Any = None,
    of: int = 0,
    outcome: str = "ok",
) -> None:
    """End a flow. A subflow lets its step continue. The execution ends after all cleanups.

    Args:
        status: `succeeded`, `failed` or `cancelled`.
        error: The error, or the reason of the cancellation as an error.
        outputs: The outputs, if it succeeded.
        of: The scope of the flow. 0: the main flow.
        outcome: The outcome of a subflow that succeeded.
    """
    scope = _at_work(tx, of)
    if scope is None:
        return
    if scope["unit"]:
        _end_subflow(tx, scope, error, outputs, outcome)
        return
    if tx.graph.body(scope["body"]).final >= 0 and scope["phase"] != "finally":
        moves.begin_finally(scope)

        scope.setdefault("finals", []).append({**final_of(tx, scope), "error": error})
    if "finals" in scope:
        then = entries.main_flow_end(status, error, outputs)
        if clean_first(tx, "scope", scope, then, error):
            return
    close(tx, status, error, outputs, outcome)


def _end_subflow(
    tx: Transition, scope: Scope, error: ErrorData | None, outputs: Any, outcome: str
) -> None:
    """End a subflow.

    Its step receives its outputs, or an error of the same type as the one inside.
    """
    unit, result = tx.state["units"][scope["unit"]], _flow(tx, scope).result
    scope["error"] = error
    remove_scope(tx, scope)
    if error is not None:
        if tx.blame is not None:
            tx.blame.note(("unit", unit["id"]), ("scope", scope["id"]))
        whose: ErrorData = {"step": tx.address(unit), "attempt": unit["tries"]}
        tx.agenda.append(entries.attempt_failed(unit["id"], caused({**error, **whose}, error)))
        return
    stop_timeout(tx, unit)
    if result is not None:
        unit["facts"] = {name: value for name, value in outputs.items() if name != result}
        outputs = outputs[result]
    then = entries.ended(unit["id"], outputs, outcome)
    if "finals" in unit and clean_first(tx, "unit", unit, then):
        return
    tx.agenda.append(then)


def close(
    tx: Transition,
    status: str,
    error: ErrorData | None,
    outputs: Any = None,
    outcome: str = "ok",
) -> None:
    """End the execution at once, and close everything that is open in it. See `end`."""
    state = tx.state
    scope = tx.root()
    empty_scope(tx, scope)
    for number in list(scope["live"]):
        close_activation(tx, state["acts"][number])
    remove_scope(tx, scope)
    state.pop("cleanups", None)
    for timer in list(state["timers"]):
        tx.clear_timer(timer)
    for number in state["cuts"]:
        stop_settling(tx, number)
    if tx.idle_questions:
        withdraw_idle(tx)
    state["undos"].clear()
    state["cuts"].clear()
    state["layers"].clear()
    state.pop("frames", None)
    state.pop("claims", None)
    state.pop("answers", None)
    state["kept"].clear()
    tx.agenda.clear()
    state["status"] = status
    state["outputs"] = outputs
    state["error"] = error
    if "background" in state["execution"]:
        notify_parent(tx, status, outcome, error, outputs)
    notices = tx.graph.flow.get("end_notices", ())
    if flows := [notice["flow"] for notice in notices if status in notice["on"]]:
        tx.commands.append(Notify(0, "ended", [], flows, state["events"]))
    tx.commands.append(End(status, outputs, error))
