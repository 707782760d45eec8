"""Playwright's errors, for what has to name them where no browser has been opened yet.

The classes of a kind's resources are looked at when a flow is checked, also by those who have not
installed Playwright, so it is imported when the first of these is looked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["Error", "TimeoutError"]

if TYPE_CHECKING:
    from playwright.async_api import Error, TimeoutError


def __getattr__(name: str) -> Any:
    if name not in ("Error", "TimeoutError"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from playwright import async_api

    return getattr(async_api, name)
