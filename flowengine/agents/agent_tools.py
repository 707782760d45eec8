"""Environments, ready-made tools and MCP servers of an agent in Python.

The helpers only add data: environment specs, which the flow of a run declares, and tools that use
these environments. An environment is opened when a call first needs it.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from flowengine import registry
from flowengine.agents.tool_marks import tool_options
from flowengine.errors import FlowEngineError, UsageError
from flowengine.sdk import Plain
from flowengine.sdk.python.argument_checks import check_kind, in_words
from flowengine.sdk.python.live_signature import given_parameters, resolved_hints
from flowengine.sdk.texts.flow_texts import literal_text
from flowengine.sdk.texts.near_words import did_you_mean

Spec = dict[str, Any]
_AT_A_TERMINAL = ("shell_run", "shell_wait", "shell_type", "shell_interrupt")
"""Built-in tools for an environment of kind `shell`."""
_SAME = {"tools": "functions", "functions": "tools"}
"""Two names of the same list."""


class ReadyTool(NamedTuple):
    """A tool that ships with the engine, or a server with tools, and how a flow declares it."""

    name: str
    """Name by which the model calls it. The tools of a server are called `name.tool`."""
    declaration: Mapping[str, Any]
    environments: Mapping[str, str] = {}
    """Name under which the tool looks up its environment → name of the environment. Empty: it uses
    the agent's environment of a suitable kind."""

    @property
    def is_server(self) -> bool:
        """Whether it is an MCP server."""
        return "mcp" in self.declaration


