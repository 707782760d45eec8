"""The file as a whole: declarations and steps."""

import re
from typing import Annotated, Any, Literal

from flowengine.flow.models.agent import Agent, Schema, StateSchema
from flowengine.flow.models.base import Field, KeyExcludes, KeyNeeds, Part
from flowengine.flow.models.declarations import (
    Concurrency,
    Defaults,
    EndNotice,
    Limits,
    Output,
    Rule,
    Secret,
    Signal,
    Start,
)
from flowengine.flow.models.modifiers import OnError
from flowengine.flow.models.step import ParallelStep, Step
from flowengine.flow.models.tool import Environment, Tool
from flowengine.flow.models.types import (
    Alias,
    AsSchema,
    CheckedType,
    EnvironmentName,
    Expression,
    FlowId,
    FlowPath,
    Id,
    Positive,
    PositiveDuration,
    SecretName,
    StepId,
    Template,
    Text,
    ToolId,
    constant_text,
    one_or_many,
    one_or_many_schema,
    wrong,
)
from flowengine.flow.source.diagnostics import Loc

AMOUNTS = ("tokens", "cost_usd")
COUNTED = ("tool_calls", *AMOUNTS)
BOUNDS = ("tool_calls", "wall_time", *AMOUNTS, "shared")


def _person(value: Any) -> str:
    text = constant_text(value)
    if not text.startswith(("user:", "group:")):
        wrong("a name such as 'user:ana' or 'group:finance'", value)
    return text


_PERSON = {"type": "string", "pattern": r"^(user:|group:)", "not": {"pattern": r"\$\{\{"}}
Assignees = Annotated[list[str], CheckedType(one_or_many(_person)), one_or_many_schema(_PERSON)]


def _amount(value: Any) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 < value <= MOST_DOLLARS:
        wrong(f"a number above 0, up to {MOST_DOLLARS}", value)
    return float(value)


def _percent(value: Any) -> int:
    if not isinstance(value, str) or not re.fullmatch(PERCENT, value):
        wrong("a percentage from 1% to 99%", value)
    return int(value.removesuffix("%"))


MOST_DOLLARS = 1_000_000
PERCENT = r"[1-9][0-9]?%"
Amount = Annotated[
    float,
    CheckedType(_amount),
    AsSchema({"type": "number", "exclusiveMinimum": 0, "maximum": MOST_DOLLARS}),
]
Percent = Annotated[
    int, CheckedType(_percent), AsSchema({"type": "string", "pattern": f"^{PERCENT}$"})
]


class SharedBudget(Part):
    """A budget that all executions with the same key use together."""

    NOUN = "an entry of 'shared'"
    RULES = (KeyNeeds(None, COUNTED, "add 'cost_usd: 5' or 'tokens: 200000'"),)

    key: Template = Field(examples=["user:${{ inputs.user }}"])
    """The name of the budget, such as that of a user or a team."""
    every: Literal["day", "month"] | None = Field(default=None, examples=["day"])
    """The period, in UTC, that the limits apply to. Default: all time."""
    tool_calls: Positive | None = Field(default=None, examples=[300])
    """The maximum number of tool calls and program runs. Each attempt counts."""
    tokens: Positive | None = Field(default=None, examples=[200000])
    """The maximum number of tokens of all models together."""
    cost_usd: Amount | None = Field(default=None, examples=[5])
    """The maximum cost of all models together, in US dollars."""


class Budget(Part):
    """Limits on the total usage of all calls of a flow, including those of its subflows."""

    NOUN = "'budget'"
    RULES = (
        KeyNeeds(None, BOUNDS, "add 'tool_calls: 100' or 'wall_time: 1h'"),
        KeyNeeds("fallback_at", AMOUNTS),
        KeyNeeds("assignees", ("then",), "add 'then: ask', or leave them out"),
        KeyExcludes("assignees", "then", "write 'then: ask', or leave them out", ("stop",)),
    )

    tool_calls: Positive | None = Field(default=None, examples=[300])
    """The maximum number of tool calls and program runs. Each attempt counts."""
    wall_time: PositiveDuration | None = Field(default=None, examples=["2h"])
    """The maximum running time, without waits."""
    tokens: Positive | None = Field(default=None, examples=[200000])
    """The maximum number of tokens of all models together."""
    cost_usd: Amount | None = Field(default=None, examples=[5])
    """The maximum cost of all models together, in US dollars."""
    fallback_at: Percent | None = Field(default=None, examples=["80%"])
    """The fraction of `tokens` or `cost_usd` from which cheaper models are used."""
    then: Literal["stop", "ask"] = Field(default="stop", examples=["ask"])
    """The effect of an exhausted budget: the error `BudgetExceeded`, or a request to raise it."""
    assignees: Assignees | None = Field(default=None, examples=[["group:finance"]])
    """Users and groups that may raise it. Default: anyone."""
    shared: list[SharedBudget] = Field(
        default=[],
        min_length=1,
        examples=[[{"key": "user:${{ inputs.user }}", "every": "day", "cost_usd": 5}]],
    )
    """Budgets that the execution uses together with others."""


