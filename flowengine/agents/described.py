"""Agents in Python as plain data: what a flow is generated from, in this process and in others.

A function that another process can import is named. Any other is live: it is only in the process
that made it, under a key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flowengine.agents.agent import CASE_TOOLS, Agent
from flowengine.agents.equipment import ReadyTool, name_of
from flowengine.agents.flow_environments import FlowEnvironments, environment_names
from flowengine.agents.function_schemas import read_tool
from flowengine.agents.reachable import reachable, targets
from flowengine.errors import UsageError
from flowengine.sdk import Plain

Refer = Callable[[Any], tuple[str, str] | None]
"""Returns the name of a function, `module:function`, and the folder where it is found; None: no
other process finds it."""


@dataclass
class Described:
    """Agents as plain data."""

    configuration: dict[str, Plain]
    live: dict[str, Any] = field(default_factory=dict)
    """Key → function, of those that no other process finds."""
    agents: dict[str, Agent] = field(default_factory=dict)
    """Id in the flow → agent."""


def describe(
    agents: Sequence[Agent],
    refer: Refer,
    *,
    model: str | None = None,
    max_turns: int = 30,
    execute_tools: bool = True,
) -> Described:
    """Return agents, and all that they may hand over to, as plain data.

    Args:
        agents: The first one begins. The others can be handed over to by every agent, unless a
            function leads to them.
        refer: Finds the names of functions.
        model: In place of the model of every agent.
        max_turns: Calls of models.
        execute_tools: Whether calls are run.

    Returns:
        They, and their live functions.

    Raises:
        UsageError: What a run would fail at.
    """
    known = reachable(agents)
    ids = _ids(list(known))
    led_to = {one.name for agent in known.values() for one in targets(agent)}
    shared = [one.name for one in agents[1:] if one.name not in led_to]
    found = Described({}, agents={ids[name]: one for name, one in known.items()})
    told: list[Plain] = []
    around = FlowEnvironments()
    for agent in known.values():
        agent.check()
        ways = [*(one.name for one in targets(agent)), *shared]
        reaches = [ids[name] for name in dict.fromkeys(ways) if name != agent.name]
        told.append(_agent(agent, ids[agent.name], reaches, model, refer, found.live, around))
    found.configuration = {
        "agents": told,
        "max_turns": max_turns,
        "execute_tools": execute_tools,
        "environments": around.environments,
        "servers": around.servers,
    }
    return found


def _agent(
    agent: Agent,
    id: str,
    reaches: list[str],
    model: str | None,
    refer: Refer,
    live: dict[str, Any],
    around: FlowEnvironments,
) -> dict[str, Plain]:
    tools = [one for one in agent.functions if not any(one is case for case in CASE_TOOLS)]
    instructions: Plain = agent.instructions
    if callable(instructions):
        instructions = _named(instructions, f"{id}.instructions", refer, live)
    return {
        "id": id,
        "name": agent.name,
        "description": agent.description,
        "model": model or agent.model,
        "fallbacks": list(agent.fallbacks),
        "instructions": instructions,
        "context_description": agent.context_variables_description,
        "tools": [_tool(agent, one, id, refer, live, around) for one in tools],
        "ready": [_ready(agent, one, id, around) for one in agent.ready],
        "servers": [around.server(agent, one.name) for one in agent.servers],
        "reaches": [*reaches],
        "returns": agent.answer_schema(),
        "tool_choice": agent.tool_choice,
        "parallel_tool_calls": agent.parallel_tool_calls,
        "function_calling": agent.function_calling,
        "retry": {"attempts": agent.retry} if isinstance(agent.retry, int) else agent.retry,
        "settings": dict(agent.settings),
        "context": agent.context,
        "repeats": agent.repeats,
        "finish": "tools" if len(tools) < len(agent.functions) else "answer",
    }


def _ready(agent: Agent, tool: ReadyTool, id: str, around: FlowEnvironments) -> dict[str, Plain]:
    """Describe a tool that comes with the engine."""
    [spec] = [
        one
        for one in agent.environments
        if isinstance(one, dict) and name_of(one) == tool.environment
    ]
    declared: dict[str, Plain] = {
        "std": tool.name,
        "environments": {tool.place: around.environment(spec, agent)},
    }
    if tool.name in agent.approvals:
        declared["approval"] = agent.approvals[tool.name]
    if (limits := agent.limits_of(tool.name)) is not None:
        declared["limits"] = limits
    return {"name": tool.name, "id": f"{id}__{tool.name}", "declared": declared}


def _tool(
    agent: Agent,
    function: Any,
    id: str,
    refer: Refer,
    live: dict[str, Any],
    around: FlowEnvironments,
) -> dict[str, Plain]:
    name, signature = read_tool(function, environments=environment_names(agent, function))
    taken = around.taken(agent, function)
    declared = _declared(agent, name, function)
    return {
        "name": name,
        "id": f"{id}__{name}",
        "description": signature.description,
        "parameters": signature.args,
        "parallel": bool(_option(function, "supports_parallel_execution")),
        "function": _named(function, f"{id}.{name}", refer, live),
        "declared": {**declared, "environments": taken} if taken else declared,
    }


def _declared(agent: Agent, name: str, function: Any) -> dict[str, Plain]:
    """Return what a flow declares of a tool besides what it calls."""
    timeout = _option(function, "timeout")
    found = {
        "approval": _approval(agent.approvals.get(name, _option(function, "approval")), name),
        "effect": _option(function, "effect"),
        "timeout": None if timeout is None else f"{round(timeout * 1000)}ms",
        "limits": agent.limits_of(name, _option(function, "limits")),
    }
    return {key: one for key, one in found.items() if one is not None}


def _approval(said: Any, name: str) -> Any:
    """Return an approval whose question names the function, not the tool that is made of it."""
    if said is None or said == "none":
        return said
    forms: dict[Any, dict[str, Plain]] = {"ask": {}, "required": {"required": True}}
    whole = dict(said) if isinstance(said, Mapping) else forms.get(said, {"when": said})
    return {"title": f"Call {name!r}?", **whole}


def _option(function: Any, name: str) -> Any:
    """Return what a function says of itself: by `tool`, or by an attribute."""
    options = getattr(function, "__flowengine_tool__", None)
    return getattr(function, name, None) if options is None else getattr(options, name)


def _named(function: Any, key: str, refer: Refer, live: dict[str, Any]) -> dict[str, Plain]:
    found = refer(function)
    if found is None:
        live[key] = function
        return {"live": key}
    return {"name": found[0], "folder": found[1]}


def _ids(names: list[str]) -> dict[str, str]:
    """Return the ids of agents in the flow: their names, as far as those can be ids."""
    ids: dict[str, str] = {}
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_")
        id = plain if plain[:1].isalpha() else f"agent_{plain}"
        number, base = 1, id
        while id in ids.values():
            number += 1
            id = f"{base}_{number}"
        ids[name] = id
    return ids


def check_run(messages: Any, context_variables: Any, max_turns: Any) -> None:
    """Check what a run is given, before anything is asked or opened.

    Args:
        messages: The conversation so far.
        context_variables: By name.
        max_turns: Calls of models.

    Raises:
        UsageError: The message names what is wrong.
    """
    if type(max_turns) is not int or max_turns < 1:
        raise UsageError(f"max_turns is {max_turns!r}", hint="give a whole number from 1 on")
    if not isinstance(context_variables, dict) or not all(
        isinstance(key, str) for key in context_variables
    ):
        raise UsageError("context_variables is no dict with names", hint="give {'name': value}")
    if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
        raise UsageError(
            "messages is no list of dicts",
            hint="give [{'role': 'user', 'content': '…'}]",
        )
    open_calls: set[str] = set()
    for place, message in enumerate(messages):
        role = message.get("role")
        if role == "system":
            raise UsageError(
                f"messages[{place}] is a system message",
                hint="the instructions of the agent are sent as such: Agent(instructions=…)",
            )
        if role not in {"user", "assistant", "tool"}:
            raise UsageError(
                f"messages[{place}] has the role {role!r}",
                hint="say 'user', 'assistant' or 'tool'",
            )
        open_calls |= {str(one.get("id")) for one in message.get("tool_calls") or ()}
        if role == "tool" and str(message.get("tool_call_id")) not in open_calls:
            raise UsageError(
                f"messages[{place}] answers the call {message.get('tool_call_id')!r}, which no "
                "message before it makes",
                hint="put the assistant's message with the call before it",
            )
