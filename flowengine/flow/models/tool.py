"""Tools, which steps and agents call, and servers that offer several tools."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple, Self

from flowengine.flow.models.actions import AskBeforeCall, AskFirst
from flowengine.flow.models.agent import Schema
from flowengine.flow.models.base import Field, KeyNeeds, MappingProblem, Part
from flowengine.flow.models.kinds import configuration, session_of
from flowengine.flow.models.modifiers import Retry
from flowengine.flow.models.step import Pluggable
from flowengine.flow.models.types import (
    AsSchema,
    CheckedType,
    Duration,
    Effect,
    EnvironmentUses,
    FlowName,
    Label,
    OnCrash,
    OnWait,
    Positive,
    Size,
    Template,
    Text,
    Value,
    integer,
    wrong,
)
from flowengine.sdk.python.argument_checks import MOST_LABELS

_AROUND = ("provider", "policy")
_ABOUT_TOOLS = ("in", "include", "exclude")


class Server(NamedTuple):
    """A tool that is a server with several tools, in the session of an environment."""

    kind: str
    """The step kind that calls its tools."""
    session: str
    """The kind of the environment."""
    config: dict[str, Any]
    """The configuration of the environment."""
    around: dict[str, Any]
    """Other settings of its declaration: `provider` and `policy`, if they are set."""
    in_: dict[str, Any] | None
    """The declared environment to use instead, with its arguments."""
    include: list[str] | None
    exclude: list[str]

    @classmethod
    def of(cls, kind: str, given: Any) -> Self | None:
        """Return the server that a step kind's configuration declares, or None.

        Args:
            kind: The step kind.
            given: The value of its key, in long form.
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
    """Limits on the calls of a tool."""

    NOUN = "'limits' of a tool"

    output: Size | None = Field(default=None, examples=["64KiB"])
    """The maximum size of a result. A larger one is kept as a file: an agent receives its beginning
    and end, and a step fails."""
    calls: Positive | None = Field(default=None, examples=[3])
    """The maximum number of calls in an execution, by all steps and agents together."""


def _places(value: Any) -> int:
    return PLACES if value is True else integer(1, "true or a positive number")(value)


PLACES = 10
"""Maximum number of concurrent background executions, if a tool does not set it."""


class Background(Part):
    """The bounds on executions that a tool starts in the background for a flow or an agent."""

    NOUN = "'background'"
    MAIN = "max"

    max: Annotated[
        int,
        CheckedType(_places),
        AsSchema({"anyOf": [{"const": True}, {"type": "integer", "minimum": 1}]}),
    ] = Field(default=PLACES, examples=[50])
    """How many may run at the same time. `true` stands for 10."""
    count: Positive = Field(default=100, examples=[1000])
    """How many may be started in all."""


class Tool(Pluggable):
    """A tool that steps can call."""

    NOUN = "a tool"
    PLACE = "tool"
    OWN_ACTIONS = ("flow",)
    RULES = (KeyNeeds("background", ("flow", "agent")),)

    flow: FlowName | None = Field(default=None, examples=["triage"])
    """Runs a flow, whose inputs are the arguments."""
    description: Text | None = Field(default=None, examples=["Search"])
    """Its description. Derived if possible."""
    args: Schema | None = Field(
        default=None, examples=[{"type": "object", "properties": {"q": {"type": "string"}}}]
    )
    """JSON Schema of the arguments. Derived if possible."""
    returns: Schema | None = Field(default=None, examples=[{"type": "string"}])
    """JSON Schema of the result. Derived if possible."""
    with_: dict[str, Value] = Field(
        default={}, key="with", examples=[{"key": "${{ secrets.KEY }}"}]
    )
    """Arguments that the flow fixes, including secrets. Callers do not see them."""
    effect: Effect | None = Field(default=None, examples=["idempotent"])
    """The side effect of a call, which decides whether it may be repeated after a crash."""
    on_crash: OnCrash | None = Field(default=None, examples=["fail"])
    """The treatment of a call whose outcome is unknown after a crash, unless the calling step sets
    it."""
    idempotency_key: Template | None = Field(default=None, examples=["${{ args.order }}"])
    """The idempotency key. Default: derived from execution and address."""
    approval: AskBeforeCall | None = Field(
        default=None,
        examples=["ask", {"when": "${{ args.amount > 100 }}", "assignees": ["group:finance"]}],
    )
    """Whether an approval is required before it is called. Default: `none`."""
    environments: EnvironmentUses = Field(default=None, examples=[["sandbox"], {"db": "orders"}])
    """Environments for the tool, by the names that it uses for them."""
    needs: list[Label] = Field(default=[], max_length=MOST_LABELS, examples=[["gpu"]])
    """Offers that a worker needs to make a call, besides the needs of the step."""
    timeout: Duration | None = Field(default=None, examples=["30s"])
    """The time limit of one attempt."""
    retry: Retry | None = Field(default=None, examples=[3])
    """Tries again on errors."""
    preview: Text | None = Field(default=None, examples=["changes:diff"])
    """A Python function, `module:function`, that takes the arguments as a dict and returns the
    effect of the call, for approvers."""
    limits: ToolLimits | None = Field(default=None, examples=[{"output": "64KiB"}])
    """Limits on its calls."""
    background: Background | None = Field(default=None, examples=[True, {"max": 50}])
    """Whether a call of a flow or an agent starts a separate execution, and does not wait for it.
    """
    parallel: bool = Field(default=False, examples=[True])
    """Whether an agent's calls of it may run in parallel with other calls of the same reply."""

    @property
    def server(self) -> Server | None:
        """The server that it declares, or None if it is a single tool."""
        return next((Server.of(kind, given) for kind, given in self.kinds.items()), None)

    @classmethod
    def problems(cls, given: Mapping[str, Any]) -> Iterator[MappingProblem]:
        """Require exactly one kind for a tool."""
        yield from super().problems(given)
        yield from cls._needs_one_action(given)


