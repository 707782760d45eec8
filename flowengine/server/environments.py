"""The routes of environments and grants, which outlive the steps that opened or used them."""

from __future__ import annotations

from typing import Any

from flowengine.server.calls import ApiCall, flow_of_execution, flow_of_owner
from flowengine.server.redaction import environment_without_content, grant_without_content
from flowengine.server.rights import Right


def list_environments(call: ApiCall) -> Any:
    """List environments that are open, were left open, or are missing."""
    execution = call.query.execution
    if execution is not None:
        execution = flow_of_execution(call.engine, call.principal, execution).id
    items = []
    for open_environment in call.engine.open_environments(execution):
        flow = flow_of_owner(call.engine, open_environment["execution"])
        if call.may(Right.OPERATE, flow):
            items.append(_shown(call, open_environment, flow))
    return {"items": items}


def show_environment(call: ApiCall) -> Any:
    """Show an environment that a process has open or has left open."""
    return _shown(call, call.engine.open_environment(call.path["environment"]), call.flow)


def look_into_environment(call: ApiCall) -> Any:
    """Ask the process that has an environment open for its screen."""
    return call.engine.look_into_environment(call.path["environment"])


def release_environment(call: ApiCall) -> Any:
    """End an environment that was left open."""
    name, force = call.path["environment"], call.body.force
    return _shown(call, call.engine.release_environment(name, force=force), call.flow)


def list_grants(call: ApiCall) -> Any:
    """List the grants of an execution and its flow, or those of all flows."""
    execution = call.query.execution
    if execution is None:
        grants = call.engine.grants()
        return {"items": [item for item in grants if call.may(Right.CONTENT, item["flow"])]}
    id, flow = flow_of_execution(call.engine, call.principal, execution)
    call.need(Right.CONTENT, flow)
    return {"items": call.engine.grants(id)}


def revoke_grant(call: ApiCall) -> Any:
    """Revoke a grant: the next call needs an approval again."""
    grant = call.engine.revoke(call.path["grant"])
    return grant if call.may(Right.CONTENT, call.flow) else grant_without_content(grant)


def _shown(call: ApiCall, environment: dict[str, Any], flow: str) -> Any:
    may = call.may(Right.CONTENT, flow)
    return environment if may else environment_without_content(environment)
