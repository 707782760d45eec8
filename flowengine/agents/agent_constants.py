"""The constants of agents that stand in their flow, and the ids of what they call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from flowengine.agents import background
from flowengine.agents.agent_specs import AgentSpec
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
        return list(dict.fromkeys(use["session"] for use in served if use is not None))

    def models(self) -> dict[str, Plain]:
        models: dict[str, Any] = {
            agent.name: {"model": agent.model, "fallbacks": [*agent.fallbacks]}
            for agent in self.agents
        }
        for agent in self.agents:
            context = agent.constants["context"]
            if context is not None and context["max_tokens"] is None:
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
            "max_turns": first.max_turns,
            "last": first.last,
            "chats": self.chat,
            "executes": self.execute_tools,
            "starts": self.starts,
            **agent.constants,
        }
        if agent is first:
            constants["offers"] = self.models()
            constants["servers"] = bool(self.servers())
        elif self.chat and "before" in first.constants:
            shared = [
                {**check, "step": f"{agent.name}.before.{check['check']}"}
                for check in first.constants["before"]
            ]
            constants["before"] = [*shared, *constants.get("before", ())]
        return constants

    def _kind(self, tool: ToolStep) -> dict[str, Plain]:
        """Return how calls of a tool are answered."""
        foreign = tool.adapter is None and not tool.waits and tool.foreign
        kind = ADAPTED if tool.adapter is not None else OTHERS if foreign else FLOW
        known = {} if kind == ADAPTED else {"kind": kind}
        return {**known, **({"starts": True} if tool.background else {})}

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
