"""The actions that the language itself defines. All others are provided by step kinds."""

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from flowengine.flow.models.agent import Schema
from flowengine.flow.models.base import (
    ExclusiveKeys,
    Field,
    KeyNeeds,
    MappingProblem,
    Part,
    Rule,
    listed,
)
from flowengine.flow.models.types import (
    AlternativeId,
    AsSchema,
    CheckedType,
    Condition,
    ConditionOrBoolean,
    DurationOrExpression,
    Outcome,
    PositiveOrExpression,
    SignalName,
    StepName,
    Template,
    TimeOrExpression,
    ToolName,
    Value,
    fail,
    has_expression,
    is_expression,
    name,
    or_expression,
    wrong,
)

OCCASIONS = ("for", "until", "signal", "when")
OF_SIGNAL = ("key", "match", "count", "transient")
"""Keys that apply to a `signal`."""


class Occasion(Part):
    """An event that a step can wait for."""

    RULES: ClassVar[tuple[Rule, ...]] = tuple(KeyNeeds(key, ("signal",)) for key in OF_SIGNAL)

    for_: DurationOrExpression | None = Field(default=None, key="for", examples=["15m", "3d"])
    """A duration."""
    until: TimeOrExpression | None = Field(default=None, examples=["2026-11-25T09:00:00Z"])
    """A point in time."""
    signal: SignalName | None = Field(default=None, examples=["payment"])
    """A declared signal."""
    key: Template | None = Field(default=None, examples=["${{ inputs.order }}"])
    """The key, in place of the one declared with the signal."""
    match: Condition | None = Field(
        default=None, examples=["${{ signal.data.amount >= inputs.total }}"]
    )
    """A condition on `signal`. Other messages are not consumed."""
    count: PositiveOrExpression | None = Field(default=None, examples=[3])
    """How many messages to collect. The output is then a list."""
    transient: bool = Field(default=False, examples=[True])
    """Whether only messages that arrive during the wait count."""
    when: Condition | None = Field(default=None, examples=["${{ state.open }}"])
    """A condition on `state`."""


class Alternative(Occasion):
    """One of several events that a step waits for. Its id is the step's outcome."""

    NOUN = "an alternative"
    RULES = (ExclusiveKeys(OCCASIONS), *Occasion.RULES)

    id: AlternativeId = Field(examples=["paid"])
    """The outcome of the step."""


class Wait(Occasion):
    """Waits for time, a signal or a condition."""

    NOUN = "'wait'"
    MAIN = "for"
    RULES = (ExclusiveKeys((*OCCASIONS, "first", "all")), *Occasion.RULES)

    first: list[Alternative] | None = Field(
        default=None,
        min_length=1,
        examples=[[{"id": "paid", "signal": "payment"}, {"id": "late", "for": "3d"}]],
    )
    """The first that occurs wins, and the others are cancelled."""
    all: list[Alternative] | None = Field(
        default=None,
        min_length=1,
        examples=[[{"id": "paid", "signal": "payment"}, {"id": "sent", "signal": "parcel"}]],
    )
    """All of them must occur."""


class Choice(Part):
    """A choice of an approval. Its id is the step's outcome."""

    NOUN = "a choice"
    MAIN = "id"

    id: Outcome = Field(examples=["approve"])
    """The outcome of the step."""
    title: Template | None = Field(default=None, examples=["Send back"])
    """The text shown to users."""
    as_: Literal["approve", "reject", "other"] | None = Field(
        default=None, key="as", examples=["reject"]
    )
    """Whether it counts as approval or rejection. Default: derived from the id, `other` for other
    ids."""
    comment: Literal["none", "optional", "required"] = Field(
        default="optional", examples=["required"]
    )
    """Whether it accepts or requires a comment."""


RESPOND = "respond"
"""The choice that supplies the result of a call, so that the call does not run."""


class Reminder(Part):
    """How often the assignees are reminded."""

    NOUN = "'remind'"
    MAIN = "every"

    every: DurationOrExpression = Field(examples=["8h"])
    """The time between two reminders."""


def _people(value: Any) -> list[str] | str:
    """Check `user:...` and `group:...`. Texts with an expression are checked later."""
    if is_expression(value):
        return str(value)
    if not isinstance(value, list):
        wrong("a list such as ['group:finance'], or one expression", value)
    for item in value:
        if has_expression(item):
            continue
        if not isinstance(item, str) or not item.startswith(("user:", "group:")):
            wrong("a name such as 'user:ana' or 'group:finance'", item)
    return value


People = Annotated[
    list[str] | str,
    CheckedType(_people),
    AsSchema(
        {
            "anyOf": [
                {
                    "type": "array",
                    "items": {"type": "string", "pattern": r"^(user:|group:)|\$\{\{"},
                },
                {"$ref": "#/$defs/Expression"},
            ]
        }
    ),
]


