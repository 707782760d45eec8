"""Waiting for changes of a store that other processes write to."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from flowengine.errors import UsageError

if TYPE_CHECKING:
    from flowengine.engines.engine import Engine

LOOK_SECONDS = 0.02
"""Seconds between two checks whether a process has committed. One costs microseconds."""
SURE_SECONDS = 1.0
"""Seconds after which those who wait look at the store anyway."""


class Alert:
    """Wakes all who wait for it. It can be given again and again."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def give(self) -> None:
        """Wake all who wait."""
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self, until: float) -> bool:
        """Wait for the next one, and return whether it was given before a time.

        Args:
            until: By the monotonic clock, in seconds.
        """
        event = self._event
        try:
            # Not `wait_for`, which in Python 3.11 can lose a cancellation.
            async with asyncio.timeout(max(0.0, until - time.monotonic())):
                await event.wait()
        except TimeoutError:
            return False
        return True


class StoreChanges:
    """Wakes all who wait when a process has committed. It looks only while someone waits.

    Args:
        engine: That of the store.
    """

    def __init__(self, engine: Engine) -> None:
        self.number = 0
        """Grows with each change. Read it before the store, and wait for the next one."""
        self._engine = engine
        self._waiting = 0
        self._seen: int | None = None
        self._looking: asyncio.Task[None] | None = None
        self._changed = Alert()

    async def after(self, number: int, until: float) -> bool:
        """Wait for a change, and return whether there was one before a time.

        Args:
            number: The last change that the caller knows.
            until: By the monotonic clock, in seconds.
        """
        if self.number != number:
            return True
        self._waiting += 1
        try:
            if self._looking is None or self._looking.done():
                self._looking = asyncio.get_running_loop().create_task(self._look())
            return await self._changed.wait(until)
        finally:
            self._waiting -= 1

    def wake(self) -> None:
        """Wake all who wait."""
        self.number += 1
        self._changed.give()

    def close(self) -> None:
        """Stop looking, and wake all who wait."""
        if self._looking is not None:
            self._looking.cancel()
        self.wake()

    async def _look(self) -> None:
        sure = time.monotonic() + SURE_SECONDS
        while self._waiting:
            seen = self._version()
            if seen != self._seen or time.monotonic() >= sure:
                self._seen, sure = seen, time.monotonic() + SURE_SECONDS
                self.wake()
            await asyncio.sleep(LOOK_SECONDS)

    def _version(self) -> int | None:
        """Return a number that differs after a commit. None: the store has no such number."""
        try:
            return self._engine.store.changes()
        except UsageError:  # in Temporal
            return None
