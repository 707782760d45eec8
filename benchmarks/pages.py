"""How soon Chromium shows what is large: an execution of 25,000 steps, a list of 100,000.

A server on a thread of this process serves the page. Seconds are wall-clock time, from the request
until what a person needs is shown and can be clicked. The user has signed in before.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from playwright.async_api import async_playwright

from benchmarks import flows
from flowengine_envs.browser import installation
from tests.server.served import Served
from tests.server.test_page_in_browser import signed_in

if TYPE_CHECKING:
    from playwright.async_api import Page

STEPS, LISTED, AT_ONCE = 25_000, 100_000, 1000
ROUNDS = 3
_DECIDE = "text=Open and decide"


class Looked(NamedTuple):
    """Seconds until something can be used."""

    first: float
    """An execution of which the server has read nothing."""
    again: float
    """The same one, once the server has read its journal."""
    listed: float
    """The first page of a list."""


def seconds(folder: Path) -> Looked:
    """Return how soon the views of what is large can be used."""
    served = Served(folder)
    try:
        return asyncio.run(_looked(folder, served))
    finally:
        served.close()


async def _looked(folder: Path, served: Served) -> Looked:
    engine = served.api.engine
    long = (await engine.run_async(flows.open_map(folder, STEPS // 2))).execution
    asking = flows.asking(folder)
    for _ in range(0, LISTED, AT_ONCE):
        await asyncio.gather(*(engine.run_async(asking) for _ in range(AT_ONCE)))
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=installation.browser(None), args=["--no-sandbox"]
        )
        page, _ = await signed_in(browser, served, scripts=True)
        first, again = list[float](), list[float]()
        for _ in range(ROUNDS):
            first.append(await _until(page, f"{served.url}/executions/{long}", _DECIDE))
            again.append(await _until(page, f"{served.url}/executions/{long}", _DECIDE))
        listed = [
            await _until(page, f"{served.url}/executions?flow=asking", ".status.waiting")
            for _ in range(ROUNDS)
        ]
        await browser.close()
    return Looked(min(first), min(again), min(listed))


async def _until(page: Page, url: str, selector: str) -> float:
    """Return the seconds until an element at an address is shown, stands still and can be hit."""
    await page.goto("about:blank")
    begun = time.perf_counter()
    await page.goto(url, wait_until="commit")
    await page.locator(selector).first.click(trial=True)
    return time.perf_counter() - begun
