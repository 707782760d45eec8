"""The accessibility tree of a page and of its frames."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from flowengine_envs.browser import faults

if TYPE_CHECKING:
    from playwright.async_api import Frame, Page

_SOON = 2.0
"""Seconds within which a frame with idle scripts responds. The tree does not wait longer."""
_MOST_FRAMES = 50


class PageTree(NamedTuple):
    """Roles, names and states, with references."""

    text: str
    left_out: int = 0
    """Number of frames left out because they do not respond."""


async def read_tree(page: Page, seconds: float) -> PageTree:
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
    except faults.TimeoutError:  # The page itself takes longer.
        return await _with_frames(page, frames, seconds - _SOON)


async def _with_frames(page: Page, frames: Sequence[Frame], seconds: float) -> PageTree:
    """Return the tree without frames that do not respond in this time.

    All frames are queried at once, so stuck frames cost this time only once.
    """
    answers = asyncio.gather(*(_answers(frame) for frame in frames))
    text, answered = await asyncio.gather(_snapshot(page, seconds), answers)
    return PageTree(text, answered.count(False))


async def _snapshot(page: Page, seconds: float) -> str:
    return await page.aria_snapshot(mode="ai", timeout=seconds * 1000)


async def _answers(frame: Frame) -> bool:
    with suppress(faults.Error, TimeoutError):
        async with asyncio.timeout(_SOON):
            await frame.evaluate("0")
            return True
    return frame.is_detached()
