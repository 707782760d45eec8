"""The passwords in fields of pages, and the requests that may contain one.

Fields are read before and after each action, because a page that is about to submit a form can no
longer be queried.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus
from weakref import WeakKeyDictionary

from flowengine_envs.browser import faults
from flowengine_envs.browser.touched import PASSWORDS

if TYPE_CHECKING:
    from playwright.async_api import Frame, Page, Request

_LOOKING = 2.0
"""Seconds within which a page must return its passwords."""
_MOST = 10
"""Maximum number of fields checked in a frame."""
_READS = frozenset({"GET", "HEAD", "OPTIONS"})


class Passwords:
    """The passwords in the tabs of one profile."""

    def __init__(self) -> None:
        self._held: WeakKeyDictionary[Page, list[str]] = WeakKeyDictionary()

    async def look(self, page: Page, *more: str) -> None:
        """Read the password fields of a page, including frames.

        Args:
            page: The page.
            more: Values about to be entered.
        """
        try:
            async with asyncio.timeout(_LOOKING):
                values = [each for frame in page.frames for each in await _values(frame)]
        except (TimeoutError, faults.Error):
            values = ["\0"]  # A frame that does not respond may contain one.
        self._held[page] = [*values, *filter(None, more)]

    def may_leave_by(self, request: Request) -> bool:
        """Return whether a request may contain a password from a page.

        A request that writes may contain any password of its page, or of any page if it navigates.
        Of other requests, only navigations with a query are checked, by searching their address.
        """
        navigates = request.is_navigation_request()
        writes = request.method not in _READS
        if not writes and not (navigates and "?" in request.url):
            return False
        # A form may be submitted from one tab or frame into another one.
        pages = [*self._held] if navigates else [request.frame.page]
        values = [value for page in pages for value in self._held.get(page, ())]
        return bool(values) if writes else any(_is_in(each, request.url) for each in values)


async def _values(frame: Frame) -> list[str]:
    fields = frame.locator(PASSWORDS)
    # Playwright reads them where scripts of the page cannot answer instead.
    values = [
        await fields.nth(at).input_value(timeout=_LOOKING * 1000)
        for at in range(min(await fields.count(), _MOST))
    ]
    return [each for each in values if each]


def _is_in(value: str, url: str) -> bool:
    return any(form in url for form in (value, quote(value, safe=""), quote_plus(value)))
