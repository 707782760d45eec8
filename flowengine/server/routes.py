"""Every route of the API, with the right that it needs. Only this table assigns rights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from flowengine.engines.infos import (
    Difference,
    ExecutionInfo,
    GrantInfo,
    UpgradeInfo,
    WaitInfo,
)
from flowengine.server import (
    administration,
    approvals,
    environments,
    executions,
    hooks,
    models,
    responses,
)
from flowengine.server.calls import FLOWS
from flowengine.server.rights import Right

Need = Right | Literal["public", "anyone", "signed"]
"""`public`: no credential. `anyone`: any valid credential. `signed`: a signature of the body."""


class Route(NamedTuple):
    """A method of a path."""

    method: Literal["GET", "POST"]
    path: str
    need: Need
    answer: Callable[[Any], Any]
    response: Any
    """Type of the answer. `Path`: a file."""
    body: type[models.Body] | None = None
    query: type[models.Query] = models.Query
    status: int = 200
    streams: bool = False
    """Whether the answer can also be a stream of events."""

    @property
    def subject(self) -> str | None:
        """The object in the path on whose flow the right is needed."""
        return next((name for name in FLOWS if f"{{{name}}}" in self.path), None)


_EXECUTION = "/v1/executions/{execution}"
_APPROVAL = "/v1/approvals/{approval}"

ROUTES = (
    Route("GET", "/v1/health", "public", administration.health, responses.Health),
    Route("GET", "/v1/me", "anyone", administration.me, responses.Me),
    Route("GET", "/v1/flows", Right.SEE, administration.list_flows, responses.Flows),
    Route("GET", "/v1/flows/{flow}", Right.SEE, administration.show_flow, responses.FlowItem),
    Route(
        "GET", "/v1/executions", Right.SEE, executions.list_executions, responses.Executions,
        query=models.ExecutionsQuery,
    ),
    Route(
        "POST", "/v1/executions", Right.START, executions.start_execution, responses.Started,
        models.StartBody, status=201,
    ),
    Route(
        "GET", _EXECUTION, Right.SEE, executions.show_execution, ExecutionInfo,
        query=models.ShowQuery,
    ),
    Route("GET", f"{_EXECUTION}/why", Right.SEE, executions.why, responses.Reasons),
    Route(
        "GET", f"{_EXECUTION}/events", Right.CONTENT, executions.list_events, responses.Events,
        query=models.EventsQuery, streams=True,
    ),
    Route("GET", f"{_EXECUTION}/graph", Right.SEE, executions.graph, responses.Graph),
    Route(
        "GET", f"{_EXECUTION}/diff/{{other}}", Right.CONTENT, executions.diff, Difference,
    ),
    Route(
        "GET", f"{_EXECUTION}/artifacts/{{sha256}}", Right.CONTENT, executions.download, Path,
    ),
    Route(
        "POST", f"{_EXECUTION}/cancel", Right.OPERATE, executions.cancel, responses.Started,
        models.CancelBody, status=202,
    ),
    Route(
        "POST", f"{_EXECUTION}/resume", Right.OPERATE, executions.resume, responses.Resumed,
        models.ResumeBody, status=202,
    ),
    Route(
        "POST", f"{_EXECUTION}/retry", Right.OPERATE, executions.retry, responses.Started,
        models.RetryBody, status=202,
    ),
    Route(
        "POST", f"{_EXECUTION}/fork", Right.OPERATE, executions.fork, responses.Started,
        models.ForkBody, status=201,
    ),
    Route(
        "POST", f"{_EXECUTION}/upgrade", Right.OPERATE, executions.upgrade, UpgradeInfo,
        models.UpgradeBody,
    ),
    Route(
        "POST", f"{_EXECUTION}/signals/{{name}}", Right.OPERATE, executions.send_signal,
        responses.SignalSent, models.SignalBody, status=202,
    ),
    Route(
        "POST", "/v1/signals/{name}", Right.START, executions.send_keyed_signal,
        responses.SignalSent, models.KeyedSignalBody, status=202,
    ),
    Route(
        "POST", "/v1/hooks/{name}", "signed", hooks.receive, responses.HookTaken, status=202,
    ),
    Route(
        "GET", "/v1/approvals", Right.SEE, approvals.list_approvals, responses.Waits,
        query=models.WaitsQuery,
    ),
    Route(
        "POST", "/v1/approvals/decisions", Right.DECIDE, approvals.decide_many,
        responses.DecisionResults, models.DecisionsBody,
    ),
    Route("GET", _APPROVAL, Right.SEE, approvals.show_approval, WaitInfo),
    Route(
        "POST", f"{_APPROVAL}/decision", Right.DECIDE, approvals.decide, responses.Decided,
        models.DecisionBody,
    ),
    Route(
        "POST", f"{_APPROVAL}/claim", Right.DECIDE, approvals.claim, WaitInfo, models.EmptyBody
    ),
    Route(
        "POST", f"{_APPROVAL}/release", Right.DECIDE, approvals.release, WaitInfo, models.EmptyBody
    ),
    Route(
        "POST", f"{_APPROVAL}/delegate", Right.DECIDE, approvals.delegate, WaitInfo,
        models.DelegateBody,
    ),
    Route(
        "GET", "/v1/environments", Right.OPERATE, environments.list_environments,
        responses.Environments, query=models.OwnedQuery,
    ),
    Route(
        "GET", "/v1/environments/{environment}", Right.OPERATE, environments.show_environment,
        responses.Environment,
    ),
    Route(
        "POST", "/v1/environments/{environment}/release", Right.OPERATE,
        environments.release_environment, responses.Environment, models.ReleaseBody,
    ),
    Route(
        "GET", "/v1/grants", Right.CONTENT, environments.list_grants, responses.Grants,
        query=models.OwnedQuery,
    ),
    Route(
        "POST", "/v1/grants/{grant}/revoke", Right.DECIDE, environments.revoke_grant, GrantInfo,
        models.EmptyBody,
    ),
    Route("GET", "/v1/tokens", Right.ADMINISTER, administration.list_tokens, responses.Tokens),
    Route(
        "POST", "/v1/tokens/{name}/revoke", Right.ADMINISTER, administration.revoke_token,
        responses.TokenItem, models.EmptyBody,
    ),
    Route(
        "GET", "/v1/audit", Right.ADMINISTER, administration.list_audit, responses.Audit,
        query=models.AuditQuery,
    ),
)  # fmt: skip