class Escalation(Part):
    """Assignees that are added, or new ones, when no decision was made in time."""

    NOUN = "an entry of 'escalate'"
    RULES = (ExclusiveKeys(("to", "assignees")),)

    after: DurationOrExpression = Field(examples=["24h"])
    """The time since the start."""
    to: People | None = Field(default=None, examples=[["user:cfo"]])
    """Additional assignees."""
    assignees: People | None = Field(default=None, examples=[["user:cfo"]])
    """New assignees instead of the previous ones."""


def _names(expected: str) -> Callable[[Any], bool | list[str]]:
    """Return the check of a list of names, or a boolean for all or none."""

    def check(value: Any) -> bool | list[str]:
        names = isinstance(value, list) and all(isinstance(item, str) for item in value)
        if not names and not isinstance(value, bool):
            wrong(expected, value)
        return value  # type: ignore[no-any-return]

    return check


class Expiry(Part):
    """When an approval expires, and what follows."""

    NOUN = "'expires'"
    MAIN = "after"

    after: DurationOrExpression = Field(examples=["48h"])
    """The time since the start."""
    then: Outcome | None = Field(default=None, examples=["reject"])
    """The choice that is taken. Default: the outcome is `expired`."""


class Asking(Part):
    """Settings shared by all approvals: of a step, or required before a step, call or opening."""

    body: Template | None = Field(default=None, examples=["${{ inputs.reason }}"])
    """Markdown shown to the approver."""
    form: Schema | None = Field(
        default=None, examples=[{"properties": {"cost_center": {"type": "string"}}}]
    )
    """JSON Schema of a form. It is required for choices that approve."""
    choices: list[Choice] = Field(
        default=[Choice(id="approve"), Choice(id="reject")],
        min_length=1,
        examples=[["approve", {"id": "reject", "comment": "required"}]],
    )
    """The choices. Default: `approve` and `reject`."""
    assignees: People | None = Field(default=None, examples=[["group:finance"]])
    """Users and groups that may decide. Default: anyone."""
    exclude: People | None = Field(default=None, examples=[["${{ execution.started_by }}"]])
    """Users and groups that must not decide. Takes precedence over `assignees`."""
    need: PositiveOrExpression = Field(default=1, examples=[2])
    """The number of approving votes required."""
    claim: bool = Field(default=False, examples=[True])
    """Whether it must be claimed before a decision."""
    delegate: bool = Field(default=True, examples=[False])
    """Whether an assignee may delegate it."""
    expires: Expiry | None = Field(
        default=None, examples=["48h", {"after": "2d", "then": "reject"}]
    )
    """When it expires. Default: never."""
    remind: Reminder | None = Field(default=None, examples=["8h"])
    """How often the assignees are reminded."""
    escalate: list[Escalation] = Field(
        default=[], examples=[[{"after": "24h", "to": ["user:cfo"]}]]
    )
    """Further assignees, if no decision was made in time."""
    notify: list[ToolName] = Field(default=[], examples=[["mail"]])
    """Tools that are called when it opens, reminds or escalates."""
    batch: Template | None = Field(default=None, examples=["invoices"])
    """Key for listing and deciding several approvals together. Default: the step's id."""
    files: Value = Field(default=None, examples=[["${{ steps.make.output.files.report }}"]])
    """Files shown to the approver."""

    @classmethod
    def problems(cls, given: Mapping[str, Any]) -> Iterator[MappingProblem]:
        """Check choices and expiry."""
        yield from super().problems(given)
        choices = given.get("choices", [{"id": "approve"}, {"id": "reject"}])
        if not isinstance(choices, list):
            return
        ids = [str(one.get("id")) if isinstance(one, dict) else str(one) for one in choices]
        twice = next((one for one in ids if ids.count(one) > 1), None)
        if twice is not None:
            message = f"two choices have the id {twice!r}"
            yield MappingProblem("choices", "E105", message, "rename one")
        chosen = _on_expiry(given)
        if isinstance(chosen, str) and chosen not in ids:
            message = f"{chosen!r} is not one of the choices"
            yield MappingProblem("expires", "E103", message, f"use {listed(ids)}" if ids else None)


class Approval(Asking):
    """Waits for a decision of an approver."""

    NOUN = "an approval"
    MAIN = "title"

    title: Template = Field(examples=["Expense of ${{ inputs.amount }}"])
    """The question."""
    subject: Value = Field(default=None, examples=[{"amount": "${{ inputs.amount }}"}])
    """The data to decide on. It is shown, and stored with its digest."""
    edit: Annotated[
        bool | list[str] | str,
        CheckedType(or_expression(_names("a list of fields of 'subject', or true for all"))),
        AsSchema(
            {
                "anyOf": [
                    {"type": "boolean"},
                    {"type": "array", "items": {"type": "string"}},
                    {"$ref": "#/$defs/Expression"},
                ]
            }
        ),
    ] = Field(default=False, examples=[["amount"], True])
    """Fields of `subject` that the approver may change, or `true` for all."""


