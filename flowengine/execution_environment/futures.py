"""Waiting for futures of other threads."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Any


async def settled(future: Future[Any]) -> None:
    """Wait until a future is done, with any result. Cancelling the wait leaves it running."""
    if future.done():
        return
    loop = asyncio.get_running_loop()
    is_done = asyncio.Event()

    def tell(_: Future[Any]) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(is_done.set)

    future.add_done_callback(tell)
    await is_done.wait()
