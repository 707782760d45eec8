"""Steps of a browser against the same calls of Playwright, made by hand.

By hand means: the page is loaded, and its text, accessibility tree and screenshot are taken one
after the other, in a Chromium without a sandbox or a proxy. Ours is `navigate` or `click` of an
environment, each with its whole observation.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from playwright.async_api import async_playwright

from flowengine.execution_environment import EnvironmentManager
from flowengine_envs.browser import installation
from flowengine_envs.browser.resource import Browser
from flowengine_envs.documents.converting import convert

ROUNDS = 15
_WORDS = "A ship in harbour is safe, but that is not what ships are built for. "
_ROWS = "".join(f"<tr><td>{at}<td>Ida {at}<td><a href=/{at}>more</a></tr>" for at in range(100))
PAGES = {
    "/small": "<h1>Small</h1><p>Text</p><button>Save</button>",
    "/article": "<h1>Ships</h1>" + f"<h2>Part</h2><p>{_WORDS * 8}</p>" * 30,
    "/table": f"<h1>Ships</h1><table><tr><th>No<th>Name<th>Link</tr>{_ROWS}</table>",
}
CLICKED = "/clicked"
_BUTTON = "<button onclick='p.textContent = Number(p.textContent) + 1'>More</button><p id=p>0</p>"

Step = Callable[[], Awaitable[int]]
"""Does one thing, and returns how much text there is to see."""


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        pages = {**PAGES, CLICKED: _BUTTON + PAGES["/article"]}
        body = f"<!doctype html><title>Page</title>{pages.get(self.path, '')}".encode()
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def _serving() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def steps() -> dict[str, tuple[float, float]]:
    """Return the seconds of each step, ours and by hand: the quicker quarter of pairs in turns."""
    with tempfile.TemporaryDirectory() as folder, _serving() as place:
        spec = {
            "kind": "browser",
            "scope": "session",
            "owner_id": "benchmark",
            "policy": {"network": [place]},
        }
        with EnvironmentManager(folder) as manager:
            browser: Browser = manager.ensure(spec).resource
            return asyncio.run(_compared(browser, f"http://{place}"))


def openings() -> tuple[float, float]:
    """Return the least seconds until a first browser is ready, and a further one of its execution.

    Both show a blank page.
    """
    pairs = []
    with tempfile.TemporaryDirectory() as folder, EnvironmentManager(folder) as manager:
        for at in range(3):
            spec = {"kind": "browser", "scope": "execution", "owner_id": f"e{at}"}
            pair = []
            for key in ("first", "further"):
                began = time.perf_counter()
                manager.ensure({**spec, "resource_key": key})
                pair.append(time.perf_counter() - began)
            pairs.append(pair)
            manager.release_scope("execution", f"e{at}")
    return min(each[0] for each in pairs), min(each[1] for each in pairs)


async def _compared(browser: Browser, site: str) -> dict[str, tuple[float, float]]:
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(
            executable_path=installation.browser(None), args=["--no-sandbox"]
        )
        context = await chromium.new_context(viewport={"width": 1280, "height": 720})
        page = await context.new_page()

        async def looked() -> int:
            html = await page.content()
            text = convert(html.encode(), "page.html", "text/html", base=page.url).markdown
            await page.aria_snapshot(mode="ai")
            await page.screenshot()
            await page.title()
            return len(text)

        async def clicked() -> int:
            await page.click("button")
            return await looked()

        async def click() -> int:
            return _seen(await browser.async_click("button"))

        found = {}
        for path in PAGES:
            found[f"navigate to {path[1:]}"] = await _alternating(
                _navigates(browser, site + path), _goes(page, site + path, looked)
            )
        await browser.async_navigate(site + CLICKED)
        await page.goto(site + CLICKED)
        found["click in article"] = await _alternating(click, clicked)
        await chromium.close()
        return found


def _navigates(browser: Browser, url: str) -> Step:
    async def step() -> int:
        return _seen(await browser.async_navigate(url))

    return step


def _goes(page: Any, url: str, looked: Step) -> Step:
    async def step() -> int:
        await page.goto(url)
        return await looked()

    return step


def _seen(seen: Any) -> int:
    assert not seen.error, seen.error
    assert seen.screenshot
    assert seen.ax_tree
    return len(seen.content)


async def _alternating(ours: Step, theirs: Step) -> tuple[float, float]:
    assert abs(await ours() - await theirs()) < 20  # both see the same
    pairs = [(await _timed(ours), await _timed(theirs)) for _ in range(ROUNDS)]
    first, second = (sorted(each) for each in zip(*pairs, strict=True))
    return first[ROUNDS // 4], second[ROUNDS // 4]


async def _timed(step: Step) -> float:
    began = time.perf_counter()
    await step()
    return time.perf_counter() - began
