"""Upgrades while calls of a task are open: what they name is found again, or is gone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowengine.engines.interventions.obstacles import obstacles
from tests.simulation.invariants import check_over
from tests.simulation.simulator import Simulator, graph_of

FLOW = """
flowengine: 1
id: it
steps: [{id: ask, caller: {callees: [CALLEES]}}]
outputs: {heard: "${{ steps.ask.output.heard }}"}
"""
CALLS = [
    {"callee": "a", "args": {"v": 1}, "entry": {"n": 1}},
    {"callee": "b", "args": {"v": 2}, "entry": {"n": 2}},
]


@pytest.fixture
def graphs(tmp_path: Path) -> Any:
    (tmp_path / "tools.py").write_text("def act(value: object = None) -> object: return value\n")

    def graph(callees: str) -> Any:
        path = tmp_path / f"{len([*tmp_path.iterdir()])}.yaml"
        path.write_text(FLOW.replace("CALLEES", callees))
        return graph_of(path)

    return graph


def played(graph: Any) -> Simulator:
    """Return an execution in which the first call runs, and the second one waits for it."""
    script: dict[str, Any] = {"ask/round@1": {"calls": CALLS}, "ask/round@2": {}}
    script |= {"a": "A", "b": "B", "c": "C"}
    one = Simulator(graph, script).start()
    one.finish("ask/round@1")
    assert [run.address for run in one.running.values()] == ["ask/round@1/a"]
    return one


@pytest.mark.parametrize(
    ("callees", "mapping", "second"),
    [
        ("{id: b}, {id: c}, {id: a}", {}, "B"),
        ("{id: a}, {id: c}", {"steps": {"calling:b": "c"}}, "C"),
        ("{id: a}", {}, "Refused"),
    ],
    ids=["others come first", "it is renamed", "it is gone"],
)
def test_a_call_that_has_not_begun_finds_its_callee(
    graphs: Any, callees: str, mapping: Any, second: str
) -> None:
    one, new = played(graphs("{id: a}, {id: b}")), graphs(callees)

    assert obstacles(one.graph, new, one.state, mapping) == []
    one.upgrade(new, mapping)
    one.run()

    assert one.outputs == {"heard": [[1, "A"], [2, second]]}
    check_over(one)


def test_a_callee_at_work_must_not_go(graphs: Any) -> None:
    one, new = played(graphs("{id: a}, {id: b}")), graphs("{id: b}")

    [obstacle] = obstacles(one.graph, new, one.state, {})
    assert (obstacle.name, obstacle.fits) == ("calling:a", [])
    assert "the new flow has no such step" in obstacle.why
    one.upgrade(graphs("{id: b}, {id: c}"), {"steps": {"calling:a": "c"}})
    assert [run.address for run in one.running.values()] == ["ask/round@1/a"]
    one.run()
    assert one.outputs == {"heard": [[1, "C"], [2, "B"]]}  # the script names steps as they are now
