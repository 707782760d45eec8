"""Measures the disk usage of directories: bytes and entries, including hidden ones.

Hidden entries are in directories closed by their owner (mode 0), or are removed files that a
process still holds open or mapped. Files removed by a process that is not inspectable
(`PR_SET_DUMPABLE`) cannot be found.

Programs determine the depth and number of directories. Each directory is therefore opened once at
any depth, and a scan ends after it has counted several times the maximum.
"""

from __future__ import annotations

import math
import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple, Optional

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
_OPEN = 64
"""Nested directories that are held open. From deeper ones, the scan returns through `..`."""
_EACH = 16 * 1024
"""Bytes of a quota per allowed entry, the ratio that file systems are designed for."""
_FEWEST = 1000
"""Number of entries allowed with any quota."""
_ENOUGH = 4
"""Multiple of the allowed entries after which counting ends."""
_AT_ONCE = 1000
"""Entries of a directory counted in one step."""


class DiskUsage(NamedTuple):
    """Disk usage."""

    size: int
    """Bytes on disk."""
    entries: int
    """Files, directories and links: each uses an inode."""

    def also(self, other: DiskUsage) -> DiskUsage:
        """Return the sum of both."""
        return DiskUsage(self.size + other.size, self.entries + other.entries)

    def part_of(self, quota: int) -> float:
        """Return the usage as a ratio to a quota of bytes.

        More than 1 exceeds the quota. Infinity means that counting ended early.
        """
        if self.entries > most_entries(quota) * _ENOUGH:
            return math.inf
        return max(self.size / quota, self.entries / most_entries(quota))


