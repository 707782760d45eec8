"""Abort signals, which running tools observe, and the controllers that set them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from flowengine.sdk.background import refuse_in_loop


class Aborted(Exception):
    """Raised by `AbortSignal.check` in a tool that must stop."""


class AbortSignal:
    """Signals a tool to stop. Every call has its own signal, which any thread can use."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], object]] = []
        self.reason = ""
        """The reason: `aborted` or `timed_out`."""

    @property
    def aborted(self) -> bool:
        """Whether the tool must stop."""
        return self._event.is_set()

    def check(self) -> None:
        """Raise `Aborted` if the tool must stop.

        Raises:
            Aborted: The tool must stop.
        """
        if self.aborted:
            raise Aborted(self.reason)

    def wait(self, timeout: float | None = None) -> bool:
        """Block the thread until the tool must stop, and return whether it must.

        Args:
            timeout: Maximum seconds to wait.

        Raises:
            RuntimeError: The thread runs an event loop, which this would block.
        """
        refuse_in_loop(None, "async_wait()")
        return self._event.wait(timeout)

    async def async_wait(self) -> None:
        """Wait in a coroutine until the tool must stop."""
        loop = asyncio.get_running_loop()
        event = asyncio.Event()
        forget = self.listen(lambda: loop.call_soon_threadsafe(event.set))
        try:
            await event.wait()
        finally:
            forget()

    def listen(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Call a function when the tool must stop, or immediately if it must already.

        Args:
            listener: Called on the thread that aborts. It must not block.

        Returns:
            A function that removes the listener.
        """
        with self._lock:
            if not self.aborted:
                self._listeners.append(listener)
                return lambda: self._forget(listener)
        listener()
        return lambda: None

    def _forget(self, listener: Callable[[], object]) -> None:
        with self._lock:
            if listener in self._listeners:
                self._listeners.remove(listener)


class AbortController:
    """Sets a signal once."""

    def __init__(self) -> None:
        self.signal = AbortSignal()

    def abort(self, reason: str = "aborted") -> None:
        """Set the signal. Further calls have no effect.

        Args:
            reason: The reason, which the tool can read as `signal.reason`.
        """
        signal = self.signal
        with signal._lock:
            if signal.aborted:
                return
            signal.reason = reason
            signal._event.set()
            listeners, signal._listeners = signal._listeners, []
        for listener in listeners:
            listener()