class AgentWithTools(BaseModel):
    """The part of an agent that concerns its tools."""

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    name: str = "Agent"
    tools: list[Any] = Field(default_factory=list)
    """Values that `use_tools` accepts: functions, agents as tools, objects with methods marked by
    `@tool`, and names of built-in tools such as `std.search_files`."""
    functions: list[Any] = Field(default_factory=list, repr=False, exclude=True)
    """Another name of `tools`, for MetaChain users."""
    approvals: dict[str, Any] = Field(default_factory=dict)
    """Function, ready-made tool or server → approval that a call requires, as `approval` of a tool
    in a flow file: `ask`, `required`, `{"when": "${{ args.amount > 100 }}"}`, …"""
    limits: dict[str, dict[str, Any] | int] = Field(default_factory=dict)
    """Function, ready-made tool or server → `{"output": "64KiB", "calls": 3}`: the size of a result
    shown to the model, and the number of calls per run. The key `calls` limits all tool calls of
    the agent in a run.
    """
    environments: list[str | Spec] = Field(default_factory=list)
    """Environment specs, and names of parameters that receive live objects of the program.
    Functions receive an environment through a parameter with its name (`resource_key`) or its
    class."""
    ready: list[ReadyTool] = Field(default_factory=list)
    """Tools that ship with the engine, added by `enable_python()` and similar methods, and MCP
    servers, added by `use_mcp()`."""

    @model_validator(mode="after")
    def _take_tools(self) -> Self:
        if self.tools is self.functions:  # validated again, as part of another model
            return self
        if self.tools and self.functions:
            raise UsageError(
                f"agent {self.name!r} is given tools and functions",
                hint="'functions' is another name of 'tools': give one of them",
            )
        given = [*self.tools, *self.functions]
        self.tools = []
        return self.use_tools(*given)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in _SAME:
            super().__setattr__(_SAME[name], value)

    def enable_python(self, name: str = "python", **spec: Any) -> Self:
        """Add `run_python`, which runs code in its own sandbox.

        Args:
            name: Name of the environment.
            **spec: Further keys of its spec: `provider`, `policy`, `limits`, `scope`, `config`, …

        Returns:
            The agent.
        """
        return self._enable("python", "python", name, spec, "run_python")

    def enable_nodejs(self, name: str = "node", **spec: Any) -> Self:
        """Add `run_javascript`, which runs code in its own sandbox.

        Args:
            name: Name of the environment.
            **spec: Further keys of its spec.

        Returns:
            The agent.
        """
        return self._enable("node", "node", name, spec, "run_javascript")

    def enable_shell(
        self,
        name: str = "shell",
        *,
        kind: str = "bash",
        folder: str | PathLike[str] | None = None,
        mode: str = "rw",
        **spec: Any,
    ) -> Self:
        """Add `run_command`, which runs shell commands in its own sandbox.

        Args:
            name: Name of the environment.
            kind: `bash`, `docker` or `shell`. A `shell` is one session that keeps its state. Its
                tools are `shell_run`, `shell_wait`, `shell_type` and `shell_interrupt`, in place of
                `run_command`.
            folder: Directory of this machine, mounted at `/src`: `enable_shell(folder=".")`.
            mode: Access to that directory: `rw`, `ro`, or `copy`, which leaves the original
                unchanged.
            **spec: Further keys of its spec.

        Returns:
            The agent.
        """
        if folder is not None:
            mounted = f"{name}_folder"
            shown: Spec = {"kind": "files", "config": {"path": os.fspath(folder), "mode": mode}}
            self.environments.append({**shown, "resource_key": mounted})
            config = {**spec.get("config", {})}
            config["mounts"] = {**config.get("mounts", {}), mounted: "/src"}
            spec["config"] = config
        tools = _AT_A_TERMINAL if kind == "shell" else ("run_command",)
        return self._enable(kind, "shell", name, spec, *tools)

    def enable_sqlite(
        self, path: str, *, mode: str = "ro", name: str = "database", **spec: Any
    ) -> Self:
        """Add `query_database`, which runs SQL in a database.

        Args:
            path: The database file.
            mode: `ro`, `rw`, or `rwc`, which creates the file.
            name: Name of the environment.
            **spec: Further keys of its spec.

        Returns:
            The agent.
        """
        config = {"path": path, "mode": mode, **spec.pop("config", {})}
        spec["config"] = config
        return self._enable("sqlite", "database", name, spec, "query_database")

    def enable_web_search(self, provider: str, *, name: str = "web_search", **config: Any) -> Self:
        """Add a tool that queries a search service.

        Args:
            provider: The service, such as `tavily`, `brave` or `searxng`.
            name: Name of the tool.
            **config: `api_key`, `url`, `count` and `options`, as in a tool of kind
                `web_search`. A key `secret:NAME` refers to the environment variable NAME. Without a
                key, the variable from the service's documentation is used.

        Returns:
            The agent.
        """
        return self._add(ReadyTool(name, {"web_search": {"provider": provider, **config}}))

    def use_mcp(
        self,
        servers: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        name: str = "mcp",
        include: str | Sequence[str] | None = None,
        exclude: str | Sequence[str] = (),
        effect: str | None = None,
        **config: Any,
    ) -> Self:
        """Add the tools of one or several MCP servers, named `name.tool`.

        Args:
            servers: Several servers: name → configuration of one, with its own `include` and
                `exclude` if needed.
            name: Name of the server.
            include: Names or globs of the tools to offer. Default: all.
            exclude: Names or globs of the tools to withhold, in addition to those of `servers`.
            effect: Side effects of its tools: `pure`, `idempotent` or `once`. Default: `once`.
            **config: Configuration of one server. For a command: `command`, `args`, `env`, `cwd`,
                and for its sandbox `provider`, `policy`, `mounts` (name in `environments` →
                directory inside). Otherwise `url` and `headers`. `resources=True` and
                `prompts=True` add tools for its resources and prompts. A text `secret:NAME` in
                `env` or `headers` refers to the environment variable NAME. Default sandbox:
                `namespace` for a command that downloads the program it runs, such as `npx`. Other
                commands run on the host, unsandboxed.

        Returns:
            The agent.

        Raises:
            UsageError: No server is configured, or both `servers` and the configuration of one are
                given. Or one of `servers` has an `include`, and so does the call.
        """
        if (servers is None) == (not config):
            raise UsageError(
                f"agent {self.name!r}: use_mcp takes one server or a table of several",
                hint="use_mcp(command=[…]), use_mcp(url=…) or use_mcp({'name': {'url': …}})",
            )
        table = servers if servers is not None else {name: config}
        check_kind("servers", table, dict)
        ready: list[ReadyTool] = []
        for called, entry in table.items():
            chosen = entry.get("include", include)
            if include is not None and "include" in entry:
                raise UsageError(
                    f"agent {self.name!r}: the entry of the server {called!r} has an 'include', "
                    "and so does the call of use_mcp",
                    hint="keep one of them",
                )
            server = {**entry, "exclude": [*_globs(entry.get("exclude")), *_globs(exclude)]}
            if chosen is not None:
                server["include"] = _globs(chosen)
            ready.append(ReadyTool(called, {"mcp": server, "effect": effect}))
        return self._add(*ready)

    def use_tools(self, *tools: Any) -> Self:
        """Add tools.

        Args:
            *tools: Functions, agents as tools, objects with methods marked by `@tool`, or names of
                built-in tools such as `std.search_files`. The specs in `environments` of an object
                are added as well. A built-in tool uses the agent's environment of the matching
                kind.

        Returns:
            The agent.

        Raises:
            UsageError: A value is not one of these kinds of tools.
        """
        for tool in tools:
            if isinstance(tool, str):
                known = [f"std.{name}" for name in registry.kind_class("std").tools()]
                if tool not in known:
                    raise UsageError(
                        f"agent {self.name!r}: there is no built-in tool {tool!r}",
                        hint=did_you_mean(tool, known) or f"there is {', '.join(known)}",
                    )
                self.ready.append(ReadyTool(tool, {"std": tool.removeprefix("std.")}))
                continue
            methods = _marked_methods(tool)
            if not methods and not callable(tool) and not isinstance(tool, AgentAsTool):
                raise UsageError(
                    f"agent {self.name!r}: {in_words(tool)} is not a function, and has no method "
                    "that is a tool",
                    hint="add it to handoffs, or give its as_tool()"
                    if isinstance(tool, AgentWithTools)
                    else "mark its methods with @flowengine.tool",
                )
            self.tools += methods or [tool]
            if methods:
                self.environments += [dict(each) for each in getattr(tool, "environments", ())]
        self.check_tools()
        return self

    def limits_of(self, name: str, own: Any = None) -> Any:
        """Return the limits of a tool, if any.

        Args:
            name: Name of the function, ready-made tool or server.
            own: Limits that the function declares itself.
        """
        return own if self.bounds_calls(name) else self.limits.get(name, own)

    def bounds_calls(self, name: str) -> bool:
        """Return whether a limit applies to all calls, not to a function named `calls`."""
        return name == "calls" and isinstance(self.limits.get(name), int)

    @property
    def environment_names(self) -> list[str]:
        """Names of parameters that receive environments or live objects."""
        return [name_of(environment) for environment in self.environments]

    @property
    def specs(self) -> dict[str, Spec]:
        """The environments that are specs, by name."""
        return {
            name_of(environment): environment
            for environment in self.environments
            if isinstance(environment, dict)
        }

    def _enable(
        self, kind: str, place: str, name: str, spec: Mapping[str, Any], *tools: str
    ) -> Self:
        """Add an environment and built-in tools that look it up as `place`."""
        self.environments.append({"kind": kind, "resource_key": name, **spec})
        return self._add(*(ReadyTool(tool, {"std": tool}, {place: name}) for tool in tools))

    def _add(self, *tools: ReadyTool) -> Self:
        self.ready += tools
        self.check_tools()
        return self

    def check_tools(self) -> None:
        """Reject duplicate names.

        Raises:
            UsageError: The message names the agent and the name.
        """
        for what, names in (
            ("tools", [tool.name for tool in self.ready]),
            ("environments", self.environment_names),
        ):
            twice = next((name for name in names if names.count(name) > 1), None)
            if twice is not None:
                raise UsageError(
                    f"agent {self.name!r} has two {what} named {twice!r}",
                    hint="give one of them another name",
                )


