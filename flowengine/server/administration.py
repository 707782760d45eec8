"""The routes of the server itself: users, tokens, the audit record, environments and grants."""

from __future__ import annotations

import time
from typing import Any

from flowengine.errors import InputError, NotAllowed
from flowengine.kernel.notation.times import format_time
from flowengine.server.calls import ApiCall, flow_of_execution, flow_of_owner, lacks
from flowengine.server.records import token_view
from flowengine.server.redaction import environment_without_content, grant_without_content
from flowengine.server.rights import Access, Right

# The routes of the server itself: its users, tokens and audit record.


def health(call: ApiCall | None) -> Any:
    """Return whether the server answers."""
    return {"status": "ok"}


def me(call: ApiCall) -> Any:
    """Return the user of the request, with all rights."""
    principal = call.principal
    return {
        "user": principal.user,
        "token": principal.token,
        "access": [access._asdict() for access in principal.access],
        "scope": None if principal.scope is None else principal.scope._asdict(),
    }


def list_tokens(call: ApiCall) -> Any:
    """List all tokens, without their secrets."""
    now = int(time.time() * 1000)
    return {"items": [token_view(token, now) for token in call.records.tokens()]}


def create_token(call: ApiCall) -> Any:
    """Create a token. One for another user cannot decide, because decisions are personal."""
    asked, principal, now = call.body, call.principal, int(time.time() * 1000)
    user = asked.user or principal.user
    kind, _, name = user.partition(":")
    if kind != "user" or not name:
        raise InputError(f"{user!r} is not a user", field="user", hint="write user:NAME")
    if principal.scope is not None:
        raise NotAllowed(
            "a token with limits creates no others",
            hint="use a token without a role, or: flowengine tokens create",
        )
    if asked.role is None and (asked.content or asked.flows != ["*"]):
        raise InputError("'flows' and 'content' limit a role", field="role", hint="add 'role'")
    scope = None if asked.role is None else Access(asked.role, tuple(asked.flows), asked.content)
    decides = scope is None or scope.has(Right.DECIDE)
    if user != principal.user and decides:
        raise NotAllowed(
            f"a token of {user} that can decide would act in the name of {name}",
            hint="limit it to the role viewer, starter or operator, or create it on the server's "
            "machine: flowengine tokens create",
        )
    expires = None if asked.expires_in is None else now + asked.expires_in * 1000
    token = call.records.create_token(asked.name, user, scope, principal.user, now, expires)
    return {"name": asked.name, "user": user, "token": token}


def revoke_token(call: ApiCall) -> Any:
    now = int(time.time() * 1000)
    return token_view(call.records.revoke_token(call.path["name"], now), now)


def list_audit(call: ApiCall) -> Any:
    """List changes and refusals, newest first."""
    limit = call.query.limit
    items = call.records.audited(call.query.before, limit)
    following = items[-1]["number"] if len(items) == limit else None
    return {"items": [{**item, "at": format_time(item["at"])} for item in items], "next": following}


# The routes of a codec server, for Temporal's own page and command line.
#
# See https://docs.temporal.io/production-deployment/data-encryption: payloads are sent with POST
# to `/decode` and `/encode`, and the header `X-Namespace` names their namespace.


def decode(call: ApiCall) -> Any:
    """Return payloads as JSON. No payload names the flow to which it belongs."""
    _check(call, Right.CONTENT)
    return {"payloads": call.engine.decode_payloads(_given(call), call.namespace)}


def encode(call: ApiCall) -> Any:
    """Return payloads as workers send them. They can be sent to executions of any flow."""
    _check(call, Right.OPERATE)
    return {"payloads": call.engine.encode_payloads(_given(call), call.namespace)}


def _given(call: ApiCall) -> list[dict[str, Any]]:
    return [payload.model_dump() for payload in call.body.payloads]


def _check(call: ApiCall, right: Right) -> None:
    """Check that the user has a right on all flows.

    Raises:
        NotAllowed: The user does not have it.
    """
    if not call.may(right, ""):  # only the pattern `*` matches this
        raise lacks(call.principal, right, " on all flows")


# The routes of environments and grants, which outlive the steps that opened or used them.


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
        grants = call.engine.approvals.grants()
        return {"items": [item for item in grants if call.may(Right.CONTENT, item["flow"])]}
    id, flow = flow_of_execution(call.engine, call.principal, execution)
    call.need(Right.CONTENT, flow)
    return {"items": call.engine.approvals.grants(id)}


def list_budgets(call: ApiCall) -> Any:
    """List the budgets that executions share. Executions of any flow can use them."""
    _check(call, Right.CONTENT)
    return {"items": call.engine.budgets.list(call.query.key, past=call.query.past)}


def revoke_grant(call: ApiCall) -> Any:
    """Revoke a grant: the next call needs an approval again."""
    grant = call.engine.approvals.revoke(call.path["grant"])
    return grant if call.may(Right.CONTENT, call.flow) else grant_without_content(grant)


def _shown(call: ApiCall, environment: dict[str, Any], flow: str) -> Any:
    may = call.may(Right.CONTENT, flow)
    return environment if may else environment_without_content(environment)
