"""The file as a whole: declarations and steps."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from flowengine.flow.models.agent import Agent, Schema, StateSchema
from flowengine.flow.models.base import Field, MappingProblem, Part, listed
from flowengine.flow.models.declarations import (
    Concurrency,
    Defaults,
    EndNotice,
    Limits,
    Output,
    Policy,
    Secret,
    Signal,
    Start,
)
from flowengine.flow.models.modifiers import OnError
from flowengine.flow.models.step import Step
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
Assignees = Annotated[
    list[str],
    CheckedType(one_or_many(_person)),
    AsSchema({"anyOf": [{"type": "array", "items": _PERSON, "minItems": 1}, _PERSON]}),
]


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
    RULES_AS_SCHEMA = ({"anyOf": [{"required": [key]} for key in COUNTED]},)

    key: Template = Field(
        description="The name of the budget, such as that of a user or a team.",
        examples=["user:${{ inputs.user }}"],
    )
    period: Literal["day", "month"] | None = Field(
        default=None,
        description="The period of time, in UTC, that the limits apply to. Default: all time.",
        examples=["day"],
    )
    tool_calls: Positive | None = Field(
        default=None,
        description="The maximum number of tool calls and program runs. Each attempt counts.",
        examples=[300],
    )
    tokens: Positive | None = Field(
        default=None,
        description="The maximum number of tokens of all models together.",
        examples=[200000],
    )
    cost_usd: Amount | None = Field(
        default=None,
        description="The maximum cost of all models together, in US dollars.",
        examples=[5],
    )

    @classmethod
    def problems(cls, given: Mapping[str, Any]) -> Iterator[MappingProblem]:
        """Require that a shared budget limits something."""
        yield from super().problems(given)
        if not given.keys() & set(COUNTED):
            message = f"a shared budget needs {listed(COUNTED)}"
            yield MappingProblem(None, "E104", message, "add 'cost_usd: 5' or 'tokens: 200000'")


class Budget(Part):
    """Limits on the total usage of all calls of a flow, including those of its subflows."""

    NOUN = "'budget'"
    RULES_AS_SCHEMA = (
        {"anyOf": [{"required": [key]} for key in BOUNDS]},
        {
            "if": {"required": ["assignees"]},
            "then": {"required": ["then"], "properties": {"then": {"const": "ask"}}},
        },
        {
            "if": {"required": ["fallback_at"]},
            "then": {"anyOf": [{"required": [key]} for key in AMOUNTS]},
        },
    )

    tool_calls: Positive | None = Field(
        default=None,
        description="The maximum number of tool calls and program runs. Each attempt counts.",
        examples=[300],
    )
    wall_time: PositiveDuration | None = Field(
        default=None, description="The maximum running time, without waits.", examples=["2h"]
    )
    tokens: Positive | None = Field(
        default=None,
        description="The maximum number of tokens of all models together.",
        examples=[200000],
    )
    cost_usd: Amount | None = Field(
        default=None,
        description="The maximum cost of all models together, in US dollars.",
        examples=[5],
    )
    fallback_at: Percent | None = Field(
        default=None,
        description="The fraction of `tokens` or `cost_usd` from which cheaper models are used.",
        examples=["80%"],
    )
    then: Literal["stop", "ask"] = Field(
        default="stop",
        description="The effect of an exhausted budget: the error `BudgetExceeded`, or a "
        "request to raise it.",
        examples=["ask"],
    )
    assignees: Assignees | None = Field(
        default=None,
        description="Users and groups that may raise it. Default: anyone.",
        examples=[["group:finance"]],
    )
    shared: list[SharedBudget] = Field(
        default=[],
        min_length=1,
        description="Budgets that the execution uses together with others.",
        examples=[[{"key": "user:${{ inputs.user }}", "period": "day", "cost_usd": 5}]],
    )

    @classmethod
    def problems(cls, given: Mapping[str, Any]) -> Iterator[MappingProblem]:
        """Require that a budget limits something, and that only `then: ask` has assignees."""
        yield from super().problems(given)
        if not given.keys() & set(BOUNDS):
            hint = "add 'tool_calls: 100' or 'wall_time: 1h'"
            yield MappingProblem(None, "E104", f"a budget needs {listed(BOUNDS)}", hint)
        if "fallback_at" in given and not given.keys() & set(AMOUNTS):
            message = "'fallback_at' is a part of 'tokens' or 'cost_usd'"
            yield MappingProblem("fallback_at", "E103", message, "add one of them, or leave it out")
        if "assignees" in given and given.get("then", "stop") == "stop":
            message = "'assignees' require 'then: ask' in the budget"
            yield MappingProblem("assignees", "E103", message, "add 'then: ask', or leave them out")


Inputs = Annotated[
    dict[Id, Schema],
    Field(
        default={},
        description="The arguments, each a JSON Schema.",
        examples=[{"name": {"type": "string", "default": "world"}}],
    ),
]
Outputs = Annotated[
    dict[Id, Output],
    Field(
        default={},
        description="The results.",
        examples=[{"message": "${{ steps.greet.output }}"}],
    ),
]
StateKeys = Annotated[
    dict[Id, StateSchema],
    Field(
        default={},
        description="Values that live as long as the run of the flow, each with a JSON Schema.",
        examples=[{"notes": {"type": "array", "default": [], "reducer": "append"}}],
    ),
]
Bounds = Annotated[
    Limits,
    Field(default=Limits(), description="Limits of an execution.", examples=[{"steps": 500}]),
]
BudgetOrNone = Annotated[
    Budget | None,
    Field(
        default=None,
        description="Limits on the total usage of all calls, including those of subflows.",
        examples=[{"tool_calls": 300, "wall_time": "2h", "then": "ask"}],
    ),
]
Handlers = Annotated[
    OnError,
    Field(
        default="fail",
        description="Handlers for errors that no step handled.",
        examples=["compensate"],
    ),
]
Cleanup = Annotated[
    list[Step],
    Field(
        default=[],
        key="finally",
        description="Steps that run when the flow is over, for every outcome.",
        examples=[[{"id": "tidy", "call": "std.print", "with": {"text": "done"}}]],
    ),
]


class FlowBody(Part):
    """A flow in addition to that of the file, which steps can run."""

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
    """A flow that was generated and is in no file."""

    NOUN = "a generated flow"

    outcome: Expression | None = Field(
        default=None,
        description="The outcome of the step that runs the flow, as text.",
        examples=["${{ state.done ? 'resolved' : 'not_resolved' }}"],
    )
    signals: dict[Id, Signal] = Field(
        default={}, description="Signals besides those of its file.", examples=[{"_pause": {}}]
    )


LIBRARY = ("agents", "tools", "environments", "flows")
"""The sections of a library, a file without `steps`."""


class FlowModel(Part):
    """A flow file, with its short forms expanded."""

    NOUN = "a flow"
    NAMED = "id"
    RULES_AS_SCHEMA = (
        {"anyOf": [{"required": [key]} for key in ("steps", *LIBRARY)]},
        {"dependentRequired": {"budget": ["steps"]}},
    )

    flowengine: Literal[1] = Field(description="The version of the language.", examples=[1])
    id: FlowId = Field(description="The flow's name.", examples=["expense"])
    version: Text = Field(default="0", description="A version label, as free text.", examples=["3"])
    title: Template | None = Field(
        default=None,
        description="The text shown to users. Its expressions can read `inputs` and `execution`. "
        "They distinguish executions in lists.",
        examples=["Expense reimbursement", "Invoice ${{ inputs.number }}"],
    )
    description: Text | None = Field(
        default=None, description="The purpose of the flow.", examples=["Books travel expenses."]
    )
    imports: dict[Alias, FlowPath] = Field(
        default={},
        description="Other flow files, whose declarations are used as `alias.name`.",
        examples=[{"lib": "./lib.yaml"}],
    )
    inputs: Inputs
    outputs: Outputs
    state: StateKeys
    secrets: dict[SecretName, Secret] = Field(
        default={},
        description="The sources of secret values.",
        examples=[{"API_KEY": {"env": "API_KEY"}}],
    )
    signals: dict[Id, Signal] = Field(
        default={},
        description="Signals that steps can wait for.",
        examples=[{"payment": {"key": "${{ inputs.order }}"}}],
    )
    agents: dict[StepId, Agent] = Field(
        default={},
        description="Models with instructions and tools, which steps run.",
        examples=[{"researcher": {"instructions": "Find sources.", "tools": ["search"]}}],
    )
    tools: dict[ToolId, Tool] = Field(
        default={},
        description="Tools that steps and agents can call.",
        examples=[{"search": {"python": "research:search"}}],
    )
    policies: list[Policy] = Field(
        default=[],
        description="Rules that allow or deny tool calls, or require approval.",
        examples=[[{"deny": "shell:*"}, {"allow": "github.get_*"}, {"ask": "github.*"}]],
    )
    environments: dict[EnvironmentName, Environment] = Field(
        default={},
        description="Managed live resources that steps and tools use.",
        examples=[{"sandbox": {"kind": "python"}}],
    )
    defaults: Defaults = Field(
        default=Defaults(),
        description="Defaults for steps that do not set them.",
        examples=[{"retry": 5}],
    )
    flows: dict[FlowId, FlowBody] = Field(
        default={},
        description="Further flows, which steps can run by name.",
        examples=[{"child": {"steps": [{"id": "greet", "output": "Hello!"}]}}],
    )
    concurrency: Concurrency | None = Field(
        default=None,
        description="Limits how many executions are open at once.",
        examples=[{"key": "${{ inputs.repo }}", "max": 1}],
    )
    notify: list[EndNotice] = Field(
        default=[],
        description="Tools that are called when an execution of this flow has ended.",
        examples=[["hook", {"tool": "mail", "on": ["failed"]}]],
    )
    start: list[Start] = Field(
        default=[],
        description="Signals that start executions.",
        examples=[[{"signal": "placed", "with": {"order": "${{ signal.key }}"}}]],
    )
    limits: Bounds
    budget: BudgetOrNone
    steps: list[Step] = Field(
        default=[],
        min_length=1,
        description="The graph. A file without steps is a library.",
        examples=[[{"id": "greet", "output": "Hello!"}]],
    )
    on_error: Handlers
    finally_: Cleanup

    @classmethod
    def problems(cls, given: Mapping[str, Any]) -> Iterator[MappingProblem]:
        """Require that a file has steps, or declarations for other files."""
        yield from super().problems(given)
        if not given.keys() & {"steps", *LIBRARY}:
            hint = "add 'steps'"
            yield MappingProblem(None, "E104", "a flow needs 'steps'", hint)
        elif "budget" in given and "steps" not in given:
            message = "a library has no flow that a budget could limit"
            hint = "give it to the entries of 'flows', or to the flows that import this"
            yield MappingProblem("budget", "E103", message, hint)

    @property
    def unread(self) -> frozenset[Loc]:
        """Places whose content was left out because of errors that are already reported.

        Empty for a valid file. Names declared there exist, but their declarations are unknown.
        Checks of the graph are not meaningful while a step is among them.
        """
        return self._unread

    def left_out(self, loc: Loc) -> bool:
        """Return whether something at a place, or inside it, was left out because of an error."""
        return any(one[: len(loc)] == loc for one in self._unread)
