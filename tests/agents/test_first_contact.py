"""What a newcomer to agents in Python meets: one method, scripted replies, and clear mistakes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, assert_type

import pytest

from flowengine import (
    Agent,
    AgentRunFailed,
    Engine,
    Flow,
    Response,
    Runner,
    TextPart,
    UsageError,
    load,
)
from flowengine.testing import call, scripted


@dataclass
class City:
    name: str
    people: int


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def test_an_agent_runs_by_its_own_methods() -> None:
    agent = Agent(name="Clerk", tools=[add], returns=City)
    answer = '{"name": "Oslo", "people": 3}'
    with scripted(call("add", a=1, b=2), answer, answer, answer, answer) as model:
        blocking = agent.run("How many?")
        awaited = asyncio.run(agent.run_async("How many?"))
        parts = list(agent.stream("How many?"))
        parts_awaited = asyncio.run(_parts(agent))

    assert_type(blocking.output, City)
    assert_type(awaited.output, City)
    assert_type(Agent(returns=City | None), Agent[City | None, Any])
    assert blocking.output == City("Oslo", 3)
    assert blocking.result is blocking.output
    assert blocking.messages[1]["content"].find("3") >= 0
    assert awaited.output == blocking.output
    for seen in (parts, parts_awaited):
        assert seen[-1].response is not None
        assert seen[-1].response.output == blocking.output
        assert "".join(part.text for part in seen if isinstance(part, TextPart)) == answer
    assert len(model.requests) == 5


async def _parts(agent: Agent[City]) -> list[Any]:
    return [part async for part in agent.stream_async("How many?")]


def test_an_engine_keeps_the_run_of_an_agent() -> None:
    agent = Agent(name="Clerk")
    with Engine(None) as engine, scripted("Hello."):
        response = agent.run("Hi.", engine=engine, labels={"team": "it"})
        assert engine.executions.show(response.execution)["labels"]["team"] == "it"


def test_a_response_as_json_has_the_output() -> None:
    with scripted('{"name": "Oslo", "people": 3}'):
        response = Agent(name="Clerk", returns=City).run("Where?")
    assert response.model_dump(mode="json")["output"] == {"name": "Oslo", "people": 3}


def test_a_type_in_brackets_is_for_type_checkers_only() -> None:
    agent: Agent[City] = Agent[City](name="Clerk", returns=City)
    with scripted('{"name": "Oslo", "people": 3}'):
        response: Response[City] = agent.run("Where?")
    assert response.output.people == 3


def test_objects_are_shown_in_one_line() -> None:
    other = Agent(name="Billing", model="scripted/a")
    agent = Agent(name="Clerk", model="scripted/a", tools=[add], handoffs=[other])
    flow = Flow("shop")
    flow.step("a", output=1)
    with scripted("Hello."):
        response = agent.run("Hi.")
    assert repr(agent) == (
        "Agent(name='Clerk', model='scripted/a', tools=['add'], handoffs=['Billing'])"
    )
    assert repr(response).startswith(
        "Response(output='Hello.', termination='resolved', agent='Clerk', messages=1, execution='"
    )
    assert repr(load(flow)) == "<loaded flow shop>"


# Scripted replies


def test_replies_that_are_left_fail_a_test() -> None:
    agent = Agent(name="Clerk")
    with (
        pytest.raises(AssertionError, match=r"1 of 2 scripted replies were not used.*'second'"),
        scripted("first", "second"),
    ):
        agent.run("Hi.")


def test_the_error_of_a_block_is_not_hidden_by_replies_that_are_left() -> None:
    with pytest.raises(ZeroDivisionError), scripted("first"):
        raise ZeroDivisionError


def test_a_run_without_a_reply_says_so() -> None:
    agent = Agent(name="Clerk", retry=1)
    with scripted("first"):
        agent.run("Hi.")
        with pytest.raises(AgentRunFailed, match="has no answer to request 2 by the agent"):
            agent.run("Hi.")


# Mistakes. Each tells the line to write.

Made = Callable[[], object]


def _given(**fields: Any) -> Made:
    return lambda: Agent(**fields)


RETURNS = "Agent(returns=City)"
INSTRUCTIONS = "Agent(instructions='…')"
MISTAKES: dict[str, tuple[Made, str, str]] = {
    **{
        name: (_given(**{name: City}), f"no '{name}'", RETURNS)
        for name in ("output_type", "result_type", "output_schema", "response_format")
    },
    **{
        name: (_given(**{name: "Be brief."}), f"no '{name}'", INSTRUCTIONS)
        for name in ("system_prompt", "instruction", "prompt", "system_message", "backstory")
    },
    **{
        name: (_given(**{name: None}), f"no '{name}'", line)
        for name, line in {
            "model_settings": "Agent(settings={'temperature': 0})",
            "temperature": "Agent(settings={'temperature': 0})",
            "mcp_servers": ".use_mcp(",
            "toolsets": ".use_mcp(",
            "input_guardrails": "Agent(checks=[{'before': function}])",
            "output_guardrails": "Agent(checks=[{'after': function}])",
            "sub_agents": "Agent(handoffs=[other])",
            "deps_type": "Agent(deps=Deps)",
            "callbacks": "Agent(hooks=[{'before_call': function}])",
            "middleware": "Agent(hooks=[{'before_call': function}])",
            "max_iterations": "agent.run('…', max_turns=10)",
            "memory": "session='ana'",
            "checkpointer": "session='ana'",
            "llm": "Agent(model='openai/gpt-5')",
            "handoff_description": "Agent(description='…')",
            "tool": "Agent(tools=[function])",
            "retries": "Agent(retry=3)",
            "usage_limits": "budget={'tokens': 50_000}",
        }.items()
    },
    "a name without its keyword": (
        lambda: Agent("Helper"),  # type: ignore[call-arg]
        "by name",
        "write Agent(name='Helper', instructions='…')",
    ),
    "a run by the class": (
        lambda: Runner.run(Agent(), "Hi."),  # type: ignore[arg-type, call-arg]
        "the method of the class",
        "Runner().run(agent, messages)",
    ),
    "an agent for an engine": (
        lambda: Runner(Agent()),  # type: ignore[arg-type]
        "is not an engine",
        "run(agent, messages)",
    ),
    "the name of another agent": (
        lambda: Agent(handoffs=["billing"]),  # type: ignore[list-item]
        "must be an Agent, not 'billing'",
        "give the Agent itself",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_tells_what_to_write(mistake: str) -> None:
    make, message, line = MISTAKES[mistake]
    with pytest.raises(UsageError) as raised:
        make()
    assert message in raised.value.message
    assert line in str(raised.value.hint)
