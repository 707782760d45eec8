"""Declarations of a flow besides its steps: outputs, secrets, signals, defaults, starts, limits."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

from flowengine.flow.models.agent import ModelName, Schema
from flowengine.flow.models.base import ExclusiveKeys, Field, MappingProblem, Part
from flowengine.flow.models.modifiers import Retry
from flowengine.flow.models.types import (
    Condition,
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
    Size,
    Template,
    Text,
    ToolName,
    Value,
)


class Output(Part):
    """A typed result of the execution. Keys besides `value` are its JSON Schema."""

    OPEN = True

    NOUN = "an output"
    MAIN = "value"

    value: Value = Field(
        description="The value, evaluated when the execution succeeds.",
        examples=["${{ steps.greet.output }}"],
    )

    @property
    def json_schema(self) -> dict[str, Any]:
        """The JSON Schema of the value, empty if there is none."""
        return dict(self._more)


class Secret(Part):
    """The source of a secret's value, never the value itself."""

    NOUN = "a secret"
    RULES = (ExclusiveKeys(("env", "file", "keyring", "vault")),)

    env: Text | None = Field(
        default=None, description="An environment variable of the process.", examples=["API_KEY"]
    )
    file: Text | None = Field(
        default=None, description="A file that contains the value.", examples=["/run/secrets/cert"]
    )
    keyring: Text | None = Field(
        default=None, description="An entry of the system's keyring.", examples=["app/db"]
    )
    vault: Text | None = Field(
        default=None, description="An entry of a vault.", examples=["kv/app#token"]
    )
    in_files: Literal["mask"] | None = Field(
        default=None,
        description="Whether kept files that contain it are masked. By default they are refused.",
        examples=["mask"],
    )


class Signal(Part):
    """A named message that steps wait for."""

    NOUN = "a signal"

    key: Template | None = Field(
        default=None,
        description="The key that selects the waits of this flow.",
        examples=["${{ inputs.order }}"],
    )
    data: Schema | None = Field(
        default=None,
        description="JSON Schema of the message.",
        examples=[{"type": "object", "properties": {"amount": {"type": "number"}}}],
    )


class Defaults(Part):
    """Defaults for steps that do not set them."""

    NOUN = "'defaults'"

    model: ModelName | None = Field(
        default=None, description="The model of agents.", examples=["openai/gpt-4o"]
    )
    in_: EnvironmentUse = Field(
        default=None, key="in", description="The environment for `run`.", examples=["host"]
    )
    map_concurrency: PositiveOrExpression | None = Field(
        default=None, description="How many items of a map run at once. Default: 8.", examples=[4]
    )
    effect: Effect | None = Field(
        default=None,
        description="The effect of steps, in place of the default of their action.",
        examples=["idempotent"],
    )
    on_crash: OnCrash | None = Field(
        default=None,
        description="The treatment of uncertain steps. Default: `ask`.",
        examples=["retry"],
    )
    retry: Retry | None = Field(
        default=None,
        description="Retries of actions that make calls, where the effect is not `once`.",
        examples=[{"attempts": 5}],
    )
    timeout: DurationOrExpression | None = Field(
        default=None, description="The time limit of actions that make calls.", examples=["1m"]
    )


class Concurrency(Part):
    """The maximum number of open executions of the flow."""

    NOUN = "'concurrency'"

    key: Template | None = Field(
        default=None,
        description="The key of the executions that count together. Default: all "
        "executions of the flow.",
        examples=["${{ inputs.repo }}"],
    )
    max: Positive = Field(
        default=1, description="How many may be open at once, including waiting ones.", examples=[3]
    )
    then: Literal["queue", "reject", "cancel"] = Field(
        default="queue",
        description="The treatment of a further execution: it waits, it is refused, or "
        "the oldest one is cancelled.",
        examples=["reject"],
    )


class EndNotice(Part):
    """A tool that is called when an execution has ended."""

    NOUN = "an entry of 'notify'"
    MAIN = "tool"

    tool: ToolName = Field(
        description="The tool. It receives the argument `execution`.", examples=["hook"]
    )
    on: list[Literal["succeeded", "failed", "cancelled"]] = Field(
        default=["succeeded", "failed", "cancelled"],
        min_length=1,
        description="The outcomes that it is called for. Default: all.",
        examples=[["failed"]],
    )