@dataclass(frozen=True)
class AgentAsTool:
    """The result of `Agent.as_tool`, for the functions of another agent."""

    agent: AgentWithTools
    name: str
    """Name by which the model calls it."""
    description: str
    max_turns: int | Mapping[str, Any]
    background: bool | Mapping[str, int] = False
    """Whether a call starts a separate execution, perhaps with bounds."""


def is_tool(value: object) -> bool:
    """Return whether a value is a function or an agent as a tool."""
    return callable(value) or isinstance(value, AgentAsTool)


def name_of(environment: str | Spec) -> str:
    """Return the name under which functions look up an environment."""
    if isinstance(environment, str):
        return environment
    return str(environment.get("resource_key") or environment.get("kind", ""))


def _globs(names: Any) -> list[Any]:
    """Return names or globs of tools as a list. A text is one of them."""
    if names is None:
        return []
    return [*names] if isinstance(names, list | tuple | set | frozenset) else [names]


def _marked_methods(obj: Any) -> list[Callable[..., Any]]:
    if inspect.isroutine(obj) or inspect.isclass(obj):
        return []
    methods = inspect.getmembers(type(obj), lambda each: hasattr(each, "__flowengine_tool__"))
    return [getattr(obj, name) for name, _ in methods]


# Declarations of the environments and servers of Python agents, for the flow that runs them.

