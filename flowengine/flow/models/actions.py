"""The actions that the language itself defines. All others are provided by step kinds."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from flowengine.flow.models.agent import Schema
from flowengine.flow.models.base import ExclusiveKeys, Field, MappingProblem, Part, listed
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
    wrong,
)

OCCASIONS = ("for", "until", "signal", "when")
OF_SIGNAL = ("key", "match", "count", "transient")
"""Keys that apply to a `signal`."""


class Occasion(Part):
    """An event that a step can wait for."""

    RULES_AS_SCHEMA = ({"dependentRequired": {key: ["signal"] for key in OF_SIGNAL}},)

    for_: DurationOrExpression | None = Field(
        default=None, key="for", description="A duration.", examples=["15m", "3d"]
    )
    until: TimeOrExpression | None = Field(
        default=None, description="A point in time.", examples=["2026-11-25T09:00:00Z"]
    )
    signal: SignalName | None = Field(
        default=None, description="A declared signal.", examples=["payment"]
    )
    key: Template | None = Field(
        default=None,
        description="The key, in place of the one declared with the signal.",
        examples=["${{ inputs.order }}"],
    )
    match: Condition | None = Field(
        default=None,
        description="A condition on `signal`. Other messages are not consumed.",
        examples=["${{ signal.data.amount >= inputs.total }}"],
    )
    count: PositiveOrExpression | None = Field(
        default=None,
        description="How many messages to collect. The output is then a list.",
        examples=[3],
    )
    transient: bool = Field(
        default=False,
        description="Whether only messages that arrive during the wait count.",
        examples=[True],
    )
    when: Condition | None = Field(
        default=None, description="A condition on `state`.", examples=["${{ state.open }}"]
    )

    @classmethod
    def problems(cls, given: Mapping[str, Any]) -> Iterator[MappingProblem]:
        """Require a signal for keys that apply to one."""
        yield from super().problems(given)
        for key in OF_SIGNAL:
            if key in given and "signal" not in given:
                message = f"{key!r} has no meaning without 'signal'"
                yield MappingProblem(key, "E103", message, "add 'signal', or leave it out")


class Alternative(Occasion):
    """One of several events that a step waits for. Its id is the step's outcome."""

    NOUN = "an alternative"
    RULES = (ExclusiveKeys(OCCASIONS),)

    id: AlternativeId = Field(description="The outcome of the step.", examples=["paid"])


class Wait(Occasion):
    """Waits for time, a signal or a condition."""

    NOUN = "'wait'"
    MAIN = "for"
    RULES = (ExclusiveKeys((*OCCASIONS, "first", "all")),)

    first: list[Alternative] | None = Field(
        default=None,
        min_length=1,
        description="The first that occurs wins, and the others are cancelled.",
        examples=[[{"id": "paid", "signal": "payment"}, {"id": "late", "for": "3d"}]],
    )
    all: list[Alternative] | None = Field(
        default=None,
        min_length=1,
        description="All of them must occur.",
        examples=[[{"id": "paid", "signal": "payment"}, {"id": "sent", "signal": "parcel"}]],
    )


class Choice(Part):
    """A choice of an approval. Its id is the step's outcome."""

    NOUN = "a choice"
    MAIN = "id"

    id: Outcome = Field(description="The outcome of the step.", examples=["approve"])
    label: Template | None = Field(
        default=None, description="The text shown to users.", examples=["Send back"]
    )
    counts_as: Literal["approve", "reject", "other"] | None = Field(
        default=None,
        description="Whether it counts as approval or rejection. Default: derived from the id, "
        "`other` for other ids.",
        examples=["reject"],
    )
    comment: Literal["none", "optional", "required"] = Field(
        default="optional",
        description="Whether it accepts or requires a comment.",
        examples=["required"],
    )


RESPOND = "respond"
"""The choice that supplies the result of a call, so that the call does not run."""


class Reminder(Part):
    """How often the assignees are reminded."""

    NOUN = "'remind'"
    MAIN = "every"

    every: DurationOrExpression = Field(
        description="The time between two reminders.", examples=["8h"]
    )


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
    """Assignees that are added when no decision was made in time."""

    NOUN = "an entry of 'escalate'"

    after: DurationOrExpression = Field(description="The time since the start.", examples=["24h"])
    to: People = Field(description="The additional assignees.", examples=[["user:cfo"]])
    replace: bool = Field(
        default=False, description="Whether they replace the previous assignees.", examples=[True]
    )