class Start(Part):
    """A signal that starts an execution unless an open one receives it, or a schedule."""

    NOUN = "an entry of 'start'"
    RULES = (ExclusiveKeys(("signal", "schedule")),)
    OF_SCHEDULE: ClassVar[tuple[str, ...]] = ("timezone", "missed", "jitter")
    RULES_AS_SCHEMA = ({"dependentRequired": {key: ["schedule"] for key in OF_SCHEDULE}},)

    signal: SignalName | None = Field(
        default=None,
        description="The signal that starts an execution if none with its key is open.",
        examples=["placed"],
    )
    schedule: Text | None = Field(
        default=None,
        description="When executions start: minute, hour, day of month, month and day of week, as "
        "in cron.",
        examples=["0 9 * * 1-5"],
    )
    timezone: Text = Field(
        default="UTC", description="The time zone of the schedule.", examples=["Europe/Berlin"]
    )
    missed: Literal["once", "skip"] = Field(
        default="once",
        description="The treatment of times at which nothing could start: one execution for the "
        "last of them, or none.",
        examples=["skip"],
    )
    jitter: Duration = Field(
        default="0s",
        description="Each execution starts up to this much later, to spread the load.",
        examples=["5m"],
    )
    with_: dict[Id, Value] = Field(
        default={},
        key="with",
        description="The inputs. Expressions see `signal` (not with `schedule`), `now` and "
        "`execution`.",
        examples=[{"order": "${{ signal.key }}"}],
    )

    @classmethod
    def problems(cls, given: Mapping[str, Any]) -> Iterator[MappingProblem]:
        """Yield the errors in the combination of keys."""
        yield from super().problems(given)
        if "schedule" not in given:
            for key in given:
                if key in cls.OF_SCHEDULE:
                    yield MappingProblem(key, "E103", f"{key!r} has no meaning without 'schedule'")


class Limits(Part):
    """Limits of an execution."""

    NOUN = "'limits'"

    activations: Positive = Field(
        default=1000,
        description="Entries into one step of one scope without a wait in between.",
        examples=[5000],
    )
    steps: Positive = Field(
        default=10000,
        description="Activations, except those inside map items and `finally`, plus "
        "consecutive loop rounds that make no call and do not wait. A flow "
        "generated by a step kind is counted separately, and as one step "
        "here.",
        examples=[500],
    )
    duration: DurationOrNone = Field(
        default="none",
        description="The maximum duration of the execution, including waits.",
        examples=["30d"],
    )
    depth: Depth = Field(default=8, description="The maximum nesting of subflows.", examples=[3])
    stored: Size = Field(
        default=1024**3,
        description="The maximum size of the journal: inputs, results, errors, signals and "
        "decisions. Files that steps keep do not count. For subflows, that of the "
        "flow that was started applies.",
        examples=["100MB"],
    )
    finally_: Duration = Field(
        default="5m",
        key="finally",
        description="The maximum duration of `finally`.",
        examples=["1m"],
    )
    idle: Duration = Field(
        default="0s",
        description="How long triggers keep the execution open after each time its last "
        "branch ended.",
        examples=["1h"],
    )


# Rules that decide about calls without an approver (docs/language.md: Policies).


class Policy(Part):
    """A rule about tool calls."""

    NOUN = "a policy"
    RULES = (ExclusiveKeys(("allow", "ask", "deny")),)

    allow: Text | None = Field(
        default=None,
        description="Tools that are called without approval: a glob.",
        examples=["github.get_*"],
    )
    ask: Text | None = Field(
        default=None, description="Tools that require approval: a glob.", examples=["github.*"]
    )
    deny: Text | None = Field(
        default=None, description="Tools that are denied: a glob.", examples=["shell:*"]
    )
    agent: Text | None = Field(
        default=None, description="Only for calls by this agent: a glob.", examples=["triage"]
    )
    effect: Effect | None = Field(
        default=None, description="Only for calls with this effect.", examples=["once"]
    )
    environment: Text | None = Field(
        default=None, description="Only for calls that use this environment.", examples=["prod_*"]
    )
    when: Condition | None = Field(
        default=None,
        description="A condition on the arguments.",
        examples=["${{ args.amount > 100 }}"],
    )

    @property
    def verdict(self) -> tuple[str, str]:
        """The verdict of the rule, and its glob of tools. Both are empty for an invalid rule."""
        for word in ("allow", "ask", "deny"):
            glob = getattr(self, word)
            if glob is not None:
                return word, glob
        return "", ""


class PolicyFile(Part):
    """The rules of a host, for calls in all executions."""

    NOUN = "a policy file"

    policies: list[Policy] = Field(
        description="Rules for the tool calls of all flows.",
        examples=[[{"deny": "shell:*"}]],
    )
