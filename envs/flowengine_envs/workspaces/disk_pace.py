"""When a workspace is measured anew.

Measuring takes a time that programs decide, since they decide how much there is to look at; so it
may only take a share of all time. What is left of the file system costs nothing to ask: if that
shrinks by as much as the workspace may still take, it is measured soon, whoever it was that wrote.
"""

from __future__ import annotations

import os
import time

from flowengine_envs.workspaces.disk_usage import Usage, most_entries

GLANCE = 0.02
"""Seconds between looks at what is left of the file system."""
_SHARE = 20
"""How many times as long as it took to measure the next time waits."""
_LEAST = 32
"""What part of a quota has to be written, at least, until it is measured before its time."""


class Pace:
    """When to measure the folders that share a quota.

    Args:
        fd: Descriptor of one of them.
        quota: Bytes that they may take together.
    """

    def __init__(self, fd: int, quota: int) -> None:
        self._fd = fd
        self._quota = quota
        self._free = (0, 0)
        self._room = (0, 0)
        self._measured = self._cost = 0.0

    def begins(self) -> None:
        """Note what is left of the file system before it is measured."""
        self._free = self._left()

    def ends(self, usage: Usage, cost: float) -> None:
        """Note what was measured.

        Args:
            usage: What the folders take.
            cost: Seconds of processor time that it took to measure.
        """
        entries = most_entries(self._quota)
        self._room = (
            max(self._quota - usage.size, self._quota // _LEAST),
            max(entries - usage.entries, entries // _LEAST),
        )
        self._measured, self._cost = time.monotonic(), cost

    def is_due(self, pause: float) -> bool:
        """Return whether to measure now.

        Args:
            pause: Seconds between two times, where nothing is urgent.
        """
        since = time.monotonic() - self._measured
        if since >= max(pause, self._cost * _SHARE):
            return True
        return since >= self._cost and any(
            before - now >= room
            for before, now, room in zip(self._free, self._left(), self._room)  # noqa: B905
        )

    def _left(self) -> tuple[int, int]:
        """Return the bytes and entries that the file system has left."""
        found = os.fstatvfs(self._fd)
        return found.f_bfree * found.f_frsize, found.f_ffree
