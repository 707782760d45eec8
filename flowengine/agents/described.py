"""Agents in Python as plain data: what a flow is generated from, in this process and in others.

A function that another process can import is named. Any other is live: it is only in the process
that made it, under a key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flowengine.agents.agent import Agent
from flowengine.agents.agent_as_tool import AgentAsTool
from flowengine.agents.agent_validation import (
    CheckSaid,
    check_arguments,
    checks_of,
    context_of,
    reducer_arguments,
)
from flowengine.agents.case_tools import is_case_tool
from flowengine.agents.equipment import ReadyTool, name_of
from flowengine.agents.flow_environments import FlowEnvironments, environment_names
from flowengine.agents.function_schemas import read_tool
from flowengine.agents.reachable import agents_asked, all_agents, reachable, targets
from flowengine.agents.skill_tools import RUN_PROGRAMS, as_constants
from flowengine.agents.skills import Skill, skills_at
from flowengine.agents.turn_limit import TURNS, turn_limit
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
    max_turns: int | Mapping[str, Any] = TURNS,
    execute_tools: bool = True,
) -> Described:
    """Return agents, and all that they may hand over to or ask, as plain data.

    Args:
        agents: The first one begins. The others can be handed over to by every agent, unless a
            function leads to them.
        refer: Finds the names of functions.
        model: In place of the model of every agent.
        max_turns: Calls of models: a number, or `{"count": 10, "last": "answer"}`.
        execute_tools: Whether calls are run.

    Returns:
        They, and their live functions.

    Raises:
        UsageError: What a run would fail at.
    """
    known = all_agents(agents)
    ids = _ids(list(known))
    found = Described({}, agents={ids[name]: one for name, one in known.items()})
    around = FlowEnvironments()
    writer = _Writer(ids, model, refer, found.live, around)
    told: dict[str, dict[str, Plain]] = {}
    for name, agent in known.items():
        agent.check()
        told[name] = writer.agent(agent)
    shared = agents[1:]
    asked = agents_asked(one for agent in known.values() for one in _functions(agent))
    found.configuration = {
        "agents": _casts(told, ids, reachable(agents), shared),
        **_turns(max_turns),
        "execute_tools": execute_tools,
        "asked": {ids[one.name]: _casts(told, ids, reachable([one])) for one in asked},
        "environments": around.environments,
        "servers": around.servers,
    }
    return found


def _turns(said: int | Mapping[str, Any]) -> dict[str, Plain]:
    limit = turn_limit(said)
    return {"max_turns": limit.turns, "last": limit.last}


def _functions(agent: Agent) -> list[Any]:
    """Return the functions of an agent, those that check included."""
    return [*agent.tools, *(one.function for one in checks_of(agent))]


def _casts(
    told: Mapping[str, dict[str, Plain]],
    ids: Mapping[str, str],
    agents: Mapping[str, Agent],
    shared: Sequence[Agent] = (),
) -> list[Plain]:
    """Return the agents between which a conversation may go.

    Args:
        told: Name → the agent as plain data.
        ids: Name → id.
        agents: They.
        shared: Those that everyone can hand over to, unless a function leads to them.
    """
    led_to = {one.name for agent in agents.values() for one in targets(agent)}
    others = [one.name for one in shared if one.name not in led_to]
    found: list[Plain] = []
    for name, agent in agents.items():
        ways = dict.fromkeys([*(one.name for one in targets(agent)), *others])
        found.append({**told[name], "reaches": [ids[one] for one in ways if one != name]})
    return found


class _Writer:
    """Writes agents as plain data.

    Args:
        ids: Name of an agent → its id in the flow.
        model: In place of the model of every agent.
        refer: Finds the names of functions.
        live: Gets those that have none.
        around: What the flow declares for all of them.
    """

    def __init__(
        self,
        ids: Mapping[str, str],
        model: str | None,
        refer: Refer,
        live: dict[str, Any],
        around: FlowEnvironments,
    ) -> None:
        self.ids = ids
        self.model = model
        self.refer = refer
        self.live = live
        self.around = around

    def agent(self, agent: Agent) -> dict[str, Plain]:
        """Return an agent; to whom it may hand over depends on who else is there."""
        id = self.ids[agent.name]
        tools = [one for one in agent.tools if not is_case_tool(one)]
        instructions: Plain = agent.instructions
        if callable(instructions):
            instructions = self._named(instructions, f"{id}.instructions")
        return {
            "id": id,
            "name": agent.name,
            "description": agent.description,
            "model": self.model or agent.model,
            "fallbacks": list(agent.fallbacks),
            "instructions": instructions,
            "context_description": agent.context_variables_description,
            "handoffs": [self.ids[one.name] for one in agent.handoffs],
            "tools": [self._tool(agent, one) for one in tools],
            "ready": [self._ready(agent, one) for one in agent.ready],
            "environments": self._offered(agent),
            "servers": [self.around.server(agent, one.name) for one in agent.servers],
            "skills": [_skill(one) for one in skills_at(agent.skills)],
            "runs_programs": self._runs_programs(agent),
            "returns": agent.answer_schema(),
            "tool_choice": agent.tool_choice,
            "parallel_tool_calls": agent.parallel_tool_calls,
            "function_calling": agent.function_calling,
            "retry": {"attempts": agent.retry} if isinstance(agent.retry, int) else agent.retry,
            "settings": dict(agent.settings),
            "context": self._context(agent),
            "checks": [self._check(agent, one) for one in checks_of(agent)],
            "repeats": agent.repeats,
            "call_limit": agent.call_limit,
            "finish": "tools" if len(tools) < len(agent.tools) else "answer",
        }

    def _ready(self, agent: Agent, tool: ReadyTool) -> dict[str, Plain]:
        """Describe a tool that comes with the engine."""
        declared: dict[str, Plain] = {**tool.declared} or {"std": tool.name.removeprefix("std.")}
        if tool.environment:
            [spec] = [one for one in _specs(agent) if name_of(one) == tool.environment]
            declared["environments"] = {tool.place: self.around.environment(spec, agent)}
        if tool.name in agent.approvals:
            declared["approval"] = agent.approvals[tool.name]
        if (limits := agent.limits_of(tool.name)) is not None:
            declared["limits"] = limits
        id = f"{self.ids[agent.name]}__{tool.name.replace('.', '_')}"
        return {"name": tool.name, "id": id, "declared": declared}

    def _offered(self, agent: Agent) -> dict[str, Plain]:
        """Return what tools that name no environment may work in: name → name in the flow."""
        if all(one.environment or one.declared for one in agent.ready):
            return {}
        return {name_of(one): self.around.environment(one, agent) for one in _specs(agent)}

    def _runs_programs(self, agent: Agent) -> Plain:
        """Return the environment to which files of skills are copied; None: there is none."""
        fitting = [one for one in _specs(agent) if one.get("kind") in RUN_PROGRAMS]
        return self.around.environment(fitting[0], agent) if agent.skills and fitting else None

    def _context(self, agent: Agent) -> Plain:
        said = context_of(agent)
        if said is None:
            return None
        reduce: Plain = said.reduce
        if callable(said.reduce):
            arguments: list[Plain] = [*reducer_arguments(agent, said.reduce)]
            reduce = {"tool": self._tool(agent, said.reduce), "arguments": arguments}
        return {"max_tokens": said.max_tokens, "reduce": reduce}

    def _check(self, agent: Agent, check: CheckSaid) -> dict[str, Plain]:
        return {
            "when": check.when,
            "tells": check.tells,
            "tool": self._tool(agent, check.function),
            "arguments": [*check_arguments(agent, check)],
        }

    def _tool(self, agent: Agent, function: Any) -> dict[str, Plain]:
        if isinstance(function, AgentAsTool):
            return self._asked(agent, function)
        name, signature = read_tool(function, environments=environment_names(agent, function))
        taken = self.around.taken(agent, function)
        declared = _declared(agent, name, function)
        id = self.ids[agent.name]
        return {
            "name": name,
            "id": f"{id}__{name}",
            "description": signature.description,
            "parameters": signature.args,
            "parallel": bool(_option(function, "supports_parallel_execution")),
            "function": self._called(function, f"{id}.{name}"),
            "declared": {**declared, "environments": taken} if taken else declared,
            "on_crash": _option(function, "on_crash"),
        }

    def _asked(self, agent: Agent, tool: AgentAsTool) -> dict[str, Plain]:
        """Describe an agent that is a tool of another."""
        asked = tool.agent.name
        return {
            "name": tool.name,
            "id": f"{self.ids[agent.name]}__{tool.name}",
            "description": tool.description,
            "asks": self.ids[asked],
            **_turns(tool.max_turns),
            "declared": _declared(agent, tool.name, tool),
        }

    def _called(self, function: Any, key: str) -> dict[str, Plain]:
        """Return how a function is found, and the one that says what a call of it would do."""
        found, preview = self._named(function, key), _option(function, "preview")
        if preview is not None:
            found["preview"] = self._named(preview, f"{key}.preview")
        return found

    def _named(self, function: Any, key: str) -> dict[str, Plain]:
        found = self.refer(function)
        if found is None:
            self.live[key] = function
            return {"live": key}
        return {"name": found[0], "folder": found[1]}


def _specs(agent: Agent) -> list[dict[str, Any]]:
    return [one for one in agent.environments if isinstance(one, dict)]


def _skill(one: Skill) -> dict[str, Plain]:
    return {"name": one.name, "description": one.description, "files": as_constants(one)}


def _declared(agent: Agent, name: str, function: Any) -> dict[str, Plain]:
    """Return what a flow declares of a tool besides what it calls."""
    timeout = _option(function, "timeout")
    found = {
        "approval": agent.approvals.get(name, _option(function, "approval")),
        "effect": _option(function, "effect"),
        "timeout": None if timeout is None else f"{round(timeout * 1000)}ms",
        "limits": agent.limits_of(name, _option(function, "limits")),
    }
    return {key: one for key, one in found.items() if one is not None}


def _option(function: Any, name: str) -> Any:
    """Return what a function says of itself: by `tool`, or by an attribute."""
    options = getattr(function, "__flowengine_tool__", None)
    return getattr(function if options is None else options, name, None)


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
    turn_limit(max_turns)
    if not isinstance(context_variables, dict) or not all(
        isinstance(key, str) for key in context_variables
    ):
        raise UsageError("context_variables is not a dict with names", hint="give {'name': value}")
    if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
        raise UsageError(
            "messages is not a list of dicts",
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
