"""A step: at most one action, and modifiers."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from flowengine.flow.models.actions import Approval, Cancel, Wait
from flowengine.flow.models.base import (
    ExclusiveKeys,
    Field,
    KeyExcludes,
    KeyNeeds,
    MappingProblem,
    Part,
    listed,
)
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
    SignalNames,
    StepId,
    Template,
    ToolName,
    Value,
)
from flowengine.sdk.python.argument_checks import MOST_LABELS
from flowengine.sdk.steps.step_kind import KindPlace

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
            yield from ExclusiveKeys(cls.actions()).problems(cls, given)

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
    background: ClassVar[bool] = False
    environments: ClassVar[None] = None
    needs: ClassVar[Sequence[str]] = ()

    call: ToolName | None = Field(default=None, examples=["release_hotel"])
    """The tool that compensates the step."""
    flow: FlowName | None = Field(default=None, examples=["release_all"])
    """The flow that compensates the step."""
    with_: Arguments = Field(
        default={}, key="with", examples=[{"id": "${{ output.id }}"}, "${{ output }}"]
    )
    """Its arguments. Expressions see the step's `output` and the `error`."""
    in_: EnvironmentUse = Field(default=None, key="in", examples=["host"])
    """The environment for `run`."""
    retry: Retry | None = Field(default=None, examples=[5])
    """Tries again on errors."""
    timeout: DurationOrExpression | None = Field(default=None, examples=["30s"])
    """The time limit of one attempt."""

    @classmethod
    def problems(cls, given: Mapping[str, Any]) -> Iterator[MappingProblem]:
        """Require exactly one action."""
        yield from super().problems(given)
        yield from cls._needs_one_action(given)


class Trigger(Part):
    """A signal that starts a token here, inside a running execution."""

    NOUN = "'trigger'"
    MAIN = "signal"
    RULES = (
        ExclusiveKeys(("signal", "all", "state")),
        *(KeyNeeds(key, ("signal",)) for key in ("match", "transient")),
    )

    signal: SignalNames | None = Field(default=None, examples=["page_ready", ["a", "b"]])
    """One signal or several. Every matching message of one of them starts a branch."""
    match: Condition | None = Field(default=None, examples=["${{ signal.data.lang == 'en' }}"])
    """A condition on `signal`."""
    transient: bool = Field(default=False, examples=[True])
    """Whether messages that were kept earlier are ignored."""
    all: list[SignalName] | None = Field(default=None, min_length=1, examples=[["a", "b"]])
    """Fires when each has a message."""
    state: Id | None = Field(default=None, examples=["score"])
    """Fires after each write to that key."""

    @classmethod
    def problems(cls, given: Mapping[str, Any]) -> Iterator[MappingProblem]:
        """Refuse lists that name a signal twice."""
        yield from super().problems(given)
        for key in ("signal", "all"):
            names = given.get(key)
            if isinstance(names, list) and len({str(name) for name in names}) < len(names):
                yield MappingProblem(key, "E103", f"{key!r} names a signal twice", "name each once")


