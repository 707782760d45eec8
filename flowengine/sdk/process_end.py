"""What is closed when the process ends: managers, and environments that are opened without one."""

from __future__ import annotations

import os
import threading
from typing import Protocol


class Closable(Protocol):
    """What is closed when the process ends."""

    @property
    def pid(self) -> int:
        """The process it belongs to."""

    def close(self) -> object:
        """Release everything."""


_opened: dict[int, Closable] = {}
"""What has opened something, by identity."""
_registered: list[bool] = []


def close_at_exit(opened: Closable) -> None:
    """Close something when the interpreter ends, while threads can still be started.

    `atexit` comes too late for that: it runs after the pools of threads were closed.

    Args:
        opened: It has opened something; it is kept alive until `forget`.
    """
    import concurrent.futures.thread  # noqa: F401 - its own hook has to come after this one

    if not _registered:
        threading._register_atexit(_close_all)  # type: ignore[attr-defined]
        _registered.append(True)
    _opened[id(opened)] = opened


def forget(closed: Closable) -> None:
    """Leave something alone: it was closed."""
    _opened.pop(id(closed), None)


def _close_all() -> None:
    for opened in list(_opened.values()):
        if opened.pid == os.getpid():
            opened.close()
