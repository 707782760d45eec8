"""Agents in Python as a flow declares them: entries of `agents`, and of what these name."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from flowengine.agents.agent import Agent
from flowengine.agents.agent_as_tool import AgentAsTool, is_tool
from flowengine.agents.agent_tools import ReadyTool, tool_option
from flowengine.agents.case_tools import is_case_tool
from flowengine.agents.flow_environments import (
    FlowEnvironments,
    declare,
    environment_names,
)
from flowengine.agents.function_schemas import read_tool
from flowengine.agents.handoff_discovery import all_agents, reachable, targets
from flowengine.agents.skills import LARGEST
from flowengine.agents.tool_steps import ASK
from flowengine.agents.turn_limit import turn_limit
from flowengine.errors import UsageError
from flowengine.kernel.graph.values import digest
from flowengine.sdk import Plain
from flowengine.sdk.literal_text import literal_text
from flowengine.sdk.python_functions.signature import Signature
from flowengine.sdk.read_folders import UnreadableFolder, find_folders, read_folder
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
    sections = {section: _referring(declaration, secrets) for section, declaration in made.items()}
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
    for section, declaration in found.sections.items():
        there = flow.head.get(section, {})
        for name, spec in declaration.items():
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
    """Return the content of what skills name; the compiler reports what cannot be read."""
    found: list[Plain] = []
    for pattern in agent.skills:
        for folder in find_folders(os.getcwd(), os.fspath(pattern)):
            try:
                found.append([folder, {**read_folder(folder, LARGEST)[0]}])
            except UnreadableFolder as error:
                found.append(error.message)
    return found


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
    named: set[str] = field(default_factory=set)
    """What the agent has that is written: its functions, ready-made tools and servers."""

    def entry(self, agent: Agent) -> dict[str, Plain]:
        """Return the entry of an agent; what it names is declared."""
        id = self.ids[agent.name]
        self.named = {one.name for one in agent.ready} | {one.name for one in agent.servers}
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
            "context": self._with_tools(agent, agent.context),
            "checks": self._with_tools(agent, agent.checks),
            "limits": {"calls": agent.limits["calls"]} if agent.bounds_calls("calls") else None,
        }
        self._check_named(agent)
        for name in _PLAIN:
            value = getattr(agent, name)
            if value != type(agent).model_fields[name].get_default(call_default_factory=True):
                entry[name] = value
        return {key: one for key, one in entry.items() if one not in (None, [], {})}

    def _check_named(self, agent: Agent) -> None:
        """Check that approvals and limits are of what the agent has.

        Raises:
            UsageError: One is not.
        """
        servers = {one.name for one in agent.servers}
        for what, given in (("approvals", agent.approvals), ("limits", agent.limits)):
            for name in given:
                known = name in self.named or (what == "limits" and agent.bounds_calls(name))
                if not known and not (what == "approvals" and name.partition(".")[0] in servers):
                    raise UsageError(
                        f"agent {agent.name!r}: {what} names {name!r}, which is not one of its "
                        "functions",
                        hint=f"it has {', '.join(sorted(self.named)) or 'none'}",
                    )

    def _instructions(self, agent: Agent) -> Plain:
        text, more = agent.instructions, agent.context_variables_description
        if not callable(text):
            return {"text": literal_text("\n\n".join(filter(None, (text, more))))}
        key = f"{self.ids[agent.name]}.instructions"
        return {"python": self.references.instructions(text, key, more)}

    def _offered(self, agent: Agent) -> dict[str, Plain]:
        """Return what tools that name no environment work in: name → name in the flow."""
        if not agent.skills and all(one.environment or one.declared for one in agent.ready):
            return {}
        specs = agent.specs
        return {name: self.around.environment(spec, agent) for name, spec in specs.items()}

    def _with_tools(self, agent: Agent, value: Any) -> Plain:
        """Return what checks or `context` are, with the names of tools in place of functions."""
        if is_tool(value):
            return self._use(agent, value)["tool"]
        if isinstance(value, Mapping):
            return {key: self._with_tools(agent, one) for key, one in value.items()}
        return [self._with_tools(agent, one) for one in value] if isinstance(value, list) else value

    def _use(self, agent: Agent, function: Any) -> dict[str, Plain]:
        """Declare a function or an agent as a tool, and return how an agent uses it."""
        if isinstance(function, AgentAsTool):
            asked = {"name": self.ids[function.agent.name]}
            limit = turn_limit(function.max_turns)
            declaration: dict[str, Plain] = {
                "agent": {**asked, "max_turns": {"count": limit.turns, "last": limit.last}},
                "description": literal_text(function.description) or None,
                **_declared(agent, function.name, function),
            }
            self.named.add(function.name)
            return self._declare(function.name, declaration)
        name, signature = read_tool(function, environments=environment_names(agent, function))
        self.named.add(name)
        key = f"{self.ids[agent.name]}.{name}"
        preview = tool_option(function, "preview")
        declaration = {
            **self.references.tool(function, preview, key, signature),
            "parallel": bool(tool_option(function, "supports_parallel_execution")) or None,
            "on_crash": tool_option(function, "on_crash"),
            "environments": self.around.taken(agent, function) or None,
            **_declared(agent, name, function),
        }
        return self._declare(name, declaration)

    def _ready(self, agent: Agent, tool: ReadyTool) -> dict[str, Plain]:
        """Return how an agent uses a tool that comes with the engine."""
        if tool.name == ASK:
            return {"tool": ASK}  # it is a wait, which is not declared
        declaration: dict[str, Plain] = {
            "approval": agent.approvals.get(tool.name),
            "limits": agent.limits_of(tool.name),
        }
        if tool.environment:
            spec = agent.specs[tool.environment]
            declaration["environments"] = {tool.place: self.around.environment(spec, agent)}
        if not any(declaration.values()) and not tool.declared:
            std = tool.name.removeprefix("std.")
            return {"tool": f"std.{std}", **({"as": tool.name} if std == tool.name else {})}
        kind: Plain = literal_text({**tool.declared}) or {"std": tool.name.removeprefix("std.")}
        return self._declare(tool.name, {**kind, **declaration})

    def _server(self, agent: Agent, name: str) -> dict[str, Plain]:
        """Return how an agent uses the tools of a server; rules say who is asked about one."""
        declared = self.around.server(agent, name)
        for tool, asked in agent.approvals.items():
            if tool.startswith(f"{name}."):
                rule = _rule(agent, tool, asked, f"{declared}.{tool.removeprefix(f'{name}.')}")
                self.policies.append({**rule, "agent": self.ids[agent.name]})
        return {"tool": f"{declared}.*"}

    def _declare(self, name: str, declaration: Mapping[str, Plain]) -> dict[str, Plain]:
        found = {key: one for key, one in declaration.items() if one is not None}
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


def _declared(agent: Agent, name: str, function: Any) -> dict[str, Plain]:
    """Return what a flow declares of a tool besides what it calls."""
    timeout = tool_option(function, "timeout")
    return {
        "approval": agent.approvals.get(name, tool_option(function, "approval")),
        "effect": tool_option(function, "effect"),
        "timeout": None if timeout is None else f"{round(timeout * 1000)}ms",
        "limits": agent.limits_of(name, tool_option(function, "limits")),
    }


def _ids(names: Iterable[str], case: bool) -> dict[str, str]:
    """Return the names of entries: those of the agents, as far as they can be ids."""
    taken: dict[str, Plain] = {}
    return {name: declare(taken, name, name, case) for name in names}
