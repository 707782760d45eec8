"""Tools of agents, those of servers included, as steps of the generated flow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from flowengine.sdk import Plain
from flowengine.sdk.steps.generated_flows import GLOB, DeclaredTool
from flowengine.sdk.tools.schemas import record

ASK = "std.ask"


@dataclass(frozen=True)
class ToolStep:
    """A tool of an agent, and the step that runs a call of it."""

    name: str
    """Name offered to the model."""
    description: str
    parameters: Mapping[str, Plain]
    """JSON Schema of its arguments."""
    action: Mapping[str, Plain]
    """The action of the step, in long form. Its arguments are `call.args`."""
    parallel: bool = False
    served: Mapping[str, Any] | None = None
    """The tool or tools of a server. Their descriptions are known once the server has listed them.

    `server` and `session`: its names in the files of the agent and of the flow. `patterns`: names
    on the server, or globs. `include` and `exclude`: the tools that may be offered. `bound`:
    arguments that the flow fixes."""
    adapter: Mapping[str, Plain] | None = None
    """Further arguments of the adapter. None: the action is a flow or a question, whose result is
    plain data without an adapter."""
    given: Plain = "${{ call.args }}"
    """The arguments of the action. None: the action is not a call."""
    inputs: Mapping[str, Plain] = field(default_factory=dict)
    """Inputs of a called flow, in addition to the arguments."""
    foreign: bool = True
    """Whether the result can contain untrusted content, to be marked for the model. Only used
    without an `adapter`, which otherwise decides about the mark."""
    waits: bool = False
    """Whether it only waits. Several such calls can wait in parallel."""
    background: bool = False
    """Whether a call starts a separate execution."""

    @property
    def is_any(self) -> bool:
        """Whether the step calls any tool of a server, not a single one by its name."""
        return self.served is not None and self.served["server"] == self.name

    @property
    def names(self) -> list[str]:
        """The names offered to models, as far as they are known before a server lists its tools."""
        if self.served is None or not self.is_any:
            return [self.name]
        names = [name for name in self.served["include"] or () if GLOB.isdisjoint(name)]
        known = (
            name for name in names if allowed(name, self.served["patterns"], self.served["exclude"])
        )
        return [f"{self.name}.{name}" for name in known]


def declared_tool(tool: DeclaredTool, adapter: Mapping[str, Plain], called: str = "") -> ToolStep:
    """Return a declared tool as a tool of an agent.

    Args:
        tool: The tool.
        adapter: Arguments of the adapter of its results.
        called: Name for the model. Default: its declared name.
    """
    asks = "agent" in tool.declaration
    runs_flow = "flow" in tool.declaration or asks
    return ToolStep(
        name=called or tool.name,
        description=tool.description,
        parameters=tool.args or {},
        action={"call": tool.name, **tool.modifiers},
        parallel=bool(tool.declaration.get("parallel", False)),
        adapter=None if runs_flow else limited(adapter, tool.declaration),
        inputs={"_context": "${{ state.context }}"} if asks else {},
        foreign=tool.declaration.get("effect") != "pure",
        background="background" in tool.declaration,
    )


def question(tool: DeclaredTool, called: str) -> ToolStep:
    """Return the tool with which an agent asks a person. The answer is text.

    Args:
        tool: `std.ask`.
        called: Name for the model.
    """
    text: Plain = {
        "type": "string",
        "description": "The question, with everything needed to answer it.",
    }
    return ToolStep(
        name=called,
        description="Asks a person, and returns the answer.",
        parameters=record({"question": text}),
        action={"call": tool.name},
        given={"question": "${{ call.args.question }}"},
        waits=True,
    )


def tools_of_server(
    ones: Sequence[DeclaredTool], called: str, adapter: Mapping[str, Plain], prefix: str = ""
) -> ToolStep:
    """Return a tool of a server, or all tools that match globs, as a tool of an agent.

    Args:
        ones: Tools of one server.
        called: Name of the tool, or of the server if any of its tools can be called.
        adapter: Arguments of the adapter of their results.
        prefix: The import through which the file of the flow refers to the agent's file.
    """
    one = ones[0]
    assert one.server is not None
    include = one.server.include
    served: dict[str, Plain] = {
        "server": one.server.server,
        "session": prefix + one.server.server,
        "patterns": [each.server.pattern for each in ones if each.server is not None],
        "include": None if include is None else [*include],
        "exclude": [*one.server.exclude],
        "bound": [*one.declaration.get("with", {})],
    }
    return ToolStep(
        name=called,
        description=one.description,
        parameters={},
        action={"call": called},
        parallel=bool(one.declaration.get("parallel", False)),
        served=served,
        adapter=limited(adapter, one.declaration),
    )


def limited(adapter: Mapping[str, Plain], declaration: Mapping[str, Plain]) -> Mapping[str, Plain]:
    """Return the arguments of a result adapter, with the tool's own limit.

    Args:
        adapter: Arguments for all tools.
        declaration: Declaration of the tool, in long form.
    """
    most = (declaration.get("limits") or {}).get("output")
    return adapter if most is None else {**adapter, "bytes": most}


# The offer of servers


def allowed(name: str, include: Sequence[str] | None, exclude: Sequence[str]) -> bool:
    """Return whether names and globs allow a tool. Without `include`, all others are allowed."""
    if include is not None and not any(fnmatchcase(name, glob) for glob in include):
        return False
    return not any(fnmatchcase(name, glob) for glob in exclude)


def offered(tool: ToolStep) -> dict[str, str]:
    """Return where the step of a server's tool finds the offer made to the model."""
    offer = {"schema": "${{ call.offered.parameters }}", "digest": "${{ call.offered.digest }}"}
    return {**offer, "tool": "${{ call.offered.tool }}"} if tool.is_any else offer


def wanted(steps: Iterable[tuple[ToolStep, str]]) -> Plain:
    """Return the server tools to offer to an agent, in the form that `server_tools.offered` takes.

    Args:
        steps: The tools of the agent, with the steps that call them.
    """
    servers: dict[str, dict[str, Plain]] = {}
    names: list[Plain] = []
    for tool, step in steps:
        if tool.served is None:
            names.append(tool.name)
            continue
        use = servers.setdefault(tool.served["session"], {**tool.served, "patterns": {}})
        use["patterns"] |= dict.fromkeys(tool.served["patterns"], step)
    return {"servers": [*servers.values()], "names": names}
