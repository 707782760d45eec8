"""The flow as a whole: its start, its own error handlers, its end (language ref., §9.9, §13)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.kernel import cleaning, handlers, pasts, signals, tokens, undoing, variables
from flowengine.kernel.attempts import raised
from flowengine.kernel.closing import close_activation, empty_scope, remove_scope, stop_settling
from flowengine.kernel.commands import End
from flowengine.kernel.errors import StepFailure, as_error
from flowengine.kernel.graph import EvaluationError, HandlerSpec, Plain
from flowengine.kernel.machine import Machine, require
from flowengine.kernel.names import Names, evaluate
from flowengine.kernel.scopes import keep_for_finally, open_scope
from flowengine.kernel.times import parse_duration

if TYPE_CHECKING:
    from flowengine.kernel.events import ErrorData, Started
    from flowengine.kernel.state import Final, Scope


def begin(m: Machine, event: Started) -> None:
    """Start the execution: inputs, state, keys of signals, the first tokens.

    Args:
        m: The advance at work.
        event: The first event of the journal.
    """
    state = m.state
    state["inputs"] = event["inputs"]
    state["execution"] = event["execution"]
    variables.initial(m)
    names = Names(m, None)
    scope = open_scope(m, 0, None)
    try:
        for signal, spec in m.graph.flow.get("signals", {}).items():
            if spec.get("key") is not None:
                state["keys"][signal] = str(evaluate(names, spec["key"]))
    except EvaluationError as failure:
        m.agenda.append(("scope_failed", scope["id"], as_error(failure, "")))
    duration = m.graph.limits.get("duration")
    if duration:
        m.set_timer(parse_duration(duration), "duration", scope["id"])


def fail_scope(m: Machine, scope: Scope, error: ErrorData) -> None:
    """End a scope because of an error that nobody in it handles: its other tokens are withdrawn.

    Args:
        m: The advance at work.
        scope: The scope.
        error: The first such error; it keeps its type.
    """
    empty_scope(m, scope)
    if scope["unit"]:
        unit = m.state["units"][scope["unit"]]
        scope["error"] = error
        remove_scope(m, scope)
        m.agenda.append(("attempt_failed", unit["id"], error))
        return
    scope["over"] = True
    specs = [] if scope.get("rescued") else m.graph.flow.get("on_error", [])
    past = tokens.merged_past(m, scope)
    scope["ended"].append([[], past])
    try:
        spec = handlers.find(m, Names(m, None, past=past, extra={"error": error}), specs, error)
    except EvaluationError as failure:
        broken = as_error(failure, "")
        broken["cause"] = error
        m.agenda.append(("flow_end", "failed", broken))
        return
    if spec is None:
        m.agenda.append(("flow_end", "failed", error))
        return
    then = ("flow_handled", specs.index(spec), error)
    if spec.get("compensate"):
        todo, cut = scope["done"], scope["cut"]
        scope["done"], scope["cut"] = [], []
        undoing.begin_in(m, scope, todo, cut, error, then)
    else:
        m.agenda.append(then)


def handled(m: Machine, index: int, error: ErrorData) -> None:
    """Do what a handler of the flow says, after it has compensated if it does.

    Args:
        m: The advance at work.
        index: Which handler.
        error: What the flow failed with.
    """
    scope = m.root()
    if cleaning.first(m, "scope", scope, ("flow_handled", index, error), error):
        return
    spec: HandlerSpec = m.graph.flow["on_error"][index]
    past = tokens.merged_past(m, scope)
    keep_for_finally(m, scope, past)
    names = Names(m, None, past=past, extra={"error": error})
    do = spec.get("do", "raise")
    try:
        for key, value in spec.get("set", []):
            variables.reduce(m, key, evaluate(names, value), 0)
        signals.emit(m, names, spec.get("emit", []), "0")
        if do == "next":
            _rescue(m, scope, spec["to"], pasts.share(m.state, past))
        elif do == "fail":
            failure = as_error(raised(evaluate(names, spec["fail"])), error.get("step", ""))
            failure["cause"] = error
            m.agenda.append(("flow_end", "failed", failure))
        elif do == "output":
            m.agenda.append(("flow_end", "succeeded", None, evaluate(names, spec["output"])))
        elif do == "continue":
            m.agenda.append(("flow_over", scope["id"], pasts.share(m.state, past)))
        else:
            m.agenda.append(("flow_end", "failed", error))
    except (StepFailure, EvaluationError) as failed:
        broken = as_error(failed, "")
        broken["cause"] = error
        m.agenda.append(("flow_end", "failed", broken))
    pasts.drop(m.state, past)


def _rescue(m: Machine, scope: Scope, step: int, past: int) -> None:
    """Lead a token back into the flow, once."""
    del scope["over"]
    scope["rescued"] = True
    arrival = tokens.unsent(scope["id"], step, past, [])
    m.agenda.append(("arrive", arrival))


def succeed(m: Machine, past: int) -> None:
    """Evaluate the outputs of a flow whose tokens have all ended, and end it.

    Args:
        m: The advance at work.
        past: What lies behind its tokens.
    """
    try:
        outputs = _outputs(m, past)
    except (StepFailure, EvaluationError) as failure:
        m.agenda.append(("flow_end", "failed", as_error(failure, "")))
    else:
        m.agenda.append(("flow_end", "succeeded", None, outputs))
    keep_for_finally(m, m.root(), past)
    pasts.drop(m.state, past)


def _outputs(m: Machine, past: int) -> dict[str, Plain]:
    names = Names(m, None, past=past)
    outputs: dict[str, Plain] = {}
    for name, spec in m.graph.flow.get("outputs", {}).items():
        outputs[name] = evaluate(names, spec["value"])
        fault = m.graph.validate(spec["schema"], outputs[name]) if spec.get("schema") else None
        require(fault is None, "ValidationError", f"outputs.{name}: {fault}")
    return outputs


def end(m: Machine, status: str, error: ErrorData | None, outputs: Any = None) -> None:
    """End the execution, once its `finally` and those that are still due have run.

    Args:
        m: The advance at work.
        status: `succeeded`, `failed` or `cancelled`.
        error: What it failed with, or why it was cancelled.
        outputs: Its outputs, if it succeeded.
    """
    scope = m.root()
    final = m.graph.body(scope["body"]).final
    if final >= 0 and not scope.get("cleaned"):
        scope["cleaned"] = True
        past = tokens.merged_past(m, scope)
        due: Final = {"step": final, "address": "finally", "local": {}, "past": past}
        scope.setdefault("finals", []).append({**due, "error": error})
    if not cleaning.first(m, "scope", scope, ("flow_end", status, error, outputs), error):
        close(m, status, error, outputs)


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
        stop_settling(m, number)
    state["undos"].clear()
    state["cuts"].clear()
    state["layers"].clear()
    state["kept"].clear()
    m.agenda.clear()
    state["status"] = status
    state["outputs"] = outputs
    state["error"] = error
    m.commands.append(End(status, outputs, error))
