"""The passwords that stand in fields of pages, and the requests that may carry one.

What stands in fields is looked at before and after each action: while a page is about to send a
form, it cannot be asked any more.
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
"""Seconds in which a page has to say which passwords it holds."""
_MOST = 10
"""Fields that are looked at in a frame."""
_READS = frozenset({"GET", "HEAD", "OPTIONS"})


class Passwords:
    """What is known of the passwords in the tabs of one profile."""

    def __init__(self) -> None:
        self._held: WeakKeyDictionary[Page, list[str]] = WeakKeyDictionary()

    async def look(self, page: Page, *more: str) -> None:
        """Look at what stands in the fields of a page, frames included.

        Args:
            page: The page.
            more: What is about to stand there.
        """
        try:
            async with asyncio.timeout(_LOOKING):
                values = [each for frame in page.frames for each in await _values(frame)]
        except (TimeoutError, faults.Error):
            values = ["\0"]  # who cannot be asked may hold one
        self._held[page] = [*values, *filter(None, more)]

    def may_leave_by(self, request: Request) -> bool:
        """Return whether a request may carry a password: its page holds one, and it writes."""
        navigates = request.is_navigation_request()
        writes = request.method not in _READS
        if not writes and not (navigates and "?" in request.url):
            return False
        # A form may be sent from one tab or frame into another one.
        pages = [*self._held] if navigates else [request.frame.page]
        values = [value for page in pages for value in self._held.get(page, ())]
        return bool(values) if writes else any(_is_in(each, request.url) for each in values)


async def _values(frame: Frame) -> list[str]:
    fields = frame.locator(PASSWORDS)
    # Playwright reads them where scripts of the page cannot answer in their place.
    values = [
        await fields.nth(at).input_value(timeout=_LOOKING * 1000)
        for at in range(min(await fields.count(), _MOST))
    ]
    return [each for each in values if each]


def _is_in(value: str, url: str) -> bool:
    return any(form in url for form in (value, quote(value, safe=""), quote_plus(value)))
