"""Tools of agents, those of servers included, as steps of the generated flow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from flowengine.sdk import Plain
from flowengine.sdk.steps.generated_flows import GLOB, DeclaredTool, Offered

ASK = "std.ask"


@dataclass(frozen=True)
class CalledServerTools:
    """Tools of a server that one step calls."""

    server: str
    """Name of the server in the file of the agent."""
    session: str
    """Name of the session with the server, which is its name in the file of the flow."""
    patterns: Sequence[str]
    """Names on the server, or globs."""
    any: bool
    """Whether the step calls any matching tool. Otherwise it calls a single one by name."""
    include: Sequence[str] | None = None
    """Names or globs of the tools to offer. None: all."""
    exclude: Sequence[str] = ()
    bound: Sequence[str] = ()
    """Arguments that the flow fixes."""

    @property
    def named(self) -> list[str]:
        """Tools with known names before the server lists them, in the form offered to models."""
        names = [name for name in self.include or () if GLOB.isdisjoint(name)]
        known = (name for name in names if allowed(name, self.patterns, self.exclude))
        return [f"{self.server}.{name}" for name in known]


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
    served: CalledServerTools | None = None
    """The tool or tools of a server. Their descriptions are known once the server has listed them.
    """
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
        parameters={
            "type": "object",
            "properties": {"question": text},
            "required": ["question"],
            "additionalProperties": False,
        },
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
    served = CalledServerTools(
        server=one.server.server,
        session=prefix + one.server.server,
        patterns=[each.server.pattern for each in ones if each.server is not None],
        any=called == one.server.server,
        include=one.server.include,
        exclude=one.server.exclude,
        bound=[*one.declaration.get("bind", {})],
    )
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


def offered(served: CalledServerTools) -> Offered:
    """Return where a calling step finds the offer made to the model."""
    own = "${{ call.offered.tool }}" if served.any else ""
    return Offered("${{ call.offered.parameters }}", "${{ call.offered.digest }}", own)


def wanted(steps: Iterable[tuple[CalledServerTools, str]], names: Sequence[str]) -> Plain:
    """Return the server tools to offer to an agent, in the form that `server_tools.offered` takes.

    Args:
        steps: Tools of servers, with the steps that call them.
        names: Names of its other tools.
    """
    servers: dict[str, dict[str, Plain]] = {}
    for offer, step in steps:
        use: dict[str, Plain] = {
            "server": offer.server,
            "session": offer.session,
            "patterns": {},
            "include": None if offer.include is None else [*offer.include],
            "exclude": [*offer.exclude],
            "bound": [*offer.bound],
        }
        patterns = servers.setdefault(offer.session, use)["patterns"]
        patterns |= dict.fromkeys(offer.patterns, step)
    return {"servers": [*servers.values()], "names": [*names]}