def _editable(value: Any) -> bool | list[str] | str:
    texts = isinstance(value, list) and all(isinstance(item, str) for item in value)
    if not texts and not isinstance(value, bool) and not is_expression(value):
        wrong("a list of fields of 'subject', or true for all", value)
    return value  # type: ignore[no-any-return]


class Asking(Part):
    """Settings shared by all approvals: of a step, or required before a step, call or opening."""

    RULES_AS_SCHEMA = ({"dependentRequired": {"on_expire": ["expires"]}},)

    body: Template | None = Field(
        default=None,
        description="Markdown shown to the approver.",
        examples=["${{ inputs.reason }}"],
    )
    form: Schema | None = Field(
        default=None,
        description="JSON Schema of a form. It is required for choices that approve.",
        examples=[{"properties": {"cost_center": {"type": "string"}}}],
    )
    choices: list[Choice] = Field(
        default=[Choice(id="approve"), Choice(id="reject")],
        min_length=1,
        description="The choices. Default: `approve` and `reject`.",
        examples=[["approve", {"id": "reject", "comment": "required"}]],
    )
    assignees: People | None = Field(
        default=None,
        description="Users and groups that may decide. Default: anyone.",
        examples=[["group:finance"]],
    )
    exclude: People | None = Field(
        default=None,
        description="Users and groups that must not decide. Takes precedence over `assignees`.",
        examples=[["${{ execution.started_by }}"]],
    )
    need: PositiveOrExpression = Field(
        default=1, description="The number of approving votes required.", examples=[2]
    )
    claim: bool = Field(
        default=False, description="Whether it must be claimed before a decision.", examples=[True]
    )
    delegate: bool = Field(
        default=True, description="Whether an assignee may delegate it.", examples=[False]
    )
    expires: DurationOrExpression | None = Field(
        default=None,
        description="The time after which the outcome is `expired`. Default: never.",
        examples=["48h"],
    )
    on_expire: Outcome | None = Field(
        default=None, description="The choice that is taken on expiry.", examples=["reject"]
    )
    remind: Reminder | None = Field(
        default=None, description="How often the assignees are reminded.", examples=["8h"]
    )
    escalate: list[Escalation] = Field(
        default=[],
        description="Further assignees, if no decision was made in time.",
        examples=[[{"after": "24h", "to": ["user:cfo"]}]],
    )
    notify: list[ToolName] = Field(
        default=[],
        description="Tools that are called when it opens, reminds or escalates.",
        examples=[["mail"]],
    )
    batch: Template | None = Field(
        default=None,
        description="Key for listing and deciding several approvals together. Default: "
        "the step's id.",
        examples=["invoices"],
    )
    attachments: Value = Field(
        default=None,
        description="Files shown to the approver.",
        examples=[["${{ steps.make.output.files.report }}"]],
    )

    @classmethod
    def problems(cls, given: Mapping[str, Any]) -> Iterator[MappingProblem]:
        """Check choices and expiry."""
        yield from super().problems(given)
        if "on_expire" in given and "expires" not in given:
            yield MappingProblem("on_expire", "E103", "'on_expire' has no effect without 'expires'")
        yield from _choice_problems(given)


class Approval(Asking):
    """Waits for a decision of an approver."""

    NOUN = "an approval"
    MAIN = "title"

    title: Template = Field(
        description="The question.", examples=["Expense of ${{ inputs.amount }}"]
    )
    subject: Value = Field(
        default=None,
        description="The data to decide on. It is shown, and stored with its digest.",
        examples=[{"amount": "${{ inputs.amount }}"}],
    )
    edit: Annotated[
        bool | list[str] | str,
        CheckedType(_editable),
        AsSchema(
            {
                "anyOf": [
                    {"type": "boolean"},
                    {"type": "array", "items": {"type": "string"}},
                    {"$ref": "#/$defs/Expression"},
                ]
            }
        ),
    ] = Field(
        default=False,
        description="Fields of `subject` that the approver may change, or `true` for all.",
        examples=[["amount"], True],
    )


