"""The file as a whole: declarations and steps."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr

from flowengine.flow.models.agent import Agent
from flowengine.flow.models.base import MappingProblem, Part
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
        description="Values that live as long as the run of the flow, each with a JSON Schema.",
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
        default_factory=list,
        alias="finally",
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
    title: Text | None = Field(
        default=None, description="The text shown to users.", examples=["Expense reimbursement"]
    )
    description: Text | None = Field(
        default=None, description="The purpose of the flow.", examples=["Books travel expenses."]
    )
    imports: dict[Alias, FlowPath] = Field(
        default_factory=dict,
        description="Other flow files, whose declarations are used as `alias.name`.",
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
        description="Signals that steps can wait for.",
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
        description="Rules that allow or deny tool calls, or require approval.",
        examples=[[{"deny": "shell:*"}, {"allow": "github.get_*"}, {"ask": "github.*"}]],
    )
    environments: dict[EnvironmentName, Environment] = Field(
        default_factory=dict,
        description="Managed live resources that steps and tools use.",
        examples=[{"sandbox": {"kind": "python"}}],
    )
    defaults: Defaults = Field(
        default_factory=Defaults,
        description="Defaults for steps that do not set them.",
        examples=[{"retry": 5}],
    )
    flows: dict[FlowId, FlowBody] = Field(
        default_factory=dict,
        description="Further flows, which steps can run by name.",
        examples=[{"child": {"steps": [{"id": "greet", "output": "Hello!"}]}}],
    )
    concurrency: Concurrency | None = Field(
        default=None,
        description="Limits how many executions are open at once.",
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


FlowBody.model_rebuild()
GeneratedBody.model_rebuild()
FlowModel.model_rebuild()
