"""A token that is passed on at once leads to the same state as one that uses the agenda."""

from __future__ import annotations

import random
from collections import defaultdict
from copy import copy
from typing import Any, get_type_hints

import pytest

from flowengine.flow.compile import compile_text
from flowengine.flow.expressions.evaluator import CelEvaluator
from flowengine.journal.encoding import pack
from flowengine.kernel import Graph, advance, new_state
from flowengine.kernel.commands import Observation
from flowengine.kernel.graph.linked import ATTEMPTING, ENDING, ENTERING, TELLING, Node, _Linked
from flowengine.kernel.graph.specs import StepSpec
from tests.rows import each_row
from tests.simulation.simulator import Simulator
from tests.testing.random_graphs import random_graph
from tests.testing.random_plays import random_play

FLOWS = 120


def stepwise(graph: Graph) -> Graph:
    """Return a graph in which all tokens use the agenda."""
    other = copy(graph)
    other.followers = defaultdict(lambda: None)  # type: ignore[assignment]
    other.nodes = _Linked(lambda index: supervised(graph.nodes[index]))
    return other


def supervised(node: Node) -> Node:
    """Return a step whose attempts are supervised as if they needed more than their input."""
    other = copy(node)
    other.bare = False
    return other


def events_of(graph: Graph, seed: int) -> list[Any]:
    """Return the journal of a random run, up to a retry, which goes back."""
    journal = random_play(graph, seed, crashes=True).journal
    types = [event["type"] for event in journal]
    return journal[: types.index("retry")] if "retry" in types else journal


def compared(graph: Graph, events: list[Any]) -> int:
    """Apply events to three states, and return the number of steps that pass their token on.

    One uses the agenda for everything. The others pass tokens on, with and without an observer.
    """
    turns = stepwise(graph)
    states = new_state(), new_state(), new_state()
    for event in events:
        seen: tuple[list[Observation], list[Observation]] = [], []
        first = advance(turns, states[0], dict(event), seen[0])  # type: ignore[arg-type]
        second = advance(graph, states[1], dict(event), seen[1])  # type: ignore[arg-type]
        third = advance(graph, states[2], dict(event))  # type: ignore[arg-type]
        assert first == second == third
        assert seen[0] == seen[1]
        assert pack(states[0]) == pack(states[1]) == pack(states[2])
    return sum(node is not None for node in graph.followers.values())


@pytest.mark.endurance
@pytest.mark.parametrize("block", range(4))
def test_random_flows(block: int) -> None:
    passed = 0
    for seed in range(block, FLOWS, 4):
        graph = random_graph(random.Random(seed))
        passed += compared(graph, events_of(graph, seed))
    assert passed > FLOWS / 16


CALL = "call: std.print, with: {text: x}"
CHAIN = f"[{{id: a, {CALL}}}, {{id: b, {CALL}}}, {{id: c, {CALL}}}]"


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(CHAIN, id="chain"),
        pytest.param(
            f"[{{id: a, {CALL}, set: {{x: 1}}}}, {{id: b, {CALL}, set: {{x: 2}}}}]", id="state"
        ),
        pytest.param(
            f"[{{id: a, output: 1}}, {{id: b, output: 2}}, {{id: c, {CALL}}}]", id="values"
        ),
        pytest.param(
            f"[{{id: a, {CALL}, next: {{first: [{{when: '${{{{ state.x < 9 }}}}', to: b}},"
            f" {{else: end}}]}}}},"
            f" {{id: b, {CALL}, set: {{x: '${{{{ state.x + 1 }}}}'}}, next: c}},"
            f" {{id: c, {CALL}, next: a}}]",
            id="cycle",
        ),
        pytest.param(f"[{{id: g, map: 3, group: {CHAIN}}}, {{id: d, {CALL}}}]", id="inside items"),
        pytest.param(
            f"[{{id: a, {CALL}}},"
            " {id: b, call: std.print, with: {text: '${{ string(state.l[5]) }}'}},"
            f" {{id: c, {CALL}, on_error: continue}}]",
            id="what is given fails",
        ),
    ],
)
def test_written_flows(body: str) -> None:
    text = (
        "flowengine: 1\nid: it\nlimits: {activations: 5}\n"
        "state: {x: {type: integer, default: 0}, l: {type: array, default: []}}\n"
        f"steps: {body}\n"
    )
    flow = compile_text(text).flow
    passed = 0
    for seed in range(8):
        graph = Graph(flow, CelEvaluator(flow["expressions"], flow["id"]))
        passed += compared(graph, events_of(graph, seed))
    assert passed > 0


@each_row("most", [2, 3, 4])
def test_the_limit_of_steps_is_that_of_the_long_way(most: int) -> None:
    text = f"flowengine: 1\nid: it\nlimits: {{steps: {most}}}\nsteps: {CHAIN}\n"
    flow = compile_text(text).flow
    graph = Graph(flow, CelEvaluator(flow["expressions"], flow["id"]))
    played = Simulator(graph, {step["id"]: lambda _run: 1 for step in flow["steps"]}).start()
    played.run()

    assert compared(graph, played.journal) > 0
    assert played.status == ("failed" if most < 3 else "succeeded")


def test_a_word_that_nobody_has_thought_of_takes_the_long_way() -> None:
    chain = compile_text(f"flowengine: 1\nid: it\nsteps: {CHAIN}\n").flow
    graph = Graph(chain, CelEvaluator(chain["expressions"], chain["id"]))
    assert graph.nodes[1].bare
    assert graph.followers[0] is graph.nodes[1]
    newer: Any = {**chain, "steps": [{**step, "patience": 3} for step in chain["steps"]]}

    graph = Graph(newer, CelEvaluator(chain["expressions"], chain["id"]))

    assert not graph.nodes[1].bare
    assert graph.followers[0] is None
    of_other_actions = {"wait", "cancel", "child"}
    assert set(get_type_hints(StepSpec, localns=FORM)) - of_other_actions == (
        TELLING | ENTERING | ATTEMPTING | ENDING
    )


FORM: dict[str, Any] = {"Plain": Any, "Value": list[Any], "Condition": int}
