"""A tool of an agent, as the generated flow has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from flowengine.agents.server_offers import ServerTools
from flowengine.sdk import Plain
from flowengine.sdk.generated_flows import DeclaredTool

ASK = "std.ask"


@dataclass(frozen=True)
class ToolStep:
    """A tool of an agent, and the step that a call of it is."""

    name: str
    """As the model is offered it."""
    description: str
    parameters: Mapping[str, Plain]
    """JSON Schema of its arguments."""
    action: Mapping[str, Plain]
    """The action of the step, in long form; its arguments are `call.args`."""
    parallel: bool = False
    served: ServerTools | None = None
    """It is, or they are, of a server: what models are told of them is known when it is asked."""
    adapter: Mapping[str, Plain] | None = None
    """What the adapter is told beside what it always is; None: the action is a flow or a question,
    which give plain data by themselves."""
    given: Plain = "${{ call.args }}"
    """The arguments of the action."""
    inputs: Mapping[str, Plain] = field(default_factory=dict)
    """What the flow of its action is given besides the arguments."""
    foreign: bool = True
    """Others may have written what it gives, which is marked for the model; without `adapter`. One
    with an adapter says so itself."""
    waits: bool = False
    """It waits for a person, and does nothing: several may wait beside one another."""


def declared_tool(one: DeclaredTool, adapter: Mapping[str, Plain], called: str = "") -> ToolStep:
    """Return a declared tool as an agent's.

    Args:
        one: The tool.
        adapter: What the adapter of its results is told.
        called: As the model knows it; default: its own name.
    """
    asks = "agent" in one.declaration
    runs_flow = "flow" in one.declaration or asks
    return ToolStep(
        name=called or one.name,
        description=one.description,
        parameters=one.args or {},
        action={"call": one.name, **one.modifiers},
        parallel=bool(one.declaration.get("parallel", False)),
        adapter=None if runs_flow else limited(adapter, one.declaration),
        inputs={"_context": "${{ state.context }}"} if asks else {},
        foreign=one.declaration.get("effect") != "pure",
    )


def question(one: DeclaredTool, called: str) -> ToolStep:
    """Return the tool by which an agent asks a person; the answer is text.

    Args:
        one: `std.ask`.
        called: As the model knows it.
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
        action={"call": one.name},
        given={"question": "${{ call.args.question }}"},
        waits=True,
    )


def tools_of_server(
    ones: Sequence[DeclaredTool], called: str, adapter: Mapping[str, Plain], prefix: str = ""
) -> ToolStep:
    """Return a tool of a server, or all those that globs fit, as an agent's.

    Args:
        ones: Of one server.
        called: The tool's name; the server's: any of them.
        adapter: What the adapter of their results is told.
        prefix: By which import the file of the flow has that of the agent.
    """
    one = ones[0]
    assert one.server is not None
    served = ServerTools(
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
    """Return what the adapter of a tool's results is told, with the tool's own limit.

    Args:
        adapter: What it is told of every tool.
        declaration: Of the tool, in long form.
    """
    most = (declaration.get("limits") or {}).get("output")
    return adapter if most is None else {**adapter, "bytes": most}
