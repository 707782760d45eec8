"""The compiled graph as a networkx graph: attributes of nodes and edges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx
import pytest

import flowengine
from tests.flow.examples import FILES

REVIEW = """\
flowengine: 1
id: review
version: "3"
title: Review
inputs: {n: {type: integer, default: 1}}
signals: {late: {}}
limits: {idle: 1h}
flows:
  child:
    inputs: {depth: {type: integer}}
    steps:
      - {id: draft, next: {first: [{when: "${{ inputs.depth > 0 }}", to: deeper}, {else: end}]}}
      - {id: deeper, flow: child, with: {depth: "${{ inputs.depth - 1 }}"}}
steps:
  - id: draft
    title: Write it
    output: text
    next: {all: [left, {when: "${{ inputs.n > 1 && true }}", to: right}]}
  - id: left
    run: exit 3
    effect: pure
    retry: 2
    timeout: 1m
    compensate: {call: std.print, with: {text: gone}}
    on_error:
      - {type: [ExitCode, Timeout], next: meet}
      - {next: end_all, compensate: true}
    next: meet
  - id: right
    flow: child
    with: {depth: 2}
    timeout: "${{ inputs.n + 1 == 2 ? '1s' : '2s' }}"
    next: meet
  - id: meet
    join: active
    approval: {title: Good?, choices: [approve, reject]}
    next: {outcome: {approve: work, else: draft}}
  - id: work
    map: {over: "${{ inputs.n }}"}
    group:
      - {id: inner, output: 1}
    finally:
      - {id: clean, output: 2}
    next: stop
  - {id: stop, cancel: {steps: [left]}, next: end}
  - {id: heard, trigger: late, next: end}
on_error: [{type: Failed, next: draft}]
"""


@pytest.fixture
def graph(tmp_path: Path) -> networkx.MultiDiGraph[str]:
    path = tmp_path / "review.yaml"
    path.write_text(REVIEW)
    return flowengine.load(path).to_networkx()


def edges(graph: networkx.MultiDiGraph[str], source: str) -> list[tuple[str, dict[str, Any]]]:
    return [(target, data) for _, target, data in graph.out_edges(source, data=True)]


def test_steps_say_what_they_are(graph: networkx.MultiDiGraph[str]) -> None:
    assert graph.nodes["draft"] == {
        "type": "step", "step": "draft", "scope": "", "flow": "review", "kind": "none",
        "title": "Write it", "split": "all", "line": 15, "column": 9,
    }  # fmt: skip
    left = graph.nodes["left"]
    assert (left["kind"], left["effect"], left["attempts"], left["timeout"]) == (
        "run", "pure", 2, "1m",
    )  # fmt: skip
    assert graph.nodes["right"]["runs"] == "child"
    assert graph.nodes["right"]["timeout"] == "${{ inputs.n + 1 == 2 ? '1s' : '2s' }}"
    assert graph.nodes["meet"]["join"] == "active"
    assert graph.nodes["work"]["map"] is True
    assert graph.graph == {
        "id": "review", "version": "3", "title": "Review", "hash": graph.graph["hash"]
    }  # fmt: skip


def test_edges_say_when_they_are_taken(graph: networkx.MultiDiGraph[str]) -> None:
    assert edges(graph, "draft") == [
        ("left", {"type": "next"}),
        ("right", {"type": "next", "when": "inputs.n > 1 && true"}),
    ]
    assert edges(graph, "left") == [
        ("meet", {"type": "next"}),
        ("meet", {"type": "error", "errors": "ExitCode Timeout"}),
        ("/end", {"type": "error", "compensate": True, "end_all": True}),
        ("left/undo", {"type": "undo"}),
    ]
    assert edges(graph, "meet") == [
        ("work", {"type": "next", "outcome": "approve"}),
        ("draft", {"type": "next", "otherwise": True}),
    ]
    assert edges(graph, "/start") == [
        ("draft", {"type": "next"}),
        ("draft", {"type": "error", "errors": "Failed"}),
        ("heard", {"type": "trigger", "signals": "late"}),
    ]
    assert ("left", {"type": "cancel"}) in edges(graph, "stop")


def test_groups_and_other_flows_are_entered(graph: networkx.MultiDiGraph[str]) -> None:
    assert edges(graph, "work") == [("stop", {"type": "next"}), ("work/start", {"type": "enter"})]
    assert graph.nodes["inner"]["scope"] == "work"
    assert edges(graph, "work/end") == [("work/finally", {"type": "finally"})]
    assert graph.nodes["clean"]["scope"] == "work/finally"
    assert ("child:/start", {"type": "enter"}) in edges(graph, "right")
    assert ("child:/start", {"type": "enter"}) in edges(graph, "child:deeper")
    assert graph.nodes["child:draft"]["flow"] == "child"
    assert "line" not in graph.nodes["child:draft"]


@pytest.mark.endurance
def test_every_step_of_the_examples_is_reached_from_the_start() -> None:
    for flow in FILES:
        loaded = flowengine.load(flow)
        graph = loaded.to_networkx()

        steps = [name for name, data in graph.nodes.items() if data["type"] == "step"]
        placed = [step for step in loaded.compiled["steps"] if step["body"] >= 0]
        assert len(steps) == len(placed), flow
        own = {name for name in steps if not name.startswith("_notify.")}  # begun by a question
        assert own <= networkx.descendants(graph, "/start"), flow
        scopes = {data["scope"] for data in graph.nodes.values()} - {""}
        assert scopes <= set(graph), flow
        for part in (*graph.nodes.values(), *graph.edges.values()):
            assert all(type(value) in {str, int, bool} for value in part.values()), flow