_SCOPES = {"action_call": "step", "request": "region", "execution": "execution"}
"""Scopes of specs and the corresponding scopes in a flow."""
_LONGEST = 57
"""Maximum characters of a name to which a number can be appended."""
_OWN = ("scope", "owner_id", "resource_key")
"""Keys of specs that a flow expresses differently."""


class FlowEnvironments:
    """Declarations shared by all agents of a run. Equal ones are declared once.

    Args:
        tools: Tool declarations, to which servers are added.
        environments: Environment declarations.
    """

    def __init__(self, tools: dict[str, Plain], environments: dict[str, Plain]) -> None:
        self.tools = tools
        self.environments = environments

    def environment(
        self, spec: Mapping[str, Any], agent: AgentWithTools, around: Sequence[str] = ()
    ) -> str:
        """Declare an environment spec of an agent, and return its name in the flow.

        Args:
            spec: The spec. Environments that it mounts are declared as well.
            agent: The agent that owns it.
            around: Names of the specs that mount it.

        Raises:
            UsageError: A flow cannot express the spec, or the spec mounts itself.
        """
        name = name_of(dict(spec))
        if name in around:
            raise UsageError(
                f"agent {agent.name!r}: the mounts of the environment {name!r} form a cycle",
                hint="let one of them mount nothing",
            )
        declaration = self.with_mounts(_declaration(spec, agent), agent, [*around, name])
        return declare(self.environments, name, declaration)

    def with_mounts(
        self, declaration: dict[str, Plain], agent: AgentWithTools, around: Sequence[str] = ()
    ) -> dict[str, Plain]:
        """Return a declaration in which mounted environments have their names in the flow.

        Args:
            declaration: The declaration of an environment or a server, with its `config`.
            agent: The agent that owns it.
            around: Names of the specs that mount it.
        """
        config: Any = declaration.get("config")
        mounts = config.get("mounts") if isinstance(config, Mapping) else None
        if not isinstance(mounts, Mapping):
            return declaration
        specs = agent.specs
        names = {
            mount: self.environment(specs[mount], agent, around)
            for mount in mounts
            if mount in specs
        }
        mounted = {names.get(mount, mount): inside for mount, inside in mounts.items()}
        return {**declaration, "config": {**config, "mounts": mounted}}

    def taken(self, agent: AgentWithTools, function: Callable[..., Any]) -> dict[str, Plain]:
        """Return the environments that a function takes: parameter → name in the flow.

        Args:
            agent: The agent that has the function as a tool.
            function: The function. It takes environments by name, by class, or all of them in
                `runtime_resources`.
        """
        own = _resources(function).items()  # of `@tool(resources={…})`
        specs = agent.specs | {
            name: {"resource_key": name, **spec} for name, spec in own if spec is not None
        }
        parameters = [source.name for source in given_parameters(function)]
        hints = resolved_hints(function)
        every = "runtime_resources" in parameters
        environments = {
            name: self.environment(spec, agent)
            for name, spec in specs.items()
            if every or name in parameters
        }
        for parameter in parameters:
            hint = hints.get(parameter)
            fitting = [spec for spec in specs.values() if _opens(spec["kind"], hint)]
            if parameter not in environments and len(fitting) == 1:
                environments[parameter] = self.environment(fitting[0], agent)
        return {**environments}


