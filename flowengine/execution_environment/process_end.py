"""What happens to open environments when the process ends."""

from __future__ import annotations

import os
import threading
from typing import Protocol

from flowengine.errors import UsageError


class Closable(Protocol):
    """What is closed when the process ends."""

    id: str

    @property
    def pid(self) -> int:
        """The process it belongs to."""

    def close(self) -> object:
        """Release everything."""


_opened: dict[str, Closable] = {}
"""Managers that have opened something, by id: they are closed when the interpreter ends."""


def close_at_exit(manager: Closable) -> None:
    """Close a manager when the interpreter ends, while threads can still be started.

    `atexit` comes too late for that: it runs after the pools of threads were closed.

    Args:
        manager: It has opened something.
    """
    import concurrent.futures.thread  # noqa: F401 - its own hook has to come after this one

    if not _opened:
        threading._register_atexit(_close_all)  # type: ignore[attr-defined]
    _opened[manager.id] = manager


def forget(manager: Closable) -> None:
    """Leave a manager alone: it was closed."""
    _opened.pop(manager.id, None)


def _close_all() -> None:
    for manager in list(_opened.values()):
        if manager.pid == os.getpid():
            manager.close()


def release_on_termination() -> None:
    """Make SIGTERM and SIGHUP end this process like an exit, so that everything is released.

    Without it, the kernel ends the process at once, and the next one has to reap. Programs with a
    handler of their own for SIGTERM do not need it: they close the manager, or exit. A SIGHUP that
    is ignored or has a handler is left alone.

    Raises:
        UsageError: SIGTERM has a handler already, or this is not the main thread.
    """
    import signal
    import sys

    if threading.current_thread() is not threading.main_thread():
        raise UsageError("signal handlers can only be set in the main thread")
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        raise UsageError("SIGTERM has a handler already", hint="call manager().close() in it")
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup has SIGHUP ignored
            signal.signal(number, lambda number, _: sys.exit(128 + number))
