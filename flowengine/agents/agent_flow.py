"""The flow that runs agents: a step for each agent, with a step for each of its tools inside.

    first ──┬── its tools ◄── calls        An edge for each handoff leads to another agent.
            └─► another agent

Everything that an agent decides is in the results of its rounds, see `rounds`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from flowengine.agents import background
from flowengine.agents.agent_specs import AgentSpec, Helper
from flowengine.agents.agent_state import (
    ABOUT,
    BACKGROUND_SIGNALS,
    BACKGROUND_STATE,
    HEEDS,
    KEEPS,
    PAUSED,
    PROGRAM_STATE,
    SIGNALS,
    STATE,
)
from flowengine.agents.call_answers import ADAPTED, FLOW, OTHERS
from flowengine.agents.programs import MOST_CALLS, PLACE
from flowengine.agents.rounds.turns import FALLBACK
from flowengine.agents.tool_steps import ASK, ToolStep, offered, wanted
from flowengine.sdk import Plain
from flowengine.sdk.steps.generated_flows import Mark

TELLER = "agent"
"""The kind that describes the outputs of the steps for users."""
OWN = frozenset(
    ("offer", "person", "awaited", "ahead", "program", "before", "after", "before_turn",
     "after_turn", "before_call", "after_call", "reduce", "handoff")
)  # fmt: skip
"""What follows an agent's name in the ids of its callees that are no tools."""


class Callee(NamedTuple):
    """A step that an agent calls."""

    step: dict[str, Plain]
    mark: Mark