Inputs = Annotated[
    dict[Id, Schema],
    Field(default={}, examples=[{"name": {"type": "string", "default": "world"}}]),
]
"""The arguments, each a JSON Schema."""
Outputs = Annotated[
    dict[Id, Output],
    Field(default={}, examples=[{"message": "${{ steps.greet.output }}"}]),
]
"""The results."""
StateKeys = Annotated[
    dict[Id, StateSchema],
    Field(default={}, examples=[{"notes": {"type": "array", "default": [], "reducer": "append"}}]),
]
"""Values that live as long as the run of the flow, each with a JSON Schema."""
Bounds = Annotated[
    Limits,
    Field(default=Limits(), examples=[{"steps": 500}]),
]
"""Limits of an execution."""
BudgetOrNone = Annotated[
    Budget | None,
    Field(default=None, examples=[{"tool_calls": 300, "wall_time": "2h", "then": "ask"}]),
]
"""Limits on the total usage of all calls, including those of subflows."""
Handlers = Annotated[
    OnError,
    Field(default="fail", examples=["compensate"]),
]
"""Handlers for errors that no step handled."""
Cleanup = Annotated[
    list[Step],
    Field(
        default=[],
        key="finally",
        examples=[[{"id": "tidy", "call": "std.print", "with": {"text": "done"}}]],
    ),
]
"""Steps that run when the flow is over, for every outcome."""


class FlowBody(Part):
    """A flow in addition to that of the file, which steps can run."""

    NOUN = "a flow"

    inputs: Inputs
    outputs: Outputs
    state: StateKeys
    limits: Bounds
    budget: BudgetOrNone
    steps: list[Step] = Field(min_length=1, examples=[[{"id": "greet", "output": "Hello!"}]])
    """The graph."""
    on_error: Handlers
    finally_: Cleanup


class GeneratedBody(FlowBody):
    """A flow that was generated and is in no file."""

    NOUN = "a generated flow"

    outcome: Expression | None = Field(
        default=None, examples=["${{ state.done ? 'resolved' : 'not_resolved' }}"]
    )
    """The outcome of the step that runs the flow, as text."""
    signals: dict[Id, Signal] = Field(default={}, examples=[{"_pause": {}}])
    """Signals besides those of its file."""
    callees: dict[StepId, list[ParallelStep]] = Field(default={}, examples=[{"first": []}])
    """Step → the steps that it calls."""


LIBRARY = ("agents", "tools", "environments", "flows")
"""The sections of a library, a file without `steps`."""


class FlowModel(Part):
    """A flow file, with its short forms expanded."""

    NOUN = "a flow"
    NAMED = "id"
    RULES = (
        KeyNeeds(None, ("steps", *LIBRARY), "add 'steps'"),
        KeyNeeds("budget", ("steps",), "give it to a flow, here or where this is imported"),
    )

    flowengine: Literal[1] = Field(examples=[1])
    """The version of the language."""
    id: FlowId = Field(examples=["expense"])
    """The flow's name."""
    version: Text = Field(default="0", examples=["3"])
    """A version label, as free text."""
    title: Template | None = Field(
        default=None, examples=["Expense reimbursement", "Invoice ${{ inputs.number }}"]
    )
    """The text shown to users. Its expressions can read `inputs` and `execution`. They distinguish
    executions in lists."""
    description: Text | None = Field(default=None, examples=["Books travel expenses."])
    """The purpose of the flow."""
    imports: dict[Alias, FlowPath] = Field(default={}, examples=[{"lib": "./lib.yaml"}])
    """Other flow files, whose declarations are used as `alias.name`."""
    inputs: Inputs
    outputs: Outputs
    state: StateKeys
    secrets: dict[SecretName, Secret] = Field(
        default={}, examples=[{"API_KEY": {"env": "API_KEY"}}]
    )
    """The sources of secret values."""
    signals: dict[Id, Signal] = Field(
        default={}, examples=[{"payment": {"key": "${{ inputs.order }}"}}]
    )
    """Signals that steps can wait for."""
    agents: dict[StepId, Agent] = Field(
        default={},
        examples=[{"researcher": {"instructions": "Find sources.", "tools": ["search"]}}],
    )
    """Models with instructions and tools, which steps run."""
    tools: dict[ToolId, Tool] = Field(
        default={}, examples=[{"search": {"python": "research:search"}}]
    )
    """Tools that steps and agents can call."""
    rules: list[Rule] = Field(
        default=[], examples=[[{"deny": "shell:*"}, {"allow": "github.get_*"}, {"ask": "github.*"}]]
    )
    """Rules that allow or deny tool calls, or require approval."""
    environments: dict[EnvironmentName, Environment] = Field(
        default={}, examples=[{"sandbox": {"kind": "python"}}]
    )
    """Managed live resources that steps and tools use."""
    defaults: Defaults = Field(default=Defaults(), examples=[{"retry": 5}])
    """Defaults for steps that do not set them."""
    flows: dict[FlowId, FlowBody] = Field(
        default={}, examples=[{"child": {"steps": [{"id": "greet", "output": "Hello!"}]}}]
    )
    """Further flows, which steps can run by name."""
    concurrency: Concurrency | None = Field(
        default=None, examples=[{"key": "${{ inputs.repo }}", "max": 1}]
    )
    """Limits how many executions are open at once."""
    notify: list[EndNotice] = Field(
        default=[], examples=[["hook", {"tool": "mail", "outcome": ["failed"]}]]
    )
    """Tools that are called when an execution of this flow has ended."""
    start: list[Start] = Field(
        default=[], examples=[[{"signal": "placed", "with": {"order": "${{ signal.key }}"}}]]
    )
    """Signals that start executions."""
    limits: Bounds
    budget: BudgetOrNone
    steps: list[Step] = Field(
        default=[], min_length=1, examples=[[{"id": "greet", "output": "Hello!"}]]
    )
    """The graph. A file without steps is a library."""
    on_error: Handlers
    finally_: Cleanup

    @property
    def unread(self) -> frozenset[Loc]:
        """Places whose content was left out because of errors that are already reported.

        Empty for a valid file. Names declared there exist, but their declarations are unknown.
        Checks of the graph are not meaningful while a step is among them.
        """
        return self._unread

    def left_out(self, loc: Loc) -> bool:
        """Return whether something at a place, or inside it, was left out because of an error."""
        return loc in self._around_unread