class Step(Pluggable):
    """A node of the graph: at most one action, and modifiers."""

    NOUN = "a step"
    NAMED = "id"
    OWN_ACTIONS = ("call", "flow", "wait", "approval", "group", "parallel", "fail", "cancel")
    RULES = (
        KeyExcludes("timeout", "approval", "write 'expires' in the approval"),
        KeyNeeds("background", ("flow",)),
    )

    id: StepId = Field(examples=["fetch"])
    """The name of the step, unique in the file."""
    title: Template | None = Field(default=None, examples=["Read the page"])
    """A label for lists and graphs."""
    call: ToolName | None = Field(default=None, examples=["search", "std.print"])
    """Calls a tool with `with`."""
    flow: FlowName | None = Field(default=None, examples=["./child.yaml", "lib.triage", "child"])
    """Runs a flow with `with` as its inputs."""
    background: bool = Field(default=False, examples=[True])
    """Whether the flow runs as a separate execution that the step does not wait for."""
    wait: Wait | None = Field(default=None, examples=["15m"])
    """Waits for time or a signal."""
    approval: Approval | None = Field(default=None, examples=["Publish this?"])
    """Waits for a decision of an approver."""
    group: list["Step"] | None = Field(
        default=None, min_length=1, examples=[[{"id": "inner", "output": 1}]]
    )
    """A scope with its own steps."""
    parallel: list["ParallelStep"] | None = Field(
        default=None,
        min_length=1,
        examples=[[{"id": "left", "output": 1}, {"id": "right", "output": 2}]],
    )
    """Steps that all start at once. The output is a map by their ids."""
    fail: Fail | None = Field(default=None, examples=["Nothing to do"])
    """Raises an error."""
    cancel: Cancel | None = Field(default=None, examples=[["b"]])
    """Cancels steps, groups or the execution."""
    with_: Arguments = Field(
        default={}, key="with", examples=[{"q": "${{ inputs.q }}"}, "${{ steps.plan.output.args }}"]
    )
    """The arguments of the action: by name, or one expression with a map as its value."""
    in_: EnvironmentUse = Field(
        default=None, key="in", examples=["host", {"box": {"python": "3.13"}}]
    )
    """The environment for `run` and for shell tools."""
    environments: EnvironmentUses = Field(default=None, examples=[["sandbox"], {"db": "orders"}])
    """Environments for the action, by the names that it uses for them."""
    needs: list[Label] = Field(default=[], max_length=MOST_LABELS, examples=[["gpu"]])
    """Offers that a worker needs to run the action: `flowengine worker --offers`."""
    join: Join | None = Field(default=None, examples=["all", 2])
    """How incoming branches are joined."""
    trigger: Trigger | None = Field(default=None, examples=["page_ready"])
    """A signal that starts a branch here."""
    when: Condition | None = Field(default=None, examples=["${{ inputs.amount > 50 }}"])
    """A condition. The step is skipped unless it is true."""
    map: Map | None = Field(default=None, examples=["${{ inputs.files }}"])
    """Runs once per item."""
    loop: Loop | None = Field(default=None, examples=[{"until": "${{ output.done }}", "max": 5}])
    """Repeats while or until a condition holds."""
    lock: Lock | None = Field(default=None, examples=["printer"])
    """A lock: the step never runs at the same time as another holder of the same key."""
    retry: Retry | None = Field(default=None, examples=[3])
    """Tries again on errors."""
    timeout: DurationOrExpression | None = Field(default=None, examples=["30s"])
    """The time limit of one attempt, or of the wait."""
    deadline: DurationOrExpression | None = Field(default=None, examples=["2h"])
    """The time limit of the whole step."""
    effect: Effect | None = Field(default=None, examples=["idempotent"])
    """The side effect of an attempt, which decides whether it may be repeated after a crash.
    Default: depends on the action."""
    on_crash: OnCrash | None = Field(default=None, examples=["retry"])
    """The treatment of an attempt whose outcome is unknown after a crash. Default: `ask`."""
    output: Value = Field(default=None, examples=["${{ result.subject }}"])
    """Replaces the result. Expressions see `result`."""
    set: dict[Id, Value] = Field(default={}, examples=[{"count": "${{ state.count + 1 }}"}])
    """Writes to state after success, each key through its reducer."""
    emit: list[Emit] = Field(default=[], examples=["done"])
    """Signals to send after success."""
    on_error: OnError = Field(
        default="fail", examples=["continue", [{"type": "Timeout", "next": "ask"}]]
    )
    """Handlers for errors of the step."""
    compensate: Compensation | None = Field(
        default=None, examples=[{"call": "release", "with": {"id": "${{ output.id }}"}}]
    )
    """The compensation of the step."""
    finally_: list["Step"] = Field(
        default=[],
        key="finally",
        examples=[[{"id": "tidy", "call": "std.print", "with": {"text": "done"}}]],
    )
    """Steps that run when the group is over, for every outcome."""
    next: Next | None = Field(default=None, examples=["end"])
    """The next steps. Default: the next step in the list."""

    @classmethod
    def problems(cls, given: Mapping[str, Any]) -> Iterator[MappingProblem]:
        """Require at most one action, and the action that a key belongs to."""
        yield from super().problems(given)
        first, *others = [key for key in given if cls.is_action(key)] or [""]
        for key in others:
            hint = "make a step of each, or put them into a 'group'"
            message = f"a step has one action, but this one has {first!r} and {key!r}"
            yield MappingProblem(key, "E106", message, hint)
        kinds = [key for key in given if key not in cls.fields_by_key()]
        takes = bool(given.keys() & _WITH) or any(map(takes_arguments, kinds))
        if "with" in given and not takes:
            takers = listed(cls.with_arguments())
            message = f"'with' has no meaning without {takers}"
            yield MappingProblem("with", "E103", message, "leave it out")
        if "finally" in given and first not in {"group", "parallel"}:
            yield MappingProblem("finally", "E103", "only a group has 'finally'", "leave it out")

    @classmethod
    def with_arguments(cls) -> list[str]:
        """Return the actions that take `with`. Imports all step kinds: for messages and schemas."""
        return ["call", *filter(takes_arguments, kind_names("step")), "flow"]


class ParallelStep(Step):
    """A step of `parallel`, which starts with its own token and ends there."""

    NOUN = "a step of 'parallel'"
    RULES_AS_SCHEMA = ({"not": {"anyOf": [{"required": ["join"]}, {"required": ["trigger"]}]}},)

    @classmethod
    def problems(cls, given: Mapping[str, Any]) -> Iterator[MappingProblem]:
        """Refuse keys that lead to the step, other than the start."""
        yield from super().problems(given)
        for key in ("join", "trigger"):
            if key in given:
                message = f"a step of 'parallel' has no {key!r}: it starts with its own branch"
                yield MappingProblem(key, "E102", message, "leave it out")
