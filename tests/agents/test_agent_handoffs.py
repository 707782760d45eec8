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
        f"agents.first:{one['address'].partition('/')[2].partition('#')[0]}"
        for one in case.journal()
        if one["type"] == "succeeded" and one["address"].count("/") == 1
    ]

    assert walked == [
        "agents.first:_offer", "agents.first:first", "agents.first:second", "agents.first:second",
    ]  # fmt: skip
    for here, there in [
        ("first", "first.calls"),
        ("first.calls", "first"),
        ("first.calls", "second"),
        ("first.calls", "third"),
        ("second.calls", "second"),
    ]:
        assert graph.has_edge(f"agents.first:{here}", f"agents.first:{there}")
    assert not graph.has_edge("agents.first:second.calls", "agents.first:first")
    kinds = {data.get("kind") for _, data in graph.nodes(data=True)}
    assert {"agent", "agent_turn", "python"} <= kinds
