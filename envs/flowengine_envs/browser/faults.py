"""Playwright's errors, for modules that name them before a browser has been opened.

The classes of a kind's resources are inspected when a flow is checked, even if Playwright is not
installed. It is therefore imported when the first of these errors is accessed.
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
