"""Loads and scrolls pages, until their text has arrived."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flowengine.sdk.texts.visible_text import one_line
from flowengine_envs.browser import library
from flowengine_envs.browser.approvals import FileUpload
from flowengine_envs.browser.requests import ActionFailed, reason_of, shown_url
from flowengine_envs.browser.session import BrowserSession, TabState
from flowengine_envs.network.proxy import NAME

# Loads pages, and waits until their text has arrived.

_ERROR_PAGE = 2.0
"""Seconds for Chromium's own error page."""


class Navigation(ActionFailed):
    """No document arrived.

    Args:
        url: The requested address.
        reason: Why the request failed.
    """

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(reason)
        self.url = url


@dataclass
class Acting:
    """The context of a running action."""

    session: BrowserSession
    tab: TabState
    workspace: Path
    action_timeout: float
    navigation_timeout: float
    evaluate: bool
    """Whether code may run on pages."""
    approved: Mapping[str, Any] | None = None
    """The approval given for this action."""
    full_page: bool = False
    """Whether the observation shows the whole page."""
    uploads: Sequence[FileUpload] = ()
    """The files of an upload, as read before approval was requested."""
    notes: list[str] = field(default_factory=list)
    """Remarks about it, in the project's own words."""
    refused: list[str] = field(default_factory=list)
    """The browser's messages about an invalid value that was filled in."""

    @property
    def page(self) -> library.Page:
        return self.tab.page

    @property
    def milliseconds(self) -> float:
        """Milliseconds for an action."""
        return self.action_timeout * 1000


async def load(acting: Acting, go: Callable[[float], Awaitable[Any]], url: str) -> None:
    """Load a page, and wait until its text has arrived."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + acting.navigation_timeout
    acting.tab.requests.status = None
    late = f"timeout: the page has not been loaded after {acting.navigation_timeout:g} s"
    response = None
    try:
        response = await go(acting.navigation_timeout * 1000)
    except library.TimeoutError:
        raise Navigation(shown_url(url), late) from None
    except library.Error as error:
        if "Download is starting" not in str(error):
            if "ERR_ABORTED" not in str(error):
                # Chromium is about to show its own error page, which would interrupt the next one.
                with suppress(library.Error):
                    await acting.page.wait_for_url(
                        lambda at: at.startswith("chrome-error:"),
                        wait_until="commit",
                        timeout=_ERROR_PAGE * 1000,
                    )
            raise Navigation(shown_url(url), cause(reason_of(error))) from None
    document = acting.page.url.partition("#")[0]
    if response is not None:
        refused = response.headers.get("proxy-status", "").startswith(f"{NAME};")
        acting.tab.refused = (document, one_line(await response.text())) if refused else ("", "")
        acting.tab.requests.status = None if refused else response.status
    if acting.tab.refused[0] == document:  # also if only another place in it was opened
        raise Navigation(shown_url(url or acting.page.url), acting.tab.refused[1])
    try:
        left = max(0.001, deadline - loop.time())
        await acting.page.wait_for_load_state("domcontentloaded", timeout=left * 1000)
    except library.TimeoutError:
        raise ActionFailed(f"{late} completely: this is the loaded part") from None


_CAUSES = {
    "ERR_ABORTED": "the page was not loaded: the server sent no document, or something else was "
    "loaded instead",
    "ERR_HTTP_RESPONSE_CODE_FAILURE": "the server answered with a fault and without a page",
    "ERR_INTERNET_DISCONNECTED": "this browser may reach no network (policy: network)",
    "ERR_NAME_NOT_RESOLVED": "there is no such host, or this browser may not reach it",
    "ERR_TUNNEL_CONNECTION_FAILED": "the host cannot be reached, or this browser may not reach it",
}


def cause(text: str) -> str:
    """Return why no document arrived, in one line with Chromium's error name.

    Args:
        text: Playwright's message.
    """
    word = next((part for part in text.split() if part.startswith("net::")), "")
    code = word.removeprefix("net::")
    if code.startswith("ERR_CERT"):
        return f"its certificate cannot be trusted ({code})"
    if code.startswith("ERR_SSL"):
        return f"its TLS is at fault ({code})"
    if not code.startswith("ERR_"):
        return text.split(" at http", maxsplit=1)[0]
    words = code.removeprefix("ERR_").replace("_", " ").lower()
    return f"{_CAUSES.get(code, words)} ({code})"


# Scrolls pages and areas inside them, and reports how far.
#
# The page returns numbers. Only integers are accepted.

_PART = 0.8
"""Part of the visible area that is scrolled by default."""
_SCRIPT = """
  const place = (at, across) => Math.abs(across ? at.scrollLeft : at.scrollTop);
  const rest = (at, across, back) => back ? place(at, across) : Math.max(0, Math.floor(across
    ? at.scrollWidth - at.clientWidth - place(at, true)
    : at.scrollHeight - at.clientHeight - place(at, false)));
  const root = document.scrollingElement || document.documentElement;
  const scrolls = (at, across) => {
    const style = getComputedStyle(at), flow = across ? style.overflowX : style.overflowY;
    const more = across ? at.scrollWidth > at.clientWidth : at.scrollHeight > at.clientHeight;
    return at === root || more && /auto|scroll|overlay/.test(flow);
  };
  const outer = at => at.parentElement || at.getRootNode().host || null;
  const nearest = (at, across) => {
    while (at && !scrolls(at, across)) at = outer(at);
    return at || root;
  };
  const moved = async (at, before, [across, back], patience) => {
    const until = Date.now() + patience;
    const now = () => place(at, across) !== before || Date.now() > until;
    const frame = () => new Promise(done => { setTimeout(done, 50); requestAnimationFrame(done); });
    while (!now()) await frame();
    for (let more = 0; more < 3; more++) await frame();  // what the page does when it is scrolled
    return [Math.round(Math.abs(place(at, across) - before)), rest(at, across, back)];
  };
