"""Discovery of the agents that a run can reach, through the functions of its agents."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import CodeType, FunctionType, ModuleType
from typing import Any

from flowengine.agents.agent import AgentDefinition
from flowengine.agents.agent_tools import AgentAsTool
from flowengine.errors import UsageError
from flowengine.sdk.python.argument_checks import in_words
from flowengine.sdk.python.live_signature import innermost


def all_agents(first: Sequence[AgentDefinition]) -> dict[str, AgentDefinition]:
    """Return agents, their handoff targets, and the agents that are tools of these, by name.

    Args:
        first: The agents to start from. They come first.

    Raises:
        UsageError: Two agents have the same name.
    """
    return _walked(first, lambda agent: [*targets(agent), *_asked(agent)])


def reachable(first: Sequence[AgentDefinition]) -> dict[str, AgentDefinition]:
    """Return agents and their possible handoff targets, by name.

    Args:
        first: The agents to start from. They come first.

    Raises:
        UsageError: Two agents have the same name.
    """
    return _walked(first, targets)


def _walked(
    first: Sequence[AgentDefinition],
    following: Callable[[AgentDefinition], Iterable[AgentDefinition]],
) -> dict[str, AgentDefinition]:
    agents: dict[str, AgentDefinition] = {}
    pending = [*first]
    for agent in pending:  # grows during the loop
        if not isinstance(agent, AgentDefinition):
            raise UsageError(
                f"{in_words(agent)} is not an agent",
                hint="give an Agent first, and then the messages: run(agent, messages)",
            )
        if agent.name not in agents:
            agents[agent.name] = agent
            pending += following(agent)
        elif agents[agent.name] is not agent:
            raise UsageError(
                f"two agents have the name {agent.name!r}",
                hint="give each a different name: Agent(name=…)",
            )
    return agents


def _asked(agent: AgentDefinition) -> Iterator[AgentDefinition]:
    """Yield the agents that are tools of an agent."""
    for tool in (*agent.tools, *agent.helper_functions):
        if isinstance(tool, AgentAsTool) and isinstance(tool.agent, AgentDefinition):
            yield tool.agent


def targets(agent: AgentDefinition) -> list[AgentDefinition]:
    """Return the handoff targets of an agent: `handoffs`, then agents that its functions use."""
    functions = (tool for tool in agent.tools if not isinstance(tool, AgentAsTool))
    agents: list[AgentDefinition] = []
    for member in [
        *agent.handoff_targets,
        *(known for each in functions for known in _known_to(each)),
    ]:
        if member is not agent and not any(member is other for other in agents):
            agents.append(member)
    return agents


def _known_to(function: Any) -> Iterator[AgentDefinition]:
    """Yield the agents in the arguments, the closure and the globals of a function."""
    while isinstance(function, functools.partial):
        yield from _in([*function.args, *function.keywords.values()])
        function = function.func
    owner = getattr(function, "__self__", function)
    if not inspect.isroutine(owner) and not isinstance(owner, ModuleType):
        yield from _in(getattr(owner, "__dict__", {}).values())
    inner = innermost(function)
    if inspect.isfunction(inner):
        yield from _in(_cells(inner))
        names = [*_names(inner.__code__)]
        for value in map(inner.__globals__.get, names):
            inside = isinstance(value, ModuleType)
            yield from _in([getattr(value, name, None) for name in names] if inside else [value])


def _cells(function: FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # not bound yet
            yield cell.cell_contents


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


def _in(values: Iterable[Any]) -> Iterator[AgentDefinition]:
    """Yield the agents among values, and in lists and maps among them."""
    for value in values:
        several = isinstance(value, list | tuple | Mapping)
        inside = value.values() if isinstance(value, Mapping) else value if several else [value]
        yield from (member for member in inside if isinstance(member, AgentDefinition))
