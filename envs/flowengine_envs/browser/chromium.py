"""A Chromium process in a sandbox, which several environments may share.

Each environment has its own profile in it: cookies, storage, downloads, and a proxy that reports
the refused connections of its pages. The sandbox, driver, process and Markdown converter are
shared.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from flowengine.sdk import EnvironmentStartFailed
from flowengine.sdk.environments import Request, Sandbox
from flowengine.sdk.processes import make_scratch, remove_scratch
from flowengine.sdk.texts.visible_text import one_line
from flowengine_envs.browser import installation, library
from flowengine_envs.browser.browser_server import BrowserServer, start_server
from flowengine_envs.browser.markdown import Converter
from flowengine_envs.kinds.supervised import Traces

ARRIVING = "downloads"
"""Directory of the sandbox's home that receives downloads."""
_CLOSING = 5.0
"""Seconds for closing a profile. After a timeout, no other environment joins the process."""
_NOBODY = "http://127.0.0.1:9/"
_FEATURES_OFF = (
    # Windows are never shown, but their toolbar and address bar would be pages with a process.
    "InitialWebUI",
    "WebUIOmniboxAimPopup",
    "WebUIOmniboxPopup",
    # Features that Playwright disables: Chromium applies only the last list.
    "AimEnabled",
    "AvoidCorsURLLoaderRestartOnRedirect",
    "AvoidUnnecessaryBeforeUnloadCheckSync",
    "DestroyProfileOnBrowserClose",
    "HttpsFirstBalancedModeAutoEnable",
    "HttpsUpgrades",
    "LensOverlay",
    "MediaRouter",
    "NetworkTimeServiceQuerying",
    "OptimizationHints",
    "PaintHolding",
    "PreconnectToSearch",
    "TcpPortRandomizationWin",
    "ThirdPartyStoragePartitioning",
    "msEdgeUpdateLaunchServicesPreferredVersion",
    "msForceBrowserSignIn",
)
_ARGUMENTS = (
    f"--disable-features={','.join(_FEATURES_OFF)}",
    # Services that Chromium would contact although they are disabled.
    f"--component-updater=url-source={_NOBODY}",
    f"--autofill-server-url={_NOBODY}",
    "--disable-quic",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--disable-blink-features=FileSystemAccess,FileSystemAccessLocal",
)


class ProfileServices(Protocol):
    """The process and its services for a profile."""

    converter: Converter
    """Converts its pages to Markdown."""

    @property
    def alive(self) -> bool:
        """Whether its browser runs, as far as is known without I/O."""

    def refused(self) -> Sequence[str]:
        """Return the connections refused since the last call."""

    async def leave(self, context: library.BrowserContext | None) -> None:
        """Close the profile, and everything that only it uses."""


