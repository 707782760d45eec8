"""Wakes a worker when another process has written to the store.

The operating system reports writes to the store's directory, because the last connection that
closes deletes the log and the next one creates another. The report precedes the commit, so the
store is asked until it has changed. Where no writes are reported, the worker looks regularly.
"""

from __future__ import annotations

import ctypes
import os
import select
import tempfile
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, TimerHandle
    from collections.abc import Callable

    from flowengine.journal.store import Store

_DELAYS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.04, 0.08)
"""Seconds between the looks after a report."""
_CREATED, _WRITTEN, _MOVED_HERE = 0x100, 0x2, 0x80
_CLOSE_ON_EXEC, _NON_BLOCKING = os.O_CLOEXEC, os.O_NONBLOCK
_READ = 65_536


def reports_of(folder: str) -> int | None:
    """Return a file descriptor that is readable after writes to a directory, or None.

    None: the operating system does not report writes, or refuses another receiver.
    """
    try:
        library = ctypes.CDLL(None, use_errno=True)
        descriptor: int = library.inotify_init1(_CLOSE_ON_EXEC | _NON_BLOCKING)
    except (OSError, AttributeError):
        return None
    if descriptor < 0:
        return None
    wanted = _CREATED | _WRITTEN | _MOVED_HERE
    if library.inotify_add_watch(descriptor, os.fsencode(folder), wanted) < 0:
        os.close(descriptor)
        return None
    return descriptor


def are_reported(folder: str) -> bool:
    """Return whether writes to a directory are reported, by writing a file there."""
    descriptor = reports_of(folder)
    if descriptor is None:
        return False
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"?")
            file.flush()
            return bool(select.select([descriptor], [], [], 0.2)[0])
    except OSError:
        return False
    finally:
        os.close(descriptor)


class Wakeups:
    """Calls a function when another process has changed a store.

    Args:
        store: The store.
        loop: The event loop that runs.
        wake: The function.

    Attributes:
        by_reports: Whether the operating system reports writes.
    """

    def __init__(self, store: Store, loop: AbstractEventLoop, wake: Callable[[], None]) -> None:
        self._store = store
        self._loop = loop
        self._wake = wake
        self._changes = store.changes()
        self._pending: TimerHandle | None = None
        folder = os.path.dirname(os.path.abspath(store.location))
        self._descriptor = reports_of(folder) if os.path.exists(store.location) else None
        self.by_reports = self._descriptor is not None
        self._listen()

    def close(self) -> None:
        """Stop waking."""
        if self._pending is not None:
            self._pending.cancel()
        if self._descriptor is not None:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None

    def _listen(self) -> None:
        if self._descriptor is not None:
            self._loop.add_reader(self._descriptor, self._reported)

    def _reported(self) -> None:
        """Look soon. Reports that arrive until then add nothing."""
        assert self._descriptor is not None
        self._loop.remove_reader(self._descriptor)
        self._look_after(0)

    def _look_after(self, tries: int) -> None:
        self._pending = self._loop.call_later(_DELAYS[tries], self._look, tries + 1)

    def _look(self, tries: int) -> None:
        self._pending = None
        assert self._descriptor is not None
        with suppress(BlockingIOError):
            os.read(self._descriptor, _READ)
        changes = self._store.changes()
        changed, self._changes = changes != self._changes, changes
        if changed:
            self._wake()
        if changed or tries == len(_DELAYS):
            self._listen()
        else:
            self._look_after(tries)
