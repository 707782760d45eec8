"""Declarations of a flow besides its steps: outputs, secrets, signals, defaults, starts, limits."""

from typing import Any, Literal

from flowengine.flow.models.agent import ModelNames, Schema
from flowengine.flow.models.base import ExclusiveKeys, Field, KeyNeeds, Part
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

    value: Value = Field(examples=["${{ steps.greet.output }}"])
    """The value, evaluated when the execution succeeds."""

    @property
    def json_schema(self) -> dict[str, Any]:
        """The JSON Schema of the value, empty if there is none."""
        return dict(self._more)


class Secret(Part):
    """The source of a secret's value, never the value itself."""

    NOUN = "a secret"
    RULES = (ExclusiveKeys(("env", "file")),)

    env: Text | None = Field(default=None, examples=["API_KEY"])
    """An environment variable of the process."""
    file: Text | None = Field(default=None, examples=["/run/secrets/cert"])
    """A file that contains the value."""
    files: Literal["mask"] | None = Field(default=None, examples=["mask"])
    """Whether kept files that contain it are masked. By default they are refused."""


class Signal(Part):
    """A named message that steps wait for."""

    NOUN = "a signal"

    key: Template | None = Field(default=None, examples=["${{ inputs.order }}"])
    """The key that selects the waits of this flow."""
    data: Schema | None = Field(
        default=None, examples=[{"type": "object", "properties": {"amount": {"type": "number"}}}]
    )
    """JSON Schema of the message."""


class Defaults(Part):
    """Defaults for steps that do not set them."""

    NOUN = "'defaults'"

    model: ModelNames | None = Field(default=None, examples=["openai/gpt-4o"])
    """The model of agents, or a list of it and its fallbacks."""
    in_: EnvironmentUse = Field(default=None, key="in", examples=["host"])
    """The environment for `run`."""
    concurrency: PositiveOrExpression | None = Field(default=None, examples=[4])
    """How many items of a map run at once. Default: 8."""
    effect: Effect | None = Field(default=None, examples=["idempotent"])
    """The effect of steps, in place of the default of their action."""
    on_crash: OnCrash | None = Field(default=None, examples=["retry"])
    """The treatment of uncertain steps. Default: `ask`."""
    retry: Retry | None = Field(default=None, examples=[{"attempts": 5}])
    """Retries of actions that make calls, where the effect is not `once`."""
    timeout: DurationOrExpression | None = Field(default=None, examples=["1m"])
    """The time limit of actions that make calls."""


class Concurrency(Part):
    """The maximum number of open executions of the flow."""

    NOUN = "'concurrency'"

    key: Template | None = Field(default=None, examples=["${{ inputs.repo }}"])
    """The key of the executions that count together. Default: all executions of the flow."""
    max: Positive = Field(default=1, examples=[3])
    """How many may be open at once, including waiting ones."""
    then: Literal["queue", "reject", "skip", "cancel"] = Field(default="queue", examples=["reject"])
    """The treatment of a further execution: it waits, it is refused, it is refused but a schedule
    that would start it reports no error, or the oldest one is cancelled."""


class EndNotice(Part):
    """A tool that is called when an execution has ended."""

    NOUN = "an entry of 'notify'"
    MAIN = "tool"

    tool: ToolName = Field(examples=["hook"])
    """The tool. It receives the argument `execution`."""
    outcome: list[Literal["succeeded", "failed", "cancelled"]] = Field(
        default=["succeeded", "failed", "cancelled"], min_length=1, examples=[["failed"]]
    )
    """The outcomes that it is called for. Default: all."""


class Start(Part):
    """A signal that starts an execution unless an open one receives it, or a schedule."""

    NOUN = "an entry of 'start'"
    RULES = (
        ExclusiveKeys(("signal", "schedule")),
        *(KeyNeeds(key, ("schedule",)) for key in ("timezone", "missed", "jitter")),
    )

    signal: SignalName | None = Field(default=None, examples=["placed"])
    """The signal that starts an execution if none with its key is open."""
    schedule: Text | None = Field(default=None, examples=["0 9 * * 1-5"])
    """When executions start: minute, hour, day of month, month and day of week, as in cron."""
    timezone: Text = Field(default="UTC", examples=["Europe/Berlin"])
    """The time zone of the schedule."""
    missed: Literal["once", "skip"] = Field(default="once", examples=["skip"])
    """The treatment of times at which nothing could start: one execution for the last of them, or
    none."""
    jitter: Duration = Field(default="0s", examples=["5m"])
    """Each execution starts up to this much later, to spread the load."""
    with_: dict[Id, Value] = Field(
        default={}, key="with", examples=[{"order": "${{ signal.key }}"}]
    )
    """The inputs. Expressions see `signal` (not with `schedule`), `now` and `execution`."""


class Limits(Part):
    """Limits of an execution."""

    NOUN = "'limits'"

    activations: Positive = Field(default=1000, examples=[5000])
    """Entries into one step of one scope without a wait in between."""
    steps: Positive = Field(default=10000, examples=[500])
    """Activations, except those inside map items and `finally`, plus consecutive loop rounds that
    make no call and do not wait. A flow generated by a step kind is counted separately, and as one
    step here."""
    duration: DurationOrNone = Field(default="none", examples=["30d"])
    """The maximum duration of the execution, including waits."""
    depth: Depth = Field(default=8, examples=[3])
    """The maximum nesting of subflows."""
    stored: Size = Field(default=1024**3, examples=["100MB"])
    """The maximum size of the journal: inputs, results, errors, signals and decisions. Files that
    steps keep do not count. For subflows, that of the flow that was started applies."""
    finally_: Duration = Field(default="5m", key="finally", examples=["1m"])
    """The maximum duration of `finally`."""
    idle: Duration = Field(default="0s", examples=["1h"])
    """How long triggers keep the execution open after each time its last branch ended."""


# Rules that decide about calls without an approver (docs/language.md: Rules).


class Rule(Part):
    """A rule about tool calls."""

    NOUN = "a rule"
    RULES = (ExclusiveKeys(("allow", "ask", "deny")),)

    allow: Text | None = Field(default=None, examples=["github.get_*"])
    """Tools that are called without approval: a glob."""
    ask: Text | None = Field(default=None, examples=["github.*"])
    """Tools that require approval: a glob."""
    deny: Text | None = Field(default=None, examples=["shell:*"])
    """Tools that are denied: a glob."""
    agent: Text | None = Field(default=None, examples=["triage"])
    """Only for calls by this agent: a glob."""
    effect: Effect | None = Field(default=None, examples=["once"])
    """Only for calls with this effect."""
    in_: Text | None = Field(default=None, key="in", examples=["prod_*"])
    """Only for calls that use this environment."""
    when: Condition | None = Field(default=None, examples=["${{ args.amount > 100 }}"])
    """A condition on the arguments."""

    @property
    def verdict(self) -> tuple[str, str]:
        """The verdict of the rule, and its glob of tools. Both are empty for an invalid rule."""
        for word in ("allow", "ask", "deny"):
            glob = getattr(self, word)
            if glob is not None:
                return word, glob
        return "", ""


class RuleFile(Part):
    """The rules of a host, for calls in all executions."""

    NOUN = "a rule file"

    rules: list[Rule] = Field(examples=[[{"deny": "shell:*"}]])
    """Rules for the tool calls of all flows."""
