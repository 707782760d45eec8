"""Single-threaded event loop for descriptors and timers.

It uses one thread because the supervisor forks: the child of a process with threads may hang on a
lock that another thread held. Nothing here blocks except the wait for the next event.
"""

from __future__ import annotations

import ctypes
import heapq
import itertools
import os
import selectors
import struct
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

Call = Callable[[], None]


class ScheduledCall:
    """A scheduled call that can be cancelled."""

    def __init__(self, at: float, call: Call) -> None:
        self.at = at
        self.call = call
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class EventLoop:
    """Calls back when descriptors are ready and timers expire."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, ScheduledCall]] = []
        self._numbers = itertools.count()
        self._stopped = False

    def reading(self, fd: int, call: Call | None) -> None:
        """Call a function whenever a descriptor is readable or at its end.

        Args:
            fd: The descriptor.
            call: The function. None: stop calling.
        """
        self._watch(fd, selectors.EVENT_READ, call)

    def writing(self, fd: int, call: Call | None) -> None:
        """Call a function whenever a descriptor is writable.

        Args:
            fd: The descriptor.
            call: The function. None: stop calling.
        """
        self._watch(fd, selectors.EVENT_WRITE, call)

    def _watch(self, fd: int, event: int, call: Call | None) -> None:
        calls: dict[int, Any] = {}
        known = fd in self._selector.get_map()
        if known:
            calls = self._selector.get_key(fd).data
        if call is None:
            calls.pop(event, None)
        else:
            calls[event] = call
        events = sum(calls)
        if events and known:
            self._selector.modify(fd, events, calls)
        elif events:
            self._selector.register(fd, events, calls)
        elif known:
            self._selector.unregister(fd)

    def forget(self, fd: int) -> None:
        """Remove a descriptor. This must be done before it is closed."""
        if fd in self._selector.get_map():
            self._selector.unregister(fd)

    def after(self, seconds: float, call: Call) -> ScheduledCall:
        """Call a function once after a delay.

        Args:
            seconds: The delay. 0 is the next iteration.
            call: The function.

        Returns:
            The timer, which can be cancelled.
        """
        timer = ScheduledCall(time.monotonic() + seconds, call)
        heapq.heappush(self._timers, (timer.at, next(self._numbers), timer))
        return timer

    def stop(self) -> None:
        """Make `run` return after this iteration."""
        self._stopped = True

    def run(self) -> None:
        """Run callbacks until `stop`."""
        while not self._stopped:
            for key, events in self._selector.select(self._wait()):
                for event in (selectors.EVENT_READ, selectors.EVENT_WRITE):
                    # Looked up again, because an earlier callback of this iteration may have
                    # removed it.
                    if events & event and key.fd in self._selector.get_map():
                        call = self._selector.get_key(key.fd).data.get(event)
                        if call is not None:
                            call()
            self._fire()

    def close(self) -> None:
        """Close the selector, also in a forked child."""
        self._selector.close()

    def _wait(self) -> float | None:
        while self._timers and self._timers[0][2].cancelled:
            heapq.heappop(self._timers)
        if not self._timers:
            return None
        return max(0.0, self._timers[0][0] - time.monotonic())

    def _fire(self) -> None:
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            timer = heapq.heappop(self._timers)[2]
            if not timer.cancelled:
                timer.call()


class Outbox:
    """Writes bytes to a descriptor as fast as it accepts them.

    Args:
        fd: A non-blocking descriptor.
        failed: Called once when the other end is lost.
    """

    FULL = 1024 * 1024
    """Pending bytes above which producers should stop."""

    def __init__(self, loop: EventLoop, fd: int, failed: Call) -> None:
        self._loop = loop
        self._fd = fd
        self._failed = failed
        self._waiting: deque[memoryview] = deque()
        self._size = 0
        self._closed = False
        self._drained: list[Call] = []

    @property
    def full(self) -> bool:
        """Whether producers should wait for `when_empty`."""
        return self._size > self.FULL

    def write(self, data: bytes) -> None:
        """Write bytes, now or when there is room."""
        if self._closed:
            return
        self._waiting.append(memoryview(data))
        self._size += len(data)
        if len(self._waiting) == 1:
            self._flush()
            if self._waiting:
                self._loop.writing(self._fd, self._flush)

    def when_empty(self, call: Call) -> None:
        """Call a function once when everything is written or can never be written."""
        if self._waiting:
            self._drained.append(call)
        else:
            self._loop.after(0, call)

    def close(self) -> None:
        """Stop writing and drop pending bytes. The descriptor stays open."""
        self._closed = True
        self._waiting.clear()
        self._size = 0
        self._loop.writing(self._fd, None)
        self._notify()

    def _flush(self) -> None:
        try:
            while self._waiting:
                written = os.write(self._fd, self._waiting[0])
                self._size -= written
                self._waiting[0] = self._waiting[0][written:]
                if not self._waiting[0]:
                    self._waiting.popleft()
        except BlockingIOError:
            return
        except OSError:
            self.close()
            self._failed()
            return
        self._loop.writing(self._fd, None)
        self._notify()

    def _notify(self) -> None:
        calls, self._drained = self._drained, []
        for call in calls:
            self._loop.after(0, call)


def close_quietly(fd: int) -> None:
    """Close a descriptor that may already be closed."""
    with suppress(OSError):
        os.close(fd)


# Reports files that are created, opened and closed in a directory.

OPENED, CLOSED, MADE = 0x20, 0x08, 0x100
_EVENT = struct.Struct("iIII")
_libc = ctypes.CDLL(None, use_errno=True)


class WatchedFolder:
    """Reports events in a directory.

    Args:
        on_event: Called with `MADE`, `OPENED` or `CLOSED` (after writing) and the name of a file.

    Raises:
        OSError: The system cannot watch it.
    """

    def __init__(self, loop: EventLoop, path: str, on_event: Callable[[int, str], None]) -> None:
        self._loop = loop
        self._on_event = on_event
        self._fd = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        if _libc.inotify_add_watch(self._fd, os.fsencode(path), OPENED | CLOSED | MADE) < 0:
            code = ctypes.get_errno()
            os.close(self._fd)
            raise OSError(code, os.strerror(code))
        loop.reading(self._fd, self._read)

    def close(self) -> None:
        """Stop reporting."""
        self._loop.forget(self._fd)
        os.close(self._fd)

    def _read(self) -> None:
        try:
            data = os.read(self._fd, 1 << 16)
        except BlockingIOError:
            return
        at = 0
        while at < len(data):
            _watch, what, _cookie, length = _EVENT.unpack_from(data, at)
            at += _EVENT.size
            name = os.fsdecode(data[at : at + length].rstrip(b"\0"))
            at += length
            for each in (OPENED, MADE, CLOSED):
                if what & each and name:
                    self._on_event(each, name)
