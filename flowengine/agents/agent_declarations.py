"""Declarations of Python agents in the form that a flow file uses.

They cover entries of `agents` and the tools, environments and secrets that these entries name.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from flowengine.agents.agent import AgentDefinition, Handoff, turn_limit
from flowengine.agents.agent_tools import (
    AgentAsTool,
    FlowEnvironments,
    ReadyTool,
    declare,
    environment_names,
    is_tool,
)
from flowengine.agents.function_schemas import read_tool
from flowengine.agents.handoff_discovery import all_agents, reachable, targets
from flowengine.agents.termination import is_case_tool
from flowengine.agents.tool_marks import tool_option
from flowengine.agents.tool_steps import ASK
from flowengine.errors import UsageError
from flowengine.sdk import Plain
from flowengine.sdk.python.argument_checks import in_words, seconds_of
from flowengine.sdk.python.live_signature import Signature
from flowengine.sdk.steps.step_kind import BuiltFlow
from flowengine.sdk.texts.flow_texts import literal_text

SECRET = "secret:"
"""Prefix of the name of an environment variable, in the configuration of environments and servers.
"""
_PLAIN = ("on_crash", "repeats", "defer", "function_calling")
"""Fields that a flow declares in the same form."""
_SETTINGS = ("tool_choice", "parallel_tool_calls")
"""Fields that a flow declares in `settings`."""


class References(Protocol):
    """Names by which a flow refers to functions, directories and models outside of it."""

    case: bool
    """Whether agent names keep their capital letters. Names in a file are lower case."""

    def model(self, agent: AgentDefinition) -> Plain:
        """Return the models of an agent, or None if the flow declares none."""

    def folder(self, path: str) -> str:
        """Return the path by which the flow refers to a directory."""

    def tool(self, function: Any, preview: Any, key: str, signature: Signature) -> dict[str, Plain]:
        """Return the declaration of a tool that calls a function.

        Args:
            function: The function.
            preview: The function that previews a call, if any.
            key: Name of the function within the run.
            signature: Parameters and description of the function.
        """

    def type(self, type: Any, key: str) -> Plain:
        """Return the value of `returns.python` for a type, or None if it cannot be named.

        Args:
            type: The type.
            key: Name of the type within the run.
        """

    def instructions(self, function: Any, key: str, more: str) -> Plain:
        """Return the value of `instructions.python` for a function.

        Args:
            function: The function.
            key: Name of the function within the run.
            more: Text to append to the text that the function returns.
        """


@dataclass
class AgentDeclarations:
    """Declarations that a flow needs to run agents, and data that a flow cannot declare."""

    sections: dict[str, dict[str, Plain]]
    """Section of a flow file → name → declaration."""
    rules: list[Plain]
    """Rules for single tools of servers."""
    first: str
    """Name of the entry of the first agent."""
    agents: dict[str, AgentDefinition]
    """Name of the entry → agent."""


def declarations(
    agents: Sequence[AgentDefinition],
    references: References,
    around: Mapping[str, Mapping[str, Plain]] = MappingProxyType({}),
) -> AgentDeclarations:
    """Declare agents and every agent that they can hand off to or call, as a flow does.

    Args:
        agents: The first one starts. Every agent can hand off to the others, unless a function
            already leads to them.
        references: Names for everything outside the flow.
        around: Existing declarations of the flow: section → name → declaration.

    Raises:
        UsageError: A run of these agents would fail.
    """
    known = all_agents(agents)
    taken: dict[str, Plain] = {}
    ids = {name: declare(taken, name, name, references.case) for name in known}
    tools, environments = (dict(around.get(section, {})) for section in ("tools", "environments"))
    writer = _Writer(ids, references, tools, FlowEnvironments(tools, environments))
    entries: dict[str, Plain] = {}
    reached = reachable(agents)
    led_to = {target.name for agent in reached.values() for target in targets(agent)}
    others = [agent for agent in agents[1:] if agent.name not in led_to]
    for name, agent in known.items():
        agent.check()
        entries[ids[name]] = writer.entry(agent, others if name in reached else ())
    made: dict[str, dict[str, Plain]] = {
        "environments": writer.around.environments,
        "tools": writer.tools,
        "agents": entries,
    }
    secrets: dict[str, Plain] = {}
    sections = {section: _referring(declaration, secrets) for section, declaration in made.items()}
    return AgentDeclarations(
        sections={"secrets": secrets, **sections},
        rules=writer.rules,
        first=ids[agents[0].name],
        agents={ids[name]: value for name, value in known.items()},
    )


class _OfFile:
    """Names as a flow file uses them, which another process can resolve."""

    case = False

    def __init__(self, flow: BuiltFlow) -> None:
        self.flow = flow

    def model(self, agent: AgentDefinition) -> Plain:
        return agent.model if "model" in agent.model_fields_set else None

    def folder(self, path: str) -> str:
        near = os.path.relpath(path, self.flow.folder)
        return path if near.startswith("..") else f"./{near}"

    def tool(self, function: Any, preview: Any, key: str, signature: Signature) -> dict[str, Plain]:
        found = {"python": self.flow.reference(function)}
        return found | ({} if preview is None else {"preview": self.flow.reference(preview)})

    def type(self, type: Any, key: str) -> Plain:
        try:
            return self.flow.reference(type)
        except UsageError:
            return None  # such as `list[City]`, which has no name

    def instructions(self, function: Any, key: str, more: str) -> Plain:
        if more:
            raise UsageError(
                f"{key} are a function, and 'context_variables_description' is more text",
                hint="let the function return all of it",
            )
        return self.flow.reference(function)


def declare_in(agent: object, flow: BuiltFlow) -> str:
    """Declare an agent and everything that it names in a flow built in Python.

    Args:
        agent: The agent. The name of an agent that is already declared is returned unchanged.
        flow: The flow.

    Returns:
        The name of its entry.

    Raises:
        UsageError: The value is not an agent. Or the flow declares a different one under its name.
            Or a flow file cannot express the agent, for example because another process could not
            find one of its functions.
    """
    if isinstance(agent, str):
        return agent
    if not isinstance(agent, AgentDefinition):
        raise UsageError(
            f"{in_words(agent)} is not an agent", hint="give an Agent, or the name of an entry"
        )
    written = declarations([agent], _OfFile(flow), flow.head)
    for section, declaration in written.sections.items():
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
    if written.rules:
        rules = flow.head.setdefault("rules", [])
        rules += [rule for rule in written.rules if rule not in rules]
    return written.first


def _referring(value: Any, secrets: dict[str, Plain]) -> Any:
    """Return data in which each `secret:NAME` refers to a secret of the flow."""
    if isinstance(value, str) and value.startswith(SECRET):
        name = value.removeprefix(SECRET)
        secrets[name] = {"env": name}
        return f"${{{{ secrets.{name} }}}}"
    if isinstance(value, Mapping):
        return {key: _referring(entry, secrets) for key, entry in value.items()}
    return [_referring(item, secrets) for item in value] if isinstance(value, list) else value


@dataclass
class _Writer:
    """Writes agents as entries of a flow.

    Args:
        ids: Name of an agent → name of its entry.
        references: Names for everything outside the flow.
    """

    ids: Mapping[str, str]
    references: References
    tools: dict[str, Plain]
    around: FlowEnvironments
    rules: list[Plain] = field(default_factory=list)
    named: set[str] = field(default_factory=set)
    """Names of the functions, ready-made tools and servers of the agent being written."""

    def entry(self, agent: AgentDefinition, others: Sequence[AgentDefinition]) -> dict[str, Plain]:
        """Return the entry of an agent, and declare everything that it names.

        Args:
            agent: The agent.
            others: Agents that any function can hand off to.
        """
        id = self.ids[agent.name]
        self.named = {tool.name for tool in agent.ready}
        tools = [tool for tool in agent.tools if not is_case_tool(tool)]
        uses = [self._use(agent, tool) for tool in tools]
        uses += [self._ready(agent, tool) for tool in agent.ready]
        handoffs = [self.ids[handoff.name] for handoff in agent.handoff_targets]
        led_to = (self.ids[one.name] for one in (*targets(agent), *others) if one is not agent)
        entry: dict[str, Plain] = {
            "title": literal_text(agent.name) if id != agent.name else None,
            "model": self.references.model(agent),
            "instructions": self._instructions(agent),
            "description": literal_text(agent.description) or None,
            "tools": uses,
            "environments": self._offered(agent),
            "skills": [self.references.folder(os.path.abspath(skill)) for skill in agent.skills],
            "code": {"in": agent.code} if isinstance(agent.code, str) else agent.code,
            "handoffs": [
                *(self._handoff(agent, handoff) for handoff in agent.handoffs),
                *({"agent": to, "tool": False} for to in led_to if to not in handoffs),
            ],
            "returns": self._returns(agent),
            "finish": "tools" if len(tools) < len(agent.tools) else None,
            "retry": agent.retry,
            "settings": literal_text({**agent.settings, **_plain(agent, _SETTINGS)}),
            "context": self._with_tools(agent, agent.context),
            "checks": self._with_tools(agent, agent.checks),
            "hooks": self._with_tools(agent, agent.hooks),
            "limits": {"calls": agent.limits["calls"]} if agent.bounds_calls("calls") else None,
        }
        self._check_named(agent)
        entry |= _plain(agent, _PLAIN)
        return {key: part for key, part in entry.items() if part not in (None, [], {})}

    def _check_named(self, agent: AgentDefinition) -> None:
        """Check that approvals and limits name functions, tools or servers of the agent.

        Raises:
            UsageError: An approval or limit names something else.
        """
        servers = {tool.name for tool in agent.ready if tool.is_server}
        for what, given in (("approvals", agent.approvals), ("limits", agent.limits)):
            for name in given:
                known = name in self.named or (what == "limits" and agent.bounds_calls(name))
                if not known and not (what == "approvals" and name.partition(".")[0] in servers):
                    raise UsageError(
                        f"agent {agent.name!r}: {what} names {name!r}, which is not one of its "
                        "functions",
                        hint=f"it has {', '.join(sorted(self.named)) or 'none'}",
                    )

    def _instructions(self, agent: AgentDefinition) -> Plain:
        text, more = agent.instructions, agent.context_variables_description
        if not callable(text):
            return {"text": literal_text("\n\n".join(filter(None, (text, more))))}
        key = f"{self.ids[agent.name]}.instructions"
        return {"python": self.references.instructions(text, key, more)}

    def _returns(self, agent: AgentDefinition) -> Plain:
        """Return the form of its answers, and the type that validates them, if it can be named."""
        returns: Any = agent.returns
        schema: Any = literal_text(agent.answer_schema())
        if returns is None or isinstance(returns, Mapping):
            return schema
        named = self.references.type(returns, f"{self.ids[agent.name]}.returns")
        return schema if named is None else {**schema, "python": named}

    def _offered(self, agent: AgentDefinition) -> dict[str, Plain]:
        """Return the environments for tools that name none, as name → name in the flow."""
        if (
            not agent.skills
            and not agent.code
            and all(tool.environments or "std" not in tool.declaration for tool in agent.ready)
        ):
            return {}
        specs = agent.specs
        return {name: self.around.environment(spec, agent) for name, spec in specs.items()}

    def _handoff(self, agent: AgentDefinition, handoff: AgentDefinition | Handoff) -> Plain:
        if not isinstance(handoff, Handoff):
            return self.ids[handoff.name]
        args = literal_text(agent.form_of("handoffs", handoff.args))
        entry: dict[str, Plain] = {"agent": self.ids[handoff.agent.name], "args": args}
        entry["context"] = self._with_tools(agent, handoff.context)
        return {name: value for name, value in entry.items() if value not in (None, "all")}

    def _with_tools(self, agent: AgentDefinition, value: Any) -> Plain:
        """Return `checks` or `context` with tool names in place of functions."""
        if is_tool(value):
            return self._use(agent, value)["tool"]
        if isinstance(value, Mapping):
            return {key: self._with_tools(agent, entry) for key, entry in value.items()}
        return (
            [self._with_tools(agent, item) for item in value] if isinstance(value, list) else value
        )

    def _use(self, agent: AgentDefinition, function: Any) -> dict[str, Plain]:
        """Declare a function or an agent as a tool, and return its entry in `tools`."""
        if isinstance(function, AgentAsTool):
            asked = {"name": self.ids[function.agent.name]}
            declaration: dict[str, Plain] = {
                "agent": {**asked, "max_turns": turn_limit(function.max_turns)},
                "description": literal_text(function.description) or None,
                "background": function.background or None,
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

    def _ready(self, agent: AgentDefinition, tool: ReadyTool) -> dict[str, Plain]:
        """Return the `tools` entry of a ready-made tool or a server, and declare its needs."""
        places = {
            place: self.around.environment(agent.specs[name], agent)
            for place, name in tool.environments.items()
        }
        more = {
            "approval": agent.approvals.get(tool.name),
            "limits": agent.limits_of(tool.name),
            "environments": places or None,
        }
        if tool.is_server:
            config: Any = self.around.with_mounts({"config": tool.declaration["mcp"]}, agent)
            server = {**tool.declaration, "mcp": literal_text(config["config"]), **more}
            declared = self._declare(tool.name, server)["tool"]
            for name, asked in agent.approvals.items():
                if name.startswith(f"{tool.name}."):
                    its = f"{declared}.{name.removeprefix(f'{tool.name}.')}"
                    rule = _rule(agent, name, asked, its)
                    self.rules.append({**rule, "agent": self.ids[agent.name]})
            return {"tool": f"{declared}.*"}
        if tool.name == ASK:
            return {"tool": ASK}  # a wait, which needs no declaration
        std = tool.declaration.get("std")
        if std is None or any(more.values()):
            return self._declare(tool.name, {**literal_text({**tool.declaration}), **more})
        return {"tool": f"std.{std}", **({"as": std} if std == tool.name else {})}

    def _declare(self, name: str, declaration: Mapping[str, Plain]) -> dict[str, Plain]:
        given = {key: value for key, value in declaration.items() if value is not None}
        id = declare(self.tools, name.removeprefix("std."), given)
        return {"tool": id, **({"as": name} if id != name else {})}


def _plain(agent: AgentDefinition, names: Sequence[str]) -> dict[str, Plain]:
    """Return those of some fields that do not have their default."""
    given = {name: getattr(agent, name) for name in names}
    fields = type(agent).model_fields
    return {
        name: value
        for name, value in given.items()
        if value != fields[name].get_default(call_default_factory=True)
    }


def _rule(agent: AgentDefinition, tool: str, asked: Any, called: str) -> dict[str, Plain]:
    """Return the rule for the approval of a tool of a server."""
    if asked == "none":
        return {"allow": called}
    when = asked.get("when") if isinstance(asked, Mapping) and set(asked) == {"when"} else None
    if asked != "ask" and when is None:
        raise UsageError(
            f"agent {agent.name!r}: the approval of {tool!r}, a tool of a server, is {asked!r}",
            hint="use 'ask', 'none' or {'when': '${{ … }}'}. That of the server has more options",
        )
    return {"ask": called, **({} if when is None else {"when": when})}


def _declared(agent: AgentDefinition, name: str, function: Any) -> dict[str, Plain]:
    """Return the declaration of a tool, except for the function or agent that it calls."""
    timeout = seconds_of(tool_option(function, "timeout"), f"the timeout of {name!r}")
    return {
        "approval": agent.approvals.get(name, tool_option(function, "approval")),
        "effect": tool_option(function, "effect"),
        "timeout": None if timeout is None else f"{round(timeout * 1000)}ms",
        "limits": agent.limits_of(name, tool_option(function, "limits")),
    }
