# Shows G3, G4
"""What a newcomer to agents in Python meets: one method, scripted replies, and clear mistakes."""

from __future__ import annotations

import asyncio
import traceback
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
from flowengine.agents.agent_mistakes import ATTRIBUTES
from flowengine.agents.models.port import ModelRequest
from flowengine.testing import call, scripted
from tests.rows import each_row


@dataclass
class City:
    name: str
    people: int


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


# Shows M15
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
    assert blocking.output is blocking.output
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


def test_a_reply_that_repeats_is_used_once_it_has_replied() -> None:
    agent = Agent(name="Clerk")
    often = {"text": "again", "repeat": True}
    chosen = {**often, "when": {"contains": "Hi"}}
    with scripted(chosen, often):
        outputs = [agent.run(text).output for text in ("Hi.", "No.", "Hi.", "No.")]
    assert outputs == ["again"] * 4

    with (
        pytest.raises(AssertionError, match=r"1 of 2 scripted replies were not used: .* 1 times"),
        scripted(chosen, often),
    ):
        agent.run("No.")


def test_a_fault_of_a_scripted_function_ends_the_run_with_its_traceback() -> None:
    agent = Agent(name="Clerk", retry=5)
    asked: list[object] = []

    def reply(request: ModelRequest) -> str:
        asked.append(request)
        raise KeyError("nothing")

    with pytest.raises(AgentRunFailed, match="KeyError: 'nothing'") as failed, scripted(reply):
        agent.run("Hi.")

    assert len(asked) == 1
    assert isinstance(failed.value.__cause__, KeyError)
    assert traceback.extract_tb(failed.value.__cause__.__traceback__)[-1].name == "reply"


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