class AgentFlow:
    """The flow that runs agents.

    Args:
        agents: The agents that can become active. The first one starts.
        asked: `args` of the first one, and the `variables` of the agent that calls it, as
            expressions.
        execute_tools: If false, the flow ends before the first calls.
        chat: Each answer is a question to a person, whose reply is the next message.
        session: The program of the flow sends that message.
    """

    def __init__(
        self,
        agents: Sequence[AgentSpec],
        asked: Mapping[str, Plain],
        *,
        execute_tools: bool = True,
        chat: bool = False,
        session: bool = False,
    ) -> None:
        self.starts = execute_tools and any(tool.background for a in agents for tool in a.tools)
        if self.starts:
            agents = [background.equipped(agent) for agent in agents]
        self.agents = agents if execute_tools else agents[:1]  # no calls, so no handoffs
        self.execute_tools, self.chat, self.session = execute_tools, chat, session
        self._ids = self._unique_ids()
        self._asked: dict[str, Plain] = {"labels": "${{ execution.labels }}", **asked}
        self.marks: dict[str, Mark] = {}
        self.owners: dict[str, str] = {}
        """Step → the agent that owns it."""

    def flow(self) -> dict[str, Plain]:
        """Return the flow, and set `marks` and `owners`."""
        callees = {agent.name: [*self._callees(agent)] for agent in self.agents}
        for agent in self.agents:
            self.owners |= dict.fromkeys(
                [agent.name, *(str(one.step["id"]) for one in callees[agent.name])], agent.name
            )
            self.marks |= {str(one.step["id"]): one.mark for one in callees[agent.name]}
        steps = [self._agent(agent) for agent in self.agents]
        programs = any(agent.code is not None for agent in self.agents)
        turns = self.agents[0].max_turns
        calls = MOST_CALLS if programs else 0
        most = max(1000, 4 * turns, turns * calls)
        return {
            "inputs": {"_args": {"type": "object"}, "_instructions": {"type": "object"}},
            "state": {
                **STATE,
                **(BACKGROUND_STATE if self.starts else {}),
                **(PROGRAM_STATE if programs else {}),
            },
            "outputs": {
                "output": {"value": "${{ state.agent.output }}"},
                "agent": {"value": "${{ state.agent.active }}"},
                "reason": {"value": "${{ state.agent.reason }}"},
            },
            "outcome": "${{ state.agent.outcome }}",
            "signals": {**SIGNALS, **(BACKGROUND_SIGNALS if self.starts else {})},
            "limits": {"activations": most, "steps": max(10_000, 100 * turns, 10 * turns * calls)},
            "steps": steps,
            "callees": {name: [one.step for one in ones] for name, ones in callees.items()},
        }

    # What the rounds of agents know from the beginning

    def servers(self) -> list[str]:
        """Return the sessions whose servers list their tools for the agents."""
        served = (tool.served for one in self.agents for tool in one.tools)
        return list(dict.fromkeys(use["session"] for use in served if use is not None))

    def models(self) -> dict[str, Plain]:
        models: dict[str, Any] = {
            agent.name: {"model": agent.models[0], "fallbacks": agent.models[1:]}
            for agent in self.agents
        }
        for agent in self.agents:
            context = agent.constants["context"]
            if context is not None and context["max_tokens"] is None:
                models[agent.name]["windows"] = True
        return models

    def constants(self, agent: AgentSpec) -> dict[str, Plain]:
        """Return the constants of an agent."""
        tools: list[Plain] = [
            {"name": tool.name, "description": tool.description, "parameters": tool.parameters,
             "step": self.tool_id(agent, tool)}
            for tool in agent.tools
            if tool.served is None
        ]  # fmt: skip
        first, known = self.agents[0], [agent.name for agent in self.agents]
        led_to = dict.fromkeys([*agent.handoffs, *agent.reaches])
        constants: dict[str, Any] = {
            "name": agent.name,
            "models": [*agent.models],
            "tools": tools,
            "kinds": {self.tool_id(agent, tool): self._kind(tool) for tool in agent.tools},
            "handoffs": {
                other.name: other.description
                for other in self.agents
                if other.name in agent.handoffs
            },
            "others": [name for name in led_to if name in known and name != agent.name],
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

    # Agents

    def _agent(self, agent: AgentSpec) -> dict[str, Plain]:
        """Return the step of an agent."""
        constants = self.constants(agent)
        others = constants["others"]
        asked: dict[str, Plain] = {
            "agent": constants,
            "settings": dict(agent.settings),
        }
        if agent is self.agents[0] and not self.servers():
            asked |= self._asked
        keeps: list[Plain] = [[*pair] for pair in KEEPS]
        if self.starts:
            keeps.append(["started", "started"])
        if agent.code is not None:
            keeps += [[key, key] for key in PROGRAM_STATE]
        keys: dict[str, Plain] = {"says": _model(agent), "teller": TELLER, **_on_crash(agent)}
        if agent is self.agents[0]:
            keys["ahead"] = True
        exchange: dict[str, Plain] = {
            "answers": "messages",
            "keeps": keeps,
            "about": [*ABOUT],
            "heeds": [*HEEDS, "ended"] if self.starts else [*HEEDS],
            "catches": [*self._catches(agent)],
            "until": PAUSED,
        }
        self.marks[agent.name] = Mark(keys, exchange, anew=_instructions(agent))
        step: dict[str, Plain] = {
            "id": agent.name,
            "join": {"need": "each"},
            "agent_turn": asked,
            "effect": "idempotent",
            "retry": dict(agent.retry),
            "next": {"to": "end"},
        }
        if others:
            step["next"] = {"outcome": {**{name: name for name in others}, "else": "end"}}
        return step

    def _catches(self, agent: AgentSpec) -> list[str]:
        """Return the types of errors that do not end the work."""
        if self.chat or "arriving" in agent.constants:
            return ["*"]
        full = FALLBACK[-1:] if agent.constants["context"] else ()
        return ["BudgetExceeded", *(FALLBACK if len(agent.models) > 1 else full)]

    # Callees

    def _callees(self, agent: AgentSpec) -> Iterable[Callee]:
        name = agent.name
        if self.servers():
            yield self._offer(agent)
        if self.execute_tools:
            for tool in agent.tools:
                if tool.name != background.LIST or not self.starts:
                    yield self._tool(agent, tool)
        first = self.agents[0]
        if self.chat and agent is not first:
            yield from (
                _helper(name, first.name, helper)
                for helper in first.helpers
                if helper.place.startswith("before.")
            )
        yield from (_helper(name, name, helper) for helper in agent.helpers)
        if any(check["beside"] for check in self.constants(agent).get("before", ())):
            yield self._ahead(agent)
        if agent.code is not None:
            yield self._program(agent)
        if self.chat:
            step: dict[str, Plain] = {
                "id": f"{name}.person",
                "call": ASK,
                "with": {"question": "${{ call.args.question }}"},
            }
            keys = {"chat": True, "says": "asks a person"}
            yield Callee(step, Mark({**keys, "kind": "session"} if self.session else keys))
        if self.starts:
            awaited: Plain = {"id": f"{name}.awaited", "wait": {"when": background.AWAITED}}
            yield Callee(awaited, Mark({"says": "waits for agents in the background"}))

    def _tool(self, agent: AgentSpec, tool: ToolStep) -> Callee:
        """Return the step of a tool."""
        may_ask = any(helper.place.startswith("before_call.") for helper in agent.helpers)
        keys: dict[str, Plain] = {"caller": agent.name}
        if tool.served is None:  # the step knows the name
            keys["tool"] = tool.name
        if not tool.waits:
            keys["teller"] = TELLER
        adapter = None
        if tool.adapter is not None:
            adapter = {"source": keys.get("tool", ""), **tool.adapter}
            keys["reads"] = ["context"]
            if agent.call_limit is not None:
                keys["caller_limit"] = [*agent.call_limit]
        use = None if tool.served is None else offered(tool)
        mark = Mark(keys, adapter=adapter, offered=use, inputs=tool.inputs, asks=may_ask)
        if tool.given is None:
            mark = Mark({"says": "agents in the background"})
        # Calls that can run in parallel share the lock. Any other call waits for all calls before
        # it, including their questions, and blocks the calls after it.
        beside = tool.waits or (tool.parallel and agent.constants["parallel_tool_calls"])
        lock: dict[str, Plain] = {"key": "calls", "scope": "run", "shared": beside}
        if tool.waits:
            lock["hold"] = True
        return Callee({**_plain(self.tool_id(agent, tool), tool), "lock": lock}, mark)

    def _offer(self, agent: AgentSpec) -> Callee:
        """Return the step in which servers list their tools."""
        servers = self.servers()
        asked: dict[str, Plain] = {
            "models": self.models(),
            "servers": {
                one.name: wanted((tool, self.tool_id(one, tool)) for tool in one.tools)
                for one in self.agents
            },
            "again": "${{ call.args.again }}",
            **self._asked,
        }
        step: dict[str, Plain] = {
            "id": f"{agent.name}.offer",
            "agent_offer": asked,
            "effect": "idempotent",
            "retry": dict(agent.retry),
            "set": {
                "offer": "${{ output.offer }}",
                "messages": "${{ call.args.again ? [] : output.messages }}",
                "context": "${{ call.args.again ? {} : output.context }}",
            },
        }
        return Callee(
            step,
            Mark({"says": f"tools of {', '.join(servers)}", "teller": TELLER}, servers=servers),
        )

    def _ahead(self, agent: AgentSpec) -> Callee:
        """Return the step of a request beside checks. If it fails, the turn repeats it."""
        constants = self.constants(agent)
        step: dict[str, Plain] = {
            "id": f"{agent.name}.ahead",
            "agent_ahead": {
                "agent": constants,
                "settings": dict(agent.settings),
                "held": "${{ call.args.held }}",
            },
            "effect": "idempotent",
        }
        says = f"{_model(agent)} beside checks"
        keys: dict[str, Plain] = {"says": says, "teller": TELLER, **_on_crash(agent)}
        return Callee(step, Mark(keys, anew=_instructions(agent)))

    def _program(self, agent: AgentSpec) -> Callee:
        """Return the step that runs the programs of a model."""
        step: dict[str, Plain] = {
            "id": f"{agent.name}.program",
            "agent_program": {
                "agent": self.constants(agent),
                "program": "${{ call.args.program }}",
            },
            "environments": {PLACE: agent.code},
            "effect": "idempotent",
            "retry": dict(agent.retry),
        }
        return Callee(step, Mark({"says": "program", "teller": TELLER}))


def _instructions(agent: AgentSpec) -> dict[str, Sequence[str]]:
    return {"instructions": ("_instructions", agent.name)}


def _on_crash(agent: AgentSpec) -> dict[str, Plain]:
    """Return how an interrupted request is treated. One that has failed may still be repeated."""
    if not agent.on_crash:
        return {}
    return {"effect": "once", "on_crash": agent.on_crash, "opaque": True}


def _model(agent: AgentSpec) -> str:
    [first, *_] = agent.models
    return f"model {first}" if first else "model"


def _plain(id: str, tool: ToolStep) -> dict[str, Plain]:
    """Return the step that calls a tool with the arguments of a call."""
    given = {} if tool.given is None else {"with": tool.given}
    return {"id": id, **tool.action, **given}


def _helper(agent: str, owner: str, helper: Helper) -> Callee:
    """Return the step of a tool that stands around the work of an agent.

    Args:
        agent: The agent.
        owner: The agent that declares the tool.
        helper: The tool.
    """
    tool = helper.tool
    step = _plain(f"{agent}.{helper.place}", tool)
    keys: dict[str, Plain] = {"tool": tool.name, "caller": owner}
    if helper.says:
        return Callee(
            step, Mark({**keys, "says": helper.says, "reads": ["context"]}, inputs=tool.inputs)
        )
    adapter = None if tool.adapter is None else {**tool.adapter, "limit": helper.room}
    return Callee(step, Mark(keys, adapter=adapter))
