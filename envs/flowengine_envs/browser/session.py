"""One profile of a browser: its tabs, and the events in them."""

from __future__ import annotations

import asyncio
import math
import time
from base64 import b64decode
from collections import deque
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from flowengine_envs.browser import library
from flowengine_envs.browser.approvals import ApprovalGuard
from flowengine_envs.browser.chromium import ProfileServices
from flowengine_envs.browser.long_messages import is_cut
from flowengine_envs.browser.observation import DialogShown, Tab
from flowengine_envs.browser.requests import Downloads, TabRequests, WorkspaceFiles, shown_url

LARGEST = 16 * 1024 * 1024
"""Maximum characters of HTML that are read from a page."""


class PageText(NamedTuple):
    """The content of a page."""

    html: str
    """HTML without invisible text."""
    hidden: int
    """Number of pieces of invisible text."""
    cut: bool
    title: str
    height: int
    """Height of the whole page, in pixels."""
    frames: list[str]
    """Addresses of its first frames."""
    invalid: list[str]
    """The first fields that prevented submitting a form, and why."""


async def read_page(session: library.CDPSession, seconds: float) -> PageText:
    """Read a page.

    Args:
        session: Its DevTools session.
        seconds: How long a script of the page may keep it from responding.

    Returns:
        Its content.

    Raises:
        TimeoutError: It does not respond.
        Error: It was closed.
    """
    async with asyncio.timeout(seconds):
        tree = await session.send("Page.getFrameTree")
        frame = tree["frameTree"]["frame"]["id"]
        world = await session.send(
            "Page.createIsolatedWorld", {"frameId": frame, "worldName": "flowengine"}
        )
        answer = await session.send(
            "Runtime.evaluate",
            {
                "expression": f"({_script()})({LARGEST})",
                "contextId": world["executionContextId"],
                "returnByValue": True,
                "timeout": seconds * 1000,
            },
        )
    return _checked(answer)


def _checked(answer: Any) -> PageText:
    value = answer.get("result", {}).get("value")
    if not isinstance(value, dict):
        return PageText("", 0, False, "", 0, [], [])
    return PageText(
        str(value["html"]),
        int(value["hidden"]),
        bool(value["cut"]),
        str(value["title"]),
        int(value["height"]),
        [str(each) for each in value["frames"]],
        [str(each) for each in value["invalid"]],
    )


@cache
def _script() -> str:
    return Path(__file__).with_name("visible_page.js").read_text(encoding="utf-8")


_CLOSING = 2.0
_SOON = 1.0
"""Seconds within which a page that is not stuck responds."""
_ANSWER = 2.0
"""Seconds within which a running browser responds."""
ANSWER = 5.0
"""Seconds within which a page with idle scripts responds."""
_AGAIN = 0.05
_MOST_TOLD = 20
_MANY_DIALOGS, _DIALOG_SECONDS = 5, 2.0
"""So many dialogs within so many seconds are a loop."""


class TabState:
    """A tab.

    Args:
        page: Playwright's object for it.
    """

    def __init__(self, page: library.Page) -> None:
        self.page = page
        self.crashed = False
        self.refused = ("", "")
        """The address that the proxy refused, if the page is its answer, and the reason."""
        self.requests = TabRequests(page)
        self._session: library.CDPSession | None = None
        self._opening = asyncio.Lock()
        page.on("crash", self._crash)
        page.on("close", lambda *_: self.requests.forget())

    async def wait_loaded(self, seconds: float) -> None:
        """Wait until the requests of an action have been answered, up to this time."""
        with suppress(TimeoutError, library.Error):
            async with asyncio.timeout(seconds):
                await self.page.wait_for_load_state("domcontentloaded")
                await self.page.evaluate("() => new Promise(done => setTimeout(done))")
                while self.requests.loading and not self.is_closed:
                    await self.requests.change()
                    if not self.requests.loading:  # A response may cause further requests.
                        await self.page.evaluate("() => new Promise(done => setTimeout(done))")

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, or its process has ended."""
        return self.crashed or self.page.is_closed()

    async def read(self, seconds: float) -> PageText:
        """Return the content of the page."""
        return await read_page(await self._devtools(), seconds)

    async def picture(self, size: tuple[int, int] | None = None) -> bytes:
        """Return a PNG of the window, or of a part of the page.

        Playwright's own method would wait for all frames, but one may never respond.
        """
        asked: dict[str, Any] = {"format": "png"}
        if size is not None:
            clip = {"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1}
            asked |= {"captureBeyondViewport": True, "clip": clip}
        answer = await (await self._devtools()).send("Page.captureScreenshot", asked)
        if is_cut(answer["data"]):
            raise library.Error("it is too large")
        return b64decode(answer["data"])

    async def _devtools(self) -> library.CDPSession:
        async with self._opening:  # Parts of an observation are created concurrently.
            if self._session is None:
                self._session = await self.page.context.new_cdp_session(self.page)
            return self._session

    async def answers(self) -> bool:
        """Return whether scripts of the page let it respond in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER):
                while not self.is_closed:
                    with suppress(
                        library.Error
                    ):  # Another page is loading, so it is queried again.
                        await self.page.evaluate("0")
                        return True
                    await asyncio.sleep(_AGAIN)
        return self.is_closed

    async def title(self) -> str:
        """Return the title, if the page responds soon."""
        with suppress(library.Error, TimeoutError):
            async with asyncio.timeout(_SOON):
                return (await self.page.title())[:1000]
        return ""

    def _crash(self, *_: Any) -> None:
        self.crashed = True
        self.requests.forget()


