"""What an agent in Python works with: environments, ready-made tools, servers of tools.

What a helper adds is data: specs of environments that are declared in the flow of a run, and the
tools that work in them. Nothing is opened before a call needs it.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from flowengine import registry
from flowengine.agents.agent_as_tool import AgentAsTool
from flowengine.errors import UsageError
from flowengine.sdk.near_words import did_you_mean

Spec = dict[str, Any]
_AT_A_TERMINAL = ("shell_run", "shell_wait", "shell_type", "shell_interrupt")
"""Built-in tools that work in an environment of kind `shell`."""
_SAME = {"tools": "functions", "functions": "tools"}
"""Two names of one list."""


class ReadyTool(NamedTuple):
    """A tool that comes with the engine, and the environment that it works in."""

    name: str
    """By which the model calls it: that of the tool in `std`, with or without `std.`."""
    place: str = ""
    """Under which name the tool finds its environment; empty: it takes the one of the agent's that
    it has a use for."""
    environment: str = ""
    declared: Mapping[str, Any] = {}
    """As a flow declares it, if it is not one of `std`."""


class ToolServer(NamedTuple):
    """An MCP server, whose tools the model calls as `name.tool`."""

    name: str
    config: Mapping[str, Any]
    include: Sequence[str] | None = None
    exclude: Sequence[str] = ()
    effect: str | None = None


class AgentWithTools(BaseModel):
    """An agent, as far as it has something to work with."""

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    name: str = "Agent"
    tools: list[Any] = Field(default_factory=list)
    """What `use_tools` takes: functions, agents as tools, objects with methods that `@tool` marks,
    names of built-in tools such as `std.search_files`."""
    functions: list[Any] = Field(default_factory=list, repr=False, exclude=True)
    """Another name of `tools`, for those who come from MetaChain."""
    approvals: dict[str, Any] = Field(default_factory=dict)
    """Function, ready-made tool or server → who is asked before a call of it runs: as `approval`
    of a tool in a flow file, such as `ask`, `required`, `{"when": "${{ args.amount > 100 }}"}`."""
    limits: dict[str, dict[str, Any] | int] = Field(default_factory=dict)
    """Function, ready-made tool or server → `{"output": "64KiB", "calls": 3}`: how much of a result
    the model is shown, and how often a run may call it; `calls` → how many calls of tools the agent
    may make in a run."""
    environments: list[str | Spec] = Field(default_factory=list)
    """Specs of environments, which its functions get by a parameter of the name (`resource_key`) or
    of the class; and names of parameters that get live objects of the program."""
    ready: list[ReadyTool] = Field(default_factory=list)
    """Tools that come with the engine; `enable_python()` and the like add them."""
    servers: list[ToolServer] = Field(default_factory=list)
    """MCP servers; `use_mcp()` adds them."""

    @model_validator(mode="after")
    def _take_tools(self) -> Self:
        if self.tools is self.functions:  # it is checked again wherever it is part of something
            return self
        if self.tools and self.functions:
            raise UsageError(
                f"agent {self.name!r} is given tools and functions",
                hint="'functions' is another name of 'tools': say one of them",
            )
        given = [*self.tools, *self.functions]
        self.tools = []
        return self.use_tools(*given)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in _SAME:
            super().__setattr__(_SAME[name], value)

    def enable_python(self, name: str = "python", **spec: Any) -> Self:
        """Give the agent `run_python`, which runs code in a sandbox of its own.

        Args:
            name: Of the environment.
            **spec: More of its spec: `provider`, `policy`, `limits`, `scope`, `config`, …

        Returns:
            The agent.
        """
        return self._enable([ReadyTool("run_python", "python", name)], "python", spec)

    def enable_nodejs(self, name: str = "node", **spec: Any) -> Self:
        """Give the agent `run_javascript`, which runs code in a sandbox of its own.

        Args:
            name: Of the environment.
            **spec: More of its spec.

        Returns:
            The agent.
        """
        return self._enable([ReadyTool("run_javascript", "node", name)], "node", spec)

    def enable_shell(
        self,
        name: str = "shell",
        *,
        kind: str = "bash",
        folder: str | PathLike[str] | None = None,
        mode: str = "rw",
        **spec: Any,
    ) -> Self:
        """Give the agent `run_command`, which runs shell commands in a sandbox of its own.

        Args:
            name: Of the environment.
            kind: `bash` or `docker`; or `shell`, one session that keeps its state, with the tools
                `shell_run`, `shell_wait`, `shell_type` and `shell_interrupt` in place of
                `run_command`.
            folder: Of this machine, which commands see as `/src`: `enable_shell(folder=".")`.
            mode: Of that folder: `rw`, `ro`, or `copy`, which leaves it as it is.
            **spec: More of its spec.

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
        return self._enable([ReadyTool(one, "shell", name) for one in tools], kind, spec)

    def enable_sqlite(
        self, path: str, *, mode: str = "ro", name: str = "database", **spec: Any
    ) -> Self:
        """Give the agent `query_database`, which runs SQL in a database.

        Args:
            path: The file.
            mode: `ro`, `rw`, or `rwc`, which creates it.
            name: Of the environment.
            **spec: More of its spec.

        Returns:
            The agent.
        """
        config = {"path": path, "mode": mode, **spec.pop("config", {})}
        tools = [ReadyTool("query_database", "database", name)]
        return self._enable(tools, "sqlite", {**spec, "config": config})

    def enable_web_search(self, provider: str, *, name: str = "web_search", **config: Any) -> Self:
        """Give the agent a tool that asks a search service.

        Args:
            provider: The service, such as `tavily`, `brave`, `searxng`.
            name: Of the tool.
            **config: `api_key`, `url`, `country`, `max_results`, `options`, as of a tool of kind
                `web_search`. A key `secret:NAME` stands for the environment variable NAME; without
                one, it is that in which the service's documentation has it.

        Returns:
            The agent.
        """
        said = {"web_search": {"provider": provider, **config}}
        self.ready.append(ReadyTool(name, declared=said))
        self.check_tools()
        return self

    def use_mcp(
        self,
        servers: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        name: str = "mcp",
        include: Sequence[str] | None = None,
        exclude: Sequence[str] = (),
        effect: str | None = None,
        **config: Any,
    ) -> Self:
        """Give the agent the tools of an MCP server, called `name.tool`, or of several.

        Args:
            servers: Several servers: name → what is said of one.
            name: Of the server.
            include: Names or globs of the tools that it may call; default: all.
            exclude: Names or globs of those that it may not.
            effect: What may be repeated: `pure`, `idempotent`; default: `once`.
            **config: Of one server: `command`, `args`, `env`, `cwd` and its sandbox, `provider`,
                `policy`, `mounts` (name in `environments` → folder inside); or `url`, `headers`.
                A text `secret:NAME` in `env` and `headers` stands for the environment variable
                NAME. Default sandbox: `namespace` for a command that fetches what it runs, such as
                `npx`; otherwise `host`, which is none.

        Returns:
            The agent.

        Raises:
            UsageError: It is not said which server, or twice.
        """
        if (servers is None) == (not config):
            raise UsageError(
                f"agent {self.name!r}: use_mcp takes one server or a table of several",
                hint="use_mcp(command=[…]), use_mcp(url=…) or use_mcp({'name': {'url': …}})",
            )
        table = servers if servers is not None else {name: config}
        for one, said in table.items():
            self.servers.append(ToolServer(one, dict(said), include, tuple(exclude), effect))
        self.check_tools()
        return self

    def use_tools(self, *tools: Any) -> Self:
        """Give the agent more tools.

        Args:
            *tools: Functions; agents as tools; objects with methods that `@tool` marks, whose
                `environments`, specs, are added as well; or names of built-in tools, such as
                `std.search_files`. These work in the environment of the agent that is of their
                kind.

        Returns:
            The agent.

        Raises:
            UsageError: One is none of these.
        """
        for one in tools:
            if isinstance(one, str):
                self._check_brought(one)
                self.ready.append(ReadyTool(one))
                continue
            methods = _marked_methods(one)
            if not methods and not callable(one) and not isinstance(one, AgentAsTool):
                raise UsageError(
                    f"agent {self.name!r}: {one!r} is not a function, and has no method that is a "
                    "tool",
                    hint="say it in handoffs, or give its as_tool()"
                    if isinstance(one, AgentWithTools)
                    else "mark its methods with @tool of flowengine.tool_environment",
                )
            self.tools += methods or [one]
            if methods:
                self.environments += [dict(each) for each in getattr(one, "environments", ())]
        self.check_tools()
        return self

    def limits_of(self, name: str, own: Any = None) -> Any:
        """Return the limits of a tool; None: it has none.

        Args:
            name: Of the function, ready-made tool or server.
            own: What the function says itself.
        """
        return own if self.bounds_calls(name) else self.limits.get(name, own)

    def bounds_calls(self, name: str) -> bool:
        """Return whether a limit is that of all calls, not of a function that is called `calls`."""
        return name == "calls" and isinstance(self.limits.get(name), int)

    @property
    def environment_names(self) -> list[str]:
        """Names of parameters that get environments or live objects."""
        return [name_of(one) for one in self.environments]

    @property
    def specs(self) -> dict[str, Spec]:
        """The environments that are specs, by their names."""
        return {name_of(one): one for one in self.environments if isinstance(one, dict)}

    def _enable(self, tools: Sequence[ReadyTool], kind: str, spec: Mapping[str, Any]) -> Self:
        self.environments.append({"kind": kind, "resource_key": tools[0].environment, **spec})
        self.ready += tools
        self.check_tools()
        return self

    def _check_brought(self, name: str) -> None:
        known = [f"std.{one}" for one in registry.kind_class("std").tools()]
        if name not in known:
            raise UsageError(
                f"agent {self.name!r}: there is no built-in tool {name!r}",
                hint=did_you_mean(name, known) or f"there is {', '.join(known)}",
            )

    def check_tools(self) -> None:
        """Refuse what has one name twice.

        Raises:
            UsageError: The message names the agent and the name.
        """
        for what, names in (
            ("tools", [one.name for one in self.ready]),
            ("servers", [one.name for one in self.servers]),
            ("environments", self.environment_names),
        ):
            twice = next((name for name in names if names.count(name) > 1), None)
            if twice is not None:
                raise UsageError(
                    f"agent {self.name!r} has two {what} named {twice!r}",
                    hint="give one of them another name",
                )


def name_of(environment: str | Spec) -> str:
    """Return the name under which functions find an environment."""
    if isinstance(environment, str):
        return environment
    return str(environment.get("resource_key") or environment.get("kind", ""))


def tool_option(function: Any, name: str) -> Any:
    """Return what a function says of itself: by `@tool`, or by an attribute."""
    options = getattr(function, "__flowengine_tool__", None)
    return getattr(function if options is None else options, name, None)


def _marked_methods(one: Any) -> list[Callable[..., Any]]:
    if inspect.isroutine(one) or inspect.isclass(one):
        return []
    found = inspect.getmembers(type(one), lambda each: hasattr(each, "__flowengine_tool__"))
    return [getattr(one, name) for name, _ in found]
