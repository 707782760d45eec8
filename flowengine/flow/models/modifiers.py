"""Modifiers of an action: join, map, loop, lock, retry, handlers, and the next steps."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from flowengine.flow.models.base import ExclusiveKeys, Field, MappingProblem, Part
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
    is_expression,
    one_or_many,
    wrong,
)


def _need(words: tuple[str, ...]) -> Any:
    def check(value: Any) -> Any:
        number = isinstance(value, int) and not isinstance(value, bool) and value >= 1
        if not number and value not in words and not is_expression(value):
            named = ", ".join(repr(word) for word in words)
            wrong(f"{named}, a whole number of 1 or more, or an expression", value)
        return value

    return check


def _need_schema(words: tuple[str, ...]) -> AsSchema:
    number = {"type": "integer", "minimum": 1}
    return AsSchema({"anyOf": [{"enum": words}, number, {"$ref": "#/$defs/Expression"}]})


class Join(Part):
    """How incoming tokens are joined."""

    NOUN = "'join'"
    MAIN = "need"
    RULES_AS_SCHEMA = (
        {
            "not": {
                "required": ["late"],
                "properties": {"need": {"enum": ["each", "all", "active"]}},
            }
        },
    )

    need: Annotated[
        int | str,
        CheckedType(_need(("each", "all", "active"))),
        _need_schema(("each", "all", "active")),
    ] = Field(
        description=(
            "When the step is activated: for `each` arrival, when one has arrived on `all` edges, "
            "when no other branch can still arrive (`active`), or at the N-th arrival."
        ),
        examples=["all", 2],
    )
    late: Literal["ignore", "cancel", "queue"] = Field(
        default="ignore",
        description="The treatment of branches after the N-th. Only with a number.",
        examples=["cancel"],
    )
    from_: list[StepName] | None = Field(
        default=None,
        key="from",
        description="The steps that lead here, verified by the checker. It has no effect "
        "at run time.",
        examples=[["left", "right"]],
    )

    @classmethod
    def problems(cls, given: Mapping[str, Any]) -> Iterator[MappingProblem]:
        """Require a number for `late`."""
        yield from super().problems(given)
        if "late" in given and given.get("need") in ("each", "all", "active"):
            message = f"'late' has no meaning with 'need: {given['need']}'"
            yield MappingProblem(
                "late", "E103", message, "only a number of arrivals leaves late ones"
            )


class MapJoin(Part):
    """When a map is complete."""

    NOUN = "the 'join' of a map"
    MAIN = "need"
    RULES_AS_SCHEMA = (
        {"not": {"required": ["late"], "properties": {"need": {"enum": ["all", "none"]}}}},
    )

    need: Annotated[
        int | str, CheckedType(_need(("all", "none"))), _need_schema(("all", "none"))
    ] = Field(
        description="How many items must succeed for the map to continue.",
        examples=["all", 3],
    )
    late: Literal["ignore", "cancel"] = Field(
        default="ignore",
        description="The treatment of items that are still running then.",
        examples=["cancel"],
    )

    @classmethod
    def problems(cls, given: Mapping[str, Any]) -> Iterator[MappingProblem]:
        """Require a number for `late`."""
        yield from super().problems(given)
        if "late" in given and given.get("need") in ("all", "none"):
            message = f"'late' has no meaning with 'need: {given['need']}'"
            yield MappingProblem("late", "E103", message, "only a number of items leaves late ones")


def _over(value: Any) -> Any:
    number = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if not number and not isinstance(value, list) and not is_expression(value):
        wrong("a list, a whole number or one expression", value)
    return value


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
    ] = Field(
        description="The items: a list, or a number n for 0 to n-1.",
        examples=["${{ inputs.files }}", 3],
    )
    as_: BareName = Field(
        default="item",
        key="as",
        description="The name of an item in expressions.",
        examples=["file"],
    )
    key: Template | None = Field(
        default=None,
        description="A stable, unique text for each item, shown in lists and addresses.",
        examples=["${{ item.id }}"],
    )
    concurrency: PositiveOrExpression | None = Field(
        default=None,
        description="How many items run at once. Default: `defaults.map_concurrency`, otherwise 8.",
        examples=[4],
    )
    on_item_error: Literal["stop", "wait", "continue"] = Field(
        default="stop",
        description=(
            "The effect of a failed item: cancel the others and fail, let them end and "
            "then fail, or succeed with the remaining items."
        ),
        examples=["continue"],
    )
    max_failures: Failures | None = Field(
        default=None,
        description="How many failures `wait` and `continue` tolerate. One more stops the map.",
        examples=[3, "10%"],
    )
    join: MapJoin | None = Field(
        default=None,
        description="When the map is complete. Default: after all items.",
        examples=[{"need": 3}],
    )
    more: SignalName | None = Field(
        default=None,
        description="A signal. Each message adds its data as an item while the map runs.",
        examples=["extra_item"],
    )


class Every(Part):
    """The pause between two rounds of a loop."""

    NOUN = "'every'"
    MAIN = "delay"

    delay: DurationOrExpression = Field(description="The first pause.", examples=["10s"])
    backoff: Factor = Field(
        default=1,
        description="The factor by which each pause is longer than the last.",
        examples=[2],
    )
    max_delay: Duration | None = Field(
        default=None, description="The longest pause.", examples=["5m"]
    )


class Loop(Part):
    """Runs the step again while or until a condition holds."""

    NOUN = "'loop'"
    RULES = (ExclusiveKeys(("until", "while")),)

    until: Condition | None = Field(
        default=None,
        description="Tested after each round: true ends the loop.",
        examples=["${{ output.done }}"],
    )
    while_: Condition | None = Field(
        default=None,
        key="while",
        description="Tested before each round: false ends the loop.",
        examples=["${{ state.open > 0 }}"],
    )
    max: PositiveOrExpression = Field(
        description="The maximum number of rounds. One more raises `LoopLimit`.", examples=[5]
    )
    every: Every | None = Field(
        default=None, description="The pause between rounds. Default: none.", examples=["10s"]
    )
    keep: Literal["all"] | None = Field(
        default=None, description="Returns the outputs of all rounds as a list.", examples=["all"]
    )


class Lock(Part):
    """A lock: the step never runs at the same time as another holder of the same key."""

    NOUN = "'lock'"
    MAIN = "key"
    RULES_AS_SCHEMA = (
        {"not": {"required": ["shared", "permits"]}},
        {
            "not": {
                "required": ["shared", "scope"],
                "properties": {"scope": {"enum": ["flow", "global"]}},
            }
        },
    )

    key: Template = Field(description="The key of the lock.", examples=["printer"])
    scope: Literal["run", "execution", "flow", "global"] = Field(
        default="execution",
        description="The scope of the lock: this run of the flow, the execution, all "
        "executions of the flow, or all executions.",
        examples=["run"],
    )
    permits: Positive = Field(
        default=1, description="How many steps may hold it at once.", examples=[2]
    )
    shared: ConditionOrBoolean = Field(
        default=False,
        description="Whether it may be held together with other shared holders.",
        examples=["${{ call.parallel }}"],
    )
    hold: bool = Field(
        default=False,
        description="Whether a wait or approval keeps the lock while it waits.",
        examples=[True],
    )

    @classmethod
    def problems(cls, given: Mapping[str, Any]) -> Iterator[MappingProblem]:
        """Allow shared locks only within an execution and without a maximum."""
        yield from super().problems(given)
        if "shared" in given and "permits" in given:
            message = "a lock that is shared has no 'permits'"
            yield MappingProblem(
                "permits",
                "E103",
                message,
                "a shared lock has no maximum number of holders. Leave it out",
            )
        if "shared" in given and given.get("scope") in ("flow", "global"):
            message = f"a lock of scope {given['scope']!r} cannot be shared"
            yield MappingProblem("shared", "E103", message, "use the scope 'run' or 'execution'")


_TEXT = {"$ref": "#/$defs/Text"}
_ERRORS_SCHEMA = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT, "minItems": 1}]}
ErrorTypes = Annotated[list[str], CheckedType(one_or_many(constant_text)), AsSchema(_ERRORS_SCHEMA)]
"""One name of an error type, or a list. `Prefix.*` matches names with that beginning."""


class Retry(Part):
    """Tries again on errors."""

    NOUN = "'retry'"
    MAIN = "attempts"

    attempts: Positive = Field(
        default=1, description="Maximum number of attempts, including the first.", examples=[5]
    )
    delay: Duration = Field(
        default="1s", description="The pause before the second attempt.", examples=["2s"]
    )
    backoff: Factor = Field(
        default=2,
        description="The factor by which each pause is longer than the last.",
        examples=[1.5],
    )
    max_delay: Duration = Field(default="1m", description="The longest pause.", examples=["5m"])
    jitter: Jitter = Field(
        default="full",
        description="The random part of a pause: all, none, or a fraction.",
        examples=["none"],
    )
    only: ErrorTypes | None = Field(
        default=None,
        description="Errors that are retried. Default: every retryable one. `*` is every error.",
        examples=[["Timeout", "HttpError"]],
    )
    except_: ErrorTypes | None = Field(
        default=None,
        key="except",
        description="Errors that are not retried. Default: the non-retryable ones.",
        examples=[["RateLimited"]],
    )
    when: Condition | None = Field(
        default=None,
        description="A condition on `error` for another attempt.",
        examples=["${{ error.data.status == 503 }}"],
    )


class Emit(Part):
    """A signal that is sent after success."""

    NOUN = "'emit'"
    MAIN = "signal"
    SINGLE = True

    signal: SignalName = Field(description="The declared signal.", examples=["page_ready"])
    key: Template | None = Field(
        default=None,
        description="The key, in place of the declared one.",
        examples=["${{ inputs.order }}"],
    )
    data: Value = Field(default=None, description="The message.", examples=[{"url": "${{ url }}"}])
    to: Template = Field(
        default="execution",
        description="`execution`, `parent`, `all` (by key), or the id of an execution.",
        examples=["execution"],
    )


class Fail(Part):
    """Raises an error."""

    NOUN = "'fail'"
    MAIN = "message"
    RULES_AS_SCHEMA = tuple(
        {"not": {"required": ["error", key]}} for key in ("type", "message", "data", "retryable")
    )

    type: Annotated[
        str,
        CheckedType(error_type),
        AsSchema({"type": "string", "pattern": r"^[A-Za-z_][A-Za-z0-9_.]*$"}),
    ] = Field(default="Failed", description="The name of the error.", examples=["OutOfStock"])
    message: Template = Field(
        default="",
        description="The error message, shown to users.",
        examples=["No ${{ item }} left"],
    )
    data: Value = Field(default=None, description="Data for handlers.", examples=[{"left": 0}])
    retryable: bool = Field(default=False, description="Whether a retry may help.", examples=[True])
    error: Expression | None = Field(
        default=None,
        description="A caught error, which is raised again unchanged.",
        examples=["${{ error }}"],
    )

    @classmethod
    def short_form(cls, value: Any) -> Any:
        """Return the mapping for an error that was caught, or for a message."""
        return {"error": value} if is_expression(value) else super().short_form(value)

    @classmethod
    def problems(cls, given: Mapping[str, Any]) -> Iterator[MappingProblem]:
        """Refuse changes to an error that is raised again."""
        yield from super().problems(given)
        for key in given if "error" in given else ():
            if key != "error" and not key.startswith("x-"):
                message = (
                    f"'fail' has 'error' and {key!r}, but an error that is raised again "
                    "cannot be changed"
                )
                yield MappingProblem(key, "E103", message, f"leave out {key!r}, or 'error'")


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

    type: ErrorTypes | None = Field(
        default=None,
        description="The errors that it handles. Default: all except Cancelled.",
        examples=["Timeout", ["HttpError", "ToolError"]],
    )
    when: Condition | None = Field(
        default=None,
        description="A condition on `error`.",
        examples=["${{ error.data.status == 404 }}"],
    )
    compensate: bool = Field(
        default=False, description="Whether completed steps are compensated first.", examples=[True]
    )
    set: dict[str, Value] = Field(
        default={}, description="Writes to state.", examples=[{"failed": True}]
    )
    emit: list[Emit] = Field(default=[], description="Signals to send.", examples=["gave_up"])
    next: Target | None = Field(
        default=None, description="The target. The step stays failed.", examples=["tell"]
    )
    output: Value = Field(
        default=None, description="Continues as if the step had returned this.", examples=[{}]
    )
    fail: Fail | None = Field(
        default=None, description="Raises another error instead.", examples=["Not found"]
    )

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
    RULES = (ExclusiveKeys(("to", "else")),)
    RULES_AS_SCHEMA: ClassVar[tuple[dict[str, Any], ...]] = (
        {"not": {"required": ["else", "when"]}},
    )

    to: Target | None = Field(default=None, description="The target.", examples=["approve"])
    when: Condition | None = Field(
        default=None, description="Whether this edge is taken.", examples=["${{ output.ok }}"]
    )
    else_: Target | None = Field(
        default=None,
        key="else",
        description="The target if no condition holds.",
        examples=["refuse"],
    )

    @classmethod
    def problems(cls, given: Mapping[str, Any]) -> Iterator[MappingProblem]:
        """Refuse a condition for `else`."""
        yield from super().problems(given)
        if "else" in given and "when" in given:
            message = "an entry of 'next' has 'else' and 'when', but 'else' cannot have a condition"
            yield MappingProblem("when", "E103", message, "write 'to' instead of 'else'")


class FirstEntry(Entry):
    """One way out of an exclusive split: an `Entry` with a condition, or the `else`."""

    NOUN = "an entry of 'first'"
    MAIN: ClassVar[str | None] = None
    RULES_AS_SCHEMA = (
        {"not": {"required": ["else", "when"]}},
        {"dependentRequired": {"to": ["when"]}},
    )

    @classmethod
    def problems(cls, given: Mapping[str, Any]) -> Iterator[MappingProblem]:
        """Require a condition for each way."""
        yield from super().problems(given)
        if "to" in given and "when" not in given:
            yield MappingProblem(
                "to", "E104", "an entry of 'first' needs 'when'", "or write 'else'"
            )


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

    to: Target | None = Field(default=None, description="One target.", examples=["end"])
    all: list[Entry] | None = Field(
        default=None,
        min_length=1,
        description="Sends a branch along every entry whose condition holds.",
        examples=[["left", "right"]],
    )
    first: list[FirstEntry] | None = Field(
        default=None,
        min_length=1,
        description="Sends the branch along the first entry whose condition holds.",
        examples=[[{"when": "${{ output.ok }}", "to": "go_on"}, {"else": "end"}]],
    )
    outcome: dict[RoutedOutcome, Target] | None = Field(
        default=None,
        min_length=1,
        description="Targets by the outcome of the action. `else` covers all other outcomes.",
        examples=[{"approve": "book", "reject": "end"}],
    )

    @classmethod
    def problems(cls, given: Mapping[str, Any]) -> Iterator[MappingProblem]:
        """Require at most one `else`."""
        yield from super().problems(given)
        for split in ("all", "first"):
            yield from _else_problems(split, given.get(split))


def _else_problems(split: str, entries: Any) -> Iterator[MappingProblem]:
    if not isinstance(entries, list):
        return
    if sum(isinstance(entry, dict) and "else" in entry for entry in entries) > 1:
        yield MappingProblem(split, "E103", f"{split!r} has more than one 'else'", "keep one")
