"""Checks of the functions of an agent in Python; the compiler of its flow has all others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from flowengine.agents.agent_as_tool import AgentAsTool
from flowengine.agents.agent_fields import AgentFields
from flowengine.agents.flow_environments import environment_names
from flowengine.agents.function_schemas import check_name, read_tool
from flowengine.agents.turn_limit import turn_limit
from flowengine.errors import UsageError


def check_agent(agent: AgentFields) -> None:
    """Check what a run of an agent would fail at, as far as it is about its functions.

    Raises:
        UsageError: What is wrong; the message names the agent.
    """
    if not agent.name.strip():
        raise UsageError("an agent has no name", hint="give it one: Agent(name=…)")
    with _naming(agent):
        agent.answer_schema()
        agent.check_tools()
        names = [one.name for one in agent.ready]
        for function in agent.tools:
            name = _checked_name(agent, function)
            if name in names:
                raise UsageError(
                    f"agent {agent.name!r} has two functions named {name!r}",
                    hint="rename one: a model calls them by their names",
                )
            names.append(name)
        for place, check in enumerate(agent.checks):
            if not isinstance(check, dict):
                raise UsageError(
                    f"checks[{place}] is {check!r}",
                    hint="say {'before': function} or {'after': function}",
                )
        for function in agent.beside:
            _checked_name(agent, function)


def _checked_name(agent: AgentFields, function: Any) -> str:
    """Return the name of a function or agent that is a tool.

    Raises:
        UsageError: A model cannot call it.
    """
    if isinstance(function, AgentAsTool):
        check_name(function.name)
        turn_limit(function.max_turns)
        return function.name
    return read_tool(function, environments=environment_names(agent, function))[0]


@contextmanager
def _naming(agent: AgentFields) -> Iterator[None]:
    """Have errors name the agent."""
    try:
        yield
    except UsageError as error:
        message = error.message
        named = f"agent {agent.name!r}"
        if not message.startswith(named):
            message = f"{named}: {message}"
        raise UsageError(message, hint=error.hint) from None