class AskFirst(Asking):
    """Requires an approval before an action, always or on a condition."""

    NOUN = "an 'approval'"
    SHORT = ({"enum": ["none", "ask", "required"]}, {"$ref": "#/$defs/Expression"})

    when: ConditionOrBoolean = Field(default=True, examples=["${{ args.open }}"])
    """Whether an approval is requested."""
    required: bool = Field(default=False, examples=[True])
    """Whether a person must decide. A rule cannot."""
    title: Template | None = Field(default=None, examples=["May it go online?"])
    """The question. Default: describes the environment to open."""

    @classmethod
    def short_form(cls, value: Any) -> Any:
        """Return the mapping that a bare word or a condition stands for."""
        if is_expression(value):
            return {"when": value}
        words = {"none": {"when": False}, "ask": {}, "required": {"required": True}}
        return words.get(value, value) if isinstance(value, str) else value


class AskBeforeCall(AskFirst):
    """Requires an approval before a tool is called."""

    choices: list[Choice] = Field(
        default=[Choice(id=id) for id in ("approve", "reject", RESPOND)],
        min_length=1,
        examples=[["approve", {"id": "reject", "comment": "required"}]],
    )
    """The choices. Default: `approve`, `reject` and, without `need`, `respond`, which supplies the
    result instead of the call."""
    title: Template | None = Field(default=None, examples=["May ${{ args.amount }} be sent?"])
    """The question. Default: describes the call."""
    edit: Annotated[
        bool | list[str],
        CheckedType(_names("a list of arguments, or true for all")),
        AsSchema({"anyOf": [{"type": "boolean"}, {"type": "array", "items": {"type": "string"}}]}),
    ] = Field(default=False, examples=[["amount"], True])
    """Arguments that the approver may change, or `true` for all."""

    @classmethod
    def problems(cls, given: Mapping[str, Any]) -> Iterator[MappingProblem]:
        """Check the rules that are specific to calls."""
        yield from super().problems(given)
        if _on_expiry(given) == RESPOND:
            message = f"{RESPOND!r} needs a result, which an expiry cannot supply"
            yield MappingProblem("expires", "E103", message)
        need = given.get("need", 1)
        if given.get("edit") and isinstance(need, int) and need > 1:
            message = "'edit' cannot be combined with 'need': all voters must see the same call"
            yield MappingProblem("edit", "E103", message)
        choices = given.get("choices")
        for one in choices if isinstance(choices, list) else ():
            if RESPOND in (one, isinstance(one, dict) and one.get("id")) and need != 1:
                message = (
                    f"{RESPOND!r} cannot be combined with 'need': one person would decide alone"
                )
                yield MappingProblem("choices", "E103", message)
            counts = isinstance(one, dict) and one.get("id") == RESPOND and one.get("as")
            if counts not in (None, False, "other"):
                message = f"{RESPOND!r} gives a result instead of the call: it counts as 'other'"
                yield MappingProblem("choices", "E103", message)


def _on_expiry(given: Mapping[str, Any]) -> Any:
    expires = given.get("expires")
    return expires.get("then") if isinstance(expires, dict) else None


_step_name = name("the name of a step")


def _targets(value: Any) -> list[str] | str:
    if value == "execution":
        return "execution"
    if not isinstance(value, list) or not value:
        single = f"write 'cancel: [{value}]'" if isinstance(value, str) else None
        wrong("a list of steps, or 'execution'", value, single)
    if "execution" in value:
        fail("E103", "'execution' cannot be combined with steps", "write 'cancel: execution'")
    return [_step_name(item) for item in value]


_STEPS = {
    "type": "array",
    "items": {"allOf": [{"$ref": "#/$defs/StepName"}, {"not": {"const": "execution"}}]},
    "minItems": 1,
}


class Cancel(Part):
    """Cancels steps, groups or the execution."""

    NOUN = "'cancel'"
    MAIN = "steps"

    steps: Annotated[
        list[StepName] | Literal["execution"],
        CheckedType(_targets),
        AsSchema(
            {
                "anyOf": [
                    {"const": "execution"},
                    _STEPS,
                ]
            }
        ),
    ] = Field(examples=[["watcher"], "execution"])
    """Steps of this scope or of enclosing scopes, or `execution`."""
    as_: Literal["cancelled", "succeeded", "failed"] = Field(
        default="cancelled", key="as", examples=["succeeded"]
    )
    """The status of the cancelled steps."""
    reason: Template | None = Field(default=None, examples=["No longer needed"])
    """The reason, shown to users."""
