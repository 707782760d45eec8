"""Tools: what steps and agents call, and servers that have tools of their own."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Self

from pydantic import Field

from flowengine.flow.models.actions import AskBeforeCall
from flowengine.flow.models.base import Part, Problem
from flowengine.flow.models.kinds import configuration, session_of
from flowengine.flow.models.modifiers import Retry
from flowengine.flow.models.schemas import Schema
from flowengine.flow.models.step import Pluggable
from flowengine.flow.models.types import (
    Duration,
    Effect,
    EnvironmentUses,
    FlowName,
    OnCrash,
    Positive,
    Size,
    Template,
    Text,
    Value,
)

_AROUND = ("provider", "policy")
_ABOUT_TOOLS = ("in", "include", "exclude")


class Server(NamedTuple):
    """A tool that is a server with tools of its own, in the session that an environment is."""

    kind: str
    """The step kind that calls its tools."""
    session: str
    """The kind of the environment."""
    config: dict[str, Any]
    """The configuration of the environment."""
    around: dict[str, Any]
    """What else its declaration says: `provider` and `policy`, as far as they are given."""
    in_: dict[str, Any] | None
    """The declared environment to use instead, with its arguments."""
    include: list[str] | None
    exclude: list[str]

    @classmethod
    def of(cls, kind: str, given: Any) -> Self | None:
        """Return what a step kind's configuration says of a server; None: it is none.

        Args:
            kind: The step kind.
            given: What stands behind its key, in long form.
        """
        session = session_of(kind)
        if session is None or not isinstance(given, dict):
            return None
        keys = [key for key in configuration(kind).get("properties", given) if key in given]
        around = {key: given[key] for key in _AROUND if key in keys}
        config = {key: given[key] for key in keys if key not in {*_AROUND, *_ABOUT_TOOLS}}
        place = given.get("in")
        in_ = {place: {}} if isinstance(place, str) else place
        chosen = given.get("include"), given.get("exclude", [])
        return cls(kind, session, config, around, in_, *chosen)


class ToolLimits(Part):
    """Limits of a tool's calls."""

    NOUN = "'limits' of a tool"

    output: Size | None = Field(
        default=None,
        description="Maximum size of a result. A larger one is kept as a file: an agent receives "
        "its beginning and end, and a step fails.",
        examples=["64KiB"],
    )
    calls: Positive | None = Field(
        default=None,
        description="Maximum number of calls in an execution, by all steps and agents together.",
        examples=[3],
    )


class Tool(Pluggable):
    """A tool that steps can call."""

    NOUN = "a tool"
    PLACE = "tool"
    OWN_ACTIONS = ("flow",)

    flow: FlowName | None = Field(
        default=None,
        description="Runs a flow, whose inputs are the arguments.",
        examples=["triage"],
    )
    description: Text | None = Field(
        default=None,
        description="Its description. Default: derived, if possible.",
        examples=["Search"],
    )
    args: Schema | None = Field(
        default=None,
        description="JSON Schema of the arguments. Default: derived, if possible.",
        examples=[{"type": "object", "properties": {"q": {"type": "string"}}}],
    )
    returns: Schema | None = Field(
        default=None,
        description="JSON Schema of the result. Default: derived, if possible.",
        examples=[{"type": "string"}],
    )
    bind: dict[str, Value] = Field(
        default_factory=dict,
        description="Arguments that the flow fixes, including secrets. They are hidden from "
        "callers.",
        examples=[{"key": "${{ secrets.KEY }}"}],
    )
    effect: Effect | None = Field(
        default=None,
        description="Whether a call may be repeated after a crash.",
        examples=["idempotent"],
    )
    on_crash: OnCrash | None = Field(
        default=None,
        description="How a call is handled if a crash leaves it uncertain, unless the calling "
        "step declares it.",
        examples=["fail"],
    )
    idempotency_key: Template | None = Field(
        default=None,
        description="The idempotency key. Default: derived from execution and address.",
        examples=["${{ args.order }}"],
    )
    approval: AskBeforeCall | None = Field(
        default=None,
        description="Whether a call needs an approval. Default: `none`.",
        examples=["ask", {"when": "${{ args.amount > 100 }}", "assignees": ["group:finance"]}],
    )
    environments: EnvironmentUses = Field(
        default=None,
        description="Environments for the tool, by the names that it uses for them.",
        examples=[["sandbox"], {"db": "orders"}],
    )
    timeout: Duration | None = Field(
        default=None, description="The time limit of one attempt.", examples=["30s"]
    )
    retry: Retry | None = Field(default=None, description="Tries again on errors.", examples=[3])
    preview: Text | None = Field(
        default=None,
        description="A Python function, `module:function`, that takes the arguments as a dict and "
        "returns a description of the call's effect, for its approvers.",
        examples=["changes:diff"],
    )
    limits: ToolLimits | None = Field(
        default=None, description="Limits of each call.", examples=[{"output": "64KiB"}]
    )
    parallel: bool = Field(
        default=False,
        description="Whether an agent's calls of it may run in parallel with others in the same "
        "reply.",
        examples=[True],
    )

    @property
    def server(self) -> Server | None:
        """What it says as a server of tools; None: it is one tool."""
        return next((Server.of(kind, given) for kind, given in self.kinds.items()), None)

    @classmethod
    def problems(cls, given: Mapping[str, Any]) -> Iterator[Problem]:
        """Add that a tool is of one kind."""
        yield from super().problems(given)
        yield from cls._needs_one_action(given)
