"""Agents that are Python objects as tools of one another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowengine import Agent, Engine, Response, Result, case_not_resolved
from flowengine.agents.models import using
from flowengine.agents.models.scripted import ScriptedModel
from flowengine.errors import UsageError
from flowengine.runner import MetaChain
from tests.agents.flows import call, without_marks

ASK = [{"role": "user", "content": "What is 1 + 2?"}]


def run(agent: Agent, *script: Any, engine: Engine | None = None, **how: Any) -> Response:
    with using(ScriptedModel(script)):
        return MetaChain(engine).run(agent, ASK, **how)


def of(agent: str, **reply: Any) -> dict[str, Any]:
    """Return a reply of one agent."""
    return {"when": {"agent": agent}, **reply}


def agent(name: str, *functions: Any, **more: Any) -> Agent:
    return Agent(name=name, model="scripted/x", functions=[*functions], **more)


def told(response: Response) -> list[str]:
    """Return the results of calls, without marks around untrusted text."""
    messages = without_marks(response.messages)
    return [one["content"] for one in messages if one["role"] == "tool"]


def test_an_agent_is_called_by_its_name_and_nothing_of_it_is_in_the_conversation() -> None:
    clerk = agent("Clerk", agent("Tax expert", description="Knows taxes.").as_tool())
    model = ScriptedModel(
        [
            of("Clerk", calls=[call("tax_expert", prompt="19 %?")], usage={"input_tokens": 2}),
            of("Tax_expert", text="Yes.", usage={"input_tokens": 5}),
            of("Clerk", text="19 %."),
        ]
    )
    with using(model):
        response = MetaChain().run(clerk, ASK)

    [tool] = model.requests[0].tools
    assert (tool.name, tool.description) == ("tax_expert", "Knows taxes.")
    assert [one["content"] for one in model.requests[1].messages][1:] == ["19 %?"]
    assert [one["role"] for one in response.messages] == ["assistant", "tool", "assistant"]
    assert (told(response), response.output) == (["Yes."], "19 %.")
    assert response.agent is clerk
    assert response.usage["input_tokens"] == 7


def test_its_functions_get_the_context_and_what_they_change_stays_there() -> None:
    def find(context_variables: dict[str, Any]) -> Result:
        """Find."""
        found = f"{context_variables['user']} {context_variables['line']!r}"
        return Result(value=found, context_variables={"user": "other", "more": 1})

    line = object()  # a live object, which is passed on but never stored
    script = [
        of("a", calls=[call("b", prompt="?")]),
        of("b", calls=[call("find")]),
        {"when": {"agent": "b", "contains": repr(line)}, "text": "found"},
        of("a", text="so"),
    ]
    response = run(
        agent("a", agent("b", find).as_tool()), *script,
        context_variables={"user": "ana", "line": line},
    )  # fmt: skip

    assert told(response) == ["found"]
    assert response.context_variables == {"user": "ana", "line": line}


def test_it_hands_over_and_asks_others_in_its_turn() -> None:
    def to_second() -> Agent:
        """Hand over."""
        return second

    second = agent("second", agent("third").as_tool("ask"))
    script = [
        of("a", calls=[call("b", prompt="?")]),
        of("b", calls=[call("to_second")]),
        of("second", calls=[call("ask", prompt="!")]),
        of("third", text="3"),
        of("second", text="it is 3"),
        of("a", text="so"),
    ]
    assert told(run(agent("a", agent("b", to_second).as_tool()), *script)) == ["it is 3"]


def test_what_it_does_not_resolve_is_told() -> None:
    script = [
        of("a", calls=[call("b", prompt="?")]),
        of("b", calls=[call("case_not_resolved", reason="nobody knows")]),
        of("a", text="so"),
    ]
    [content] = told(run(agent("a", agent("b", case_not_resolved).as_tool()), *script))
    assert content.startswith("Error: NotResolved")
    assert "nobody knows" in content


def test_its_turns_count_for_each_call() -> None:
    def look() -> str:
        """Look."""
        return "nothing"

    limit = {"count": 2, "then": "answer"}
    b = agent("b", look).as_tool("b", max_turns=1)
    c = agent("c", look).as_tool("c", max_turns=limit)
    script = [
        of("a", calls=[call("b", prompt="?"), call("c", prompt="?")]),
        of("b", calls=[call("look")]),
        of("c", calls=[call("look")]),
        of("c", text="I think so"),
        of("a", text="so"),
    ]
    one, two = told(run(agent("a", b, c), *script))
    assert "MaxTurns" in one
    assert "MaxTurns" in two


# Shows F15
def test_agents_that_ask_each_other_are_bounded() -> None:
    a, b = agent("a"), agent("b")
    a.functions.append(b.as_tool())
    b.functions.append(a.as_tool())
    script = [
        {"when": {"agent": "a", "contains": "Error"}, "text": "stop", "repeat": True},
        {"when": {"agent": "b", "contains": "Error"}, "text": "stop", "repeat": True},
        {"when": {"agent": "a", "contains": "stop"}, "text": "stop", "repeat": True},
        {"when": {"agent": "b", "contains": "stop"}, "text": "stop", "repeat": True},
        {"when": {"agent": "a"}, "calls": [call("b", prompt="?")], "repeat": True},
        {"when": {"agent": "b"}, "calls": [call("a", prompt="?")], "repeat": True},
    ]
    assert run(a, *script).output == "stop"


def test_an_agent_may_check_what_another_is_asked() -> None:
    judge = agent("judge", case_not_resolved).as_tool()
    script = [of("judge", calls=[call("case_not_resolved", reason="rude")])]
    response = run(agent("a", checks=[{"before": judge}]), *script)

    assert (response.termination, response.output) == ("not_resolved", "")
    assert "rude" in response.reason


def test_its_environments_are_declared_beside_those_of_its_caller(folder: Path) -> None:
    keeper = agent("keeper").enable_sqlite("words.db", mode="rwc")
    script = [
        of("a", calls=[call("keeper", prompt="?")]),
        of("keeper", calls=[call("query_database", sql="select 1 as n")]),
        of("keeper", text="1"),
        of("a", text="so"),
    ]
    assert told(run(agent("a", keeper.as_tool()), *script)) == ["1"]


# Shows M88
def test_names_are_checked_over_all_agents() -> None:
    with pytest.raises(UsageError, match="two agents have the name 'b'"):
        run(agent("a", agent("b").as_tool("one"), agent("b").as_tool("two")))
    with pytest.raises(UsageError, match="agent 'a' has two functions named 'b'"):
        agent("a", agent("b").as_tool(), agent("c").as_tool("b"))
    with pytest.raises(UsageError, match="agent 'a': 'b c' cannot be the name of a tool"):
        agent("a", agent("b").as_tool("b c"))
    with pytest.raises(UsageError, match="agent 'a': max_turns is 0"):
        agent("a", agent("b").as_tool(max_turns=0))
