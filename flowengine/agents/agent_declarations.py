"""Agents in Python as a flow declares them: entries of `agents`, and of what these name."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from flowengine.agents.agent import Agent
from flowengine.agents.agent_as_tool import AgentAsTool
from flowengine.agents.agent_tool import ASK
from flowengine.agents.agent_validation import CheckSaid, checks_of, context_of
from flowengine.agents.case_tools import is_case_tool
from flowengine.agents.equipment import ReadyTool, name_of
from flowengine.agents.flow_environments import (
    FlowEnvironments,
    declare,
    environment_names,
)
from flowengine.agents.function_schemas import read_tool
from flowengine.agents.reachable import all_agents, reachable, targets
from flowengine.agents.skills import skills_at
from flowengine.agents.turn_limit import turn_limit
from flowengine.errors import UsageError
from flowengine.kernel.graph.values import digest
from flowengine.sdk import Plain
from flowengine.sdk.literal_text import literal_text
from flowengine.sdk.python_functions.signature import Signature
from flowengine.sdk.step_kind import BuiltFlow

SECRET = "secret:"
"""Before the name of an environment variable, in what agents say of environments and servers."""
_PLAIN = ("fallbacks", "repeats", "tool_choice", "parallel_tool_calls", "function_calling")
"""Fields that a flow says in the same way."""


class References(Protocol):
    """How a flow names what is outside of it: functions, folders, models."""

    case: bool
    """Whether names of agents keep their capital letters, which those of a file have not."""

    def model(self, agent: Agent) -> str | None:
        """Return the model of an agent; None: the flow says none."""

    def folder(self, path: str) -> str:
        """Return how the flow names a folder."""

    def tool(self, function: Any, preview: Any, key: str, signature: Signature) -> dict[str, Plain]:
        """Return what a tool that calls a function says of it.

        Args:
            function: The function.
            preview: The one that says what a call would do; None: nothing does.
            key: Its name among those of the run.
            signature: What the function takes, and its description.
        """

    def instructions(self, function: Any, key: str, more: str) -> Plain:
        """Return what `python` of `instructions` says of a function.

        Args:
            function: The function.
            key: Its name among those of the run.
            more: What follows its text.
        """


@dataclass
class AgentDeclarations:
    """What a flow declares for agents, and what it cannot say."""

    sections: dict[str, dict[str, Plain]]
    """Section of a flow file → name → declaration."""
    policies: list[Plain]
    """Rules about single tools of servers."""
    first: str
    """Who begins: the name of its entry."""
    beside: list[str]
    """Agents to whom all others may hand over."""
    agents: dict[str, Agent]
    """Name of the entry → agent."""
    files: str
    """The digest of files that the entries name: those of skills."""


def declarations(
    agents: Sequence[Agent],
    references: References,
    around: Mapping[str, Mapping[str, Plain]] = MappingProxyType({}),
) -> AgentDeclarations:
    """Return agents, and all that they may hand over to or ask, as a flow declares them.

    Args:
        agents: The first one begins. The others can be handed over to by every agent, unless a
            function leads to them.
        references: How the flow names what is outside of it.
        around: What the flow declares already: section → name → declaration.

    Raises:
        UsageError: What a run would fail at.
    """
    known = all_agents(agents)
    ids = _ids(known, references.case)
    tools, environments = (dict(around.get(one, {})) for one in ("tools", "environments"))
    writer = _Writer(ids, references, tools, FlowEnvironments(tools, environments))
    entries: dict[str, Plain] = {}
    for name, agent in known.items():
        agent.check()
        entries[ids[name]] = writer.entry(agent)
    led_to = {one.name for agent in reachable(agents).values() for one in targets(agent)}
    made: dict[str, dict[str, Plain]] = {
        "environments": writer.around.environments,
        "tools": writer.tools,
        "agents": entries,
    }
    secrets: dict[str, Plain] = {}
    sections = {section: _referring(said, secrets) for section, said in made.items()}
    return AgentDeclarations(
        sections={"secrets": secrets, **sections},
        policies=writer.policies,
        first=ids[agents[0].name],
        beside=[ids[one.name] for one in agents[1:] if one.name not in led_to],
        agents={ids[name]: one for name, one in known.items()},
        files=digest([_files(one) for one in known.values() if one.skills]),
    )


class _OfFile:
    """Names as a file has them, which another process finds."""

    case = False

    def __init__(self, flow: BuiltFlow) -> None:
        self.flow = flow

    def model(self, agent: Agent) -> str | None:
        return agent.model if "model" in agent.model_fields_set else None

    def folder(self, path: str) -> str:
        near = os.path.relpath(path, self.flow.folder)
        return path if near.startswith("..") else f"./{near}"

    def tool(self, function: Any, preview: Any, key: str, signature: Signature) -> dict[str, Plain]:
        found = {"python": self.flow.reference(function)}
        return found | ({} if preview is None else {"preview": self.flow.reference(preview)})

    def instructions(self, function: Any, key: str, more: str) -> Plain:
        if more:
            raise UsageError(
                f"{key} are a function, and 'context_variables_description' is more text",
                hint="let the function return all of it",
            )
        return self.flow.reference(function)


def declare_in(agent: object, flow: BuiltFlow) -> str:
    """Declare an agent, and all that it names, in a flow that Python builds.

    Args:
        agent: The agent; the name of one that is declared is given back.
        flow: The flow.

    Returns:
        The name of its entry.

    Raises:
        UsageError: It is none; the flow declares another one of its name; or a file cannot say
            what it says, such as a function that another process could not find.
    """
    if isinstance(agent, str):
        return agent
    if not isinstance(agent, Agent):
        raise UsageError(f"{agent!r} is no agent", hint="give an Agent, or the name of an entry")
    found = declarations([agent], _OfFile(flow), flow.head)
    for section, said in found.sections.items():
        there = flow.head.get(section, {})
        for name, spec in said.items():
            if there.get(name, spec) != spec:
                raise UsageError(
                    f"the flow declares {name!r} of {section!r}, and not as the agent "
                    f"{agent.name!r} needs it",
                    hint="give one of them another name",
                )
            if name not in there:
                flow.declare(section, name, spec)
    if found.policies:
        rules = flow.head.setdefault("policies", [])
        rules += [one for one in found.policies if one not in rules]
    return found.first


def _files(agent: Agent) -> Plain:
    return [[one.name, one.description, {**one.files}] for one in skills_at(agent.skills)]


def _referring(value: Any, secrets: dict[str, Plain]) -> Any:
    """Return data in which `secret:NAME` is a secret of the flow."""
    if isinstance(value, str) and value.startswith(SECRET):
        name = value.removeprefix(SECRET)
        secrets[name] = {"env": name}
        return f"${{{{ secrets.{name} }}}}"
    if isinstance(value, Mapping):
        return {key: _referring(one, secrets) for key, one in value.items()}
    return [_referring(one, secrets) for one in value] if isinstance(value, list) else value


@dataclass
class _Writer:
    """Writes agents as entries.

    Args:
        ids: Name of an agent → that of its entry.
        references: How the flow names what is outside of it.
    """

    ids: Mapping[str, str]
    references: References
    tools: dict[str, Plain]
    around: FlowEnvironments
    policies: list[Plain] = field(default_factory=list)

    def entry(self, agent: Agent) -> dict[str, Plain]:
        """Return the entry of an agent; what it names is declared."""
        id = self.ids[agent.name]
        tools = [one for one in agent.tools if not is_case_tool(one)]
        servers = [self._server(agent, one.name) for one in agent.servers]
        uses = [self._use(agent, one) for one in tools]
        uses += [self._ready(agent, one) for one in agent.ready] + servers
        handoffs = [self.ids[one.name] for one in agent.handoffs]
        others = (self.ids[one.name] for one in targets(agent))
        entry: dict[str, Plain] = {
            "title": literal_text(agent.name) if id != agent.name else None,
            "model": self.references.model(agent),
            "instructions": self._instructions(agent),
            "description": literal_text(agent.description) or None,
            "tools": uses,
            "environments": self._offered(agent),
            "skills": [self.references.folder(os.path.abspath(one)) for one in agent.skills],
            "handoffs": handoffs,
            "tool_handoffs": [one for one in others if one not in handoffs],
            "returns": literal_text(agent.answer_schema()),
            "finish": "tools" if len(tools) < len(agent.tools) else None,
            "retry": agent.retry,
            "settings": literal_text(agent.settings),
            "context": self._context(agent),
            "checks": [self._check(agent, one) for one in checks_of(agent)],
            "limits": None if agent.call_limit is None else {"calls": agent.call_limit},
        }
        for name in _PLAIN:
            value = getattr(agent, name)
            if value != type(agent).model_fields[name].get_default(call_default_factory=True):
                entry[name] = value
        return {key: one for key, one in entry.items() if one not in (None, [], {})}

    def _instructions(self, agent: Agent) -> Plain:
        said, more = agent.instructions, agent.context_variables_description
        if not callable(said):
            return {"text": literal_text("\n\n".join(filter(None, (said, more))))}
        key = f"{self.ids[agent.name]}.instructions"
        return {"python": self.references.instructions(said, key, more)}

    def _offered(self, agent: Agent) -> dict[str, Plain]:
        """Return what tools that name no environment work in: name → name in the flow."""
        if not agent.skills and all(one.environment or one.declared for one in agent.ready):
            return {}
        return {name_of(one): self.around.environment(one, agent) for one in _specs(agent)}

    def _context(self, agent: Agent) -> Plain:
        said = context_of(agent)
        if said is None:
            return None
        how = self._use(agent, said.reduce)["tool"] if callable(said.reduce) else said.reduce
        return {"reduce": how, **({"max_tokens": said.max_tokens} if said.max_tokens else {})}

    def _check(self, agent: Agent, check: CheckSaid) -> Plain:
        then = "tell" if check.tells else "end"
        return {check.when: self._use(agent, check.function)["tool"], "then": then}

    def _use(self, agent: Agent, function: Any) -> dict[str, Plain]:
        """Declare a function or an agent as a tool, and return how an agent uses it."""
        if isinstance(function, AgentAsTool):
            asked = {"name": self.ids[function.agent.name]}
            limit = turn_limit(function.max_turns)
            said: dict[str, Plain] = {
                "agent": {**asked, "max_turns": {"count": limit.turns, "last": limit.last}},
                "description": literal_text(function.description) or None,
                **_declared(agent, function.name, function),
            }
            return self._declare(function.name, said)
        name, signature = read_tool(function, environments=environment_names(agent, function))
        key = f"{self.ids[agent.name]}.{name}"
        preview = _option(function, "preview")
        said = {
            **self.references.tool(function, preview, key, signature),
            "parallel": bool(_option(function, "supports_parallel_execution")) or None,
            "on_crash": _option(function, "on_crash"),
            "environments": self.around.taken(agent, function) or None,
            **_declared(agent, name, function),
        }
        return self._declare(name, said)

    def _ready(self, agent: Agent, tool: ReadyTool) -> dict[str, Plain]:
        """Return how an agent uses a tool that comes with the engine."""
        if tool.name == ASK:
            return {"tool": ASK}  # it is a wait, which is not declared
        said: dict[str, Plain] = {
            "approval": agent.approvals.get(tool.name),
            "limits": agent.limits_of(tool.name),
        }
        if tool.environment:
            [spec] = [one for one in _specs(agent) if name_of(one) == tool.environment]
            said["environments"] = {tool.place: self.around.environment(spec, agent)}
        if not any(said.values()) and not tool.declared:
            std = tool.name.removeprefix("std.")
            return {"tool": f"std.{std}", **({"as": tool.name} if std == tool.name else {})}
        kind: Plain = literal_text({**tool.declared}) or {"std": tool.name.removeprefix("std.")}
        return self._declare(tool.name, {**kind, **said})

    def _server(self, agent: Agent, name: str) -> dict[str, Plain]:
        """Return how an agent uses the tools of a server; rules say who is asked about one."""
        declared = self.around.server(agent, name)
        for tool, asked in agent.approvals.items():
            if tool.startswith(f"{name}."):
                rule = _rule(agent, tool, asked, f"{declared}.{tool.removeprefix(f'{name}.')}")
                self.policies.append({**rule, "agent": self.ids[agent.name]})
        return {"tool": f"{declared}.*"}

    def _declare(self, name: str, said: Mapping[str, Plain]) -> dict[str, Plain]:
        found = {key: one for key, one in said.items() if one is not None}
        id = declare(self.tools, name.removeprefix("std."), found)
        return {"tool": id, **({"as": name} if id != name else {})}


def _rule(agent: Agent, tool: str, asked: Any, called: str) -> dict[str, Plain]:
    """Return the rule that says who is asked about a tool of a server."""
    if asked == "none":
        return {"allow": called}
    when = asked.get("when") if isinstance(asked, Mapping) and set(asked) == {"when"} else None
    if asked != "ask" and when is None:
        raise UsageError(
            f"agent {agent.name!r}: the approval of {tool!r}, a tool of a server, is {asked!r}",
            hint="say 'ask', 'none' or {'when': '${{ … }}'}; that of the server can say more",
        )
    return {"ask": called, **({} if when is None else {"when": when})}


def _specs(agent: Agent) -> list[dict[str, Any]]:
    return [one for one in agent.environments if isinstance(one, dict)]


def _declared(agent: Agent, name: str, function: Any) -> dict[str, Plain]:
    """Return what a flow declares of a tool besides what it calls."""
    timeout = _option(function, "timeout")
    return {
        "approval": agent.approvals.get(name, _option(function, "approval")),
        "effect": _option(function, "effect"),
        "timeout": None if timeout is None else f"{round(timeout * 1000)}ms",
        "limits": agent.limits_of(name, _option(function, "limits")),
    }


def _option(function: Any, name: str) -> Any:
    """Return what a function says of itself: by `tool`, or by an attribute."""
    options = getattr(function, "__flowengine_tool__", None)
    return getattr(function if options is None else options, name, None)


def _ids(names: Iterable[str], case: bool) -> dict[str, str]:
    """Return the names of entries: those of the agents, as far as they can be ids."""
    taken: dict[str, Plain] = {}
    return {name: declare(taken, name, name, case) for name in names}
