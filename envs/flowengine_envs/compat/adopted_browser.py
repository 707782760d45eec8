"""A browser that the caller has opened and will close. Only its pages are used.

Playwright's objects belong to one event loop, so they are used only there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from flowengine.sdk import EnvironmentUnavailable
from flowengine.sdk.environments import Request, Sandbox, background
from flowengine_envs.browser import faults
from flowengine_envs.browser.approvals import ApprovalGuard
from flowengine_envs.browser.downloads import Downloads
from flowengine_envs.browser.markdown import Converter, Markdown
from flowengine_envs.browser.observation import WebObservation
from flowengine_envs.browser.resource import Browser
from flowengine_envs.browser.session import BrowserSession
from flowengine_envs.workspaces.own_folder import OWN

if TYPE_CHECKING:
    from playwright.async_api import Browser as PlaywrightBrowser
    from playwright.async_api import BrowserContext, Page


class Adopted:
    """Objects that the caller has opened. One of them is set.

    Args:
        page: A page.
        context: A profile. Its first page is used, or a new one.
        browser: A browser, in which a profile is created.
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
        """Await a coroutine on the loop of these objects."""
        if asyncio.get_running_loop() is self.loop:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))

    async def session(
        self, request: Request, around: _Around, downloads: Downloads
    ) -> BrowserSession:
        """Return a session around them."""
        page, context = self._page, self._context
        if page is not None:
            context = page.context
        if context is None:
            assert self._browser is not None
            context = await self._browser.new_context(accept_downloads=True)
            around.closes = True
        around.browser = context.browser
        session = BrowserSession(
            around, context, downloads, request.config.tabs, ApprovalGuard(request.policy)
        )
        if page is None:
            page = context.pages[0] if context.pages else await context.new_page()
        session.add(page)
        return session


class AdoptedBrowser(Browser):
    """A browser that is not ended when this object is closed.

    Args:
        request: The request to open the environment.
        adopted: The caller's objects.
    """

    def __init__(self, request: Request, adopted: Adopted) -> None:
        super().__init__(request)
        self._adopted = adopted
        self._around: _Around | None = None
        self._sandbox: Sandbox | None = None

    async def act(
        self, name: str, fields: Mapping[str, Any], approved: Mapping[str, Any] | None = None
    ) -> WebObservation:
        """Perform an action on the browser's event loop."""
        seen: WebObservation = await self._adopted.here(super().act(name, fields, approved))
        return seen

    async def close(self) -> None:
        """Leave the browser unchanged."""
        session, self._session = self._session, None
        around, self._around = self._around, None
        sandbox, self._sandbox = self._sandbox, None
        try:
            if session is not None:
                await self._adopted.here(session.close())
            if around is not None:
                await around.converter.close()
        finally:
            if sandbox is not None:
                await sandbox.close()

    async def _start(self, state: dict[str, Any] | None) -> None:
        sandbox = await self._open_sandbox()
        self._around = _Around(_FarConverter(sandbox, self._config.interpreter))
        downloads = Downloads(self.workspace, sandbox.request.home, self._config.downloads)
        adopted = self._adopted.session(self.request, self._around, downloads)
        self._session = await self._adopted.here(adopted)

    async def _open_sandbox(self) -> Sandbox:
        """Open a sandbox for the Markdown converter, without access to the workspace."""
        request = self.request
        if request.sandbox is None:
            raise EnvironmentUnavailable(f"{request.spec}: no sandbox was chosen for it")
        own = request.home / OWN / "browser"
        inside = request._replace(workspace=own / "work", home=own / "home", mounts={})
        for folder in (inside.workspace, inside.home):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        sandbox = request.sandbox(inside)
        await sandbox.open()
        self._sandbox = sandbox
        return sandbox


class _Around:
    """The services of an adopted profile.

    Args:
        converter: Converts its pages to Markdown.
    """

    def __init__(self, converter: Converter) -> None:
        self.converter = converter
        self.browser: PlaywrightBrowser | None = None
        self.closes = False
        """Whether the profile was created here."""

    @property
    def alive(self) -> bool:
        """Whether the browser runs, as far as is known without I/O."""
        return self.browser is None or self.browser.is_connected()

    def refused(self) -> Sequence[str]:
        """Return nothing: the caller controls its network access."""
        return ()

    async def leave(self, context: BrowserContext | None) -> None:
        """Close the profile if it was created here."""
        if self.closes and context is not None:
            with suppress(faults.Error):
                await context.close()


class _FarConverter(Converter):
    """A converter that is used from another event loop."""

    async def convert(self, html: str, base: str, characters: int) -> Markdown:
        return await background().wait(super().convert(html, base, characters))