def most_entries(quota: int) -> int:
    """Return how many entries a quota of bytes allows."""
    return max(_FEWEST, quota // _EACH)


def measure(roots: Sequence[int], quota: int) -> DiskUsage:
    """Return the total usage of directories. Arguments are those of `Look`."""
    look = Look(roots, quota)
    for _ in look.steps():
        pass
    return look.usage


class Look:
    """One scan of directories and of processes that use them.

    Args:
        roots: Descriptors of the directories, all on one file system.
        quota: Bytes that they may use together. Counting ends far beyond it.
        pids: Processes that may have removed files open.
    """

    def __init__(self, roots: Sequence[int], quota: int, pids: Iterable[int] = ()) -> None:
        self._roots = roots
        self._pids = pids
        self._enough = most_entries(quota) * _ENOUGH
        self._device = os.fstat(roots[0]).st_dev
        self._linked: set[int] = set()
        """Files with several names, and removed ones, that are already counted."""
        self._size = 0
        self._entries = 0

    @property
    def usage(self) -> DiskUsage:
        """Usage counted so far."""
        return DiskUsage(self._size, self._entries)

    def steps(self) -> Iterator[None]:
        """Count in steps, between which the caller may do other work."""
        for root in self._roots:
            yield from self._below(root)
        for pid in self._pids:
            self._opened_by(pid)
            yield

    def _below(self, root: int) -> Iterator[None]:
        """Count everything below a directory, keeping a stack of pending directories."""
        way = [_Folder(os.dup(root))]
        try:
            yield from self._entries_of(way[0])
            while way:
                here = way[-1]
                if not here.below:
                    _leave(way)
                    continue
                with suppress(OSError):
                    way.append(_entered(here.below.pop(), here.fd))
                    if len(way) > _OPEN:
                        here.set_aside()
                    yield from self._entries_of(way[-1])
        finally:
            for folder in way:
                folder.close()

    def _entries_of(self, folder: _Folder) -> Iterator[None]:
        """Count the entries of a directory, and record its subdirectories."""
        yield
        with suppress(OSError), os.scandir(folder.fd) as entries:
            for count, entry in enumerate(entries):
                if self._entries > self._enough:
                    folder.below.clear()
                    return
                with suppress(OSError):
                    info = entry.stat(follow_symlinks=False)
                    self._count(info)
                    if stat.S_ISDIR(info.st_mode):
                        folder.below.append(entry.name)
                if count % _AT_ONCE == _AT_ONCE - 1:
                    yield

    def _opened_by(self, pid: int) -> None:
        """Count removed files that a process has open."""
        with suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    info = os.stat(f"/proc/{pid}/fd/{name}")
                    if info.st_nlink == 0 and self._is_here(info):
                        self._count(info, removed=True)

    def mapped_by(self, pid: int) -> None:
        """Count removed files that a process has mapped.

        The kernel blocks this while the process changes its memory. With hundreds of forking
        processes, this takes minutes.
        """
        with suppress(OSError), open(f"/proc/{pid}/maps", "rb") as file:
            for line in file:
                if line.endswith(b" (deleted)\n"):
                    self._mapped(line)

    def _is_here(self, info: os.stat_result) -> bool:
        return info.st_dev == self._device and stat.S_ISREG(info.st_mode)

    def _count(self, info: os.stat_result, *, removed: bool = False) -> None:
        if removed or (info.st_nlink > 1 and not stat.S_ISDIR(info.st_mode)):
            if info.st_ino in self._linked:
                return
            self._linked.add(info.st_ino)
        self._size += info.st_blocks * 512
        self._entries += 1

    def _mapped(self, line: bytes) -> None:
        """Count a removed file that is mapped, by the size of its mapping."""
        area, _rights, _offset, device, inode = line.split(None, 5)[:5]
        major, minor = (int(part, 16) for part in device.split(b":"))
        if os.makedev(major, minor) != self._device or int(inode) in self._linked:
            return
        self._linked.add(int(inode))
        begin, end = (int(part, 16) for part in area.split(b"-"))
        self._size += end - begin
        self._entries += 1


class _Folder:
    """A directory being scanned.

    Args:
        fd: Its descriptor, which is closed at the end.
        mode: Its original permissions, if they were extended.
    """

    def __init__(self, fd: int, mode: Optional[int] = None) -> None:  # noqa: UP045
        self.fd = fd
        self._mode = mode
        self._is_open = True
        self._identity = _identity(fd)
        self.below: list[str] = []
        """Subdirectories that remain to be scanned."""

    def set_aside(self) -> None:
        """Close the descriptor until the scan returns here."""
        os.close(self.fd)
        self._is_open = False

    def come_back(self, below: int) -> bool:
        """Reopen it from a subdirectory. Return whether that is still inside it."""
        if self._is_open:
            return True
        with suppress(OSError):
            fd = os.open("..", _FOLDER, dir_fd=below)
            if _identity(fd) == self._identity:
                self.fd, self._is_open = fd, True
                return True
            os.close(fd)
        return False

    def close(self) -> None:
        """Close it and restore its permissions."""
        if not self._is_open:
            return
        if self._mode is not None:
            with suppress(OSError):
                os.fchmod(self.fd, self._mode)
        os.close(self.fd)
        self._is_open = False


def _entered(name: str, above: int) -> _Folder:
    """Open a directory, even if its owner, this user, has closed it."""
    try:
        return _Folder(os.open(name, _FOLDER, dir_fd=above))
    except PermissionError:
        return _opened_up(name, above)


def _opened_up(name: str, above: int) -> _Folder:
    """Temporarily give the owner of a directory the right to read it."""
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    try:
        mode = stat.S_IMODE(os.fstat(fd).st_mode)
        itself = f"/proc/self/fd/{fd}"  # not by name, which may now belong to another entry
        os.chmod(itself, mode | 0o500)
        try:
            return _Folder(os.open(itself, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), mode)
        except OSError:
            os.chmod(itself, mode)
            raise
    finally:
        os.close(fd)


def _leave(way: list[_Folder]) -> None:
    """Return to the parent directory, or if this one was moved, to the nearest open ancestor."""
    last = way.pop()
    while way and not way[-1].come_back(last.fd):
        way.pop()
    last.close()


def _identity(fd: int) -> tuple[int, int]:
    info = os.fstat(fd)
    return info.st_dev, info.st_ino


# Decides when to measure a workspace again.
#
# Programs determine the number of files, and so the time that measuring takes. It may therefore
# use only a share of the time. Reading the free space of the file system costs nothing. If it
# shrinks by the amount that the workspace may still grow, the workspace is measured soon, even if
# other programs wrote the data.

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
