"""Defaults of inputs that are expressions, evaluated before a flow begins."""

from __future__ import annotations

from collections.abc import Mapping

from flowengine.kernel.expressions.names import Names, evaluate
from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.graph.linked import Graph, GraphFlow
from flowengine.kernel.state.initial import new_state
from flowengine.kernel.transition import Transition


def computed_inputs(
    graph: Graph, given: dict[str, Plain], execution: dict[str, Plain], now: int
) -> dict[str, Plain]:
    """Return inputs with computed defaults filled in.

    Args:
        given: The inputs that have a value.
        execution: The `execution` that the expressions read.
        now: Start time of the execution (ms).

    Returns:
        The inputs, given ones first.

    Raises:
        EvaluationError: A default has no value.
    """
    state = new_state()
    state["now"], state["execution"] = now, execution
    inputs = state["inputs"] = dict(given)
    fill_computed(Names(Transition(graph, state, None), None), graph.flows[0], inputs)
    return inputs


def inputs_of_message(
    graph: Graph, message: Plain, execution: dict[str, Plain], now: int
) -> dict[str, Plain] | None:
    """Return the inputs with which a message starts an execution.

    Args:
        message: `{name, key, data, id, sent_at, sent_by}`.
        execution: The `execution` that the expressions read.
        now: Start time of the execution (ms).

    Returns:
        The value of `start.with`, or None if this signal does not start the flow.

    Raises:
        EvaluationError: One of the inputs has no value.
    """
    for start in graph.flow.get("start", ()):
        if start.get("signal") == message["name"]:
            return inputs_of_start(graph, start, execution, now, {"signal": message})
    return None


def inputs_of_start(
    graph: Graph,
    start: Mapping[str, Plain],
    execution: dict[str, Plain],
    now: int,
    extra: dict[str, Plain],
) -> dict[str, Plain]:
    """Return the inputs with which an entry of `start` starts an execution.

    Args:
        start: The compiled entry.
        execution: The `execution` that the expressions read.
        now: Start time of the execution (ms).
        extra: Further names that they read.

    Returns:
        The value of `start.with`.

    Raises:
        EvaluationError: One of the inputs has no value.
    """
    state = new_state()
    state["now"], state["execution"] = now, execution
    names = Names(Transition(graph, state, None), None, extra=extra)
    return {name: evaluate(names, value) for name, value in start["with"].items()}


def fill_computed(names: Names, flow: GraphFlow, inputs: dict[str, Plain]) -> None:
    """Fill in the computed defaults of a flow, in the order of their dependencies.

    Args:
        names: The names that the defaults can read, including `inputs`.
        inputs: The inputs that have a value. Changed in place.

    Raises:
        EvaluationError: A default has no value.
    """
    for name, value in flow.defaults:
        if name not in inputs:
            inputs[name] = evaluate(names, value)
