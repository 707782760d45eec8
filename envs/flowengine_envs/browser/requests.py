"""The requests of a page: pending, answered and failed ones."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from flowengine_envs.browser import faults
from flowengine_envs.browser.addresses import shown_url
from flowengine_envs.network.proxy import NAME

if TYPE_CHECKING:
    from playwright.async_api import Frame, Page, Request, Response

_LOADED = frozenset({"document", "script", "stylesheet", "xhr", "fetch"})
"""Types that affect a page's text. An observation waits for them and reports their failures."""
_MOST = 100
"""Maximum number of failures recorded per tab."""
_LONGEST = 300
_FAULT = 400
"""The lowest status that counts as a failure."""
_WITHOUT_STATUS = ("about:", "blob:", "chrome-error:", "data:")
_ANSWERED = "net::ERR_HTTP_RESPONSE_CODE_FAILURE"
"""The failure of a page that consists only of a status."""
_UNTOLD = ("net::ERR_ABORTED", "net::ERR_TUNNEL_CONNECTION_FAILED")
"""Failures that are not reported: requests that the page cancelled or the proxy refused."""


class TabRequests:
    """The requests of one tab.

    Args:
        page: Its page.
    """

    def __init__(self, page: Page) -> None:
        self.status: int | None = None
        """Status of the page's response."""
        self.failure = ""
        """Why the last requested page failed to load, in Chromium's words."""
        self.asked = ""
        """Address of that page."""
        self.failures: deque[str] = deque(maxlen=_MOST)
        """The last requests of this page that failed or returned an error status."""
        self._page = page
        self._coming: int | None = None
        self._untold: deque[str] = deque(maxlen=_MOST)
        self._loading: set[Request] = set()
        self._open: set[Request] = set()
        self._changed = asyncio.Event()
        page.on("request", self._began)
        page.on("response", self._answered)
        page.on("requestfinished", self._ended)
        page.on("requestfailed", self._failed)
        page.on("framenavigated", self._navigated)

    @property
    def loading(self) -> bool:
        """Whether requests made since `count_from_now` are pending."""
        return bool(self._loading)

    @property
    def busy(self) -> bool:
        """Whether any pending request may change the page."""
        return bool(self._open)

    def count_from_now(self) -> None:
        """Restrict later waits to requests made from now on."""
        self._loading.clear()

    async def change(self) -> None:
        """Wait until a response has arrived or no request is pending."""
        self._changed.clear()
        await self._changed.wait()

    def forget(self) -> None:
        """Stop waiting, because the page is closed."""
        self._loading.clear()
        self._open.clear()
        self._changed.set()

    def untold(self) -> list[str]:
        """Return unreported failures that affect the page since the last call."""
        reported = [*dict.fromkeys(self._untold)]
        self._untold.clear()
        return reported

    async def look_back(self) -> None:
        """Determine the status of a page whose response arrived before its tab was tracked."""
        if self.status is not None or self._page.url.startswith(_WITHOUT_STATUS):
            return
        for asked in reversed(await self._page.requests()):
            if self._is_page(asked) and (response := asked.existing_response) is not None:
                self.status = response.status
                return

    def _began(self, asked: Request) -> None:
        if asked.redirected_from is None and self._is_page(asked):
            self.failures.clear()
            self._open.clear()
        if asked.resource_type in _LOADED:
            self._loading.add(asked)
            self._open.add(asked)

    def _ended(self, asked: Request) -> None:
        self._loading.discard(asked)
        self._open.discard(asked)
        self._changed.set()

    def _answered(self, response: Response) -> None:
        asked, status = response.request, response.status
        if self._is_page(asked):
            self._coming = status
        if status < _FAULT or response.headers.get("proxy-status", "").startswith(f"{NAME};"):
            return
        self._note(asked, str(status), is_reported=not self._is_page(asked))

    def _failed(self, asked: Request) -> None:
        self._ended(asked)
        failure = str(asked.failure or "failed")
        is_page = self._is_page(asked)
        if is_page:
            self.failure, self.asked = failure, asked.url
            if not failure.startswith(_ANSWERED):
                self._coming = None
        answer = asked.existing_response
        if answer is None or answer.status < _FAULT:  # otherwise already recorded
            self._note(asked, failure, is_reported=not is_page and not failure.startswith(_UNTOLD))

    def _note(self, asked: Request, why: str, *, is_reported: bool) -> None:
        line = f"{asked.method} {shown_url(asked.url)[:_LONGEST]} {why[:_LONGEST]}"
        self.failures.append(line)
        if is_reported and asked.resource_type in _LOADED:
            self._untold.append(line)

    def _navigated(self, frame: Frame) -> None:
        """Record a new page, unless it is the current one."""
        if frame is not self._page.main_frame:
            return
        if self._coming is not None or frame.url.startswith(_WITHOUT_STATUS):
            self.status, self._coming = self._coming, None

    def _is_page(self, asked: Request) -> bool:
        """Return whether a request is for the page itself, not for one of its resources."""
        if not asked.is_navigation_request():
            return False
        try:
            return asked.frame is self._page.main_frame
        except faults.Error:  # A new tab, whose frame does not exist yet.
            return True
