"""A step: at most one action, and modifiers."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from flowengine.flow.models.actions import Approval, Cancel, Wait
from flowengine.flow.models.base import ExclusiveKeys, Field, MappingProblem, Part, listed
from flowengine.flow.models.kinds import is_kind, kind_names, takes_arguments
from flowengine.flow.models.modifiers import Emit, Fail, Join, Lock, Loop, Map, Next, OnError, Retry
from flowengine.flow.models.types import (
    Arguments,
    Condition,
    DurationOrExpression,
    Effect,
    EnvironmentUse,
    EnvironmentUses,
    FlowName,
    Id,
    Label,
    OnCrash,
    SignalName,
    StepId,
    Template,
    ToolName,
    Value,
)
from flowengine.sdk.argument_checks import MOST_LABELS
from flowengine.sdk.step_kind import KindPlace

_WITH = {"call", "flow"}
"""Actions of the language that take arguments by `with`."""


class Pluggable(Part):
    """A mapping that also takes the keys of step kinds, with their configurations."""

    OPEN = True

    PLACE: ClassVar[KindPlace] = "step"
    OWN_ACTIONS: ClassVar[tuple[str, ...]] = ()
    """Actions that the language itself defines."""

    @classmethod
    def actions(cls) -> tuple[str, ...]:
        """Return the keys that define an action. Imports all step kinds: for messages."""
        return (*cls.OWN_ACTIONS, *kind_names(cls.PLACE))

    @classmethod
    def is_action(cls, key: str) -> bool:
        """Return whether a key defines an action."""
        own = key in cls.fields_by_key()  # looking up others would search all packages
        return key in cls.OWN_ACTIONS if own else is_kind(key, cls.PLACE)

    @classmethod
    def _needs_one_action(cls, given: Mapping[str, Any]) -> Iterator[MappingProblem]:
        if sum(map(cls.is_action, given)) != 1:
            yield from cls._broken(ExclusiveKeys(cls.actions()), given)

    @property
    def kinds(self) -> dict[str, Any]:
        """The step kinds that are given, with their validated configurations."""
        return dict(self._more)

    @property
    def action(self) -> tuple[str, Any] | None:
        """The action's key and its model (of `call`: the tool's name), or None."""
        for key in self.OWN_ACTIONS:
            if self.has(key):
                return key, getattr(self, key)
        return next(iter(self.kinds.items()), None)


class Compensation(Pluggable):
    """The compensation of a step: one action with its arguments."""

    NOUN = "'compensate'"
    OWN_ACTIONS = ("call", "flow")

    # Keys that only a step has.
    effect: ClassVar[None] = None
    on_crash: ClassVar[None] = None
    detach: ClassVar[bool] = False
    environments: ClassVar[None] = None
    needs: ClassVar[Sequence[str]] = ()

    call: ToolName | None = Field(
        default=None, description="The tool that compensates the step.", examples=["release_hotel"]
    )
    flow: FlowName | None = Field(
        default=None, description="The flow that compensates the step.", examples=["release_all"]
    )
    with_: Arguments = Field(
        default={},
        key="with",
        description="Its arguments. Expressions see the step's `output` and the `error`.",
        examples=[{"id": "${{ output.id }}"}, "${{ output }}"],
    )
    in_: EnvironmentUse = Field(
        default=None, key="in", description="The environment for `run`.", examples=["host"]
    )
    retry: Retry | None = Field(default=None, description="Tries again on errors.", examples=[5])
    timeout: DurationOrExpression | None = Field(
        default=None, description="The time limit of one attempt.", examples=["30s"]
    )

    @classmethod
    def problems(cls, given: Mapping[str, Any]) -> Iterator[MappingProblem]:
        """Require exactly one action."""
        yield from super().problems(given)
        yield from cls._needs_one_action(given)


OF_ONE_MESSAGE = ("match", "transient")
"""Keys of a trigger that apply to the single message that it takes."""
OF_MESSAGES = ("signal", "any")
"""Keys of a trigger that starts a token for each message."""


class Trigger(Part):
    """A signal that starts a token here, inside a running execution."""

    NOUN = "'trigger'"
    MAIN = "signal"
    RULES = (ExclusiveKeys(("signal", "any", "all", "state")),)
    RULES_AS_SCHEMA = (
        {
            "dependentSchemas": {
                key: {"anyOf": [{"required": [of]} for of in OF_MESSAGES]} for key in OF_ONE_MESSAGE
            }
        },
    )

    signal: SignalName | None = Field(
        default=None, description="Every matching message starts a branch.", examples=["page_ready"]
    )
    match: Condition | None = Field(
        default=None,
        description="A condition on `signal`.",
        examples=["${{ signal.data.lang == 'en' }}"],
    )
    transient: bool = Field(
        default=False,
        description="Whether messages that were kept earlier are ignored.",
        examples=[True],
    )
    any: list[SignalName] | None = Field(
        default=None,
        min_length=1,
        description="Every matching message of one of them starts a branch.",
        examples=[["a", "b"]],
    )
    all: list[SignalName] | None = Field(
        default=None,
        min_length=1,
        description="Fires when each has a message.",
        examples=[["a", "b"]],
    )
    state: Id | None = Field(
        default=None, description="Fires after each write to that key.", examples=["score"]
    )

    @classmethod
    def problems(cls, given: Mapping[str, Any]) -> Iterator[MappingProblem]:
        """Refuse keys for single messages in other triggers, and lists with one signal."""
        yield from super().problems(given)
        for key in OF_ONE_MESSAGE:
            if key in given and not any(of in given for of in OF_MESSAGES):
                message = f"{key!r} has no meaning without 'signal' or 'any'"
                yield MappingProblem(key, "E103", message, "add one of them, or leave it out")
        for key in ("any", "all"):
            names = given.get(key)
            if isinstance(names, list) and len({str(name) for name in names}) < len(names):
                yield MappingProblem(key, "E103", f"{key!r} names a signal twice", "name each once")


class Step(Pluggable):
    """A node of the graph: at most one action, and modifiers."""

    NOUN = "a step"
    NAMED = "id"
    OWN_ACTIONS = ("call", "flow", "wait", "approval", "group", "parallel", "fail", "cancel")
    RULES_AS_SCHEMA: ClassVar[tuple[dict[str, Any], ...]] = (
        {"not": {"required": ["timeout", "approval"]}},
        {"dependentRequired": {"detach": ["flow"]}},
    )

    id: StepId = Field(description="The name of the step, unique in the file.", examples=["fetch"])
    title: Template | None = Field(
        default=None, description="A label for lists and graphs.", examples=["Read the page"]
    )
    call: ToolName | None = Field(
        default=None, description="Calls a tool with `with`.", examples=["search", "std.print"]
    )
    flow: FlowName | None = Field(
        default=None,
        description="Runs a flow with `with` as its inputs.",
        examples=["./child.yaml", "lib.triage", "child"],
    )
    detach: bool = Field(
        default=False,
        description="Whether the flow runs as a separate execution that the step does "
        "not wait for.",
        examples=[True],
    )
    wait: Wait | None = Field(
        default=None, description="Waits for time or a signal.", examples=["15m"]
    )
    approval: Approval | None = Field(
        default=None, description="Waits for a decision of an approver.", examples=["Publish this?"]
    )
    group: list["Step"] | None = Field(
        default=None,
        min_length=1,
        description="A scope with its own steps.",
        examples=[[{"id": "inner", "output": 1}]],
    )
    parallel: list["ParallelStep"] | None = Field(
        default=None,
        min_length=1,
        description="Steps that all start at once. The output is a map by their ids.",
        examples=[[{"id": "left", "output": 1}, {"id": "right", "output": 2}]],
    )
    fail: Fail | None = Field(
        default=None, description="Raises an error.", examples=["Nothing to do"]
    )
    cancel: Cancel | None = Field(
        default=None, description="Cancels steps, groups or the execution.", examples=[["b"]]
    )
    with_: Arguments = Field(
        default={},
        key="with",
        description="The arguments of the action: by name, or one expression with a map as its "
        "value.",
        examples=[{"q": "${{ inputs.q }}"}, "${{ steps.plan.output.args }}"],
    )
    in_: EnvironmentUse = Field(
        default=None,
        key="in",
        description="The environment for `run` and for shell tools.",
        examples=["host", {"box": {"python": "3.13"}}],
    )
    environments: EnvironmentUses = Field(
        default=None,
        description="Environments for the action, by the names that it uses for them.",
        examples=[["sandbox"], {"db": "orders"}],
    )
    needs: list[Label] = Field(
        default=[],
        max_length=MOST_LABELS,
        description="Offers that a worker needs to run the action: `flowengine worker --offers`.",
        examples=[["gpu"]],
    )
    join: Join | None = Field(
        default=None, description="How incoming branches are joined.", examples=["all", 2]
    )
    trigger: Trigger | None = Field(
        default=None, description="A signal that starts a branch here.", examples=["page_ready"]
    )
    when: Condition | None = Field(
        default=None,
        description="A condition. The step is skipped unless it is true.",
        examples=["${{ inputs.amount > 50 }}"],
    )
    map: Map | None = Field(
        default=None, description="Runs once per item.", examples=["${{ inputs.files }}"]
    )
    loop: Loop | None = Field(
        default=None,
        description="Repeats while or until a condition holds.",
        examples=[{"until": "${{ output.done }}", "max": 5}],
    )
    lock: Lock | None = Field(
        default=None,
        description="A lock: the step never runs at the same time as another holder of "
        "the same key.",
        examples=["printer"],
    )
    retry: Retry | None = Field(default=None, description="Tries again on errors.", examples=[3])
    timeout: DurationOrExpression | None = Field(
        default=None,
        description="The time limit of one attempt, or of the wait.",
        examples=["30s"],
    )
    deadline: DurationOrExpression | None = Field(
        default=None, description="The time limit of the whole step.", examples=["2h"]
    )
    effect: Effect | None = Field(
        default=None,
        description="The side effect of an attempt, which decides whether it may be "
        "repeated after a crash. Default: depends on the action.",
        examples=["idempotent"],
    )
    on_crash: OnCrash | None = Field(
        default=None,
        description="The treatment of an attempt whose outcome is unknown after a crash. "
        "Default: `ask`.",
        examples=["retry"],
    )
    output: Value = Field(
        default=None,
        description="Replaces the result. Expressions see `result`.",
        examples=["${{ result.subject }}"],
    )
    set: dict[Id, Value] = Field(
        default={},
        description="Writes to state after success, each key through its reducer.",
        examples=[{"count": "${{ state.count + 1 }}"}],
    )
    emit: list[Emit] = Field(
        default=[], description="Signals to send after success.", examples=["done"]
    )
    on_error: OnError = Field(
        default="fail",
        description="Handlers for errors of the step.",
        examples=["continue", [{"type": "Timeout", "next": "ask"}]],
    )
    compensate: Compensation | None = Field(
        default=None,
        description="The compensation of the step.",
        examples=[{"call": "release", "with": {"id": "${{ output.id }}"}}],
    )
    finally_: list["Step"] = Field(
        default=[],
        key="finally",
        description="Steps that run when the group is over, for every outcome.",
        examples=[[{"id": "tidy", "call": "std.print", "with": {"text": "done"}}]],
    )
    next: Next | None = Field(
        default=None,
        description="The next steps. Default: the next step in the list.",
        examples=["end"],
    )

    @classmethod
    def problems(cls, given: Mapping[str, Any]) -> Iterator[MappingProblem]:
        """Require at most one action, and the action that a key belongs to."""
        yield from super().problems(given)
        first, *others = [key for key in given if cls.is_action(key)] or [""]
        for key in others:
            hint = "make a step of each, or put them into a 'group'"
            message = f"a step has one action, but this one has {first!r} and {key!r}"
            yield MappingProblem(key, "E106", message, hint)
        if "timeout" in given and "approval" in given:
            message = "an approval has no 'timeout'"
            yield MappingProblem("timeout", "E103", message, "write 'expires' in the approval")
        kinds = [key for key in given if key not in cls.fields_by_key()]
        takes = bool(given.keys() & _WITH) or any(map(takes_arguments, kinds))
        if "with" in given and not takes:
            takers = listed(cls.with_arguments())
            message = f"'with' has no meaning without {takers}"
            yield MappingProblem("with", "E103", message, "leave it out")
        if "detach" in given and "flow" not in given:
            message = "'detach' has no meaning without 'flow'"
            yield MappingProblem("detach", "E103", message, "leave it out")
        if "finally" in given and first not in {"group", "parallel"}:
            yield MappingProblem("finally", "E103", "only a group has 'finally'", "leave it out")

    @classmethod
    def with_arguments(cls) -> list[str]:
        """Return the actions that take `with`. Imports all step kinds: for messages and schemas."""
        return ["call", *filter(takes_arguments, kind_names("step")), "flow"]


class ParallelStep(Step):
    """A step of `parallel`, which starts with its own token and ends there."""

    NOUN = "a step of 'parallel'"
    RULES_AS_SCHEMA = (
        *Step.RULES_AS_SCHEMA,
        {"not": {"anyOf": [{"required": ["join"]}, {"required": ["trigger"]}]}},
    )

    @classmethod
    def problems(cls, given: Mapping[str, Any]) -> Iterator[MappingProblem]:
        """Refuse keys that lead to the step, other than the start."""
        yield from super().problems(given)
        for key in ("join", "trigger"):
            if key in given:
                message = f"a step of 'parallel' has no {key!r}: it starts with its own branch"
                yield MappingProblem(key, "E102", message, "leave it out")
