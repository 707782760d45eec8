"""Types of answers, in addition to those of the engine's public interface."""

from __future__ import annotations

from typing import Any, TypedDict

from flowengine.engines.infos import ExecutionInfo, GrantInfo, Reason, WaitInfo


class Started(TypedDict):
    """An execution that was recorded. The process that drives the store's executions begins it."""

    execution: str


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


class Waits(TypedDict):
    """A page of waits, oldest first."""

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


class Graph(TypedDict):
    """The graph of a flow in the node-link format of networkx, and a picture of it."""

    title: str
    frame: dict[str, Any]
    nodes: list[dict[str, Any]]
    edges: list[dict[str, Any]]


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
    workspace: str | None
    traces: dict[str, Any]
    error: str


class Environments(TypedDict):
    """The environments that the user may operate."""

    items: list[Environment]


class Grants(TypedDict):
    """Approvals of later calls."""

    items: list[GrantInfo]


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