class AskFirst(Asking):
    """Requires an approval before an action, always or on a condition."""

    NOUN = "an 'approval'"
    SHORT = ({"enum": ["none", "ask", "required"]}, {"$ref": "#/$defs/Expression"})

    when: ConditionOrBoolean = Field(
        default=True, description="Whether an approval is requested.", examples=["${{ args.open }}"]
    )
    required: bool = Field(
        default=False, description="Whether a person must decide. A policy cannot.", examples=[True]
    )
    title: Template | None = Field(
        default=None,
        description="The question. Default: describes the environment to open.",
        examples=["May it go online?"],
    )

    @classmethod
    def short_form(cls, value: Any) -> Any:
        """Return the mapping that a bare word or a condition stands for."""
        if is_expression(value):
            return {"when": value}
        words = {"none": {"when": False}, "ask": {}, "required": {"required": True}}
        return words.get(value, value) if isinstance(value, str) else value


def _editable_arguments(value: Any) -> bool | list[str]:
    names = isinstance(value, list) and all(isinstance(item, str) for item in value)
    if not names and not isinstance(value, bool):
        wrong("a list of arguments, or true for all", value)
    return value  # type: ignore[no-any-return]


class AskBeforeCall(AskFirst):
    """Requires an approval before a tool is called."""

    choices: list[Choice] = Field(
        default=[Choice(id=id) for id in ("approve", "reject", RESPOND)],
        min_length=1,
        description="The choices. Default: `approve`, `reject`, and `respond`, which supplies the "
        "result instead of the call.",
        examples=[["approve", {"id": "reject", "comment": "required"}]],
    )
    title: Template | None = Field(
        default=None,
        description="The question. Default: describes the call.",
        examples=["May ${{ args.amount }} be sent?"],
    )
    edit: Annotated[
        bool | list[str],
        CheckedType(_editable_arguments),
        AsSchema({"anyOf": [{"type": "boolean"}, {"type": "array", "items": {"type": "string"}}]}),
    ] = Field(
        default=False,
        description="Arguments that the approver may change, or `true` for all.",
        examples=[["amount"], True],
    )

    @classmethod
    def problems(cls, given: Mapping[str, Any]) -> Iterator[MappingProblem]:
        """Check the rules that are specific to calls."""
        yield from super().problems(given)
        if given.get("on_expire") == RESPOND:
            message = f"{RESPOND!r} needs a result, which an expiry cannot supply"
            yield MappingProblem("on_expire", "E103", message)
        need = given.get("need", 1)
        if given.get("edit") and isinstance(need, int) and need > 1:
            message = "'edit' cannot be combined with 'need': all voters must see the same call"
            yield MappingProblem("edit", "E103", message)
        choices = given.get("choices")
        for one in choices if isinstance(choices, list) else ():
            counts = isinstance(one, dict) and one.get("id") == RESPOND and one.get("counts_as")
            if counts not in (None, False, "other"):
                message = f"{RESPOND!r} gives a result instead of the call: it counts as 'other'"
                yield MappingProblem("choices", "E103", message)


def _choice_problems(given: Mapping[str, Any]) -> Iterator[MappingProblem]:
    choices = given.get("choices", [{"id": "approve"}, {"id": "reject"}])
    if not isinstance(choices, list):
        return
    ids = [str(choice.get("id")) if isinstance(choice, dict) else str(choice) for choice in choices]
    twice = next((one for one in ids if ids.count(one) > 1), None)
    if twice is not None:
        yield MappingProblem("choices", "E105", f"two choices have the id {twice!r}", "rename one")
    chosen = given.get("on_expire")
    if isinstance(chosen, str) and chosen not in ids:
        message = f"{chosen!r} is not one of the choices"
        yield MappingProblem("on_expire", "E103", message, f"use {listed(ids)}" if ids else None)


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
    MAIN = "targets"

    targets: Annotated[
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
    ] = Field(
        description="Steps of this scope or of enclosing scopes, or `execution`.",
        examples=[["watcher"], "execution"],
    )
    as_: Literal["cancelled", "succeeded", "failed"] = Field(
        default="cancelled",
        key="as",
        description="The status of the cancelled steps.",
        examples=["succeeded"],
    )
    reason: Template | None = Field(
        default=None, description="The reason, shown to users.", examples=["No longer needed"]
    )
