"""`BrowserEnv`: a browser as one object that its user opens, and tools over it for agents.

It is the resource of the kind `browser`, without a manager. It can also use Playwright objects that
the caller has opened and still owns.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from flowengine.sdk import EnvironmentUnavailable, ValidationError
from flowengine.sdk.environments import Request, Sandbox, background, both_forms
from flowengine.sdk.environments.models import ResourceLimits
from flowengine.sdk.texts.untrusted import marked
from flowengine.sdk.tools.browser_tools import ToolPicture
from flowengine_envs.browser import library
from flowengine_envs.browser.approvals import ApprovalGuard
from flowengine_envs.browser.markdown import Converter, Markdown
from flowengine_envs.browser.observation import WebObservation
from flowengine_envs.browser.provider import BrowserProvider
from flowengine_envs.browser.requests import ROOT, Downloads
from flowengine_envs.browser.resource import Browser
from flowengine_envs.browser.session import BrowserSession
from flowengine_envs.browser.written_actions import read_action
from flowengine_envs.compat.python_envs import Unmanaged, sandbox_of, with_env
from flowengine_envs.workspaces.own_folder import make_own

__all__ = [
    "Adopted",
    "AdoptedBrowser",
    "BrowserEnv",
    "WebObservation",
    "click",
    "fill",
    "read_on",
    "visit_url",
]


class Adopted:
    """Objects that the caller has opened. One of them is set.

    Args:
        page: A page.
        context: A profile. Its first page is used, or a new one.
        browser: A browser, in which a profile is created.
    """

    def __init__(
        self,
        page: library.Page | None,
        context: library.BrowserContext | None,
        browser: library.Browser | None,
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
        request = self.request
        if request.sandbox is None:
            raise EnvironmentUnavailable(f"{request.spec}: no sandbox was chosen for it")
        # The sandbox of the Markdown converter has no access to the workspace.
        own = request.home / "converter"  # in no directory of the engine: these are not mounted
        inside = request._replace(workspace=own / "work", home=own / "home", mounts={})
        for folder in (inside.workspace, inside.home):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        sandbox = request.sandbox(inside)
        await sandbox.open()
        self._sandbox = sandbox
        self._around = _Around(_FarConverter(sandbox, self._config.interpreter))
        downloads = Downloads(self.workspace, sandbox.request.home, self._config.downloads)
        adopted = self._adopted.session(request, self._around, downloads)
        self._session = await self._adopted.here(adopted)


class _Around:
    """The services of an adopted profile.

    Args:
        converter: Converts its pages to Markdown.
    """

    def __init__(self, converter: Converter) -> None:
        self.converter = converter
        self.browser: library.Browser | None = None
        self.closes = False
        """Whether the profile was created here."""

    @property
    def alive(self) -> bool:
        """Whether the browser runs, as far as is known without I/O."""
        return self.browser is None or self.browser.is_connected()

    def refused(self) -> Sequence[str]:
        """Return nothing: the caller controls its network access."""
        return ()

    async def leave(self, context: library.BrowserContext | None) -> None:
        """Close the profile if it was created here."""
        if self.closes and context is not None:
            with suppress(library.Error):
                await context.close()


class _FarConverter(Converter):
    """A converter that is used from another event loop."""

    async def convert(self, html: str, base: str, characters: int) -> Markdown:
        return await background().wait(super().convert(html, base, characters))


KEY = "web_env"
"""The context variable in which the tools find a browser."""
_DECLARE = (
    "give the run context_variables={'web_env': BrowserEnv(network=\"public\")}. In a flow file, "
    "declare environments: {browser: {kind: browser, policy: {network: public}}} and use the tools "
    "std.browser_open, std.browser_click, …"
)
_SHOWN = 4000
"""Characters of the content in a tool's answer."""


