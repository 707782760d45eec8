"""Handoffs: declared in the file, or returned by a tool, and their paths in the graph."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowengine import FlowFileError
from flowengine.engines.flows import load
from tests.agents.flows import HEAD, Case, call, flow, told

TWO = """
first:
  instructions: You are first.
  tools: [add, boom]
  handoffs: [second]
second:
  description: Knows more
  model: scripted/test
  instructions: You are second.
  tools: [add]
  handoffs: [first]
"""
TOOLS = """
from flowengine.agents import Agent, Result

def add(a: int, b: int) -> int:
    "Add."
    return a + b

def boom(to: str, bare: bool = False) -> Result:
    "Hand over."
    agent = Agent(name=to)
    return agent if bare else Result(value="take it", agent=agent)
"""
GRAPH = """
first:
  instructions: You are first.
  tools: [add, boom]
  handoffs: [second, third]
second: {instructions: You are second., tools: [add]}
third: {instructions: You are third.}
"""


# Shows M5, M9
def test_a_handoff_switches_model_instructions_and_tools(tmp_path: Path) -> None:
    script = [{"calls": [call("transfer_to_second", "c1")]}, {"text": "3"}]
    case = Case(tmp_path, flow(TWO), script)

    assert case.run().outputs == {"answer": "3", "agent": "second"}
    assert case.offered(0) == ["add", "boom", "transfer_to_second"]
    assert "Knows more" in case.model.requests[0].tools[2].description
    assert case.offered(1) == ["add", "transfer_to_first"]
    system, user, assistant, answer = case.sent(1)
    assert system["content"] == "You are second."
    assert user["content"] == "What is 1 + 2?"
    assert assistant["tool_calls"][0]["function"]["name"] == "transfer_to_second"
    assert (answer["tool_call_id"], answer["content"]) == ("c1", "Handed over to second.")
    assert "ask/second" in case.addresses()


@pytest.mark.parametrize("agent", ["first", "second"])
def test_a_tool_may_be_named_as_handoffs_are_but_not_as_one_of_its_agent(
    tmp_path: Path, agent: str
) -> None:
    head = HEAD.replace("  boom:", "  transfer_to_second:")
    agents = TWO.replace(
        f"You are {agent}.\n  tools: [add", f"You are {agent}.\n  tools: [NEW, add"
    )
    agents = agents.replace(", boom", "").replace("NEW", "transfer_to_second")
    script = [
        {"calls": [call("transfer_to_second")]},
        {"calls": [call("transfer_to_second", why="x")]},
        {"text": "3"},
    ]
    case = Case(tmp_path, flow(agents, head=head), script)

    if agent == "first":
        with pytest.raises(FlowFileError, match="models call to hand over to 'second'"):
            load(case.path)
    else:
        assert case.run().outputs == {"answer": "3", "agent": "second"}
        assert case.called == ["boom"]


@pytest.mark.parametrize("bare", [True, False])
# Shows M10
def test_a_tool_hands_over_by_what_it_returns(tmp_path: Path, bare: bool) -> None:
    (tmp_path / "tools.py").write_text(TOOLS)
    script = [{"calls": [call("boom", to="second", bare=bare)]}, {"text": "3"}]
    case = Case(tmp_path, flow(TWO), script)

    assert case.run().outputs["agent"] == "second"
    assert case.sent(1)[0]["content"] == "You are second."
    assert case.sent(1)[-1]["content"] == ("Handed over to second." if bare else "take it")


@pytest.mark.parametrize("declared", [True, False])
# Shows M11
def test_of_two_handoffs_in_a_reply_the_first_wins(tmp_path: Path, declared: bool) -> None:
    (tmp_path / "tools.py").write_text(TOOLS)
    to: list[tuple[str, dict[str, str]]] = [("transfer_to_second", {}), ("transfer_to_third", {})]
    if not declared:
        to = [("boom", {"to": "second"}), ("boom", {"to": "third"})]
    calls = [
        call("add", "c1", a=1, b=2),
        call(to[0][0], "c2", **to[0][1]),
        call("add", "c3", a=3, b=4),
        call(to[1][0], "c4", **to[1][1]),
    ]
    case = Case(tmp_path, flow(GRAPH), [{"calls": calls}, {"text": "so"}])

    assert case.run().outputs["agent"] == "second"
    answers = case.sent(1)[-4:]
    assert [one["tool_call_id"] for one in answers] == ["c1", "c2", "c3", "c4"]
    assert [one["content"] for one in answers][::2] == ["3", "7"]
    assert answers[3]["content"] == "Error: not taken, as second is active now."


# Shows M14
def test_a_handoff_to_nobody_is_told(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(TOOLS)
    case = Case(tmp_path, flow(TWO), [{"calls": [call("boom", to="x")]}, {"text": "so"}])

    assert case.run().outputs["agent"] == "first"
    assert told(case.sent(1))[-1] == (
        "tool",
        "Error: there is no agent 'x' in this flow to hand over to; there is first, second.",
    )


# Shows M12
def test_handoffs_in_a_circle_are_bounded(tmp_path: Path) -> None:
    script = [
        {"calls": [call(f"transfer_to_{to}")]}
        for to in ["second", "first", "second", "first", "second", "first"]
    ]
    case = Case(tmp_path, flow(TWO.replace("tools: [add, boom]", "max_turns: 6")), script)

    assert case.run().error["type"] == "MaxTurns"
    assert len(case.model.requests) == 6
    turns = [one for one in case.addresses() if "calls" not in one and "/" in one]
    assert sorted(turns) == sorted(
        f"ask/{name}{number}" for name in ("first", "second") for number in ("", "#2", "#3")
    )


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
