"""Types of answers, in addition to those of the engine's public interface."""

from __future__ import annotations

from typing import Any, TypedDict

from flowengine.engines.infos import ExecutionInfo, GrantInfo, Reason, SharedBudgetInfo, StartInfo
from flowengine.engines.results import WaitInfo


class Started(TypedDict):
    """An execution that was recorded. The process that drives the store's executions begins it."""

    execution: str


class PayloadItem(TypedDict):
    """A payload of Temporal in its JSON form, with values as base64."""

    metadata: dict[str, str]
    data: str


class Payloads(TypedDict):
    """Payloads in the order of the request."""

    payloads: list[PayloadItem]


class Resumed(TypedDict):
    """The waits that were answered."""

    answered: list[str]


class SignalSent(TypedDict):
    """A signal that was stored."""

    execution: str
    id: str
    first: bool
    """False: the same message had been sent before."""
    began: bool
    """Whether it started the execution."""


class HookTaken(TypedDict, total=False):
    """A delivery that was stored as a signal. `challenge` answers a service that tries the hook."""

    execution: str
    id: str
    first: bool
    """False: the same delivery had come before."""
    began: bool
    """Whether it started the execution."""
    challenge: Any


class Executions(TypedDict):
    """A page of executions, newest first."""

    items: list[ExecutionInfo]
    next: str | None


class Counts(TypedDict):
    """Status → number of executions. Those that no process drives have their last status."""

    counts: dict[str, int]


class Waits(TypedDict):
    """A page of waits, oldest first. Closed ones only: newest first."""

    items: list[WaitInfo]
    next: str | None


class Reasons(TypedDict):
    """Why an execution makes no progress."""

    items: list[Reason]


class Events(TypedDict):
    """A part of a journal. Also as a stream: `Accept: text/event-stream`."""

    items: list[dict[str, Any]]
    next: int | None
    """Number of the next event. None: there are none yet."""


class EventItem(TypedDict):
    """An event of an execution."""

    number: int
    """Its place among the events of all executions."""
    execution: str
    flow: str
    status: str
    """That of the execution right after the event."""
    labels: dict[str, str]
    created_at: str
    """When the execution was created."""
    entry: dict[str, Any]
    """As in the journal of the execution. Without the right `content` only `seq`, `at`, `type`."""


class AllEvents(TypedDict):
    """A part of the events of all executions. Also as a stream: `Accept: text/event-stream`."""

    items: list[EventItem]
    next: int
    """Pass it as `after` to get the events that follow."""


class DrawnGraph(TypedDict):
    """The graph of a flow in the node-link format of networkx, and a picture of it."""

    title: str
    frame: dict[str, Any]
    nodes: list[dict[str, Any]]
    edges: list[dict[str, Any]]


class Uploaded(TypedDict):
    """A file that was uploaded. This map is its value in inputs, forms and signals."""

    name: str
    size: int
    sha256: str


class Decided(TypedDict):
    """The decision that counts."""

    wait: str
    execution: str
    choice: str
    by: str
    at: str
    via: str
    comment: str | None
    first: bool
    """False: the same decision had been made before."""


class DecisionResult(TypedDict, total=False):
    """The result of one of several decisions."""

    wait: str
    status: int
    """As that of a single decision."""
    decision: Decided
    problem: dict[str, Any]


class DecisionResults(TypedDict):
    """The results, in the order of the decisions."""

    results: list[DecisionResult]


class FlowItem(TypedDict):
    """A deployed flow."""

    flow: str
    version: str
    title: str
    hash: str
    inputs: dict[str, Any]
    deployed_at: str
    current: bool
    modules: list[str]
    """Python modules that its steps import on the worker's machine."""
    starts: list[StartInfo]
    """Its triggers, if it is the current version."""


class FlowDefinition(TypedDict):
    """The definition of a deployed flow as text, to compare it with another one."""

    flow: str
    version: str
    hash: str
    definition: str


class DeployedFlow(FlowItem):
    """A flow that was deployed."""

    warnings: list[dict[str, Any]]


class CheckedFlow(TypedDict):
    """The result of a check: `{file, line, column, code, message, hint}` of each finding."""

    errors: list[dict[str, Any]]
    warnings: list[dict[str, Any]]
    flow: str | None
    """Its id. None: it has errors."""


class Undeployed(TypedDict):
    """The removed versions as `ID@VERSION`."""

    removed: list[str]


class Schedules(TypedDict):
    """Schedules of deployed flows. One without `next` is paused."""

    items: list[StartInfo]


class PastStart(TypedDict):
    """The execution of a past time."""

    flow: str
    schedule: str
    time: str
    execution: str | None
    error: str | None
    """Why there is none."""


class Backfilled(TypedDict):
    """Executions of past times, ordered by time."""

    items: list[PastStart]


class Flows(TypedDict):
    """The deployed flows that the user may see."""

    items: list[FlowItem]


class Me(TypedDict):
    """The user of the request."""

    user: str
    token: str
    access: list[dict[str, Any]]
    """Roles, each with its flows."""
    scope: dict[str, Any] | None
    """The limits of the token."""


class Environment(TypedDict, total=False):
    """An environment that is open, was left open, or is missing."""

    id: str
    kind: str
    provider: str
    scope: str
    owner_id: str
    execution: str | None
    """The execution that owns it, if any."""
    resource_key: str
    """Its name."""
    generation: int
    state: str
    since: str
    process: int | None
    host: str | None
    alive: bool | None
    """Whether the process that opened it is alive. None: it is missing."""
    screen: bool
    """Whether one can look into it: it is open, and a browser or a terminal."""
    workspace: str | None
    traces: dict[str, Any]
    error: str


class Environments(TypedDict):
    """The environments that the user may operate."""

    items: list[Environment]


class Grants(TypedDict):
    """Approvals of later calls."""

    items: list[GrantInfo]


class Budgets(TypedDict):
    """Budgets that executions share."""

    items: list[SharedBudgetInfo]


class TokenItem(TypedDict, total=False):
    """A token, without its secret."""

    name: str
    user: str
    status: str
    role: str
    flows: list[str]
    content: bool
    created_by: str
    created_at: str
    expires_at: str
    used_at: str
    revoked_at: str


class CreatedToken(TypedDict):
    """A new token."""

    name: str
    user: str
    token: str | None
    """Shown once. None: the request was repeated."""


class Tokens(TypedDict):
    """All tokens."""

    items: list[TokenItem]


class AuditItem(TypedDict):
    """A change or a refusal."""

    number: int
    at: str
    user: str | None
    token: str | None
    address: str | None
    method: str
    path: str
    status: int
    why: str | None


class Audit(TypedDict):
    """A page of the audit record, newest first."""

    items: list[AuditItem]
    next: int | None


class Health(TypedDict):
    """The state of the server."""

    status: str
