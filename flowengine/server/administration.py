"""The routes of the server itself: its users, tokens and audit record."""

from __future__ import annotations

import time
from typing import Any

from flowengine.errors import InputError, NotAllowed
from flowengine.kernel.notation.times import format_time
from flowengine.server.calls import ApiCall
from flowengine.server.records import token_view
from flowengine.server.rights import Access, Right


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
    """Revoke a token."""
    now = int(time.time() * 1000)
    return token_view(call.records.revoke_token(call.path["name"], now), now)


def list_audit(call: ApiCall) -> Any:
    """List changes and refusals, newest first."""
    limit = call.query.limit
    items = call.records.audited(call.query.before, limit)
    following = items[-1]["number"] if len(items) == limit else None
    return {"items": [{**item, "at": format_time(item["at"])} for item in items], "next": following}
