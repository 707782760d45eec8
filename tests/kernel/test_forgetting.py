"""Records no longer referenced are dropped, without effect on expressions or upgrades."""

from __future__ import annotations

import random
from copy import copy
from typing import Any

import pytest

from flowengine.flow.compile import compile_text
from flowengine.flow.expressions.evaluator import CelEvaluator
from flowengine.journal.encoding import pack
from flowengine.kernel import Graph, advance, new_state
from flowengine.kernel.commands import Observation
from flowengine.kernel.expressions.provenance import RECORDS
from flowengine.kernel.graph.linked import Node, _Linked
from tests.kernel.test_passing import events_of
from tests.simulation.simulator import Simulator
from tests.testing.random_graphs import random_graph

FLOWS = 400


def graph_of(flow: Any) -> Graph:
    return Graph(flow, CelEvaluator(flow["expressions"], flow["id"]))


def without(graph: Graph) -> Graph:
    """Return the graph as compiled by an earlier release, which drops nothing."""
    other = copy(graph)
    other.nodes = _Linked(lambda index: forgetful_of_nothing(graph.nodes[index]))
    return other


def forgetful_of_nothing(node: Node) -> Node:
    other = copy(node)
    other.forgets = []
    return other


def compiled(steps: str, more: str = "") -> Any:
    return compile_text(f"flowengine: 1\nid: it\n{more}\nsteps: [{steps}]\n").flow


def forgets(flow: Any) -> dict[str, list[str]]:
    steps = flow["steps"]
    return {
        step["id"]: [steps[one]["id"] for one in step["forgets"]]
        for step in steps
        if "forgets" in step
    }


def records(state: Any) -> dict[tuple[int, int], dict[str, Any]]:
    """Return the records of steps, by layer and step."""
    return {
        (number, step): record
        for number, layer in state["layers"].items()
        for step, record in layer[RECORDS].items()
    }


# Absence of effects


@pytest.mark.endurance
@pytest.mark.parametrize("block", range(4))
def test_random_flows_do_the_same_whether_or_not_they_forget(block: int) -> None:
    forgotten = 0
    for seed in range(block, FLOWS, 4):
        graph = random_graph(random.Random(seed))
        if not any("forgets" in step for step in graph.flow["steps"]):
            continue
        remembers, states = without(graph), (new_state(), new_state())
        for event in events_of(graph, seed):
            seen: tuple[list[Observation], list[Observation]] = [], []
            first = advance(graph, states[0], dict(event), seen[0])  # type: ignore[arg-type]
            second = advance(remembers, states[1], dict(event), seen[1])  # type: ignore[arg-type]
            assert first == second
            assert seen[0] == seen[1]
            whole = records(states[1])
            for place, record in records(states[0]).items():
                assert record in (whole[place], {"n": whole[place]["n"]})
            forgotten += sum(len(record) == 1 for record in records(states[0]).values())
        assert pack(states[0]["outputs"]) == pack(states[1]["outputs"])
    assert forgotten > 5


# The last reader


def test_the_state_of_a_chain_stays_small() -> None:
    """kernel-semantics 4.4: snapshots contain no dead records."""
    steps = ", ".join(
        f"{{id: s{n}, call: std.print, with: {{text: '${{{{ string(steps.s{n - 1}.output) }}}}'}}}}"
        for n in range(1, 60)
    )
    flow = compiled(f"{{id: s0, output: 1}}, {steps}, {{id: end_, approval: Ok?}}")
    script = {step["id"]: lambda _run: "x" * 1000 for step in flow["steps"]}
    played = Simulator(graph_of(flow), script).start().run()
    assert played.waits()
    assert len(pack(played.state)) < 4_000
