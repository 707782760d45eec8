"""Logins of users, for executions that wait for them and ahead of any execution."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from flowengine import registry
from flowengine.errors import NotFound
from flowengine.sdk.environments import LoginPage
from flowengine.sdk.files.logins import Login, LoginKey, locked, read_login, write_login
from flowengine.secrets import resolve

_MOST_LENT = 1000
"""Executions of other users that may use a login. The oldest of more have to ask again."""


async def log_in(login: Mapping[str, Any], user: str, page: LoginPage) -> None:
    """Let a user log in for an execution that waits for it.

    Args:
        login: The login, from `login_of`. That of another user is lent to its execution.
        user: The user who logs in, `user:NAME`.
        page: Where the user logs in.

    Raises:
        NotFound: The login was prepared by another user of the machine, or on another machine.
        StepError: The login failed, or was refused.
    """
    key = LoginKey.of(login)
    prepared = read_login(key)
    if prepared.metadata is None:
        raise NotFound(
            f"the login to {key.url} is not known to this user on this machine",
            hint="log in where the execution runs, or on the page of its server",
        )
    own = read_login(key._replace(user=user))
    source = prepared.settings.get("client_secret")
    secret = None if source is None else resolve(source["name"], source)
    started = replace(prepared, user=user, registration=own.registration, lent=[])
    done = await registry.provider(str(login["kind"])).log_in(started, secret, page)
    borrower: str = login["borrower"]
    _keep(done, [borrower] if user != key.user and borrower else [])


async def log_in_ahead(key: LoginKey, scopes: Sequence[str], page: LoginPage) -> None:
    """Let a user log in at an MCP server before an execution needs it.

    Args:
        key: The login.
        scopes: The scopes to request. Empty: those that the server names.
        page: Where the user logs in.

    Raises:
        StepError: The login failed, or was refused.
    """
    known = read_login(key)
    settings = {**known.settings, **({"client_id": key.client} if key.client else {})}
    source = settings.get("client_secret")
    secret = None if source is None else resolve(source["name"], source)
    wanted = list(dict.fromkeys([*known.scopes, *scopes]))
    started = replace(known, settings=settings, scopes=wanted)
    _keep(await registry.provider("mcp").log_in(started, secret, page), [])


def _keep(login: Login, lent: Sequence[str]) -> None:
    """Store a login that has just taken place."""
    login.created = time.time()
    with locked(login.key) as kept:
        login.lent = list(dict.fromkeys([*kept.lent, *lent]))[-_MOST_LENT:]
        write_login(login)
