"""Defaults of inputs that are expressions: values for what was not given, before an execution."""

from __future__ import annotations

from flowengine.kernel.graph import Plain
from flowengine.kernel.initial import new_state
from flowengine.kernel.linked import Graph
from flowengine.kernel.machine import Machine
from flowengine.kernel.names import Names, evaluate


def computed_inputs(
    graph: Graph, given: dict[str, Plain], execution: dict[str, Plain], now: int
) -> dict[str, Plain]:
    """Return inputs with the computed defaults filled in.

    Args:
        graph: The flow.
        given: The inputs that have a value.
        execution: What expressions see of the execution to be.
        now: When it starts (ms).

    Returns:
        The inputs, those given first.

    Raises:
        EvaluationError: A default has no value.
    """
    state = new_state()
    state["now"], state["execution"] = now, execution
    inputs = state["inputs"] = dict(given)
    names = Names(Machine(graph, state, None), None)
    for name, value in graph.flow.get("defaults", ()):
        if name not in inputs:
            inputs[name] = evaluate(names, value)
    return inputs
