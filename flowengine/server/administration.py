"""The routes of the server itself: its flows, users, tokens and audit record."""

from __future__ import annotations

import time
from typing import Any

from flowengine.kernel.notation.times import format_time
from flowengine.server.calls import Call, deployed_flow
from flowengine.server.records import token_view
from flowengine.server.rights import Right


def health(call: Call | None) -> Any:
    """Return whether the server answers."""
    return {"status": "ok"}


def me(call: Call) -> Any:
    """Return the user of the request, with all rights."""
    principal = call.principal
    return {
        "user": principal.user,
        "token": principal.token,
        "access": [access._asdict() for access in principal.access],
        "scope": None if principal.scope is None else principal.scope._asdict(),
    }


def list_flows(call: Call) -> Any:
    """List the deployed flows, each with its current version."""
    deployed = [one["flow"] for one in call.engine.deployed() if one["current"]]
    seen = [call.engine.deployed_flow(id) for id in deployed if call.may(Right.SEE, id)]
    return {"items": [_flow_item(flow) for flow in seen]}


def show_flow(call: Call) -> Any:
    """Show a deployed flow, with the schemas of its inputs."""
    return _flow_item(deployed_flow(call, call.path["flow"]))


def list_tokens(call: Call) -> Any:
    """List all tokens, without their secrets."""
    now = int(time.time() * 1000)
    return {"items": [token_view(token, now) for token in call.records.tokens()]}


def revoke_token(call: Call) -> Any:
    """Revoke a token."""
    now = int(time.time() * 1000)
    return token_view(call.records.revoke_token(call.path["name"], now), now)


def list_audit(call: Call) -> Any:
    """List changes and refusals, newest first."""
    limit = call.query.limit
    items = call.records.audited(call.query.before, limit)
    following = items[-1]["number"] if len(items) == limit else None
    return {"items": [{**item, "at": format_time(item["at"])} for item in items], "next": following}


def _flow_item(flow: Any) -> dict[str, Any]:
    return {
        "flow": flow.id,
        "version": flow.version,
        "title": flow.compiled.get("title", ""),
        "hash": flow.form,
        "inputs": flow.inputs,
    }