class BrowserEnv(Unmanaged[Browser]):
    """A browser, which starts with the first action.

    Args:
        page: A page that the caller has opened with Playwright's asynchronous API, or
        context: a profile, or
        browser: a browser. They are used on the event loop that runs when this object is created,
            and are not closed.
        workspace: Directory of downloads and uploads.
        network: Places that pages may reach, as in `policy`. It does not apply to the caller's
            objects.
        provider: `namespace` or `host`. The latter needs `network: any`.
        config: As `config` of the kind.
        limits: Limits of the whole environment.

    Raises:
        ValidationError: An argument is wrong.
    """

    _how_to_open = "call init()"

    def __init__(
        self,
        page: library.Page | None = None,
        *,
        context: library.BrowserContext | None = None,
        browser: library.Browser | None = None,
        workspace: str = "./workspace",
        network: str | Sequence[str] = "public",
        provider: str = "namespace",
        config: Mapping[str, Any] | None = None,
        limits: ResourceLimits | None = None,
    ) -> None:
        if sum(each is not None for each in (page, context, browser)) > 1:
            raise ValidationError("give one of page, context and browser")
        self._adopted: Adopted | None = None
        if page is not None or context is not None or browser is not None:
            self._adopted = Adopted(page, context, browser)
        super().__init__(
            sandbox_of(provider), workspace, config=config, network=network, limits=limits
        )

    def __enter__(self) -> BrowserEnv:
        self.init()
        return self

    async def _init(self) -> None:
        """Start the browser, unless it runs.

        Raises:
            EnvironmentUnavailable: No browser is installed. The message contains the command.
            EnvironmentStartFailed: It did not start.
        """
        await self._ready()

    init, async_init = both_forms(_init)

    async def _navigate(self, url: str) -> WebObservation:
        """Open an address, and return the observation."""
        return await self._step({"action": "navigate", "url": url})

    navigate, async_navigate = both_forms(_navigate)

    async def _click(self, selector: str) -> WebObservation:
        """Click an element, and return the observation."""
        return await self._step({"action": "click", "selector": selector})

    click, async_click = both_forms(_click)

    async def _step(self, action: Mapping[str, Any] | str) -> WebObservation:
        """Perform any action given as data, such as `{"action": "click", "ref": "e3"}`.

        Args:
            action: The name under `action`, together with the fields. Alternatively a call in the
                syntax of BrowserGym agents, such as `click('e3')`, which is parsed, not run.

        Returns:
            The observation.
        """
        resource = await self._ready()
        # File names are those that the browser sees.
        step = {**(read_action(action) if isinstance(action, str) else action)}
        if isinstance(step.get("url"), str):
            step["url"] = self._address(step["url"])
        if isinstance(step.get("paths"), list):
            step["paths"] = [self._from_workspace(str(each)) for each in step["paths"]]
        return await resource.async_step(step)

    step, async_step = both_forms(_step)

    @property
    def page(self) -> library.Page:
        """The live page of the active tab."""
        return self.resource.page

    def _address(self, url: str) -> str:
        """Return the address of a file of the workspace, given its path."""
        folder = self._folder
        named = self._from_workspace(url.strip().removeprefix(f"{ROOT}/"))
        path = os.path.normpath(os.path.join(folder, named))
        is_there = path.startswith(f"{folder}/") and os.path.lexists(path)
        return f"file://{quote(path)}" if is_there else url

    def _provider(self) -> BrowserProvider:  # type: ignore[override]
        return BrowserProvider() if self._adopted is None else _Adopting(self._adopted)


class _Adopting(BrowserProvider):
    """Opens an object for the caller's browser."""

    def __init__(self, adopted: Adopted) -> None:
        self._adopted = adopted

    async def ensure(self, request: Request) -> Browser:
        make_own(request)
        browser = AdoptedBrowser(request, self._adopted)
        await browser.open()
        return browser


def _shown(seen: WebObservation, offset: int = 0) -> ToolPicture:
    content = seen.content[offset : offset + _SHOWN]
    end = offset + len(content)
    text = "\n".join(
        part for part in (f"Error: {seen.error}" if seen.error else "", content) if part
    )
    fields: dict[str, Any] = {
        "content": marked(text, seen.url),
        "url": seen.url,
        "screenshot_available": bool(seen.screenshot),
    }
    if end < len(seen.content):
        fields |= {"total": len(seen.content), "next_offset": end}
    return ToolPicture(json.dumps(fields, ensure_ascii=False), seen.screenshot or None)


@with_env(KEY, _DECLARE)
def visit_url(url: str, env: BrowserEnv) -> ToolPicture:
    """Open a web page in the browser.

    Args:
        url: An http or https address.
        env: The browser.

    Returns:
        The text of the page, and a screenshot.
    """
    return _shown(env.navigate(url))


@with_env(KEY, _DECLARE)
def click(selector: str, env: BrowserEnv) -> ToolPicture:
    """Click an element of the page.

    Args:
        selector: A CSS selector, or `text=` and its text.
        env: The browser.

    Returns:
        The text of the page afterwards, and a screenshot.
    """
    return _shown(env.click(selector))


@with_env(KEY, _DECLARE)
def fill(selector: str, text: str, env: BrowserEnv, submit: bool = False) -> ToolPicture:
    """Replace the text of a field on the page.

    Args:
        selector: A CSS selector.
        text: The new text.
        env: The browser.
        submit: Whether to press Enter afterwards.

    Returns:
        The text of the page afterwards, and a screenshot.
    """
    action = {"action": "fill", "selector": selector, "text": text, "submit": submit}
    return _shown(env.step(action))


@with_env(KEY, _DECLARE)
def read_on(offset: int, env: BrowserEnv) -> ToolPicture:
    """Continue reading the text of the page.

    Args:
        offset: `next_offset` of the previous answer.
        env: The browser.

    Returns:
        The next part of the text.
    """
    return _shown(env.step({"action": "observe"}), max(0, offset))
