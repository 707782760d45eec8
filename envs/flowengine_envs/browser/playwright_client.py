"""Playwright in this process: one instance per event loop, while any of its browsers is open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from weakref import WeakKeyDictionary

from playwright.async_api import Playwright, async_playwright


class _Client:
    """Playwright in one event loop, with its number of users."""

    def __init__(self) -> None:
        self.users = 0
        self.starting: asyncio.Future[Playwright] | None = None


_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, _Client] = WeakKeyDictionary()


@asynccontextmanager
async def playwright() -> AsyncIterator[Playwright]:
    """Use Playwright. The first user starts it, and the last one ends it."""
    client = _clients.setdefault(asyncio.get_running_loop(), _Client())
    client.users += 1
    if client.starting is None:
        client.starting = asyncio.ensure_future(async_playwright().start())
    try:
        yield await asyncio.shield(client.starting)
    finally:
        client.users -= 1
        if not client.users:
            last, client.starting = client.starting, None
            with suppress(Exception):  # It did not start.
                await (await last).stop()


def replace_ended() -> None:
    """Let the next user start another one, after a call showed that this one may have ended."""
    _clients.pop(asyncio.get_running_loop(), None)