class Chromium:
    """A running process.

    Args:
        request: The request of the environment for which it is started.
    """

    def __init__(self, request: Request) -> None:
        self._folder = make_scratch()
        self.traces = Traces(request.trace)
        # Everything in it has its own mark, because it may outlast the first environment.
        id = uuid.uuid4().hex
        own = request._replace(
            id=id,
            mark=f"{id}@{request.mark.partition('@')[2]}",
            workspace=self._folder / "work",
            home=self._folder / "home",
            mounts={},
            trace=self.traces,
        )
        assert request.sandbox is not None
        self.sandbox: Sandbox = request.sandbox(own)
        self.arriving = own.home / ARRIVING
        self.converter = Converter(self.sandbox, request.config.interpreter)
        self._server: BrowserServer | None = None
        self._browser: library.Browser | None = None
        self._free = deque(range(request.config.proxies))
        self._profiles = 0
        self._sound = True
        self._closed: Callable[[], None] = lambda: None

    @property
    def alive(self) -> bool:
        """Whether it runs, as far as is known without I/O."""
        running = self._server is not None and self._server.alive
        return running and self._browser is not None and self._browser.is_connected()

    @property
    def has_place(self) -> bool:
        """Whether another environment can join."""
        return self._sound and self.alive and bool(self._free)

    def join(self, request: Request) -> Profile:
        """Reserve a place for an environment. When the last one leaves, the process ends."""
        self._profiles += 1
        return Profile(self, request, self._free.popleft())

    async def start(self, request: Request, closed: Callable[[], None]) -> None:
        """Start the process.

        Args:
            request: The request of the environment for which it is started.
            closed: Called when it ends because no environment uses it.

        Raises:
            EnvironmentStartFailed: It did not start. The message contains the reason.
        """
        try:
            await asyncio.to_thread(self._make_folders)
            await self.sandbox.open()
            await asyncio.gather(self._launch(request), self.converter.start())
        except BaseException:
            await asyncio.shield(self.close())
            raise
        self._closed = closed

    def _make_folders(self) -> None:
        request = self.sandbox.request
        for folder in (request.workspace, request.home, self.arriving):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    async def _launch(self, request: Request) -> None:
        options = {
            "executablePath": installation.browser(request.config.program),
            "headless": True,
            # Its sandbox needs rights that the surrounding sandbox removes.
            "chromiumSandbox": False,
            "args": _ARGUMENTS,
            "downloadsPath": f"{self.sandbox.home}/{ARRIVING}",
        }
        server = self._server = await start_server(self.sandbox, options)
        try:
            self._browser = await server.connect()
        except (EnvironmentStartFailed, library.Error) as error:
            raise not_started(request, error) from None

    async def context(self, proxy: int, **options: Any) -> library.BrowserContext:
        """Open a profile.

        Args:
            proxy: Number of its proxy.
            options: Options of Playwright.

        Returns:
            The profile, which its place closes.
        """
        assert self._browser is not None
        proxies = self.sandbox.proxies
        # Set for the profile, not for the browser: Chromium's own requests have no route.
        way = {"server": proxies[proxy], "bypass": "<-loopback>"} if proxies else None
        opening = asyncio.ensure_future(self._browser.new_context(proxy=way, **options))  # type: ignore[arg-type]
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            # It opens nevertheless, and nothing else would close it.
            with suppress(library.Error, TimeoutError):
                async with asyncio.timeout(_CLOSING):
                    await (await opening).close()
            raise

    async def leave(self, profile: Profile, context: library.BrowserContext | None) -> None:
        """Close a profile and free its place. The process ends with the last one."""
        if context is not None and self._profiles > 1:
            try:
                async with asyncio.timeout(_CLOSING):
                    await context.close()
            except TimeoutError:
                self._sound = False
            except library.Error:
                pass  # It has ended.
        self._profiles -= 1
        self._free.append(profile.proxy)
        self.traces.remove(profile.trace)
        if not self._profiles:
            self._sound = False
            self._closed()
            await self.close()

    async def close(self) -> None:
        """End it and all processes that it started."""
        server, self._server = self._server, None
        try:
            if server is not None:
                await server.close()
            await self.converter.close()
        finally:
            try:
                await self.sandbox.close()
            finally:
                await asyncio.to_thread(remove_scratch, self._folder)


class Profile:
    """A place in a process for one environment.

    Args:
        chromium: The process.
        request: The environment's request.
        proxy: Number of its proxy.
    """

    def __init__(self, chromium: Chromium, request: Request, proxy: int) -> None:
        self.chromium = chromium
        self.converter = chromium.converter
        self.arriving = chromium.arriving
        self.proxy = proxy
        self.trace = request.trace
        self._request = request
        self._judged = False
        self._refused = 0
        """Number of the last refused connection that was reported."""
        self.refused()  # skips connections refused earlier for other environments

    @property
    def alive(self) -> bool:
        """Whether the process runs, as far as is known without I/O."""
        return self.chromium.alive

    def refused(self) -> Sequence[str]:
        """Return the connections refused since the last call."""
        new = self.chromium.sandbox.refused_connections(self._refused, self.proxy)
        self._refused = new[-1][0] if new else self._refused
        return [text for _, text in new]

    def judge(self, judge: Callable[[str, int], str] | None) -> None:
        """Check each of its connections in addition to the policy."""
        if judge is not None:
            self.chromium.sandbox.judge_connections(judge, self.proxy)
            self._judged = True

    async def open(self, state: dict[str, Any] | None) -> library.BrowserContext:
        """Open the profile.

        Args:
            state: Its initial cookies and storage.

        Returns:
            The profile, without a page.
        """
        config = self._request.config
        context = await self.chromium.context(
            self.proxy,
            viewport={"width": config.viewport.width, "height": config.viewport.height},
            accept_downloads=True,
            service_workers="block",
            locale=config.locale,
            timezone_id=config.timezone,
            storage_state=state,
        )
        # If opening fails, recorded resources are killed. They are recorded only now, when other
        # environments may also use them.
        self.chromium.traces.add(self.trace)
        return context

    async def leave(self, context: library.BrowserContext | None) -> None:
        """Close the profile. The process ends with the last one."""
        await self.chromium.leave(self, context)
        if self._judged:  # The proxy's next user has different rules.
            self.chromium.sandbox.judge_connections(None, self.proxy)


def not_started(request: Request, error: Exception) -> EnvironmentStartFailed:
    """Return the error of a browser that did not start."""
    reason = one_line(str(error).partition("Call log:")[0])
    return EnvironmentStartFailed(f"{request.spec}: the browser did not start: {reason}")
