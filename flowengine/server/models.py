"""Models of requests, from which they are checked and documented."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from flowengine.engines.infos import StepOrder
from flowengine.engines.reading import LONGEST_SEARCH
from flowengine.engines.results import Status
from flowengine.server.records import TOKEN_NAME

LARGEST_PAGE = 500
MOST_DECISIONS = 100


class Query(BaseModel):
    """Parameters behind the `?` of an address."""

    model_config = ConfigDict(extra="forbid")


class JsonBody(BaseModel):
    """A JSON body."""

    model_config = ConfigDict(extra="forbid", strict=True)


class PayloadData(BaseModel):
    """A payload of Temporal in its JSON form. Other fields are not needed to decode it."""

    model_config = ConfigDict(extra="ignore", strict=True)

    metadata: dict[str, str] = Field({}, description="name → base64")
    data: str = Field("", description="base64")


class PayloadsBody(BaseModel):
    """Payloads of one namespace of Temporal."""

    model_config = ConfigDict(extra="ignore", strict=True)

    payloads: list[PayloadData] = Field(max_length=10_000)


class PageQuery(Query):
    """A page of a list."""

    limit: int = Field(50, ge=1, le=LARGEST_PAGE, description="size of the page")
    after: str | None = Field(None, max_length=200, description="`next` of the page before")


class ExecutionFilters(Query):
    """The executions that are meant."""

    flow: str | None = Field(None, description="id of the flow")
    status: Status | None = Field(None, description="status of the executions")
    label: list[Annotated[str, Field(pattern="^[^=]+=")]] = Field(
        [], description="`NAME=VALUE`, may be repeated"
    )
    since: str | None = Field(
        None,
        description="started at this time or later",
        json_schema_extra={"format": "date-time"},
    )


class ExecutionsQuery(PageQuery, ExecutionFilters):
    """A page of the list of executions."""

    search: str | None = Field(
        None,
        max_length=LONGEST_SEARCH,
        description="each word begins a word of the title, key inputs, error message, flow or "
        "labels, or the text begins the id",
    )


class FlowQuery(Query):
    """A filter by flow."""

    flow: str | None = Field(None, description="id of the flow")


class AllEventsQuery(ExecutionFilters):
    """A part of the events of all executions. `status`: that of the execution after the event."""

    brief: bool = Field(False, description="only the number, time and type of each entry")
    after: int | None = Field(
        None, ge=0, le=2**62, description="`next` of the part before (default: the newest event)"
    )
    limit: int = Field(100, ge=1, le=LARGEST_PAGE, description="size of the page")


class WaitsQuery(PageQuery):
    """Filters of the list of waits."""

    status: Literal["pending", "closed", "all"] = "pending"
    assignee: str | None = Field(
        None, description="`me` or `user:NAME`: only waits that this user may answer"
    )
    flow: str | None = Field(None, description="id of the flow")
    execution: str | None = Field(None, description="id of the execution")
    batch: str | None = Field(None, description="the `batch` of the waits")
    in_turn: bool = Field(
        False, description="pending ones that are due first come first, not the oldest"
    )
    decided_by: Literal["me"] | None = Field(
        None, description="`me`: only waits on which this user has decided"
    )
    kind: list[str] = Field(
        [], description="kinds of waits, may be repeated (default: those that are decided on)"
    )


class EventsQuery(Query):
    """A part of a journal."""

    from_seq: int = Field(0, ge=0, le=2**31, description="number of the first event")
    limit: int = Field(100, ge=1, le=LARGEST_PAGE, description="size of the page")
    step: str | None = Field(None, description="address of a step: only events about it")
    type: str | None = Field(None, description="only events of this type")
    since: str | None = Field(
        None,
        description="only events of this time or later",
        json_schema_extra={"format": "date-time"},
    )
    replies: bool = Field(False, description="of a stream: only the replies being written")


class ShowQuery(Query):
    """The parts of an execution to show."""

    step: str | None = Field(None, description="address of the only step to show")
    status: str | None = Field(None, description="only steps with this status")
    kind: str | None = Field(None, description="only steps of this kind")
    sort: StepOrder | None = Field(
        None, description="order of the steps, the slowest, dearest or failed ones first"
    )
    limit: int | None = Field(None, ge=1, description="maximum number of steps")
    brief: bool = Field(False, description="only the status, outputs, error and open waits")


class OwnedQuery(Query):
    """A filter by execution."""

    execution: str | None = Field(None, description="id of the execution")


class BudgetsQuery(Query):
    """Filters of the list of budgets that executions share."""

    key: str | None = Field(None, description="their key")
    past: bool = Field(False, description="include those whose period is over")


class FlowsQuery(FlowQuery):
    """Filters of the list of deployed flows."""

    versions: bool = Field(False, description="also those that are not the current ones")


class AuditQuery(Query):
    """A part of the audit record."""

    limit: int = Field(50, ge=1, le=LARGEST_PAGE, description="size of the page")
    before: int | None = Field(None, ge=0, le=2**62, description="`next` of the page before")


class StartBody(JsonBody):
    """A start of an execution."""

    flow: str = Field(min_length=1, description="a deployed flow: `ID`, `ID@VERSION` or its hash")
    inputs: dict[str, Any] = {}
    id: str | None = Field(
        None,
        description="id of the execution. The same id with the same flow and inputs is idempotent",
    )
    labels: dict[str, str] = {}


class FlowTextBody(JsonBody):
    """A flow as text. It names no files of the server's machine."""

    text: str = Field(description="the content of a flow file")
    name: str = Field("flow.yaml", max_length=200, description="its name in errors")


