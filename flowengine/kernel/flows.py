"""A flow as a whole: its start, its own error handlers, its end.

See docs/language.md: on_error, Crashes.

The main flow and a subflow take the same way. At its end the main flow ends the execution, and a
subflow lets the step that runs it go on, or fail: its `finally` runs as that of a group does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.kernel.commands import Claim, End
from flowengine.kernel.ending import cleaning, compensation, cut_attempts
from flowengine.kernel.ending.closing import (
    close_activation,
    empty_scope,
    remove_scope,
    stop_timeout,
)
from flowengine.kernel.ending.leftovers import final_of
from flowengine.kernel.errors import StepFailure, as_error
from flowengine.kernel.expressions import provenance
from flowengine.kernel.expressions.names import Names, evaluate, of_scope
from flowengine.kernel.flow_state import variables
from flowengine.kernel.flow_state.causality import learn
from flowengine.kernel.graph.compiled import EvaluationError, Plain
from flowengine.kernel.limits import budgets, locks
from flowengine.kernel.machine import Machine, require
from flowengine.kernel.messages import signals, triggers
from flowengine.kernel.notation.times import parse_duration
from flowengine.kernel.state import entries, moves
from flowengine.kernel.steps import handlers
from flowengine.kernel.steps.scopes import first_line, hold_end, keep_for_finally, open_scope, start
from flowengine.kernel.tokens import routing
from flowengine.kernel.waiting import budget_questions

if TYPE_CHECKING:
    from flowengine.kernel.events import ErrorData, Granted, Started
    from flowengine.kernel.graph.linked import Flow
    from flowengine.kernel.graph.specs import HandlerSpec
    from flowengine.kernel.state.records import Scope


def begin(m: Machine, event: Started) -> None:
    """Start the execution: inputs, state, keys of signals, the first tokens.

    Args:
        event: The first event of the journal.
    """
    state = m.state
    flow = m.graph.flows[0]
    state["inputs"] = event["inputs"]
    state["execution"] = event["execution"]
    state["vars"] = variables.initial(flow)
    if "triggered" in m.graph.flow:
        state["triggered"] = 0
    budget = budgets.begin(flow.budget, event.get("budget"))
    if budget is not None:
        state["budget"] = budget
    names = Names(m, None)
    bound = m.graph.flow.get("concurrency")
    scope = open_scope(m, 0, None, queued=bound is not None)
    try:
        if bound is not None:
            _queue(m, names, bound)
        for signal, spec in flow.signals.items():
            if spec.get("key") is not None:
                state["keys"][signal] = str(evaluate(names, spec["key"]))
    except EvaluationError as failure:
        m.agenda.append(entries.scope_failed(scope["id"], as_error(failure, "")))
    duration = flow.limits.get("duration")
    if duration:
        m.set_timer(parse_duration(duration), "duration", scope["id"])


def _queue(m: Machine, names: Names, bound: dict[str, Plain]) -> None:
    """Claim a place among the executions of the flow, before anything else is done."""
    key = str(evaluate(names, bound["key"])) if "key" in bound else ""
    name = f"concurrency {m.graph.flow['id']}:{key}"
    m.state["bound"] = [name, bound["max"], bound["then"]]
    m.state["claims"] = {0: name}
    m.commands.append(Claim(name, 0, bound["max"], bound["then"]))


def granted(m: Machine, event: Granted) -> None:
    """Go on with who has a lock now that executions share: a unit, or the flow with its start.

    Args:
        event: What was granted; if it is not waited for any more, nothing changes.
    """
    number = event["unit"]
    if m.state.get("claims", {}).get(number) != event["lock"]:
        return
    if number:
        locks.granted(m, m.state["units"][number])
        return
    locks.forget_claim(m, 0)
    scope = m.root()
    if moves.unqueue(scope):
        start(m, scope, first_line(m))
        if not moves.is_queued(scope):
            triggers.take_kept(m)


def fail_scope(m: Machine, scope: Scope, error: ErrorData) -> None:
    """End a scope because of an error that nobody in it handles: its other tokens are withdrawn.

    Args:
        error: The first such error; it keeps its type.
    """
    empty_scope(m, scope)
    if m.graph.body(scope["body"]).kind != "flow":
        unit = m.state["units"][scope["unit"]]
        scope["error"] = error
        remove_scope(m, scope)
        if m.blame is not None:
            m.blame.note(("unit", unit["id"]), ("scope", scope["id"]))
        m.agenda.append(entries.attempt_failed(unit["id"], error))
        return
    moves.end_tokens(scope)
    specs = [] if scope.get("rescued") else _flow(m, scope).on_error
    past = routing.merged_past(m, scope)
    scope["ended"].append([[], past])
    try:
        spec = handlers.find(m, of_scope(m, scope, past, {"error": error}), specs, error)
    except EvaluationError as failure:
        broken = as_error(failure, _address(scope))
        broken["cause"] = error
        m.agenda.append(entries.flow_end("failed", broken, None, scope["id"]))
        return
    if spec is None:
        m.agenda.append(entries.flow_end("failed", error, None, scope["id"]))
        return
    then = entries.flow_handled(specs.index(spec), error, scope["id"])
    if spec.get("compensate"):
        todo, cut = scope["done"], scope["cut"]
        scope["done"], scope["cut"] = [], []
        compensation.begin_in(m, scope, todo, cut, error, then)
    else:
        m.agenda.append(then)


def _flow(m: Machine, scope: Scope) -> Flow:
    """Return what the flow of a scope declares."""
    return m.flow_of(scope.get("frame", 0))


def _address(scope: Scope) -> str:
    """Return the address of the step that runs a flow; empty for the main one."""
    return scope["path"].rstrip("/")


def _at_work(m: Machine, number: int) -> Scope | None:
    """Return the scope of a flow; 0: of the main one; None of one that was withdrawn since."""
    return m.state["scopes"].get(number) if number else m.root()


def handled(m: Machine, index: int, error: ErrorData, of: int = 0) -> None:
    """Do what a handler of a flow says, after it has compensated if it does.

    Args:
        index: Which handler.
        error: What the flow failed with.
        of: The scope of the flow; 0: the main one.
    """
    scope = _at_work(m, of)
    if scope is None:
        return
    of = scope["id"]
    if cleaning.first(m, "scope", scope, entries.flow_handled(index, error, of), error):
        return
    spec: HandlerSpec = _flow(m, scope).on_error[index]
    past = routing.merged_past(m, scope)
    keep_for_finally(m, scope, past)
    names = of_scope(m, scope, past, {"error": error})
    do = spec.get("do", "raise")
    try:
        variables.write_for_flow(m, names, spec.get("set", []), scope)
        signals.emit(m, names, spec.get("emit", []), str(of if scope["unit"] else 0))
        if do == "next":
            _rescue(m, scope, spec["to"], provenance.share(m.state, past))
        elif do == "fail":
            failure = handlers.instead(evaluate(names, spec["fail"]), error.get("step", ""), error)
            m.agenda.append(entries.flow_end("failed", failure, None, of))
        elif do == "output":
            outputs = _given(m, scope, evaluate(names, spec["output"]))
            m.agenda.append(entries.flow_end("succeeded", None, outputs, of))
        elif do == "continue":
            m.agenda.append(entries.flow_ended(of, provenance.share(m.state, past)))
        else:
            m.agenda.append(entries.flow_end("failed", error, None, of))
    except (StepFailure, EvaluationError) as failed:
        broken = as_error(failed, _address(scope))
        broken["cause"] = error
        m.agenda.append(entries.flow_end("failed", broken, None, of))
    provenance.drop(m.state, past)


def _rescue(m: Machine, scope: Scope, step: int, past: int) -> None:
    """Lead a token back into the flow, once."""
    moves.lead_back(scope)
    arrival = routing.unsent(scope["id"], step, past, [])
    learn(arrival, scope.get("knows"))
    m.agenda.append(entries.arrive(arrival))
    triggers.take_kept(m)


def succeed(m: Machine, number: int, past: int) -> None:
    """Evaluate the outputs of a flow whose tokens have all ended, and end it.

    Args:
        number: Its scope.
        past: What lies behind its tokens.
    """
    scope = m.state["scopes"].get(number)
    if scope is None:
        provenance.drop(m.state, past)
        return
    try:
        outputs, outcome = _outputs(m, scope, past), _outcome(m, scope, past)
    except (StepFailure, EvaluationError) as failure:
        if hold_end(m, scope, past):
            return
        if m.blame is not None:
            m.blame.note(("scope", number))
        error = as_error(failure, _address(scope))
        m.agenda.append(entries.flow_end("failed", error, None, number))
    else:
        m.agenda.append(entries.subflow_end(outputs, number, outcome))
    keep_for_finally(m, scope, past)
    provenance.drop(m.state, past)


def _outputs(m: Machine, scope: Scope, past: int) -> dict[str, Plain]:
    names = of_scope(m, scope, past)
    outputs: dict[str, Plain] = {}
    for name, spec in _flow(m, scope).outputs.items():
        outputs[name] = evaluate(names, spec["value"])
        _check_output(m, name, spec, outputs[name])
    return outputs


def _check_output(m: Machine, name: str, spec: dict[str, Plain], value: Plain) -> None:
    fault = m.graph.validate(spec["schema"], value) if spec.get("schema") else None
    require(fault is None, "ValidationError", f"outputs.{name}: {fault}")


def _given(m: Machine, scope: Scope, output: Plain) -> dict[str, Plain]:
    """Return the outputs of a flow that a handler gives instead: all of them, of their types."""
    declared = _flow(m, scope).outputs
    message = "the 'output' of this handler is the outputs of the flow"
    require(isinstance(output, dict), "ValidationError", f"{message}, but no map")
    outputs: dict[str, Plain] = output
    for what, names in (("lacks", declared.keys() - outputs), ("adds", outputs.keys() - declared)):
        named = ", ".join(sorted(names))
        require(not names, "ValidationError", f"{message}, but {what} {named}")
    for name, spec in declared.items():
        _check_output(m, name, spec, outputs[name])
    return {name: outputs[name] for name in declared}


def _outcome(m: Machine, scope: Scope, past: int) -> str:
    """Return how a flow has ended that says so; nobody asks for that of the main flow."""
    said = _flow(m, scope).outcome
    if said is None or not scope["unit"]:
        return "ok"
    outcome = evaluate(of_scope(m, scope, past), said)
    is_name = isinstance(outcome, str) and outcome != ""
    require(is_name, "ValidationError", f"outcome: expected text, got {outcome!r}")
    return str(outcome)


def end(
    m: Machine,
    status: str,
    error: ErrorData | None,
    outputs: Any = None,
    of: int = 0,
    outcome: str = "ok",
) -> None:
    """End a flow: a subflow lets its step go on; the execution ends when all is cleaned up.

    Args:
        status: `succeeded`, `failed` or `cancelled`.
        error: What it failed with, or why it was cancelled.
        outputs: Its outputs, if it succeeded.
        of: The scope of the flow; 0: the main one.
        outcome: Of a subflow that succeeded: which of its ways it has ended in.
    """
    scope = _at_work(m, of)
    if scope is None:
        return
    if scope["unit"]:
        _leave(m, scope, error, outputs, outcome)
        return
    if m.graph.body(scope["body"]).final >= 0 and scope["phase"] != "finally":
        moves.begin_finally(scope)
        scope.setdefault("finals", []).append({**final_of(m, scope), "error": error})
    if not cleaning.first(m, "scope", scope, entries.main_flow_end(status, error, outputs), error):
        close(m, status, error, outputs)


def _leave(m: Machine, scope: Scope, error: ErrorData | None, outputs: Any, outcome: str) -> None:
    """End a subflow: its step has its outputs, or an error of the same type as the one inside."""
    unit, result = m.state["units"][scope["unit"]], _flow(m, scope).result
    scope["error"] = error
    remove_scope(m, scope)
    if error is not None:
        if m.blame is not None:
            m.blame.note(("unit", unit["id"]), ("scope", scope["id"]))
        whose: ErrorData = {"step": m.address(unit), "attempt": unit["tries"], "cause": error}
        m.agenda.append(entries.attempt_failed(unit["id"], {**error, **whose}))
        return
    stop_timeout(m, unit)
    if result is not None:
        unit["facts"] = {name: value for name, value in outputs.items() if name != result}
        outputs = outputs[result]
    then = entries.ended(unit["id"], outputs, outcome)
    if not cleaning.first(m, "unit", unit, then):
        m.agenda.append(then)


def close(m: Machine, status: str, error: ErrorData | None, outputs: Any = None) -> None:
    """End the execution at once; nothing of it stays open. See `end`."""
    state = m.state
    scope = m.root()
    empty_scope(m, scope)
    for number in list(scope["live"]):
        close_activation(m, state["acts"][number])
    remove_scope(m, scope)
    state.pop("cleanups", None)
    for timer in list(state["timers"]):
        m.clear_timer(timer)
    for number in state["cuts"]:
        cut_attempts.stop(m, number)
    budget_questions.withdraw_idle(m)
    state["undos"].clear()
    state["cuts"].clear()
    state["layers"].clear()
    state.pop("frames", None)
    state.pop("claims", None)
    state.pop("answers", None)
    state["kept"].clear()
    m.agenda.clear()
    state["status"] = status
    state["outputs"] = outputs
    state["error"] = error
    m.commands.append(End(status, outputs, error))
