"""Discovery of the agents that a run can reach, through the functions of its agents."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import CodeType, ModuleType
from typing import Any

from flowengine.agents.agent import Agent
from flowengine.agents.agent_as_tool import AgentAsTool
from flowengine.errors import UsageError
from flowengine.sdk.python_functions.live_signature import innermost


def all_agents(first: Sequence[Agent]) -> dict[str, Agent]:
    """Return agents, their handoff targets, and the agents that are tools of these, by name.

    Args:
        first: The agents to start from. They come first.

    Raises:
        UsageError: Two agents have the same name.
    """
    return _walked(first, lambda one: [*targets(one), *_asked(one)])


def reachable(first: Sequence[Agent]) -> dict[str, Agent]:
    """Return agents and their possible handoff targets, by name.

    Args:
        first: The agents to start from. They come first.

    Raises:
        UsageError: Two agents have the same name.
    """
    return _walked(first, targets)


def _walked(
    first: Sequence[Agent], following: Callable[[Agent], Iterable[Agent]]
) -> dict[str, Agent]:
    found: dict[str, Agent] = {}
    pending = [*first]
    for agent in pending:  # grows during the loop
        if agent.name not in found:
            found[agent.name] = agent
            pending += following(agent)
        elif found[agent.name] is not agent:
            raise UsageError(
                f"two agents have the name {agent.name!r}",
                hint="give each a name of its own: Agent(name=…)",
            )
    return found


def _asked(agent: Agent) -> Iterator[Agent]:
    """Yield the agents that are tools of an agent."""
    for tool in (*agent.tools, *agent.helper_functions):
        if isinstance(tool, AgentAsTool) and isinstance(tool.agent, Agent):
            yield tool.agent


def targets(agent: Agent) -> list[Agent]:
    """Return the handoff targets of an agent: `handoffs`, then agents that its functions use."""
    functions = (one for one in agent.tools if not isinstance(one, AgentAsTool))
    found: list[Agent] = []
    for one in [*agent.handoffs, *(known for each in functions for known in _known_to(each))]:
        if one is not agent and not any(one is other for other in found):
            found.append(one)
    return found


def _known_to(function: Any) -> Iterator[Agent]:
    """Yield the agents in the arguments, the closure and the globals of a function."""
    while isinstance(function, functools.partial):
        yield from _in([*function.args, *function.keywords.values()])
        function = function.func
    if inspect.ismethod(function):
        yield from _in(vars(function.__self__).values() if _has_fields(function.__self__) else ())
    elif not inspect.isroutine(function) and _has_fields(function):
        yield from _in(vars(function).values())
    code = getattr(inner := innermost(function), "__code__", None)
    if isinstance(code, CodeType):
        yield from _in(_cells(inner))
        names = list(_names(code))
        spaces = inner.__globals__
        for name in names:
            value = spaces.get(name)
            if isinstance(value, ModuleType):
                yield from _in(getattr(value, one, None) for one in names)
            else:
                yield from _in([value])


def _has_fields(value: Any) -> bool:
    return hasattr(value, "__dict__") and not isinstance(value, ModuleType)


def _cells(function: Any) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not bound yet
            continue


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


def _in(values: Iterable[Any]) -> Iterator[Agent]:
    for value in values:
        if isinstance(value, Agent):
            yield value
        elif isinstance(value, list | tuple):
            yield from (one for one in value if isinstance(one, Agent))
        elif isinstance(value, Mapping):
            yield from (one for one in value.values() if isinstance(one, Agent))
