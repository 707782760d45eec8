"""Abort signals, which running tools observe."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, wait

from flowengine.sdk.background import refuse_in_loop


class Aborted(Exception):
    """Raised by `AbortSignal.check` in a tool that must stop."""


class AbortSignal:
    """Signals a tool to stop. Every call has its own signal, which any thread can use.

    Args:
        stopped: Receives the reason, or None when the call has ended.
    """

    def __init__(self, stopped: Future[str | None]) -> None:
        self._stopped = stopped

    @property
    def aborted(self) -> bool:
        """Whether the tool must stop."""
        return bool(self.reason)

    @property
    def reason(self) -> str:
        """The reason: `aborted` or `timed_out`. Empty if the tool need not stop."""
        return (self._stopped.result() or "") if self._stopped.done() else ""

    def check(self) -> None:
        """Raise `Aborted` if the tool must stop.

        Raises:
            Aborted: The tool must stop.
        """
        if self.aborted:
            raise Aborted(self.reason)

    def wait(self, timeout: float | None = None) -> bool:
        """Block the thread until the tool must stop or the call has ended, and return which it is.

        Args:
            timeout: Maximum seconds to wait.

        Returns:
            Whether the tool must stop.

        Raises:
            RuntimeError: The thread runs an event loop, which this would block.
        """
        refuse_in_loop(None, "async_wait()")
        wait([self._stopped], timeout)
        return self.aborted

    async def async_wait(self) -> None:
        """Wait in a coroutine until the tool must stop or the call has ended."""
        await asyncio.wrap_future(self._stopped)
