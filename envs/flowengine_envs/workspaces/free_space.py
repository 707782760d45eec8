"""The free space of file systems, of which programs in sandboxes must leave a reserve.

Reading it costs nothing, however many files there are. It does not show who wrote.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

GLANCE = 0.02
"""Seconds between checks while programs run."""
RESERVE = 1024**3
"""Bytes that stay free."""
FILES = 65_536
"""Files and directories for which room stays free."""
SHARE = 10
"""The reserve is at most one part in so many of a file system."""
_NOISE = 64
"""Programs may take one part in so many of the free space even below the reserve."""
SHORT = (
    "the disk is almost full: programs in sandboxes must leave 1 GiB and 65,536 files free, at "
    "most a tenth of it"
)
"""Why programs were ended."""


class FreeSpace:
    """The free space of the file systems of a sandbox.

    Args:
        fds: Descriptors of its directories.
    """

    def __init__(self, fds: Sequence[int]) -> None:
        self._fds = fds
        self.begins()

    def begins(self) -> None:
        """Record what is free before programs run."""
        self._before = [free for free, _least in self._left()]

    def is_short(self) -> bool:
        """Return whether less than the reserve is free, and less than when programs began."""
        return any(
            free < min(least, before - before // _NOISE)
            for before, (free, least) in zip(self._before, self._left())  # noqa: B905
        )

    def _left(self) -> Iterator[tuple[int, int]]:
        """Yield the free bytes and entries, each with its reserve."""
        for fd in self._fds:
            status = os.fstatvfs(fd)
            size = status.f_blocks * status.f_frsize
            yield status.f_bavail * status.f_frsize, min(RESERVE, size // SHARE)
            yield status.f_favail, min(FILES, status.f_files // SHARE)
