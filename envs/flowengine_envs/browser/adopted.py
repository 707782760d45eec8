"""A browser that somebody else has opened and will close: only its pages are used.

Playwright's objects belong to one event loop, so all that is done with them is done there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flowengine.sdk.environments import Request, background
from flowengine_envs.browser.downloads import Downloads
from flowengine_envs.browser.markdown import Converter, Markdown
from flowengine_envs.browser.observation import WebObservation
from flowengine_envs.browser.resource import Browser
from flowengine_envs.browser.session import ARRIVING, Session

if TYPE_CHECKING:
    from playwright.async_api import Browser as PlaywrightBrowser
    from playwright.async_api import BrowserContext, Page


class Adopted:
    """What the caller has opened: one of these.

    Args:
        page: A page.
        context: A profile, whose first page is used, or a new one.
        browser: A browser, in which a profile is made.
    """

    def __init__(
        self,
        page: Page | None,
        context: BrowserContext | None,
        browser: PlaywrightBrowser | None,
    ) -> None:
        self._page = page
        self._context = context
        self._browser = browser
        try:
            self.loop = asyncio.get_running_loop()
        except RuntimeError:
            self.loop = background().loop

    async def here(self, work: Any) -> Any:
        """Await something on the loop of these objects."""
        if asyncio.get_running_loop() is self.loop:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))

    async def session(self, request: Request, downloads: Downloads) -> Session:
        """Return a session around them."""
        page, context, made = self._page, self._context, None
        if page is not None:
            context = page.context
        if context is None:
            assert self._browser is not None
            context = made = await self._browser.new_context(accept_downloads=True)
        session = Session(None, context, downloads, request.config.tabs, own=made)
        if page is None:
            page = context.pages[0] if context.pages else await context.new_page()
        session.add(page)
        return session


class AdoptedBrowser(Browser):
    """A browser that is not ended when this is closed.

    Args:
        request: What was asked for.
        adopted: What is used.
    """

    def __init__(self, request: Request, adopted: Adopted) -> None:
        super().__init__(request)
        self._adopted = adopted

    async def act(self, name: str, fields: Mapping[str, Any]) -> WebObservation:
        """Do an action on the loop of the browser."""
        seen: WebObservation = await self._adopted.here(super().act(name, fields))
        return seen

    async def close(self) -> None:
        """Leave the browser as it is."""
        session, self._session = self._session, None
        if session is not None:
            await self._adopted.here(session.close())
        await super().close()

    async def _start(self, state: dict[str, Any] | None) -> None:
        sandbox = await self._open_sandbox()
        self._converter = _FarConverter(sandbox, self._config.interpreter)
        downloads = Downloads(
            self.workspace, sandbox.request.home / ARRIVING, self._config.downloads
        )
        self._session = await self._adopted.here(self._adopted.session(self.request, downloads))


class _FarConverter(Converter):
    """A converter that is used from another loop than its own."""

    async def convert(self, html: str, base: str, characters: int) -> Markdown:
        return await background().wait(super().convert(html, base, characters))
