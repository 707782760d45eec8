"""`Agent`, `Result`, `Response`: their defaults, and what is checked when they are built."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from flowengine.agents import Agent, Response, Result
from flowengine.agents.agent import instructions_of
from flowengine.errors import UsageError
from flowengine.sdk import ValidationError


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def takes_socket(line: socket.socket) -> None: ...
def stars(*numbers: int) -> None: ...


def twin() -> Any:
    def add() -> None: ...

    return add


def test_an_agent_has_its_defaults() -> None:
    agent = Agent()

    assert agent.name == "Agent"
    assert agent.model == "gpt-4o"
    assert agent.instructions == "You are a helpful agent."
    assert agent.functions == []
    assert agent.tool_choice is None
    assert agent.parallel_tool_calls is True
    assert agent.context_variables_description == ""


def test_responses_and_results_share_nothing() -> None:
    assert (Response().messages, Response().agent, Response().context_variables) == ([], None, {})
    assert (Result().value, Result().agent, Result().context_variables) == ("", None, {})

    Response().messages.append({})
    Response().context_variables["a"] = 1
    Result().context_variables["a"] = 1
    Agent().functions.append(add)

    assert Response().messages == []
    assert Response().context_variables == Result().context_variables == {}
    assert Agent().functions == []


def test_a_description_of_the_context_is_part_of_the_instructions() -> None:
    def told(ctx: dict[str, Any]) -> str:
        return f"n is {ctx['n']}"

    assert instructions_of("a", "Help.", "", {}) == "Help."
    assert instructions_of("a", "Help.", "n: a number", {}) == "Help.\n\nn: a number"
    assert instructions_of("a", told, "", {"n": 2}) == "n is 2"
    assert instructions_of("a", lambda: "Help.", "", {}) == "Help."


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"functions": [3]}, "agent 'A': 3 is no function"),
        ({"functions": [lambda a: a]}, "agent 'A': a lambda has no name"),
        ({"functions": [add, twin()]}, "agent 'A' has two functions of the name 'add'"),
        ({"functions": [stars]}, "agent 'A': the parameter '*numbers' of stars"),
        ({"functions": [takes_socket]}, "agent 'A': the parameter 'line' of takes_socket"),
        ({"functions": [add], "tool_choice": "ad"}, "agent 'A': tool_choice 'ad' is no tool"),
        ({"model": " "}, "agent 'A': no model is named"),
    ],
)
def test_what_is_wrong_with_an_agent_is_told_when_it_is_built(
    fields: dict[str, Any], told: str
) -> None:
    with pytest.raises(UsageError) as raised:
        Agent(name="A", **fields)

    assert told in raised.value.message


def test_a_parameter_for_an_environment_needs_no_schema() -> None:
    assert Agent(functions=[takes_socket], environments=["line"]).functions == [takes_socket]


def _raises() -> str:
    raise ZeroDivisionError("by zero")


@pytest.mark.parametrize(
    ("instructions", "told"),
    [
        (_raises, "the instructions of agent 'A' raised ZeroDivisionError: by zero"),
        (lambda: 3, "the instructions of agent 'A' are a int"),
    ],
)
def test_instructions_that_fail_name_the_agent(instructions: Any, told: str) -> None:
    with pytest.raises(ValidationError) as raised:
        instructions_of("A", instructions, "", {})

    assert told in raised.value.message
