"""Expectations of test and evaluation cases about an execution (docs/testing.md)."""

from typing import Annotated, Any, Literal

from flowengine.flow.models.base import ExclusiveKeys, Field, Part
from flowengine.flow.models.types import AsSchema, CheckedType, Value, wrong


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        wrong("text", value)
    return str(value)


Words = Annotated[str, CheckedType(_text), AsSchema({"type": "string", "minLength": 1})]
"""Text that is not empty."""
Status = Literal["running", "succeeded", "failed", "cancelled", "waiting", "stalled"]


class ExpectedError(Part):
    """The error with which the execution fails. Omitted properties are not checked."""

    NOUN = "an error"
    MAIN = "type"

    type: Words | None = Field(default=None, description="Its type.", examples=["Rejected"])
    message: Words | None = Field(
        default=None, description="A substring of its message.", examples=["was rejected"]
    )
    step: Words | None = Field(
        default=None, description="Address of the step that raised it.", examples=["book"]
    )
    data: Value = Field(default=None, description="Its data.", examples=[{"status": 503}])


class ExpectedStep(Part):
    """How a step is expected to have ended. Omitted properties are not checked."""

    NOUN = "a step"
    MAIN = "status"

    status: Words | None = Field(default=None, description="Its status.", examples=["skipped"])
    outcome: Words | None = Field(default=None, description="Its outcome.", examples=["approve"])
    output: Value = Field(default=None, description="Its output.", examples=[{"id": 7}])


class ExpectedCall(Part):
    """A call that a model requests. Omitted properties are not checked."""

    NOUN = "a call"
    MAIN = "name"

    name: Words = Field(
        description="The name that the model is offered, such as `transfer_to_billing`.",
        examples=["search"],
    )
    with_: dict[str, Value] | None = Field(
        default=None, key="with", description="Its arguments.", examples=[{"words": "cranes"}]
    )


class ExpectedCalls(Part):
    """The calls that the models of agents request, and how their order is compared."""

    NOUN = "'calls'"
    MAIN = "exactly"
    RULES = (ExclusiveKeys(("exactly", "in_any_order", "including")),)

    exactly: list[ExpectedCall] | None = Field(
        default=None, description="All calls, in this order.", examples=[["search", "answer"]]
    )
    in_any_order: list[ExpectedCall] | None = Field(
        default=None, description="All calls, in any order.", examples=[["search", "answer"]]
    )
    including: list[ExpectedCall] | None = Field(
        default=None,
        description="Calls in this order, with other calls before, between and after them.",
        examples=[["search"]],
    )


class Expected(Part):
    """The expected result of a case. Omitted properties are not checked."""

    NOUN = "'expect'"

    status: Status | None = Field(
        default=None,
        description=(
            "Default: `failed` with `error`, `waiting` with `waits`, otherwise "
            "`succeeded`. With `waiting`, time advances only to the end of the script, "
            "or to `until`."
        ),
        examples=["succeeded"],
    )
    path: list[Words] | None = Field(
        default=None,
        description=(
            "The steps in the order in which they start: only those of the flow itself, "
            "or all if an address such as `each[a]/check` is among them. Skipped steps "
            "are omitted."
        ),
        examples=[["route", "book"]],
    )
    steps: dict[str, ExpectedStep] | None = Field(
        default=None,
        description="How steps ended, by address: a status, or `{status, outcome, output}`.",
        examples=[{"notify": "skipped"}],
    )
    outputs: dict[str, Value] | None = Field(
        default=None, description="Outputs by name.", examples=[{"booked": True}]
    )
    matches: dict[str, dict[str, Value]] | None = Field(
        default=None,
        description="JSON Schemas of outputs, by name.",
        examples=[{"answer": {"type": "string", "maxLength": 200}}],
    )
    calls: ExpectedCalls | None = Field(
        default=None,
        description=(
            "The calls that models request: a list, or `{in_any_order}` or `{including}` with one."
        ),
        examples=[["search", {"name": "refund", "with": {"order": 7}}]],
    )
    error: ExpectedError | None = Field(
        default=None, description="The error.", examples=["Rejected"]
    )
    state: dict[str, Value] | None = Field(
        default=None, description="State at the end, by key.", examples=[{"count": 3}]
    )
    waits: list[Words] | None = Field(
        default=None, description="Addresses of the waiting steps.", examples=[["manager"]]
    )


class ExpectingCase(Part):
    """The common fields of test and evaluation cases."""

    NOUN = "a case"
    NAMED = "name"

    name: Words = Field(description="The purpose of the case.", examples=["edited and approved"])
    inputs: dict[str, Value] = Field(
        default={}, description="Inputs of the flow.", examples=[{"name": "Ada"}]
    )
    expect: Expected = Field(
        default=Expected(),
        description="The expected result. Default: the execution succeeds.",
        examples=[{"path": ["route", "book"]}],
    )

    @property
    def expected_status(self) -> str:
        """The status at the end."""
        expect = self.expect
        if expect.status is not None:
            return expect.status
        if expect.error is not None:
            return "failed"
        return "waiting" if expect.waits is not None else "succeeded"