def environment_names(agent: AgentWithTools, function: Any) -> list[str]:
    """Return the names of a function's parameters that receive environments."""
    own = takes_deps(getattr(agent, "deps", None), function)
    return [*agent.environment_names, *_resources(function), *own]


def takes_deps(deps: type | None, function: Any) -> list[str]:
    """Return the names of a function's parameters of the class `deps`, or of one above it."""
    if deps is None:
        return []
    hints = resolved_hints(function)
    names = [source.name for source in given_parameters(function)]
    return [name for name in names if _is_above(hints.get(name), deps)]


def _is_above(hint: Any, deps: type) -> bool:
    if not isinstance(hint, type) or hint is object:
        return False
    try:
        return issubclass(deps, hint)
    except TypeError:  # a protocol that cannot be checked
        return False


def _resources(function: Any) -> Mapping[str, Any]:
    """Return the value of `@tool(resources={…})`."""
    return (tool_options(function) or {}).get("resources") or {}


def _opens(kind: str, hint: Any) -> bool:
    """Return whether a kind of environment opens resources of a class."""
    if not isinstance(hint, type):
        return False
    try:
        opened = registry.provider(kind).resource_types()
    except FlowEngineError:
        return False  # reported with the declaration
    return hint is not object and any(issubclass(cls, hint) for cls in opened)


def declare(known: dict[str, Plain], name: str, declaration: Plain, case: bool = False) -> str:
    """Add a declaration unless an equal one exists, and return its name.

    The name is the given one, converted to a valid and unused id.

    Args:
        known: Existing declarations, by name.
        name: The preferred name.
        declaration: The declaration.
        case: Whether the name keeps its capital letters.
    """
    plain = name if case else name.lower()
    base = re.sub(r"[^A-Za-z0-9]+", "_", plain).strip("_")[:_LONGEST]
    base = base if base[:1].isalpha() else f"x_{base}"
    number, free = 1, base
    while known.get(free, declaration) != declaration:
        number += 1
        free = f"{base}_{number}"
    known[free] = declaration
    return free


def _declaration(spec: Mapping[str, Any], agent: AgentWithTools) -> dict[str, Plain]:
    """Return the declaration of a spec in a flow."""
    scope = spec.get("scope", "execution")
    declaration = {key: value for key, value in spec.items() if key not in _OWN}
    for key in declaration.keys() & {"config", "policy"}:
        declaration[key] = literal_text(declaration[key])
    where = f"agent {agent.name!r}: the environment {name_of(dict(spec))!r}"
    if isinstance(declaration.get("on_wait"), int | float):
        declaration["on_wait"] = f"{round(declaration['on_wait'] * 1000)}ms"
    if scope in ("session", "agent"):
        owner = spec.get("owner_id") or (agent.name if scope == "agent" else "")
        if not owner:
            raise UsageError(
                f"{where} is of the scope 'session' and has no owner",
                hint="add owner_id: executions of one owner share it",
            )
        key = owner if scope == "session" else f"agent {owner}"
        return {**declaration, "scope": "session", "key": key}
    if scope not in _SCOPES:
        raise UsageError(
            f"{where} has the scope {scope!r}",
            hint=f"it is one of: {', '.join([*_SCOPES, 'session', 'agent'])}",
        )
    return {**declaration, "scope": _SCOPES[scope]}
