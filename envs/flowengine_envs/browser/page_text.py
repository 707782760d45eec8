"""The visible text of a page, read where the page's own scripts cannot interfere."""

from __future__ import annotations

import asyncio
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from playwright.async_api import CDPSession

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


async def read_page(session: CDPSession, seconds: float) -> PageText:
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