class BrowserSession:
    """An open profile.

    Args:
        place: The process and its services.
        context: The profile.
        downloads: Saves the files that pages offer.
        most: Maximum number of open tabs.
        guard: The required approvals.
        files: Files that can be opened as pages. None: only pages of the web are opened.
    """

    def __init__(
        self,
        place: ProfileServices,
        context: library.BrowserContext,
        downloads: Downloads,
        most: int,
        guard: ApprovalGuard,
        files: WorkspaceFiles | None = None,
    ) -> None:
        self.guard = guard
        self.files = files
        self.context = context
        self.downloads = downloads
        self.tabs: list[TabState] = []
        self.active = 0
        self.answers: list[tuple[bool, str | None]] = []
        """Answers for the next dialogs: whether to accept, and with which text."""
        self._place = place
        self.converter = place.converter
        """The converter of its pages to Markdown."""
        self.refused = place.refused
        """Returns the connections refused since the last call."""
        self._most = most
        self._dialogs: list[DialogShown] = []
        self.dialog_times: deque[float] = deque(maxlen=_MANY_DIALOGS)
        """When the last dialogs since the beginning of an action opened."""
        self._more_dialogs = 0
        self._refused_tabs = 0
        self._crashed = 0
        self._targets: library.CDPSession | None = None
        self._profile = ""
        self._tabs_changed = asyncio.Event()
        self._blank_tabs = 0
        """Open tabs that Playwright does not report, because their first request was refused."""
        self._new_tab = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self._ended = False
        context.on("page", self._opened)
        context.on("dialog", self._asked)

    @property
    def alive(self) -> bool:
        """Whether the browser runs, as far as is known without I/O."""
        return not self._ended and self._place.alive

    @property
    def tab(self) -> TabState:
        return self.tabs[self.active]

    async def has_ended(self) -> bool:
        """Return whether the browser has ended, even if that has not been reported yet.

        Playwright refuses calls a moment before it reports that the connection is closed.
        """
        try:
            async with asyncio.timeout(_ANSWER):
                await self.context.cookies("http://localhost/")
        except TimeoutError:
            return not self.alive
        except Exception:  # Playwright has lost the browser.
            self._ended = True
        return not self.alive

    async def ready(self) -> TabState:
        """Return the active tab, or a new one if it was closed."""
        self._crashed += sum(each.crashed for each in self.tabs)
        self.tabs = [each for each in self.tabs if not each.is_closed]
        self.active = max(0, min(self.active, len(self.tabs) - 1))
        if not self.tabs:
            self.add(await self.context.new_page())
            self._new_tab = False
        return self.tab

    def add(self, page: library.Page) -> TabState:
        """Track a page, and make it the active one."""
        for at, each in enumerate(self.tabs):
            if each.page is page:
                self.active = at
                return each
        tab = TabState(page)
        page.on("download", self.downloads.save)
        self.tabs.append(tab)
        self.active = len(self.tabs) - 1
        return tab

    async def remove(self, tab: TabState) -> None:
        """Close a tab, even if its page does not respond. The previous one becomes active."""
        if tab in self.tabs:
            at = self.tabs.index(tab)
            self.tabs.remove(tab)
            if at <= self.active:
                self.active = max(0, self.active - 1)
        with suppress(library.Error, TimeoutError):
            async with asyncio.timeout(_CLOSING):
                await tab.page.close(run_before_unload=False)

    async def wait_tracked(self, seconds: float) -> None:
        """Wait until tabs opened by pages are tracked.

        A tab that is not tracked in time may never be, so later calls do not wait for it.
        """
        blank = 0
        with suppress(library.Error, TimeoutError):
            async with asyncio.timeout(seconds):
                while (blank := await self._untracked()) > self._blank_tabs:
                    self._tabs_changed.clear()
                    await self._tabs_changed.wait()
        self._blank_tabs = blank

    async def _untracked(self) -> int:
        """Return the number of the browser's tabs that are not tracked."""
        pages = await self._pages()
        tracked = len([each for each in self.tabs if not each.is_closed])  # by now
        return max(0, pages - tracked)  # a closed tab may be reported late

    async def _pages(self) -> int:
        """Return the browser's number of tabs."""
        if self._targets is None:
            browser = self.context.browser
            if browser is None or not self.tabs:
                return 0
            own = await self.context.new_cdp_session(self.tabs[0].page)
            target = await own.send("Target.getTargetInfo")
            await own.detach()
            self._profile = target["targetInfo"]["browserContextId"]
            self._targets = await browser.new_browser_cdp_session()
        targets = (await self._targets.send("Target.getTargets"))["targetInfos"]
        kinds = [each["type"] for each in targets if each.get("browserContextId") == self._profile]
        return kinds.count("page")

    async def listed(self) -> list[Tab]:
        """Return the open tabs."""
        tabs = [each for each in self.tabs if not each.is_closed]
        titles = await asyncio.gather(*(each.title() for each in tabs))
        shown = self.tab if self.tabs else None
        return [
            Tab(at, shown_url(each.page.url), title, each is shown)
            for at, (each, title) in enumerate(zip(tabs, titles, strict=True))
        ]

    def dialogs(self) -> list[DialogShown]:
        """Return the dialogs since the last call."""
        shown, self._dialogs = self._dialogs, []
        return shown

    def failed_requests(self) -> list[str]:
        """Return the pages' requests that failed since the last call."""
        return [line for tab in self.tabs for line in tab.requests.untold()][:_MOST_TOLD]

    def notes(self) -> list[str]:
        """Return remarks about events since the last call."""
        notes = []
        if self._new_tab:
            notes.append("A new tab was opened and is the active one.")
        if self._crashed:
            notes.append(f"{self._crashed} pages crashed and were closed.")
        if self._refused_tabs:
            notes.append(
                f"{self._refused_tabs} further tabs were closed: {self._most} may be open."
            )
        if self._more_dialogs:
            notes.append(f"There were {self._more_dialogs} more dialogs.")
        self._new_tab = False
        self._refused_tabs = self._more_dialogs = self._crashed = 0
        return notes

    async def close(self) -> None:
        """Close the profile, unless another program owns it."""
        try:
            await self.downloads.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self.context.remove_listener("page", self._opened)
            self.context.remove_listener("dialog", self._asked)
            if self._targets is not None and self.alive:
                with suppress(library.Error, TimeoutError):
                    async with asyncio.timeout(_CLOSING):
                        await self._targets.detach()
        finally:
            await self._place.leave(self.context)

    def _opened(self, page: library.Page) -> None:
        self._tabs_changed.set()
        if any(each.page is page for each in self.tabs):
            return
        if len([each for each in self.tabs if not each.is_closed]) >= self._most:
            self._refused_tabs += 1
            page.on("close", lambda *_: self._tabs_changed.set())
            self._later(page.close(run_before_unload=False))
            return
        self._new_tab = bool(self.tabs)
        self.add(page)

    def _asked(self, dialog: library.Dialog) -> None:
        self._later(self._answer(dialog))

    @property
    def opens_dialogs(self) -> bool:
        """Whether a page opens one dialog after the other, which would hold up a new page."""
        began = self.dialog_times[0] if len(self.dialog_times) == _MANY_DIALOGS else -math.inf
        return time.monotonic() - began < _DIALOG_SECONDS

    async def _answer(self, dialog: library.Dialog) -> None:
        self.dialog_times.append(time.monotonic())
        # A page must not be able to prevent navigation.
        accept, text = dialog.type == "beforeunload", None
        if self.answers and not accept:
            accept, text = self.answers.pop(0)
        if len(self._dialogs) < _MOST_TOLD:
            self._dialogs.append(DialogShown(dialog.type, dialog.message[:1000], accept))
        else:
            self._more_dialogs += 1
        if accept:
            await (dialog.accept() if text is None else dialog.accept(text))
        else:
            await dialog.dismiss()

    def _later(self, work: Any) -> None:
        async def done() -> None:
            with suppress(library.Error):  # The page may be closed by now.
                await work

        task = asyncio.ensure_future(done())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
