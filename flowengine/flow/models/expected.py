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

    type: Words | None = Field(default=None, examples=["Rejected"])
    """Its type."""
    message: Words | None = Field(default=None, examples=["was rejected"])
    """A substring of its message."""
    step: Words | None = Field(default=None, examples=["book"])
    """Address of the step that raised it."""
    data: Value = Field(default=None, examples=[{"status": 503}])
    """Its data."""


class ExpectedStep(Part):
    """How a step is expected to have ended. Omitted properties are not checked."""

    NOUN = "a step"
    MAIN = "status"

    status: Words | None = Field(default=None, examples=["skipped"])
    """Its status."""
    outcome: Words | None = Field(default=None, examples=["approve"])
    """Its outcome."""
    output: Value = Field(default=None, examples=[{"id": 7}])
    """Its output."""


class ExpectedCall(Part):
    """A call that a model requests. Omitted properties are not checked."""

    NOUN = "a call"
    MAIN = "name"

    name: Words = Field(examples=["search"])
    """The name that the model is offered, such as `transfer_to_billing`."""
    with_: dict[str, Value] | None = Field(default=None, key="with", examples=[{"words": "cranes"}])
    """Its arguments."""


class ExpectedCalls(Part):
    """The calls that the models of agents request, and how their order is compared."""

    NOUN = "'calls'"
    MAIN = "exactly"
    RULES = (ExclusiveKeys(("exactly", "in_any_order", "including")),)

    exactly: list[ExpectedCall] | None = Field(default=None, examples=[["search", "answer"]])
    """All calls, in this order."""
    in_any_order: list[ExpectedCall] | None = Field(default=None, examples=[["search", "answer"]])
    """All calls, in any order."""
    including: list[ExpectedCall] | None = Field(default=None, examples=[["search"]])
    """Calls in this order, with other calls before, between and after them."""


class Expected(Part):
    """The expected result of a case. Omitted properties are not checked."""

    NOUN = "'expect'"

    status: Status | None = Field(default=None, examples=["succeeded"])
    """Default: `failed` with `error`, `waiting` with `waits`, otherwise `succeeded`. With
    `waiting`, time advances only to the end of the script, or to `until`."""
    path: list[Words] | None = Field(default=None, examples=[["route", "book"]])
    """The steps in the order in which they start: only those of the flow itself, or all if an
    address such as `each[a]/check` is among them. Skipped steps are omitted."""
    steps: dict[str, ExpectedStep] | None = Field(default=None, examples=[{"notify": "skipped"}])
    """How steps ended, by address: a status, or `{status, outcome, output}`."""
    outputs: dict[str, Value] | None = Field(default=None, examples=[{"booked": True}])
    """Outputs by name."""
    matches: dict[str, dict[str, Value]] | None = Field(
        default=None, examples=[{"answer": {"type": "string", "maxLength": 200}}]
    )
    """JSON Schemas of outputs, by name."""
    calls: ExpectedCalls | None = Field(
        default=None, examples=[["search", {"name": "refund", "with": {"order": 7}}]]
    )
    """The calls that models request: a list, or `{in_any_order}` or `{including}` with one."""
    error: ExpectedError | None = Field(default=None, examples=["Rejected"])
    """The error."""
    state: dict[str, Value] | None = Field(default=None, examples=[{"count": 3}])
    """State at the end, by key."""
    waits: list[Words] | None = Field(default=None, examples=[["manager"]])
    """Addresses of the waiting steps."""


class ExpectingCase(Part):
    """The common fields of test and evaluation cases."""

    NOUN = "a case"
    NAMED = "name"

    name: Words = Field(examples=["edited and approved"])
    """The purpose of the case."""
    inputs: dict[str, Value] = Field(default={}, examples=[{"name": "Ada"}])
    """Inputs of the flow."""
    expect: Expected = Field(default=Expected(), examples=[{"path": ["route", "book"]}])
    """The expected result. Default: the execution succeeds."""

    @property
    def expected_status(self) -> str:
        """The status at the end."""
        expect = self.expect
        if expect.status is not None:
            return expect.status
        if expect.error is not None:
            return "failed"
        return "waiting" if expect.waits is not None else "succeeded"
