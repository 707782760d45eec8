"""Observes a page: its text, accessibility tree and screenshot, each within a limit."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from flowengine_envs.browser import library
from flowengine_envs.browser.configuration import BrowserConfig
from flowengine_envs.browser.loading import cause
from flowengine_envs.browser.markdown import Markdown
from flowengine_envs.browser.observation import WebObservation, first_lines
from flowengine_envs.browser.requests import reason_of, shown_url
from flowengine_envs.browser.session import BrowserSession, PageText, TabState

_TITLES = re.compile(
    r"just a moment|attention required|are you (a )?(human|robot)|access denied"
    r"|security check|verify(ing)? (that )?you are (a )?human|captcha",
    re.IGNORECASE,
)
_TEXTS = re.compile(
    r"verify(ing)? (that )?you are (a )?human|unusual traffic from your|complete the captcha"
    r"|checking (if the site connection is secure|your browser before)"
    r"|prove (that )?you are (a )?human|i('m| am) not a robot",
    re.IGNORECASE,
)
_FRAMES = re.compile(
    r"challenges\.cloudflare\.com|google\.com/recaptcha|recaptcha\.net|hcaptcha\.com"
    r"|arkoselabs\.com|funcaptcha|captcha-delivery\.com|geo\.captcha",
    re.IGNORECASE,
)
_SHORT = 3000
"""Characters. In a longer text, these words usually belong to its topic."""


def is_challenge(title: str, text: str, frames: Iterable[str]) -> bool:
    """Return whether a page looks like a bot check.

    Args:
        title: Its title.
        text: Its text.
        frames: Addresses of the frames in it.
    """
    if len(text) > _SHORT:
        return False
    if any(_FRAMES.search(frame) for frame in frames):
        return True
    return bool(_TITLES.search(title) or _TEXTS.search(text))


# The accessibility tree of a page and of its frames.

_SOON = 2.0
"""Seconds within which a frame with idle scripts responds. The tree does not wait longer."""
_MOST_FRAMES = 50


class PageTree(NamedTuple):
    """Roles, names and states, with references."""

    text: str
    left_out: int = 0
    """Number of frames left out because they do not respond."""


async def read_tree(page: library.Page, seconds: float) -> PageTree:
    """Return the tree of a page.

    Args:
        page: The page, which responds.
        seconds: How long it may take.

    Returns:
        The tree.

    Raises:
        Error: The page was closed, or takes longer.
    """
    frames = page.frames[1 : _MOST_FRAMES + 1]
    if not frames:
        return PageTree(await _snapshot(page, seconds))
    try:
        return await _with_frames(page, frames, min(_SOON, seconds))
    except library.TimeoutError:  # The page itself takes longer.
        return await _with_frames(page, frames, seconds - _SOON)


async def _with_frames(
    page: library.Page, frames: Sequence[library.Frame], seconds: float
) -> PageTree:
    """Return the tree without frames that do not respond in this time.

    All frames are queried at once, so stuck frames cost this time only once.
    """
    answers = asyncio.gather(*(_answers(frame) for frame in frames))
    text, answered = await asyncio.gather(_snapshot(page, seconds), answers)
    return PageTree(text, answered.count(False))


async def _snapshot(page: library.Page, seconds: float) -> str:
    return await page.aria_snapshot(mode="ai", timeout=seconds * 1000)


async def _answers(frame: library.Frame) -> bool:
    with suppress(library.Error, TimeoutError):
        async with asyncio.timeout(_SOON):
            await frame.evaluate("0")
            return True
    return frame.is_detached()


MOST = 45.0
"""Seconds for all parts of an observation, if the page responds."""
_PICTURE = 10.0
"""Seconds for its screenshot, without which a page can still be read."""
_LOOK_BACK = 1.0
HIGHEST = 16_384
"""Maximum height of a screenshot in pixels, beyond which Chromium does not draw."""
_NOTHING = PageText("", 0, False, "", 0, [], [])


class _Missing(NamedTuple):
    """A missing part of an observation, and the reason."""

    reason: str


async def observe(
    session: BrowserSession, config: BrowserConfig, *, full_page: bool, answers: bool | None = None
) -> WebObservation:
    """Return the observation of the active tab.

    Args:
        session: The browser.
        config: The environment's settings.
        full_page: Whether the screenshot shows more than the window.
        answers: Whether the page responds. None: it is checked.

    Returns:
        The observation. Its `error` names missing parts.
    """
    tab = session.tab
    if (lost := await _lost(session, tab, answers)) is not None:
        return lost
    deadline = _now() + MOST
    url, notes = shown_url(tab.page.url), []
    async with asyncio.TaskGroup() as parts:
        drawing = parts.create_task(
            _part(_nothing() if full_page else tab.picture(), min(deadline, _now() + _PICTURE))
        )
        # Before the tree: scripts run one at a time in a page, and a large tree would delay this
        # one.
        read = await _part(tab.read(MOST), deadline)
        text = _NOTHING if isinstance(read, _Missing) else read
        converting = parts.create_task(
            _part(session.converter.convert(text.html, url, config.characters), deadline)
        )
        tree = await _part(read_tree(tab.page, MOST), deadline)
        await _part(tab.requests.look_back(), min(deadline, _now() + _LOOK_BACK))
    elements, picture = converting.result(), drawing.result()
    if isinstance(elements, _Missing):
        elements = Markdown("", error=elements.reason)
    if full_page:  # The height must be known first.
        until = min(deadline, _now() + _PICTURE)
        picture = await _part(_full_picture(tab, text.height), until)
        if text.height > HIGHEST:
            notes.append(f"The page is {text.height} pixels high; {HIGHEST} of them are shown.")
    if isinstance(tree, PageTree) and tree.left_out:
        notes.append(f"Frames that do not answer are not in the tree: {tree.left_out}.")
    missing = {"text": read, "accessibility tree": tree, "screenshot": picture}
    errors = [f"{of}: {why.reason}" for of, why in missing.items() if isinstance(why, _Missing)]
    if elements.error:
        errors.append(f"text: {elements.error}")
    shown = tree.text if isinstance(tree, PageTree) else ""
    return WebObservation(
        content=elements.text,
        url=url,
        screenshot=picture if isinstance(picture, bytes) else b"",
        ax_tree=first_lines(shown, config.tree),
        error="; ".join(errors),
        title=text.title,
        status=tab.requests.status,
        truncated=elements.truncated or text.cut,
        ax_tree_left_out=len(shown) - len(first_lines(shown, config.tree)),
        hidden_text_removed=text.hidden,
        invalid=text.invalid,
        notes=notes,
        challenge=is_challenge(text.title, elements.text, text.frames),
    )


async def _lost(
    session: BrowserSession, tab: TabState, answers: bool | None
) -> WebObservation | None:
    """Return an observation that states why the tab cannot be observed, or None."""
    if tab.crashed:
        await session.remove(tab)
        return WebObservation("", "", b"", "", "the page crashed, and a blank one takes its place")
    if not (await tab.answers() if answers is None else answers):
        url = shown_url(tab.page.url)
        await session.remove(tab)
        stuck = "the page does not answer, so it was closed, and a blank one takes its place"
        return WebObservation("", url, b"", "", stuck)
    if tab.page.url.startswith("chrome-error:"):
        asked = tab.requests
        why = cause(asked.failure)
        return WebObservation("", shown_url(asked.asked), b"", "", why, status=asked.status)
    return None


async def complete(session: BrowserSession, seen: WebObservation, **more: Any) -> WebObservation:
    """Return an observation with other events since the last one."""
    return replace(
        seen,
        tabs=await session.listed(),
        dialogs=session.dialogs(),
        downloads=session.downloads.taken(),
        failed_requests=session.failed_requests(),
        notes=[*seen.notes, *session.notes()],
        **more,
    )


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _nothing() -> bytes:
    return b""


async def _part(work: Awaitable[Any], deadline: float) -> Any:
    """Return a part of an observation, or the reason why it is missing."""
    began = _now()
    try:
        async with asyncio.timeout_at(deadline):
            return await work
    except TimeoutError:
        return _Missing(f"there is none after {_now() - began:.0f} s")
    except library.Error as error:
        return _Missing(reason_of(error))


async def _full_picture(tab: TabState, height: int) -> bytes:
    size = tab.page.viewport_size
    if size is None:
        return await tab.picture()
    return await tab.picture((size["width"], min(max(height, size["height"]), HIGHEST)))
