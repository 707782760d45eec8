"""Decides when to measure a workspace again.

Programs determine the number of files, and so the time that measuring takes. It may therefore use
only a share of the time. Reading the free space of the file system costs nothing. If it shrinks by
the amount that the workspace may still grow, the workspace is measured soon, even if other programs
wrote the data.
"""

from __future__ import annotations

import os
import time

from flowengine_envs.workspaces.disk_usage import DiskUsage, most_entries

GLANCE = 0.02
"""Seconds between checks of the file system's free space."""
_SHARE = 20
"""Factor between the duration of a measurement and the wait for the next."""
_LEAST = 32
"""The quota divided by this is the minimum growth that triggers an early measurement."""


class Pace:
    """Schedules measurements of the directories that share a quota.

    Args:
        fd: Descriptor of one of them.
        quota: Bytes that they may use together.
    """

    def __init__(self, fd: int, quota: int) -> None:
        self._fd = fd
        self._quota = quota
        self._free = (0, 0)
        self._room = (0, 0)
        self._measured = self._cost = 0.0

    def begins(self) -> None:
        """Record the free space before a measurement."""
        self._free = self._left()

    def ends(self, usage: DiskUsage, cost: float) -> None:
        """Record a measurement.

        Args:
            usage: Usage of the directories.
            cost: CPU seconds of the measurement.
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
            pause: Seconds between measurements if nothing is urgent.
        """
        since = time.monotonic() - self._measured
        if since >= max(pause, self._cost * _SHARE):
            return True
        return since >= self._cost and any(
            before - now >= room
            for before, now, room in zip(self._free, self._left(), self._room)  # noqa: B905
        )

    def _left(self) -> tuple[int, int]:
        """Return the free bytes and entries of the file system."""
        status = os.fstatvfs(self._fd)
        return status.f_bfree * status.f_frsize, status.f_ffree