"""
_INSIDE = f"""async (element, [part, pixels, ...way]) => {{{_SCRIPT}
  const [across, back] = way, at = nearest(element, across), before = place(at, across);
  const far = (pixels || part * (across ? at.clientWidth : at.clientHeight)) * (back ? -1 : 1);
  at.scrollBy({{left: across ? far : 0, top: across ? 0 : far, behavior: "instant"}});
  return await moved(at, before, way, 0);
}}"""
_BEFORE = f"""way => {{{_SCRIPT}
  const [across, back] = way;
  const under = document.elementFromPoint(innerWidth / 2, innerHeight / 2);
  if (under && under.tagName === "IFRAME") return null;
  let at = nearest(under, across);
  while (at !== root && !rest(at, across, back)) at = nearest(outer(at), across);
  return {{at, before: place(at, across)}};
}}"""
_AFTER = f"""async (known, [patience, ...way]) => {{{_SCRIPT}
  return known ? await moved(known.at, known.before, way, patience) : null;
}}"""
_MOST = 10_000_000
"""Pixels, more than any page has."""
_PATIENCE = 500
"""Milliseconds within which a scrollable page scrolls."""


async def scroll_inside(
    element: library.Locator, direction: str, pixels: int | None, seconds: float
) -> str:
    """Scroll the list or area that an element is in, or the element itself.

    Args:
        element: The element.
        direction: `up`, `down`, `left` or `right`.
        pixels: Distance. None: most of its visible part.
        seconds: How long to wait for the element.

    Returns:
        The distance scrolled, and the distance left.
    """
    across, back = _way(direction)
    moved = await element.evaluate(_INSIDE, [_PART, pixels, across, back], timeout=seconds * 1000)
    return _movement(moved, direction)


async def scroll_window(page: library.Page, direction: str, pixels: int | None) -> str:
    """Scroll the area in the middle of the window with the mouse wheel.

    Args:
        page: The page.
        direction: `up`, `down`, `left` or `right`.
        pixels: Distance. None: most of the window.

    Returns:
        The distance scrolled, and the distance left.
    """
    across, back = _way(direction)
    size = page.viewport_size or {"width": 1280, "height": 720}
    by = pixels or int(size["width" if across else "height"] * _PART)
    by = -by if back else by
    known = await page.evaluate_handle(_BEFORE, [across, back])
    await page.mouse.move(size["width"] / 2, size["height"] / 2)
    await page.mouse.wheel(by if across else 0, 0 if across else by)
    moved = await known.evaluate(_AFTER, [_PATIENCE, across, back])
    return _movement(moved, direction)


def _way(direction: str) -> tuple[bool, bool]:
    """Return whether a direction is horizontal, and whether it is backwards."""
    return direction in {"left", "right"}, direction in {"up", "left"}


def _movement(moved: object, direction: str) -> str:
    if not isinstance(moved, list) or not all(isinstance(each, int) for each in moved):
        return f"Scrolled {direction}."
    by, rest = (min(max(each, 0), _MOST) for each in moved)
    left = f"{rest} more pixels are there" if rest > 0 else "this is the end"
    return f"Scrolled {direction} by {by} pixels; {left}." if by else f"Nothing scrolled; {left}."
