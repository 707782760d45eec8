"""The constants of agents that stand in their flow, and the ids of what they call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from flowengine.agents import background
from flowengine.agents.agent_specs import AgentCheck, AgentHook, AgentSpec
from flowengine.agents.context_reduction import SUMMARIZE
from flowengine.agents.tool_steps import ToolStep
from flowengine.sdk import Plain
from flowengine.sdk.tools.call_answers import ADAPTED, FLOW, OTHERS

OWN = frozenset(
    ("offer", "person", "awaited", "ahead", "program", "before", "after", "before_turn",
     "after_turn", "before_call", "after_call", "reduce", "handoff")
)  # fmt: skip
"""What follows an agent's name in the ids of its callees that are no tools."""


class AgentConstants:
    """What the rounds of agents know from the beginning.

    Args:
        agents: The agents that can become active. The first one starts.
        execute_tools: If false, the flow ends before the first calls.
        chat: Each answer is a question to a person, whose reply is the next message.
    """

    def __init__(self, agents: Sequence[AgentSpec], *, execute_tools: bool, chat: bool) -> None:
        self.starts = execute_tools and any(tool.background for a in agents for tool in a.tools)
        if self.starts:
            agents = [background.equipped(agent) for agent in agents]
        self.agents = agents if execute_tools else agents[:1]  # no calls, so no handoffs
        self.execute_tools, self.chat = execute_tools, chat
        self._ids = self._unique_ids()

    def targets(self, agent: AgentSpec) -> list[str]:
        known = [agent.name for agent in self.agents]
        return [name for name in dict.fromkeys([*agent.handoffs, *agent.reaches]) if name in known]

    def servers(self) -> list[str]:
        """Return the sessions whose servers list their tools for the agents."""
        served = (tool.served for one in self.agents for tool in one.tools)
        return list(dict.fromkeys(use.session for use in served if use is not None))

    def models(self) -> dict[str, Plain]:
        models: dict[str, Any] = {
            agent.name: {"model": agent.model, "fallbacks": [*agent.fallbacks]}
            for agent in self.agents
        }
        for agent in self.agents:
            if agent.context is not None and agent.context.max_tokens is None:
                models[agent.name]["windows"] = True
        return models

    def constants(self, agent: AgentSpec, others: Sequence[str]) -> dict[str, Plain]:
        """Return the constants of an agent."""
        tools: list[Plain] = [
            {"name": tool.name, "description": tool.description, "parameters": tool.parameters,
             "step": self.tool_id(agent, tool)}
            for tool in agent.tools
            if tool.served is None
        ]  # fmt: skip
        first = self.agents[0]
        constants: dict[str, Any] = {
            "name": agent.name,
            "models": agent.models,
            "tools": tools,
            "kinds": {self.tool_id(agent, tool): self._kind(tool) for tool in agent.tools},
            "handoffs": {
                other.name: other.description
                for other in self.agents
                if other.name in agent.handoffs
            },
            "others": [*others],
            "filters": self._filters(agent),
            "max_turns": first.max_turns,
            "last": first.last,
            "context": self._context(agent),
            "chats": self.chat,
            "executes": self.execute_tools,
            "starts": self.starts,
            **agent.constants,
        }
        if agent is first:
            constants["offers"] = self.models()
            constants["servers"] = bool(self.servers())
        for when in ("before", "after"):
            if checks := [*self._checks(agent, when)]:
                constants[when] = checks
        if agent.hooks:
            constants["hooks"] = [_hook(agent.name, hook) for hook in _in_order(agent.hooks)]
        if arriving := [_arriving(check) for check in agent.checks if check.arriving]:
            constants["arriving"] = arriving
        return constants

    def _kind(self, tool: ToolStep) -> dict[str, Plain]:
        """Return how calls of a tool are answered."""
        foreign = tool.adapter is None and not tool.waits and tool.foreign
        kind = ADAPTED if tool.adapter is not None else OTHERS if foreign else FLOW
        known = {} if kind == ADAPTED else {"kind": kind}
        return {**known, **({"starts": True} if tool.background else {})}

    def _context(self, agent: AgentSpec) -> dict[str, Plain] | None:
        reducer = agent.context
        if reducer is None:
            return None
        rule = SUMMARIZE if reducer.summarizes else "drop"
        about = {"max_tokens": reducer.max_tokens, "room": reducer.room, "clear": reducer.clear}
        if reducer.tool is None:
            return {**about, "rule": rule}
        step = f"{agent.name}.reduce.{reducer.tool.name}"
        return {**about, "rule": step, "tool": {"step": step, "arguments": [*reducer.arguments]}}

    def _filters(self, agent: AgentSpec) -> dict[str, Plain]:
        filters: dict[str, Plain] = {}
        for other, filter in agent.filters.items():
            filters[other] = {"sees": filter.sees}
            if filter.tool is not None:
                step = f"{agent.name}.handoff.{other}.{filter.tool.name}"
                filters[other]["tool"] = {"step": step, "arguments": [*filter.arguments]}
        return filters

    def all_checks(self, agent: AgentSpec) -> Iterable[tuple[AgentSpec, AgentCheck]]:
        """Yield the checks of an agent, in a chat after those of the first agent."""
        first = self.agents[0]
        if self.chat and agent is not first:
            yield from ((first, check) for check in first.checks if check.when == "before")
        yield from ((agent, check) for check in agent.checks)

    def _checks(self, agent: AgentSpec, when: str) -> Iterable[Plain]:
        for _, check in self.all_checks(agent):
            if check.when == when:
                yield {
                    "check": check.tool.name,
                    "step": f"{agent.name}.{when}.{check.tool.name}",
                    "tells": check.tells,
                    "arguments": [*check.arguments],
                    "beside": check.beside,
                }

    def tool_id(self, agent: AgentSpec, tool: ToolStep) -> str:
        """Return the id of a tool's step: the tool's name, after that of the agent if needed."""
        return self._ids[agent.name, tool.name]

    def _unique_ids(self) -> dict[tuple[str, str], str]:
        """Return the ids of the tools' steps, which no agent and no other callee has."""
        tools = [(agent.name, tool.name) for agent in self.agents for tool in agent.tools]
        times, ids = Counter(name for _, name in tools), dict[tuple[str, str], str]()
        taken = {agent.name for agent in self.agents}
        for agent, name in tools:
            id = name if times[name] == 1 else f"{agent}.{name}"
            while id in taken or self._is_own(id):
                id = f"{agent}.{id}"
            taken.add(id)
            ids[agent, name] = id
        return ids

    def _is_own(self, id: str) -> bool:
        """Return whether a callee that is no tool could have an id."""
        after = (id.removeprefix(f"{agent.name}.") for agent in self.agents)
        return any(rest != id and rest.partition(".")[0] in OWN for rest in after)


def _hook(agent: str, hook: AgentHook) -> Plain:
    """Return a hook as a constant of its agent."""
    return {
        "tool": hook.tool.name,
        "when": hook.when,
        "step": f"{agent}.{hook.when}.{hook.tool.name}",
        "arguments": [*hook.arguments],
        "tools": [*hook.tools],
    }


def _in_order(hooks: Sequence[AgentHook]) -> list[AgentHook]:
    """Return hooks in the order in which they run, the outermost declared first."""
    before = [hook for hook in hooks if hook.when.startswith("before")]
    return [*before, *(hook for hook in reversed(hooks) if hook.when.startswith("after"))]


def _arriving(check: AgentCheck) -> Plain:
    """Return a check of text that arrives as a constant of its agent."""
    return {
        "check": check.tool.name,
        "function": check.arriving,
        "arguments": [*check.arguments],
    }
