"""What a flow declares beside its steps: outputs, secrets, signals, defaults, starts, limits."""

from typing import Any, Literal

from pydantic import ConfigDict, Field

from flowengine.flow.models.agent import ModelName
from flowengine.flow.models.base import OneOf, Part
from flowengine.flow.models.modifiers import Retry
from flowengine.flow.models.schemas import Schema
from flowengine.flow.models.types import (
    Depth,
    Duration,
    DurationOrExpression,
    DurationOrNone,
    Effect,
    EnvironmentUse,
    Id,
    OnCrash,
    Positive,
    PositiveOrExpression,
    SignalName,
    Template,
    Text,
    Value,
)


class Output(Part):
    """A typed result of the execution. Keys besides `value` are its JSON Schema."""

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
    """The source of a secret's value, never the value."""

    NOUN = "a secret"
    RULES = (OneOf(("env", "file", "keyring", "vault")),)

    env: Text | None = Field(
        default=None, description="An environment variable of the process.", examples=["API_KEY"]
    )
    file: Text | None = Field(
        default=None, description="A file that contains it.", examples=["/run/secrets/cert"]
    )
    keyring: Text | None = Field(
        default=None, description="An entry of the system's keyring.", examples=["app/db"]
    )
    vault: Text | None = Field(
        default=None, description="An entry of a vault.", examples=["kv/app#token"]
    )
    in_files: Literal["mask"] | None = Field(
        default=None,
        description="Mask the secret in kept files that contain it. By default, such files are "
        "refused.",
        examples=["mask"],
    )


class Signal(Part):
    """A named message that steps wait for."""

    NOUN = "a signal"

    key: Template | None = Field(
        default=None,
        description="The key by which messages find this flow's waits.",
        examples=["${{ inputs.order }}"],
    )
    data: Schema | None = Field(
        default=None,
        description="JSON Schema of the message.",
        examples=[{"type": "object", "properties": {"amount": {"type": "number"}}}],
    )


class Defaults(Part):
    """Defaults for steps without these keys."""

    NOUN = "'defaults'"

    model: ModelName | None = Field(
        default=None, description="The model of agents.", examples=["openai/gpt-4o"]
    )
    in_: EnvironmentUse = Field(
        default=None, alias="in", description="The environment of `run`.", examples=["host"]
    )
    map_concurrency: PositiveOrExpression | None = Field(
        default=None, description="How many items of a map run at once. Default: 8.", examples=[4]
    )
    effect: Effect | None = Field(
        default=None, description="Replaces the default of each action.", examples=["idempotent"]
    )
    on_crash: OnCrash | None = Field(
        default=None,
        description="How uncertain steps are handled. Default: `ask`.",
        examples=["retry"],
    )
    retry: Retry | None = Field(
        default=None,
        description="For actions that make calls, unless the effect is `once`.",
        examples=[{"attempts": 5}],
    )
    timeout: DurationOrExpression | None = Field(
        default=None, description="For actions that make calls.", examples=["1m"]
    )


class Concurrency(Part):
    """Limits the number of open executions of the flow."""

    NOUN = "'concurrency'"

    key: Template | None = Field(
        default=None,
        description="Executions with the same key count together. Default: all.",
        examples=["${{ inputs.repo }}"],
    )
    max: Positive = Field(
        default=1,
        description="Maximum number of open executions, waiting ones included.",
        examples=[3],
    )
    then: Literal["queue", "reject", "cancel"] = Field(
        default="queue",
        description="What happens to a further one: it waits, is refused, or the oldest is "
        "cancelled.",
        examples=["reject"],
    )


class Start(Part):
    """A signal that starts an execution if no open one takes it."""

    NOUN = "an entry of 'start'"
    RULES = (OneOf(("signal", "schedule")),)

    signal: SignalName | None = Field(
        default=None,
        description="A message of this signal starts an execution if none with its key is open.",
        examples=["placed"],
    )
    with_: dict[Id, Value] = Field(
        default_factory=dict,
        alias="with",
        description="The inputs. Expressions can use `signal`, `now` and `execution`.",
        examples=[{"order": "${{ signal.key }}"}],
    )


class Limits(Part):
    """Limits of an execution."""

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
        default="none", description="Maximum duration.", examples=["30d"]
    )
    depth: Depth = Field(default=8, description="Maximum nesting depth of subflows.", examples=[3])
    finally_: Duration = Field(
        default="5m", alias="finally", description="Maximum duration of `finally`.", examples=["1m"]
    )
    idle: Duration = Field(
        default="0s",
        description="How long triggers keep the execution open without activity.",
        examples=["1h"],
    )
