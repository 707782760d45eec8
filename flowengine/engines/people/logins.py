"""Logins that executions wait for: an approval of one counts only once a user has logged in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowengine.errors import Conflict, Hint


def login_of(wait: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the login that a wait is about, or None.

    Args:
        wait: The record of the wait, or a view of it.
    """
    found = wait.get("found")
    login = found.get("login") if isinstance(found, dict) else None
    return login if isinstance(login, dict) else None


def is_logged_in(login: Mapping[str, Any]) -> bool:
    """Return whether an execution has the login that it waits for.

    Args:
        login: The login, from `login_of`.
    """
    from flowengine.sdk.files.logins import LoginKey, usable  # few waits are about one

    known = usable(LoginKey.of(login), login["borrower"])
    return known is not None and known.covers(login.get("scopes", ()))


def check_logged_in(id: str, wait: Mapping[str, Any]) -> None:
    """Check that the login that a wait is about has taken place, before it is approved.

    Args:
        id: Full id of the wait.
        wait: Its record.

    Raises:
        Conflict: The login has not taken place.
    """
    login = login_of(wait)
    if login is not None and not is_logged_in(login):
        raise Conflict(
            f"{id} cannot be approved before the login to {login['url']}",
            hint=Hint(
                f"log in: flowengine approve {id}", http="log in on the page of the approval"
            ),
        )
