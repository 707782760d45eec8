"""Subflows: flows that run inside another one, each as a scope of the same execution.

See docs/language.md: flow.

    attempt ─► inputs: validated, defaults filled in ─► frame ─► scope ─► outputs, or an error

A flow can run itself. Its steps exist once, but each run has a separate scope and *frame*, which
contains the inputs, state and signal keys for its expressions. The scope ends with the subflow. The
frame is kept as long as a record refers to a past inside the subflow, such as a step that can still
be undone. See `state.records.Frame`.
"""

from __future__ import annotations

from flowengine.kernel import flow_state
from flowengine.kernel.errors import StepFailure
from flowengine.kernel.expressions import provenance
from flowengine.kernel.expressions.names import Names, evaluate, fill_computed
from flowengine.kernel.graph.compiled import EvaluationError, Plain
from flowengine.kernel.graph.linked import GraphFlow
from flowengine.kernel.limits import budgets
from flowengine.kernel.limits.shared_budgets import declare
from flowengine.kernel.notation.times import parse_duration
from flowengine.kernel.state.records import Frame, Unit
from flowengine.kernel.steps.scopes import open_scope
from flowengine.kernel.transition import Transition, require
from flowengine.kernel.waiting import call_questions


def enter(tx: Transition, unit: Unit) -> None:
    """Begin the subflow of a step.

    Args:
        unit: The unit of the step.

    Raises:
        StepFailure: An input does not fit, or subflows are nested too deeply.
        EvaluationError: An argument, a computed default, or the key of a signal has no value.
    """
    act = tx.act_of(unit)
    node = tx.node(act)
    number = tx.graph.body(node.child).flow
    flow = tx.graph.flows[number]
    names = Names(tx, act, unit)
    given = call_questions.arguments(tx, unit, names) if node.args is not None else {}
    if node.input is not None:  # the arguments are part of the input
        given = evaluate(names.having({"args": given}), node.input)
    frame = _new_frame(tx, number, names.frame)
    try:
        _begin_subflow(tx, frame, flow, given)
    except (StepFailure, EvaluationError):
        provenance.drop(tx.state, frame)
        raise
    tx.note(act, "running", unit=unit, given=given)
    scope = open_scope(tx, node.child, unit, frame)
    if "duration" in flow.declared_limits:
        duration = parse_duration(flow.declared_limits["duration"])
        scope["timer"] = tx.set_timer(duration, "duration", scope["id"])


def _new_frame(tx: Transition, number: int, up: int) -> int:
    """Add a frame and its lowest layer, which holds the only reference to it. Return its number."""
    flow = tx.graph.flows[number]
    around = tx.state["frames"][up] if up else None
    depth = around["depth"] + 1 if around is not None else 1
    room = around["room"] if around is not None else tx.graph.limits["depth"]
    require(
        room >= 1,
        "LimitExceeded",
        f"{flow.id!r} would run inside {depth - 1} other subflows, and a flow around them allows "
        "no more (limits.depth)",
        {"limit": "depth"},
    )
    tx.entered += 1
    limit = tx.graph.limits["steps"]
    require(
        tx.entered <= limit,
        "LimitExceeded",
        f"more than {limit} subflows started without a wait in between (limits.steps)",
        {"limit": "steps"},
    )
    layer = provenance.put(tx.state, 0, {})
    frame: Frame = {
        "flow": number,
        "up": up,
        "inputs": {},
        "vars": flow_state.initial(flow),
        "keys": {},
        "depth": depth,
        "room": min(room - 1, flow.declared_limits.get("depth", room)),
    }
    if "steps" in flow.declared_limits or flow.counts_alone:
        frame["steps"] = 0
    budgets.enter(tx, layer, frame)
    tx.state.setdefault("frames", {})[layer] = frame
    return layer


def _begin_subflow(tx: Transition, number: int, flow: GraphFlow, given: dict[str, Plain]) -> None:
    """Fill in the inputs of a frame and the keys of its signals."""
    frame = tx.state["frames"][number]
    names = Names(tx, None, frame=number)
    inputs = frame["inputs"]
    for name in given:
        require(name in flow.inputs, "ValidationError", f"{flow.id!r} has no input {name!r}")
    inputs.update(given)
    computed = {name for name, _ in flow.defaults}
    for name, schema in flow.inputs.items():
        if name not in given and name not in computed:
            require("default" in schema, "ValidationError", f"{flow.id!r} needs the input {name!r}")
            inputs[name] = schema["default"]
    fill_computed(names, flow, inputs)
    for name, schema in flow.inputs.items():
        fault = tx.graph.validate(schema, inputs[name])
        message = f"input {name!r} of {flow.id!r}: {fault}"
        require(fault is None, "ValidationError", message, {"input": name})
    frame["inputs"] = {name: inputs[name] for name in flow.inputs}
    for signal, spec in flow.signals.items():
        if spec.get("key") is not None:
            frame["keys"][signal] = str(evaluate(names, spec["key"]))
    if flow.shared_budgets:
        declare(tx, names, number)
