"""Abort: the signal that a running tool holds, and the controller that sets it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from flowengine.sdk.background import refuse_in_loop


class Aborted(Exception):
    """Raised by `AbortSignal.check` in a tool that is to stop."""


class AbortSignal:
    """Tells a tool that it is to stop. Every call has its own; it may be used on any thread."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], object]] = []
        self.reason = ""
        """Why it is to stop: `aborted`, `timed_out`."""

    @property
    def aborted(self) -> bool:
        """Whether the tool is to stop."""
        return self._event.is_set()

    def check(self) -> None:
        """Raise `Aborted` if the tool is to stop.

        Raises:
            Aborted: It is to stop.
        """
        if self.aborted:
            raise Aborted(self.reason)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait on a thread until the tool is to stop; return whether it is.

        Args:
            timeout: Seconds to wait at most.

        Raises:
            RuntimeError: A coroutine calls it; it would block the loop that is to abort it.
        """
        refuse_in_loop(None, "async_wait()")
        return self._event.wait(timeout)

    async def async_wait(self) -> None:
        """Wait in a coroutine until the tool is to stop."""
        loop = asyncio.get_running_loop()
        event = asyncio.Event()
        forget = self.listen(lambda: loop.call_soon_threadsafe(event.set))
        try:
            await event.wait()
        finally:
            forget()

    def listen(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Call a function when the tool is to stop; at once if it already is.

        Args:
            listener: Called on the thread that aborts; it must not block.

        Returns:
            A function that takes the listener back.
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
    """Sets a signal, once."""

    def __init__(self) -> None:
        self.signal = AbortSignal()

    def abort(self, reason: str = "aborted") -> None:
        """Set the signal; a second time changes nothing.

        Args:
            reason: What the tool can read as `signal.reason`.
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
