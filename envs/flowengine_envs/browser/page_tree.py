"""The accessibility tree of a page and of its frames."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from flowengine_envs.browser import faults

if TYPE_CHECKING:
    from playwright.async_api import Frame, Page

_SOON = 2.0
"""Seconds within which a frame answers whose scripts let it."""
_WITHOUT = 4.0
"""Seconds after which Playwright gives up a frame, and returns the tree without it."""
_MOST_FRAMES = 50


class Tree(NamedTuple):
    """Roles, names and states, with references."""

    text: str
    left_out: int = 0
    """Frames that are not in it because they do not answer."""


async def read_tree(page: Page, seconds: float) -> Tree:
    """Return the tree of a page.

    Args:
        page: The page, which answers.
        seconds: How long it may take.

    Returns:
        The tree.

    Raises:
        Error: The page is gone, or takes longer.
    """
    frames = page.frames[1:]
    answers = await asyncio.gather(*(_answers(frame) for frame in frames[:_MOST_FRAMES]))
    stuck = answers.count(False)
    # A frame that does not answer is waited for as long as the whole tree may take.
    bound = _WITHOUT if stuck else seconds
    return Tree(await page.aria_snapshot(mode="ai", timeout=bound * 1000), stuck)


async def _answers(frame: Frame) -> bool:
    with suppress(faults.Error, TimeoutError):
        async with asyncio.timeout(_SOON):
            await frame.evaluate("0")
            return True
    return frame.is_detached()
