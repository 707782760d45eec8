"""Every operation of the API, with its route and the right that it needs.

Only this table assigns rights: the page, MCP, AG-UI and the other protocols name its operations.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel

from flowengine.engines.infos import Difference, ExecutionInfo, GrantInfo, ScreenInfo, UpgradeInfo
from flowengine.engines.results import WaitInfo
from flowengine.server import (
    administration,
    approvals,
    events,
    executions,
    flows,
    hooks,
    models,
    responses,
    signals,
)
from flowengine.server import sent_values as uploads
from flowengine.server.calls import subject_of
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
    body: type[BaseModel] | None = None
    query: type[models.Query] = models.Query
    status: int = 200
    streams: bool = False
    """Whether the answer can also be a stream of events."""
    uploads: bool = False
    """Whether the body is a file."""
    is_open: bool = False
    """Whether pages of the origins that the operator names may call it, with the session of their
    user. It must not change anything. It is recorded only if it is refused."""
    is_anew: bool = False
    """Whether a repeated request is answered anew, because it changes nothing. No answer is
    kept."""
    check_patience: float | None = None
    """It checks a flow, and waits so many seconds for checks of others. None: it does not."""
    secret: str | None = None
    """Field of the answer that is not kept for repeated requests: they have None there."""

    @property
    def name(self) -> str:
        """The name of the operation, by which the other protocols and the page refer to it."""
        return self.answer.__name__

    @property
    def subject(self) -> str | None:
        """The object in the path on whose flow the right is needed."""
        return subject_of(self.path)


_EXECUTION = "/v1/executions/{execution}"
_APPROVAL = "/v1/approvals/{approval}"
UPLOADS = "/v1/artifacts"

ROUTES = (
    Route("GET", "/v1/health", "public", administration.health, responses.Health),
    Route("GET", "/v1/me", "anyone", administration.me, responses.Me),
    Route("GET", "/v1/flows", Right.SEE, flows.list_flows, responses.Flows,
          query=models.FlowsQuery),
    Route("POST", "/v1/flows", Right.ADMINISTER, flows.deploy, responses.DeployedFlow,
          models.FlowTextBody, status=201, check_patience=flows.LONG_WAIT),
    Route("POST", "/v1/flows/check", Right.SEE, flows.check_flow, responses.CheckedFlow,
          models.FlowTextBody, check_patience=flows.SHORT_WAIT),
    Route("GET", "/v1/flows/{flow}", Right.SEE, flows.show_flow, responses.FlowItem),
    Route("GET", "/v1/flows/{flow}/graph", Right.SEE, flows.flow_graph, responses.DrawnGraph),
    Route("GET", "/v1/flows/{flow}/definition", Right.CONTENT, flows.show_definition,
          responses.FlowDefinition),
    Route("POST", "/v1/flows/{flow}/deploy", Right.ADMINISTER, flows.deploy_version,
          responses.DeployedFlow, models.EmptyBody),
    Route("POST", "/v1/flows/{flow}/undeploy", Right.ADMINISTER, flows.undeploy,
          responses.Undeployed, models.EmptyBody),
    Route("GET", "/v1/schedules", Right.SEE, flows.list_schedules, responses.Schedules,
          query=models.FlowQuery),
    Route("POST", "/v1/schedules/{flow}/pause", Right.OPERATE, flows.pause_schedules,
          responses.Schedules, models.EmptyBody),
    Route("POST", "/v1/schedules/{flow}/resume", Right.OPERATE, flows.resume_schedules,
          responses.Schedules, models.EmptyBody),
    Route("POST", "/v1/schedules/{flow}/trigger", Right.START, flows.trigger, responses.Started,
          models.TriggerBody, status=201),
    Route("POST", "/v1/schedules/{flow}/backfill", Right.START, flows.backfill,
          responses.Backfilled, models.BackfillBody, status=201),
    Route("GET", "/v1/executions", Right.SEE, executions.list_executions, responses.Executions,
          query=models.ExecutionsQuery),
    Route("GET", "/v1/counts", Right.SEE, executions.count_executions, responses.Counts,
          query=models.FlowQuery),
    Route("POST", "/v1/executions", Right.START, executions.start_execution, responses.Started,
          models.StartBody, status=201),
    Route("GET", _EXECUTION, Right.SEE, executions.show_execution, ExecutionInfo,
          query=models.ShowQuery),
    Route("GET", f"{_EXECUTION}/why", Right.SEE, executions.why, responses.Reasons),
    Route("GET", f"{_EXECUTION}/events", Right.CONTENT, events.list_events, responses.Events,
          query=models.EventsQuery, streams=True),
    Route("GET", "/v1/events", Right.SEE, events.list_all_events, responses.AllEvents,
          query=models.AllEventsQuery, streams=True),
    Route("GET", f"{_EXECUTION}/graph", Right.SEE, executions.graph, responses.DrawnGraph),
    Route("GET", f"{_EXECUTION}/diff/{{other}}", Right.CONTENT, executions.diff, Difference),
    Route("GET", f"{_EXECUTION}/artifacts/{{sha256}}", Right.CONTENT, executions.download, Path),
    Route("POST", f"{_EXECUTION}/cancel", Right.OPERATE, executions.cancel, responses.Started,
          models.CancelBody, status=202),
    Route("POST", f"{_EXECUTION}/resume", Right.OPERATE, executions.resume, responses.Resumed,
          models.ResumeBody, status=202),
    Route("POST", f"{_EXECUTION}/retry", Right.OPERATE, executions.retry, responses.Started,
          models.RetryBody, status=202),
    Route("POST", f"{_EXECUTION}/fork", Right.OPERATE, executions.fork, responses.Started,
          models.ForkBody, status=201),
    Route("POST", f"{_EXECUTION}/upgrade", Right.OPERATE, executions.upgrade, UpgradeInfo,
          models.UpgradeBody),
    Route("POST", f"{_EXECUTION}/signals/{{name}}", Right.OPERATE, signals.send_signal,
          responses.SignalSent, models.SignalBody, status=202),
    Route("POST", "/v1/signals/{name}", Right.START, signals.send_keyed_signal,
          responses.SignalSent, models.KeyedSignalBody, status=202),
    Route("POST", "/v1/hooks/{name}", "signed", hooks.receive, responses.HookTaken, status=202),
    Route("POST", UPLOADS, "anyone", uploads.upload, responses.Uploaded, query=models.UploadQuery,
          status=201, uploads=True),
    Route("GET", "/v1/approvals", Right.SEE, approvals.list_approvals, responses.Waits,
          query=models.WaitsQuery),
    Route("POST", "/v1/approvals/decisions", Right.DECIDE, approvals.decide_many,
          responses.DecisionResults, models.DecisionsBody),
    Route("GET", _APPROVAL, Right.SEE, approvals.show_approval, WaitInfo),
    Route("POST", f"{_APPROVAL}/decision", Right.DECIDE, approvals.decide, responses.Decided,
          models.DecisionBody),
    Route("POST", f"{_APPROVAL}/claim", Right.DECIDE, approvals.claim, WaitInfo, models.EmptyBody),
    Route("POST", f"{_APPROVAL}/release", Right.DECIDE, approvals.release, WaitInfo,
          models.EmptyBody),
    Route("POST", f"{_APPROVAL}/delegate", Right.DECIDE, approvals.delegate, WaitInfo,
          models.DelegateBody),
    Route("GET", "/v1/environments", Right.OPERATE, administration.list_environments,
          responses.Environments, query=models.OwnedQuery),
    Route("GET", "/v1/environments/{environment}", Right.OPERATE, administration.show_environment,
          responses.Environment),
    Route("POST", "/v1/environments/{environment}/look", Right.CONTENT,
          administration.look_into_environment, ScreenInfo, models.EmptyBody, is_anew=True),
    Route("POST", "/v1/environments/{environment}/release", Right.OPERATE,
          administration.release_environment, responses.Environment, models.ReleaseBody),
    Route("GET", "/v1/grants", Right.CONTENT, administration.list_grants, responses.Grants,
          query=models.OwnedQuery),
    Route("GET", "/v1/budgets", Right.CONTENT, administration.list_budgets, responses.Budgets,
          query=models.BudgetsQuery),
    Route("POST", "/v1/grants/{grant}/revoke", Right.DECIDE, administration.revoke_grant, GrantInfo,
          models.EmptyBody),
    Route("POST", "/v1/temporal/decode", Right.CONTENT, administration.decode, responses.Payloads,
          models.PayloadsBody, is_open=True),
    Route("POST", "/v1/temporal/encode", Right.OPERATE, administration.encode, responses.Payloads,
          models.PayloadsBody, is_open=True),
    Route("GET", "/v1/tokens", Right.ADMINISTER, administration.list_tokens, responses.Tokens),
    Route("POST", "/v1/tokens", Right.ADMINISTER, administration.create_token,
          responses.CreatedToken, models.TokenBody, status=201, secret="token"),
    Route("POST", "/v1/tokens/{name}/revoke", Right.ADMINISTER, administration.revoke_token,
          responses.TokenItem, models.EmptyBody),
    Route("GET", "/v1/audit", Right.ADMINISTER, administration.list_audit, responses.Audit,
          query=models.AuditQuery),
)  # fmt: skip


_BY_NAME = {route.name: route for route in ROUTES}


def find_route(name: str) -> Route:
    """Return a route of the table by the name of its operation."""
    return _BY_NAME[name]