class TriggerBody(JsonBody):
    """A start at any time."""

    schedule: str | None = Field(None, description="its expression, if the flow has several")


class BackfillBody(JsonBody):
    """Past times of schedules."""

    since: str = Field(json_schema_extra={"format": "date-time"})
    until: str | None = Field(
        None, json_schema_extra={"format": "date-time"}, description="default: now"
    )
    schedule: str | None = Field(None, description="its expression. Default: all of the flow")


class CancelBody(JsonBody):
    """A request to cancel."""

    reason: str = Field("", max_length=10_000)
    now: bool = Field(False, description="skip `finally` and compensation")
    step: str | None = Field(
        None, max_length=1000, description="only this running call, group or subflow"
    )


class ResumeBody(JsonBody):
    """Answers to the open questions about interrupted attempts."""

    on_crash: Literal["retry", "fail"]


class RetryBody(JsonBody):
    """A retry of a failed execution."""

    step: str | list[str] | None = Field(
        None,
        description="address of a step: retry what failed in it, or the step itself. Several: "
        "retry what failed in them",
    )
    flow: str | None = Field(None, min_length=1, description="a fixed flow: its id, or a hash")
    repeat_once: bool = Field(
        False,
        description="allow it to repeat calls with effect `once` in an agent or flow that begins "
        "anew",
    )


class ForkBody(JsonBody):
    """A fork of an execution."""

    from_step: str = Field(min_length=1, description="address of the step that starts again")
    set: dict[str, Any] = Field({}, description="state to write before the step starts")
    flow: str | None = Field(None, min_length=1, description="a changed flow: its id, or a hash")
    id: str | None = Field(None, description="id of the new execution")
    labels: dict[str, str] | None = Field(None, description="default: those of the old one")


class UpgradeBody(JsonBody):
    """A move of an open execution to another version of its flow."""

    flow: str = Field(min_length=1, description="the version: id of a flow, or a hash")
    mapping: dict[str, Any] = Field(
        {}, description="names that differ: `steps`, `state`, `signals`, `inputs`, `values`"
    )
    check: bool = Field(False, description="only report what would happen")


class SignalBody(JsonBody):
    """A signal to an execution."""

    data: Any = None
    id: str | None = Field(None, max_length=200, description="makes it idempotent")
    step: str | None = Field(
        None, max_length=1000, description="the step whose subflow or agent receives it"
    )


class KeyedSignalBody(JsonBody):
    """A signal to the open execution that has a key, or to the one that it starts."""

    data: Any = None
    id: str | None = Field(None, max_length=200, description="makes it idempotent")
    key: str


class GrantBody(JsonBody):
    """The later calls of the same tool that an approval also covers."""

    scope: Literal["execution", "flow"] = "execution"
    args: dict[str, str] = Field({}, description="argument → a pattern")
    uses: int | None = Field(None, ge=1)
    expires: str | None = Field(None, description="a duration: `2h`")


class DecisionBody(JsonBody):
    """A decision."""

    choice: str
    form: Any = None
    edit: dict[str, Any] | None = Field(
        None, description="field of the subject, or dotted path into it → new value"
    )
    comment: str | None = None
    value: Any = Field(None, description="the result, with the choices `result` and `respond`")
    grant: GrantBody | None = None
    images: list[str] = Field(
        [], max_length=10, description="for the model: `data:` URLs, or SHA-256 of uploaded images"
    )
    attach: list[str] = Field([], max_length=10, description="SHA-256 of uploaded files")


class OneDecision(DecisionBody):
    """A decision on one of several waits."""

    wait: str


class DecisionsBody(JsonBody):
    """Several decisions, each with its own result."""

    decisions: list[OneDecision] = Field(min_length=1, max_length=MOST_DECISIONS)


class UploadQuery(Query):
    """An uploaded file."""

    name: str = Field(min_length=1, max_length=255, description="its name, without directories")


class ReleaseBody(JsonBody):
    """A release of an environment."""

    force: bool = Field(False, description="end it even if the process that opened it is alive")


class EmptyBody(JsonBody):
    """Nothing."""


class TokenBody(JsonBody):
    """A token, with its limits."""

    name: str = Field(pattern=TOKEN_NAME, description="for lists and the audit record")
    user: str | None = Field(
        None, max_length=200, description="`user:NAME`. Default: the user of the request"
    )
    role: Literal["viewer", "starter", "approver", "operator", "admin"] | None = Field(
        None, description="Default: no limit"
    )
    flows: list[Annotated[str, Field(min_length=1, max_length=200)]] = Field(
        ["*"], min_length=1, max_length=100, description="patterns of flow ids, with `role`"
    )
    content: bool = Field(False, description="with `role`: see inputs, outputs and events")
    expires_in: int | None = Field(None, ge=1, le=10 * 365 * 86_400, description="in seconds")


class DelegateBody(JsonBody):
    """A delegation to another user."""

    to: str = Field(min_length=1, max_length=200, description="`user:NAME`")
    comment: str | None = Field(None, max_length=10_000)
