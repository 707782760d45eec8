"""Modifiers of an action: join, map, loop, lock, retry, handlers, and the next steps."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from flowengine.flow.models.base import (
    ExclusiveKeys,
    Field,
    KeyExcludes,
    KeyNeeds,
    MappingProblem,
    Part,
    Rule,
)
from flowengine.flow.models.types import (
    AsSchema,
    BareName,
    CheckedType,
    Condition,
    ConditionOrBoolean,
    Duration,
    DurationOrExpression,
    Expression,
    Factor,
    Failures,
    Jitter,
    Or,
    Positive,
    PositiveOrExpression,
    RoutedOutcome,
    SignalName,
    StepName,
    Target,
    Template,
    Value,
    constant_text,
    error_type,
    integer,
    is_expression,
    one_or_many,
    one_or_many_schema,
)


def _need(words: tuple[str, ...]) -> Any:
    named = ", ".join(map(repr, words))
    whole = integer(1, f"{named}, a whole number of 1 or more, or an expression")

    def check(value: Any) -> Any:
        return value if value in words or is_expression(value) else whole(value)

    return check


def _need_schema(words: tuple[str, ...]) -> AsSchema:
    number = {"type": "integer", "minimum": 1}
    return AsSchema({"anyOf": [{"enum": words}, number, {"$ref": "#/$defs/Expression"}]})


class Join(Part):
    """How incoming tokens are joined."""

    NOUN = "'join'"
    MAIN = "need"
    RULES = (
        KeyExcludes(
            "late",
            "need",
            "only a number of arrivals leaves late ones",
            ("each", "all", "active"),
        ),
    )

    need: Annotated[
        int | str,
        CheckedType(_need(("each", "all", "active"))),
        _need_schema(("each", "all", "active")),
    ] = Field(examples=["all", 2])
    """When the step is activated: for `each` arrival, when one has arrived on `all` edges, when no
    other branch can still arrive (`active`), or at the N-th arrival."""
    late: Literal["ignore", "cancel", "queue"] = Field(default="ignore", examples=["cancel"])
    """The treatment of branches after the N-th. Only with a number."""
    from_: list[StepName] | None = Field(default=None, key="from", examples=[["left", "right"]])
    """The steps that lead here, verified by the checker. It has no effect at run time."""


class MapJoin(Part):
    """When a map is complete."""

    NOUN = "the 'join' of a map"
    MAIN = "need"
    RULES = (
        KeyExcludes("late", "need", "only a number of items leaves late ones", ("all", "none")),
    )

    need: Annotated[
        int | str, CheckedType(_need(("all", "none"))), _need_schema(("all", "none"))
    ] = Field(examples=["all", 3])
    """How many items must succeed for the map to continue."""
    late: Literal["ignore", "cancel"] = Field(default="ignore", examples=["cancel"])
    """The treatment of items that are still running then."""


def _over(value: Any) -> Any:
    if isinstance(value, list) or is_expression(value):
        return value
    return integer(0, "a list, a whole number or one expression")(value)


class Map(Part):
    """Runs the step once per item."""

    NOUN = "'map'"
    MAIN = "over"

    over: Annotated[
        list[Any] | int | str,
        CheckedType(_over),
        AsSchema(
            {
                "anyOf": [
                    {"type": "array"},
                    {"type": "integer", "minimum": 0},
                    {"$ref": "#/$defs/Expression"},
                ]
            }
        ),
    ] = Field(examples=["${{ inputs.files }}", 3])
    """The items: a list, or a number n for 0 to n-1."""
    as_: BareName = Field(default="item", key="as", examples=["file"])
    """The name of an item in expressions."""
    key: Template | None = Field(default=None, examples=["${{ item.id }}"])
    """A stable, unique text for each item, shown in lists and addresses."""
    concurrency: PositiveOrExpression | None = Field(default=None, examples=[4])
    """How many items run at once. Default: `defaults.concurrency`, otherwise 8."""
    on_item_error: Literal["stop", "wait", "continue"] = Field(
        default="stop", examples=["continue"]
    )
    """The effect of a failed item: cancel the others and fail, let them end and then fail, or
    succeed with the remaining items."""
    max_failures: Failures | None = Field(default=None, examples=[3, "10%"])
    """How many failures `wait` and `continue` tolerate. One more stops the map."""
    join: MapJoin | None = Field(default=None, examples=[{"need": 3}])
    """When the map is complete. Default: after all items."""
    signal: SignalName | None = Field(default=None, examples=["extra_item"])
    """A signal. Each message adds its data as an item while the map runs."""


class Every(Part):
    """The pause between two rounds of a loop."""

    NOUN = "'every'"
    MAIN = "delay"

    delay: DurationOrExpression = Field(examples=["10s"])
    """The first pause."""
    backoff: Factor = Field(default=1, examples=[2])
    """The factor by which each pause is longer than the last."""
    max_delay: Duration | None = Field(default=None, examples=["5m"])
    """The longest pause. Default: 1m, or `delay` if that is longer."""


class Loop(Part):
    """Runs the step again while or until a condition holds."""

    NOUN = "'loop'"
    RULES = (ExclusiveKeys(("until", "while")),)

    until: Condition | None = Field(default=None, examples=["${{ output.done }}"])
    """Tested after each round: true ends the loop."""
    while_: Condition | None = Field(default=None, key="while", examples=["${{ state.open > 0 }}"])
    """Tested before each round: false ends the loop."""
    max: PositiveOrExpression = Field(examples=[5])
    """The maximum number of rounds. One more raises `LoopLimit`."""
    every: Every | None = Field(default=None, examples=["10s"])
    """The pause between rounds. Default: none."""
    keep: Literal["all"] | None = Field(default=None, examples=["all"])
    """Returns the outputs of all rounds as a list."""


class Lock(Part):
    """A lock: the step never runs at the same time as another holder of the same key."""

    NOUN = "'lock'"
    MAIN = "key"
    RULES = (
        KeyExcludes("max", "shared", "a shared lock has no maximum. Leave it out"),
        KeyExcludes("shared", "scope", "use the scope 'run' or 'execution'", ("flow", "global")),
    )

    key: Template = Field(examples=["printer"])
    """The key of the lock."""
    scope: Literal["run", "execution", "flow", "global"] = Field(
        default="execution", examples=["run"]
    )
    """The scope of the lock: this run of the flow, the execution, all executions of the flow, or
    all executions."""
    max: Positive = Field(default=1, examples=[2])
    """How many steps may hold it at once."""
    shared: ConditionOrBoolean = Field(default=False, examples=["${{ call.parallel }}"])
    """Whether it may be held together with other shared holders."""
    hold: bool = Field(default=False, examples=[True])
    """Whether a wait or approval keeps the lock while it waits."""


ErrorTypes = Annotated[
    list[str],
    CheckedType(one_or_many(constant_text)),
    one_or_many_schema({"$ref": "#/$defs/Text"}),
]
"""One name of an error type, or a list. `Prefix.*` matches names with that beginning."""


class Retry(Part):
    """Tries again on errors."""

    NOUN = "'retry'"
    MAIN = "attempts"

    attempts: Positive = Field(default=1, examples=[5])
    """Maximum number of attempts, including the first."""
    delay: Duration = Field(default="1s", examples=["2s"])
    """The pause before the second attempt."""
    backoff: Factor = Field(default=2, examples=[1.5])
    """The factor by which each pause is longer than the last."""
    max_delay: Duration | None = Field(default=None, examples=["5m"])
    """The longest pause. Default: 1m, or `delay` if that is longer."""
    jitter: Jitter = Field(default="full", examples=["none"])
    """The random part of a pause: all, none, or a fraction."""
    type: ErrorTypes | None = Field(default=None, examples=[["Timeout", "HttpError"]])
    """Errors that are retried. Default: every retryable one. `*` is every error."""
    when: Condition | None = Field(default=None, examples=["${{ error.data.status == 503 }}"])
    """A condition on `error` for another attempt."""


class Emit(Part):
    """A signal that is sent after success."""

    NOUN = "'emit'"
    MAIN = "signal"
    SINGLE = True

    signal: SignalName = Field(examples=["page_ready"])
    """The declared signal."""
    key: Template | None = Field(default=None, examples=["${{ inputs.order }}"])
    """The key, in place of the declared one."""
    data: Value = Field(default=None, examples=[{"url": "${{ url }}"}])
    """The message."""
    to: Template = Field(default="execution", examples=["execution"])
    """`execution`, `parent`, `all` (by key), or the id of an execution."""


class Fail(Part):
    """Raises an error."""

    NOUN = "'fail'"
    MAIN = "message"
    RULES = tuple(
        KeyExcludes(key, "error", "an error that is raised again cannot be changed: leave one out")
        for key in ("type", "message", "data", "retryable")
    )

    type: Annotated[
        str,
        CheckedType(error_type),
        AsSchema({"type": "string", "pattern": r"^[A-Za-z_][A-Za-z0-9_.]*$"}),
    ] = Field(default="Failed", examples=["OutOfStock"])
    """The name of the error."""
    message: Template = Field(default="", examples=["No ${{ item }} left"])
    """The error message, shown to users."""
    data: Value = Field(default=None, examples=[{"left": 0}])
    """Data for handlers."""
    retryable: bool = Field(default=False, examples=[True])
    """Whether a retry may help."""
    error: Expression | None = Field(default=None, examples=["${{ error }}"])
    """A caught error, which is raised again unchanged."""

    @classmethod
    def short_form(cls, value: Any) -> Any:
        """Return the mapping for an error that was caught, or for a message."""
        return {"error": value} if is_expression(value) else super().short_form(value)


class Handler(Part):
    """A handler for certain errors of a step."""

    NOUN = "a handler"
    RULES = (ExclusiveKeys(("next", "output", "fail"), required=False),)
    RULES_AS_SCHEMA = (
        {
            "anyOf": [
                {"required": ["next"]},
                {"required": ["output"]},
                {"required": ["fail"]},
                {"required": ["compensate"], "properties": {"compensate": {"const": True}}},
            ]
        },
    )

    type: ErrorTypes | None = Field(default=None, examples=["Timeout", ["HttpError", "ToolError"]])
    """The errors that it handles. Default: all except Cancelled."""
    when: Condition | None = Field(default=None, examples=["${{ error.data.status == 404 }}"])
    """A condition on `error`."""
    compensate: bool = Field(default=False, examples=[True])
    """Whether completed steps are compensated first."""
    set: dict[str, Value] = Field(default={}, examples=[{"failed": True}])
    """Writes to state."""
    emit: list[Emit] = Field(default=[], examples=["gave_up"])
    """Signals to send."""
    next: Target | None = Field(default=None, examples=["tell"])
    """The target. The step stays failed."""
    output: Value = Field(default=None, examples=[{}])
    """Continues as if the step had returned this."""
    fail: Fail | None = Field(default=None, examples=["Not found"])
    """Raises another error instead."""

    @classmethod
    def problems(cls, given: Mapping[str, Any]) -> Iterator[MappingProblem]:
        """Require that a handler sets how to continue."""
        yield from super().problems(given)
        if not {"next", "output", "fail"} & given.keys() and given.get("compensate") is not True:
            hint = "add one: 'output' continues with a value, 'next' at another step"
            message = "a handler needs 'next', 'output', 'fail' or 'compensate: true'"
            yield MappingProblem(None, "E104", message, hint)


OnError = Annotated[
    Literal["fail", "continue", "compensate"] | list[Handler],
    Or("a list of handlers", "write a list, even of one handler: [{type: TYPE, next: STEP}]"),
]
"""A word, or handlers. The first matching handler applies."""


class Entry(Part):
    """One edge of a split."""

    NOUN: ClassVar[str] = "an entry of 'next'"
    MAIN: ClassVar[str | None] = "to"
    RULES: ClassVar[tuple[Rule, ...]] = (
        ExclusiveKeys(("to", "else")),
        KeyExcludes("when", "else", "write 'to' instead of 'else'"),
    )

    to: Target | None = Field(default=None, examples=["approve"])
    """The target."""
    when: Condition | None = Field(default=None, examples=["${{ output.ok }}"])
    """Whether this edge is taken."""
    else_: Target | None = Field(default=None, key="else", examples=["refuse"])
    """The target if no condition holds."""


class FirstEntry(Entry):
    """One way out of an exclusive split: an `Entry` with a condition, or the `else`."""

    NOUN = "an entry of 'first'"
    MAIN: ClassVar[str | None] = None
    RULES = (*Entry.RULES, KeyNeeds("to", ("when",), "add 'when', or write 'else'"))


class Next(Part):
    """Where the token goes."""

    NOUN = "'next'"
    MAIN = "to"
    BELOW = "outcome"
    RULES = (ExclusiveKeys(("to", "all", "first", "outcome")),)
    RULES_AS_SCHEMA = (
        {
            "properties": {
                split: {
                    "contains": {"type": "object", "required": ["else"]},
                    "minContains": 0,
                    "maxContains": 1,
                }
                for split in ("all", "first")
            }
        },
    )

    to: Target | None = Field(default=None, examples=["end"])
    """One target."""
    all: list[Entry] | None = Field(default=None, min_length=1, examples=[["left", "right"]])
    """Sends a branch along every entry whose condition holds."""
    first: list[FirstEntry] | None = Field(
        default=None,
        min_length=1,
        examples=[[{"when": "${{ output.ok }}", "to": "go_on"}, {"else": "end"}]],
    )
    """Sends the branch along the first entry whose condition holds."""
    outcome: dict[RoutedOutcome, Target] | None = Field(
        default=None, min_length=1, examples=[{"approve": "book", "reject": "end"}]
    )
    """Targets by the outcome of the action. `else` covers all other outcomes."""

    @classmethod
    def problems(cls, given: Mapping[str, Any]) -> Iterator[MappingProblem]:
        """Require at most one `else`."""
        yield from super().problems(given)
        for split in ("all", "first"):
            entries = given.get(split)
            parts = entries if isinstance(entries, list) else ()
            if sum(isinstance(entry, dict) and "else" in entry for entry in parts) > 1:
                message = f"{split!r} has more than one 'else'"
                yield MappingProblem(split, "E103", message, "keep one")