def _ran(**options: Any) -> Made:
    return lambda: Agent().run("Hi.", **options)


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
    **{
        f"a run with {name}": (_ran(**{name: None}), f"no '{name}'", line)
        for name, line in {
            "message_history": "agent.run([*response.history, message])",
            "context": "deps=Deps(…)",
            "thread_id": "session='ana'",
            "session_id": "session='ana'",
            "config": "labels={'team': 'it'}",
            "max_iter": "max_turns=10",
            "recursion_limit": "max_turns=10",
            "usage_limits": "budget={'tokens': 50_000}",
            "stream": "agent.stream(",
            "tools": "Agent(tools=[function])",
            "output_type": "Agent(returns=City)",
            "temperature": "Agent(settings={'temperature': 0})",
            "timeout": "budget={'wall_time': '2m'}",
            "callbacks": "Agent(hooks=",
            "debug": "log_agents(engine)",
            "checkpointer": "engine=Engine()",
        }.items()
    },
    "a dict as the message": (
        lambda: Agent().run({"role": "user"}),  # type: ignore[arg-type]
        "not a list of dicts",
        "[{'role': 'user'",
    ),
    "texts as messages": (
        lambda: Agent().run(["Hi."]),  # type: ignore[list-item]
        "not a list of dicts",
        "[{'role': 'user'",
    ),
    "another role": (
        lambda: Agent().run([{"role": "human", "content": "Hi."}]),
        "the role 'human'",
        "'user'",
    ),
    "no turns": (lambda: Agent().run("Hi.", max_turns=0), "max_turns is 0", "from 1 on"),
    "a number as a budget": (
        lambda: Agent().run("Hi.", budget=5),  # type: ignore[arg-type]
        "expected a mapping",
        "tokens",
    ),
    "a misspelled budget": (
        lambda: Agent().run("Hi.", budget={"token": 5}),
        "unknown key 'token'",
        "'tokens'",
    ),
    "messages before the agent": (
        lambda: Runner().run("Hi.", Agent()),  # type: ignore[arg-type]
        "not an agent",
        "run(agent, messages)",
    ),
    "an agent as a flow": (
        lambda: Engine(None).run(Agent(), "Hi."),  # type: ignore[arg-type]
        "not a flow",
        "agent.run(…, engine=…)",
    ),
    "an object as deps": (
        _given(deps=City(name="Oslo", people=3)),
        "should be a type",
        "Agent(deps=Deps)",
    ),
    "deps that nobody takes": (
        lambda: Agent().run("Hi.", deps=object()),
        "no agent takes them",
        "Agent(deps=object)",
    ),
    "a function in place of tools": (_given(tools=add), "must be a list", "tools=[…]"),
    "the result of a function as a tool": (
        _given(tools=[add(1, 2)]),
        "not a function",
        "@flowengine.tool",
    ),
    "a lambda as a tool": (_given(tools=[lambda a: a]), "has no name", "define it with 'def'"),
    "an agent as a tool": (_given(tools=[Agent(name="B")]), "not a function", "as_tool()"),
    "a tool of any arguments": (_given(tools=[print]), "print", "parameter"),
    "a tool twice": (_given(tools=[add, add]), "two functions named 'add'", "rename one"),
    "a name that no model can call": (
        lambda: Agent(tools=[Agent(name="B").as_tool("two words")]),
        "cannot be the name of a tool",
        "letters",
    ),
    "an instance to return": (
        _given(returns=City(name="Oslo", people=3)),
        "no JSON Schema",
        "a pydantic model",
    ),
    "the name of a type to return": (_given(returns="City"), "no JSON Schema", "a type of data"),
    "a function as a check": (_given(checks=[add]), "checks[0] is the function", "'before'"),
    "a mapping in place of checks": (_given(checks={"before": add}), "be a list", "checks=[…]"),
    "a check of nothing": (
        lambda: Agent(checks=[{"before": add}]).run("Hi."),
        "takes no 'prompt'",
        "argument 'prompt'",
    ),
    "a hook of another time": (
        lambda: Agent(hooks=[{"before_tool": add}]).run("Hi."),
        "unknown key 'before_tool'",
        "'before_",
    ),
    "a hook of other arguments": (
        lambda: Agent(hooks=[{"before_call": add}]).run("Hi."),
        "needs 'a', which no hook",
        "tool, arguments",
    ),
    "an agent in place of handoffs": (
        _given(handoffs=Agent(name="B")),
        "must be a list",
        "handoffs=[…]",
    ),
    "two agents of one name": (
        lambda: Agent(name="A", handoffs=[Agent(name="A", instructions="Other.")]).run("Hi."),
        "two agents have the name 'A'",
        "a different name",
    ),
    "an approval of no tool": (
        lambda: Agent(tools=[add], approvals={"sub": "ask"}).run("Hi."),
        "names 'sub'",
        "it has add",
    ),
    "approvals as a list": (_given(approvals=["add"]), "be a mapping", "approvals={"),
    "a limit of no tool": (
        lambda: Agent(tools=[add], limits={"sub": {"calls": 1}}).run("Hi."),
        "names 'sub'",
        "it has add",
    ),
    "a choice of no tool": (
        lambda: Agent(tools=[add], tool_choice="sub").run("Hi."),
        "no tool 'sub'",
        "one of add",
    ),
    "no tool to be found": (
        lambda: Agent(tools=[add], defer=["sub"]).run("Hi."),
        "no tool 'sub'",
        "among its 'tools'",
    ),
    "a list of instructions": (_given(instructions=["Be brief."]), "be text", "one text"),
    "a number as the context": (_given(context=5000), "be a mapping", "'max_tokens'"),
    "text as settings": (_given(settings="cold"), "be a mapping", "Agent(settings="),
    "text as retry": (_given(retry="often"), "be a mapping", "Agent(retry=3)"),
    "a model that is no text": (_given(model=object()), "be text", "openai/"),
    "an empty name": (_given(name=" "), "has no name", "Agent(name="),
    "no directory of skills": (
        lambda: Agent(skills=["nowhere"]).run("Hi."),
        "there is no directory",
        "path of a directory",
    ),
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


@each_row("mistake", MISTAKES)
def test_a_mistake_tells_what_to_write(mistake: str) -> None:
    make, message, line = MISTAKES[mistake]
    with pytest.raises(UsageError) as raised:
        make()
    assert message in raised.value.message
    assert line in str(raised.value.hint)


@each_row(
    "what, name, line",
    [(what, name, line) for what, names in ATTRIBUTES.items() for name, line in names.items()],
)
def test_an_attribute_of_another_library_tells_what_to_write(
    what: str, name: str, line: str
) -> None:
    read = Agent() if what == "an agent" else Response()
    with pytest.raises(AttributeError, match=f"^{what} has no '{name}': write ") as raised:
        getattr(read, name)
    assert str(raised.value).endswith(line)
    assert not hasattr(read, name)


def test_any_other_attribute_is_missed_as_usual() -> None:
    reads: list[Any] = [Agent(), Response()]
    for read in reads:
        with pytest.raises(AttributeError, match="has no attribute 'color'"):
            read.color  # noqa: B018
