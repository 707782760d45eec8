"""The file as a whole: declarations and steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import ConfigDict, Field, PrivateAttr

from flowengine.flow.models.actions import AskBeforeCall
from flowengine.flow.models.agent import Agent, ModelName
from flowengine.flow.models.base import OneOf, Part, Problem
from flowengine.flow.models.budget import Budget
from flowengine.flow.models.environment import Environment
from flowengine.flow.models.kinds import configuration, session_of
from flowengine.flow.models.modifiers import OnError, Retry
from flowengine.flow.models.policy import Policy
from flowengine.flow.models.schemas import Schema, StateSchema
from flowengine.flow.models.step import Pluggable, Step
from flowengine.flow.models.types import (
    Alias,
    Depth,
    Duration,
    DurationOrExpression,
    DurationOrNone,
    Effect,
    EnvironmentName,
    EnvironmentUse,
    EnvironmentUses,
    Expression,
    FlowId,
    FlowName,
    FlowPath,
    Id,
    OnCrash,
    Positive,
    PositiveOrExpression,
    SecretName,
    SignalName,
    Size,
    StepId,
    Template,
    Text,
    ToolId,
    Value,
)
from flowengine.flow.source.diagnostics import Loc


class Output(Part):
    """A typed result of the execution; keys besides `value` are its JSON Schema."""

    model_config = ConfigDict(extra="allow")

    NOUN = "an output"
    MAIN = "value"

    value: Value = Field(
        description="Evaluated when the execution succeeds.",
        examples=["${{ steps.greet.output }}"],
    )

    @property
    def json_schema(self) -> dict[str, Any]:
        """The JSON Schema that the value has to fit; empty if there is none."""
        return dict(self.__pydantic_extra__ or {})


class Secret(Part):
    """Where the value of a secret comes from; never the value."""

    NOUN = "a secret"
    RULES = (OneOf(("env", "file", "keyring", "vault")),)

    env: Text | None = Field(
        default=None, description="A variable of the process.", examples=["API_KEY"]
    )
    file: Text | None = Field(
        default=None, description="A file that holds it.", examples=["/run/secrets/cert"]
    )
    keyring: Text | None = Field(
        default=None, description="An entry of the system's keyring.", examples=["app/db"]
    )
    vault: Text | None = Field(
        default=None, description="An entry of a vault.", examples=["kv/app#token"]
    )
    in_files: Literal["mask"] | None = Field(
        default=None,
        description="Files that are kept and hold it are masked; by default they are refused.",
        examples=["mask"],
    )


class Signal(Part):
    """A named message that steps wait for."""

    NOUN = "a signal"

    key: Template | None = Field(
        default=None,
        description="The text by which this flow's waits are found.",
        examples=["${{ inputs.order }}"],
    )
    data: Schema | None = Field(
        default=None,
        description="JSON Schema of the message.",
        examples=[{"type": "object", "properties": {"amount": {"type": "number"}}}],
    )


class Server(NamedTuple):
    """A tool that is a server with tools of its own, in the session that an environment is."""

    kind: str
    """The step kind that calls its tools."""
    session: str
    """The kind of the environment."""
    config: dict[str, Any]
    """The configuration of the environment."""
    in_: dict[str, Any] | None
    """The declared environment to use instead, with its arguments."""
    include: list[str] | None
    exclude: list[str]

    @classmethod
    def of(cls, kind: str, given: Any) -> Server | None:
        """Return what a step kind's configuration says of a server; None: it is none.

        Args:
            kind: The step kind.
            given: What stands behind its key, in long form.
        """
        session = session_of(kind)
        if session is None or not isinstance(given, dict):
            return None
        keys = [key for key in configuration(kind).get("properties", given) if key in given]
        config = {key: given[key] for key in keys if key not in {"in", "include", "exclude"}}
        place = given.get("in")
        in_ = {place: {}} if isinstance(place, str) else place
        return cls(kind, session, config, in_, given.get("include"), given.get("exclude", []))


class ToolLimits(Part):
    """Bounds of each call of a tool."""

    NOUN = "'limits' of a tool"

    output: Size | None = Field(
        default=None,
        description="How large a result may be. A larger one is kept as a file: an agent is shown "
        "its beginning and end, a step fails.",
        examples=["64KiB"],
    )


class Tool(Pluggable):
    """Something that steps can call."""

    NOUN = "a tool"
    PLACE = "tool"
    OWN_ACTIONS = ("flow",)

    flow: FlowName | None = Field(
        default=None, description="Runs a flow; its inputs are the arguments.", examples=["triage"]
    )
    description: Text | None = Field(
        default=None, description="What it does; derived where it can be.", examples=["Search"]
    )
    args: Schema | None = Field(
        default=None,
        description="JSON Schema of the arguments; derived where it can be.",
        examples=[{"type": "object", "properties": {"q": {"type": "string"}}}],
    )
    returns: Schema | None = Field(
        default=None,
        description="JSON Schema of the result; derived where it can be.",
        examples=[{"type": "string"}],
    )
    bind: dict[str, Value] = Field(
        default_factory=dict,
        description="Arguments that the flow fixes, including secrets; callers do not see them.",
        examples=[{"key": "${{ secrets.KEY }}"}],
    )
    effect: Effect | None = Field(
        default=None, description="What may be repeated.", examples=["idempotent"]
    )
    idempotency_key: Template | None = Field(
        default=None,
        description="Under which key it is repeated; from execution and address.",
        examples=["${{ args.order }}"],
    )
    approval: AskBeforeCall | None = Field(
        default=None,
        description="Whether people are asked before it is called. Default: `none`.",
        examples=["ask", {"when": "${{ args.amount > 100 }}", "assignees": ["group:finance"]}],
    )
    environments: EnvironmentUses = Field(
        default=None,
        description="Environments that it gets, by the names it knows them by.",
        examples=[["sandbox"], {"db": "orders"}],
    )
    timeout: Duration | None = Field(
        default=None, description="The time limit of one attempt.", examples=["30s"]
    )
    retry: Retry | None = Field(default=None, description="Tries again on errors.", examples=[3])
    preview: Text | None = Field(
        default=None,
        description="A Python function, `module:function`, that takes the arguments as a dict and "
        "says what a call would do, for people who are asked about it.",
        examples=["changes:diff"],
    )
    limits: ToolLimits | None = Field(
        default=None, description="Bounds of each call.", examples=[{"output": "64KiB"}]
    )
    parallel: bool = Field(
        default=False,
        description="Whether an agent's call of it may run beside others of the same reply.",
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


class Defaults(Part):
    """Defaults for steps that do not say otherwise."""

    NOUN = "'defaults'"

    model: ModelName | None = Field(
        default=None, description="The model of agents.", examples=["openai/gpt-4o"]
    )
    in_: EnvironmentUse = Field(
        default=None, alias="in", description="The environment of `run`.", examples=["host"]
    )
    map_concurrency: PositiveOrExpression | None = Field(
        default=None, description="How many items of a map run at once; 8.", examples=[4]
    )
    effect: Effect | None = Field(
        default=None, description="Instead of the default by action.", examples=["idempotent"]
    )
    on_crash: OnCrash | None = Field(
        default=None, description="What happens to uncertain steps; `ask`.", examples=["retry"]
    )
    retry: Retry | None = Field(
        default=None,
        description="For actions that call out, where the effect is not `once`.",
        examples=[{"attempts": 5}],
    )
    timeout: DurationOrExpression | None = Field(
        default=None, description="For actions that call out.", examples=["1m"]
    )


class Concurrency(Part):
    """How many executions of the flow there are at once."""

    NOUN = "'concurrency'"

    key: Template | None = Field(
        default=None,
        description="Which of them count together; all, if it is absent.",
        examples=["${{ inputs.repo }}"],
    )
    max: Positive = Field(
        default=1, description="How many may be open, waiting ones included.", examples=[3]
    )
    then: Literal["queue", "reject", "cancel"] = Field(
        default="queue",
        description="What happens to one more: it waits, is refused, or the oldest is cancelled.",
        examples=["reject"],
    )


class Start(Part):
    """A signal that begins an execution where none is open that takes it."""

    NOUN = "an entry of 'start'"
    RULES = (OneOf(("signal", "schedule")),)

    signal: SignalName | None = Field(
        default=None,
        description="A message starts an execution if none with its key is open.",
        examples=["placed"],
    )
    with_: dict[Id, Value] = Field(
        default_factory=dict,
        alias="with",
        description="The inputs; sees `signal`, `now` and `execution`.",
        examples=[{"order": "${{ signal.key }}"}],
    )


class Limits(Part):
    """Bounds of an execution."""

    NOUN = "'limits'"

    activations: Positive = Field(
        default=1000,
        description="Entries into one step of one scope without any wait in between.",
        examples=[5000],
    )
    steps: Positive = Field(
        default=10000,
        description="Activations in total, not counting those in map items.",
        examples=[500],
    )
    duration: DurationOrNone = Field(
        default="none", description="How long it may take.", examples=["30d"]
    )
    depth: Depth = Field(default=8, description="How deeply subflows may be nested.", examples=[3])
    finally_: Duration = Field(
        default="5m", alias="finally", description="How long `finally` may take.", examples=["1m"]
    )
    idle: Duration = Field(
        default="0s", description="How long triggers keep it open.", examples=["1h"]
    )


Inputs = Annotated[
    dict[Id, Schema],
    Field(
        default_factory=dict,
        description="The arguments, each a JSON Schema.",
        examples=[{"name": {"type": "string", "default": "world"}}],
    ),
]
Outputs = Annotated[
    dict[Id, Output],
    Field(
        default_factory=dict,
        description="The results.",
        examples=[{"message": "${{ steps.greet.output }}"}],
    ),
]
StateKeys = Annotated[
    dict[Id, StateSchema],
    Field(
        default_factory=dict,
        description="Values that live as long as the flow runs, each a JSON Schema.",
        examples=[{"notes": {"type": "array", "default": [], "reducer": "append"}}],
    ),
]
Bounds = Annotated[
    Limits,
    Field(default_factory=Limits, description="Limits of an execution.", examples=[{"steps": 500}]),
]
BudgetOrNone = Annotated[
    Budget | None,
    Field(
        default=None,
        description="What all its calls together may use, including what it runs.",
        examples=[{"tool_calls": 300, "wall_time": "2h", "then": "ask"}],
    ),
]
Handlers = Annotated[
    OnError,
    Field(
        default="fail",
        description="What to do when the flow failed.",
        examples=["compensate"],
    ),
]
Cleanup = Annotated[
    list[Step],
    Field(
        default_factory=list,
        alias="finally",
        description="Steps that run however the flow ended.",
        examples=[[{"id": "tidy", "call": "std.print", "with": {"text": "done"}}]],
    ),
]


class FlowBody(Part):
    """A flow beside that of the file, for steps to run."""

    NOUN = "a flow"

    inputs: Inputs
    outputs: Outputs
    state: StateKeys
    limits: Bounds
    budget: BudgetOrNone
    steps: list[Step] = Field(
        min_length=1, description="The graph.", examples=[[{"id": "greet", "output": "Hello!"}]]
    )
    on_error: Handlers
    finally_: Cleanup


class GeneratedBody(FlowBody):
    """A flow that no file has: it was generated."""

    NOUN = "a generated flow"

    outcome: Expression | None = Field(
        default=None,
        description="How it has ended, as text: the outcome of the step that runs it.",
        examples=["${{ state.done ? 'resolved' : 'not_resolved' }}"],
    )


LIBRARY = ("agents", "tools", "environments", "flows")
"""What a file without `steps` has for others."""


class FlowModel(Part):
    """A flow file, with its short forms written out."""

    NOUN = "a flow"
    NAMED = "id"
    RULES_AS_SCHEMA = (
        {"anyOf": [{"required": [key]} for key in ("steps", *LIBRARY)]},
        {"dependentRequired": {"budget": ["steps"]}},
    )

    flowengine: Literal[1] = Field(description="The version of the language.", examples=[1])
    id: FlowId = Field(description="The flow's name.", examples=["expense"])
    version: Text = Field(
        default="0", description="The author's version; free text.", examples=["3"]
    )
    title: Text | None = Field(
        default=None, description="What people see.", examples=["Expense reimbursement"]
    )
    description: Text | None = Field(
        default=None, description="What the flow is for.", examples=["Books what people spent."]
    )
    imports: dict[Alias, FlowPath] = Field(
        default_factory=dict,
        description="Other files, whose tools and flows are used as `alias.name`.",
        examples=[{"lib": "./lib.yaml"}],
    )
    inputs: Inputs
    outputs: Outputs
    state: StateKeys
    secrets: dict[SecretName, Secret] = Field(
        default_factory=dict,
        description="Where secret values come from.",
        examples=[{"API_KEY": {"env": "API_KEY"}}],
    )
    signals: dict[Id, Signal] = Field(
        default_factory=dict,
        description="Messages that steps wait for.",
        examples=[{"payment": {"key": "${{ inputs.order }}"}}],
    )
    agents: dict[StepId, Agent] = Field(
        default_factory=dict,
        description="Models with instructions and tools, which steps run.",
        examples=[{"researcher": {"instructions": "Find sources.", "tools": ["search"]}}],
    )
    tools: dict[ToolId, Tool] = Field(
        default_factory=dict,
        description="What steps can call.",
        examples=[{"search": {"python": "research:search"}}],
    )
    policies: list[Policy] = Field(
        default_factory=list,
        description="Rules that allow, ask about or deny calls of tools.",
        examples=[[{"deny": "shell:*"}, {"allow": "github.get_*"}, {"ask": "github.*"}]],
    )
    environments: dict[EnvironmentName, Environment] = Field(
        default_factory=dict,
        description="Managed live resources that steps and tools use.",
        examples=[{"sandbox": {"kind": "python"}}],
    )
    defaults: Defaults = Field(
        default_factory=Defaults,
        description="Defaults for steps that do not say otherwise.",
        examples=[{"retry": 5}],
    )
    flows: dict[FlowId, FlowBody] = Field(
        default_factory=dict,
        description="Further flows, which steps run by their names.",
        examples=[{"child": {"steps": [{"id": "greet", "output": "Hello!"}]}}],
    )
    concurrency: Concurrency | None = Field(
        default=None,
        description="Bounds how many executions are open at once.",
        examples=[{"key": "${{ inputs.repo }}", "max": 1}],
    )
    start: list[Start] = Field(
        default_factory=list,
        description="What starts executions besides people.",
        examples=[[{"signal": "placed", "with": {"order": "${{ signal.key }}"}}]],
    )
    limits: Bounds
    budget: BudgetOrNone
    steps: list[Step] = Field(
        default_factory=list,
        min_length=1,
        description="The graph; a file without is a library.",
        examples=[[{"id": "greet", "output": "Hello!"}]],
    )
    on_error: Handlers
    finally_: Cleanup

    _unread: frozenset[Loc] = PrivateAttr(default=frozenset())

    @classmethod
    def problems(cls, given: Mapping[str, Any]) -> Iterator[Problem]:
        """Add that a file has steps, or something for other files."""
        yield from super().problems(given)
        if not given.keys() & {"steps", *LIBRARY}:
            hint = "add 'steps'"
            yield Problem(None, "E104", "a flow needs 'steps'", hint)
        elif "budget" in given and "steps" not in given:
            message = "a library has no flow of its own that a budget could bound"
            hint = "give it to the entries of 'flows', or to the flows that import this"
            yield Problem("budget", "E103", message, hint)

    @property
    def unread(self) -> frozenset[Loc]:
        """Places whose content was left out because it has errors, reported already.

        Empty for a valid file. What is named there exists, but nothing is known of it; checks of
        the graph make no sense while a step is among them.
        """
        return self._unread

    def left_out(self, loc: Loc) -> bool:
        """Say whether something at a place, or inside it, was left out as wrong."""
        return any(one[: len(loc)] == loc for one in self._unread)


FlowBody.model_rebuild()
GeneratedBody.model_rebuild()
FlowModel.model_rebuild()
