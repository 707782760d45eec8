"""Time for the tool environment: injected, so that tests need not wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Tells the time, and calls back later."""

    def monotonic(self) -> float:
        """Return monotonic seconds."""

    def call_later(self, seconds: float, call: Callable[[], object]) -> Callable[[], object]:
        """Call a function after a time.

        Args:
            seconds: How long from now.
            call: What to call, on any thread; it must not block.

        Returns:
            A function that cancels it.
        """


class LoopClock:
    """The clock of the event loop that runs when it is asked."""

    def monotonic(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic()

    def call_later(self, seconds: float, call: Callable[[], object]) -> Callable[[], object]:
        """Call a function on the running loop after a time."""
        return asyncio.get_running_loop().call_later(seconds, call).cancel