# Declared environments, in which steps and tools work (docs/language.md: environments).

BACKGROUND = "background"
"""Value of `eager`: it is opened at the start, while the steps begin."""


def _at_start(value: Any) -> bool | str:
    if not isinstance(value, bool) and value != BACKGROUND:
        wrong(f"true, false or {BACKGROUND!r}", value)
    return value  # type: ignore[no-any-return]


class Environment(Part):
    """A managed live resource: a sandbox, a shell, a database, a session with a server."""

    NOUN = "an environment"

    kind: Text = Field(examples=["python", "sqlite"])
    """The kind of environment."""
    scope: Literal["step", "region", "execution", "session"] | None = Field(
        default=None, examples=["region"]
    )
    """How widely it is shared. Default: `execution`, or `step` if only tools name it."""
    key: Template | None = Field(default=None, examples=["${{ inputs.customer }}"])
    """The key of the session that shares it, for the scope `session`."""
    args: Schema | None = Field(
        default=None, examples=[{"type": "object", "properties": {"python": {"type": "string"}}}]
    )
    """JSON Schema of the arguments that its users pass. `config` sees `args`."""
    config: dict[str, Value] = Field(default={}, examples=[{"image": "ci:py${{ args.python }}"}])
    """Settings of the kind."""
    policy: dict[str, Value] = Field(default={}, examples=[{"network": "none"}])
    """The permissions of the environment. They can only narrow those of the host."""
    limits: dict[str, Value] = Field(default={}, examples=[{"memory": "2GiB", "cpus": 2}])
    """Resource limits: cpus, memory, processes, disk, time, output."""
    needs: dict[str, Value] = Field(default={}, examples=[{"isolation": "container"}])
    """Properties that the machine must provably enforce. Otherwise the environment is refused."""
    approval: AskFirst | None = Field(
        default=None, examples=["required", {"assignees": ["group:ops"], "expires": "1d"}]
    )
    """Whether the call that opens it requires an approval. Default: `none`."""
    on_wait: OnWait | None = Field(default=None, examples=["release", "10m"])
    """The treatment of the environment while the execution waits: `release` closes it, `keep` keeps
    it open for an hour, and a duration for so long. Default: depends on the kind."""
    eager: Annotated[
        bool | str,
        CheckedType(_at_start),
        AsSchema({"enum": [True, False, BACKGROUND]}),
    ] = Field(default=False, examples=[True, BACKGROUND])
    """Whether it is opened at the start. With `background`, the steps begin meanwhile."""
    provider: Text | list[Text] | None = Field(
        default=None, examples=["docker", ["docker", "namespace"]]
    )
    """The sandbox provider, or several in order of preference. Default: depends on the kind."""

    @classmethod
    def problems(cls, given: Mapping[str, Any]) -> Iterator[MappingProblem]:
        """Require a key for sessions, and refuse one for other scopes."""
        yield from super().problems(given)
        if given.get("scope") == "session" and "key" not in given:
            message = "an environment of scope 'session' needs a 'key': whose it is"
            yield MappingProblem(None, "E104", message, "add 'key'")
        if "key" in given and given.get("scope") != "session":
            message = "only an environment of scope 'session' has a 'key'"
            yield MappingProblem("key", "E103", message, "leave it out, or set 'scope: session'")
        if given.get("eager") in (True, BACKGROUND):
            yield from _eager_problems(given)


def _eager_problems(given: Mapping[str, Any]) -> Iterator[MappingProblem]:
    """Find settings of `eager` that are unknown or not shared at the start of a flow."""
    scope = given.get("scope")
    if scope in ("step", "region"):
        message = f"an environment of scope {scope!r} cannot be opened at the start: there is none"
        yield MappingProblem("eager", "E103", message, "leave it out, or share it further")
    if "args" in given:
        message = "an environment with 'args' cannot be opened at the start: its users give them"
        yield MappingProblem("eager", "E103", message, "leave it out")
