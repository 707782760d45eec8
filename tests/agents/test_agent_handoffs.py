"""Handoffs: declared in the file, or returned by a tool, and their paths in the graph."""

from __future__ import annotations

from pathlib import Path

from flowengine.engines.flows import load
from tests.agents.flows import Case, call, flow

GRAPH = """
first:
  instructions: You are first.
  tools: [add, boom]
  handoffs: [second, third]
second: {instructions: You are second., tools: [add]}
third: {instructions: You are third.}
"""


# Shows M13
def test_a_run_is_a_walk_in_the_compiled_graph(tmp_path: Path) -> None:
    calls = [call("add", a=1, b=2), call("boom", to="third"), call("transfer_to_second")]
    script = [{"calls": calls}, {"calls": [call("add", a=1, b=2)]}, {"text": "so"}]
    case = Case(tmp_path, flow(GRAPH), script)
    case.run()

    graph = load(case.path).to_networkx()
    walked = [
        one["address"].partition("/")[2]
        for one in case.journal()
        if one["type"] == "succeeded" and one["address"].count("/") == 1
    ]

    assert walked == ["first@1", "first@2", "second@1", "second@2"]
    ways = {
        (here.partition(":")[2], data["type"], there.partition(":")[2])
        for here, there, data in graph.edges(data=True)
        if here.startswith("agents.first:")
    }
    assert ways == {
        ("/start", "next", "first"),
        ("first", "call", "first.add"),
        ("first", "call", "boom"),
        ("first", "next", "second"),
        ("first", "next", "third"),
        ("second", "call", "second.add"),
        *((name, "next", "/end") for name in ("first", "second", "third")),
    }
    kinds = {data.get("kind") for _, data in graph.nodes(data=True)}
    assert {"agent", "agent_turn", "python"} <= kinds
