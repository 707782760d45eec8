"""The file as a whole: declarations and steps."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr

from flowengine.flow.models.agent import Agent
from flowengine.flow.models.base import Part, Problem
from flowengine.flow.models.budget import Budget
from flowengine.flow.models.declarations import (
    Concurrency,
    Defaults,
    Limits,
    Output,
    Secret,
    Signal,
    Start,
)
from flowengine.flow.models.environment import Environment
from flowengine.flow.models.modifiers import OnError
from flowengine.flow.models.policy import Policy
from flowengine.flow.models.schemas import Schema, StateSchema
from flowengine.flow.models.step import Step
from flowengine.flow.models.tool import Tool
from flowengine.flow.models.types import (
    Alias,
    EnvironmentName,
    Expression,
    FlowId,
    FlowPath,
    Id,
    SecretName,
    StepId,
    Text,
    ToolId,
)
from flowengine.flow.source.diagnostics import Loc

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
        description="Variables of the flow, each a JSON Schema.",
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
        description="The budget of all its calls, including those of its subflows.",
        examples=[{"tool_calls": 300, "wall_time": "2h", "then": "ask"}],
    ),
]
Handlers = Annotated[
    OnError,
    Field(
        default="fail",
        description="Handlers for a failed flow.",
        examples=["compensate"],
    ),
]
Cleanup = Annotated[
    list[Step],
    Field(
        default_factory=list,
        alias="finally",
        description="Steps that always run when the flow has ended.",
        examples=[[{"id": "tidy", "call": "std.print", "with": {"text": "done"}}]],
    ),
]


class FlowBody(Part):
    """A further flow of the file, which steps can run."""

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
        default="0", description="The author's version, as free text.", examples=["3"]
    )
    title: Text | None = Field(
        default=None, description="The display name.", examples=["Expense reimbursement"]
    )
    description: Text | None = Field(
        default=None, description="The purpose of the flow.", examples=["Books what people spent."]
    )
    imports: dict[Alias, FlowPath] = Field(
        default_factory=dict,
        description="Other files, whose tools, flows and agents are used as `alias.name`.",
        examples=[{"lib": "./lib.yaml"}],
    )
    inputs: Inputs
    outputs: Outputs
    state: StateKeys
    secrets: dict[SecretName, Secret] = Field(
        default_factory=dict,
        description="The sources of secret values.",
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
        description="Tools that steps and agents can call.",
        examples=[{"search": {"python": "research:search"}}],
    )
    policies: list[Policy] = Field(
        default_factory=list,
        description="Rules that allow, deny or require an approval for tool calls.",
        examples=[[{"deny": "shell:*"}, {"allow": "github.get_*"}, {"ask": "github.*"}]],
    )
    environments: dict[EnvironmentName, Environment] = Field(
        default_factory=dict,
        description="Managed live resources that steps and tools use.",
        examples=[{"sandbox": {"kind": "python"}}],
    )
    defaults: Defaults = Field(
        default_factory=Defaults,
        description="Defaults for steps without these keys.",
        examples=[{"retry": 5}],
    )
    flows: dict[FlowId, FlowBody] = Field(
        default_factory=dict,
        description="Further flows, which steps run by name.",
        examples=[{"child": {"steps": [{"id": "greet", "output": "Hello!"}]}}],
    )
    concurrency: Concurrency | None = Field(
        default=None,
        description="Limits the number of open executions.",
        examples=[{"key": "${{ inputs.repo }}", "max": 1}],
    )
    start: list[Start] = Field(
        default_factory=list,
        description="Signals that start executions.",
        examples=[[{"signal": "placed", "with": {"order": "${{ signal.key }}"}}]],
    )
    limits: Bounds
    budget: BudgetOrNone
    steps: list[Step] = Field(
        default_factory=list,
        min_length=1,
        description="The graph. A file without steps is a library.",
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
