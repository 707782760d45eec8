"""What no browser shows: its session, and which ones share a Chromium."""

from __future__ import annotations

from typing import Any

from flowengine_envs.browser import sharing


def session_of(browser: Any) -> Any:
    """Return the open session of a browser."""
    session = browser._session
    assert session is not None
    return session


def key_of(request: Any) -> tuple[object, ...]:
    """Return what the environments of one Chromium have in common."""
    return sharing._key(request)


def groups() -> set[Any]:
    """Return the keys of all that are open."""
    return {*sharing._groups}
