"""What folders take of a disk: bytes and entries, also those that are hidden.

Hidden is what lies in folders that their owner has closed (mode 0), and what has been removed but
is still held open or mapped by a process. What a process has closed to this one altogether
(`PR_SET_DUMPABLE`) and then removed cannot be seen.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
_DEPTH = 64
"""Folders in folders that are looked into in one go: each takes a descriptor meanwhile."""
_EACH = 16 * 1024
"""Bytes of a quota for which there may be one entry: what file systems are made for."""
_FEWEST = 1000
"""Entries that there may be with any quota."""


class Usage(NamedTuple):
    """What is taken."""

    size: int
    """Bytes on disk."""
    entries: int
    """Files, folders and links: each takes an inode."""

    def also(self, other: Usage) -> Usage:
        """Return both together."""
        return Usage(self.size + other.size, self.entries + other.entries)

    def part_of(self, quota: int) -> float:
        """Return how much that is of a quota of bytes; more than 1 is too much."""
        return max(self.size / quota, self.entries / most_entries(quota))


def most_entries(quota: int) -> int:
    """Return how many entries there may be with a quota of bytes."""
    return max(_FEWEST, quota // _EACH)


def measure(roots: Sequence[int]) -> Usage:
    """Return what folders take together, however deep they are; arguments as of `look_at`."""
    return look_at(roots).usage


def look_at(roots: Sequence[int], pids: Iterable[int] = ()) -> Look:
    """Look at folders, however deep they are, and at those who use them.

    Args:
        roots: Descriptors of them, all on one file system.
        pids: Processes that may have files open that have been removed from them.
    """
    look = Look(os.fstat(roots[0]).st_dev)
    for root in roots:
        starts: list[list[str]] = [[]]
        while starts:
            start = starts.pop()
            with suppress(OSError), _descended(root, start) as folder:
                look.folder(folder, start, 0, starts)
    for pid in pids:
        look.opened_by(pid)
    return look


class Look:
    """One look at a workspace and those who use it.

    Args:
        device: The file system that it is on.
    """

    def __init__(self, device: int) -> None:
        self._device = device
        self._linked: set[int] = set()
        """Files with several names, and removed ones, that are counted already."""
        self._size = 0
        self._entries = 0

    @property
    def usage(self) -> Usage:
        """What has been counted up to now."""
        return Usage(self._size, self._entries)

    def folder(self, fd: int, path: list[str], depth: int, starts: list[list[str]]) -> None:
        """Count what is in a folder; what is too deep is added to `starts`, for later."""
        below: list[str] = []
        with os.scandir(fd) as entries:
            for entry in entries:
                with suppress(OSError):
                    info = entry.stat(follow_symlinks=False)
                    self._count(info)
                    if stat.S_ISDIR(info.st_mode):
                        below.append(entry.name)
        for name in below:
            deeper = [*path, name]
            if depth == _DEPTH:
                starts.append(deeper)
                continue
            with suppress(OSError), _opened(name, fd) as folder:
                self.folder(folder, deeper, depth + 1, starts)

    def opened_by(self, pid: int) -> None:
        """Count removed files that a process has open."""
        with suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    info = os.stat(f"/proc/{pid}/fd/{name}")
                    if info.st_nlink == 0 and self._is_here(info):
                        self._count(info, removed=True)

    def mapped_by(self, pid: int) -> None:
        """Count removed files that a process has mapped.

        The kernel makes this wait while the process changes its memory. One that forks beside
        hundreds of others does so for minutes.
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
        """Count a removed file that is mapped: as large as its mapping, since nobody can ask it."""
        area, _rights, _offset, device, inode = line.split(None, 5)[:5]
        major, minor = (int(part, 16) for part in device.split(b":"))
        if os.makedev(major, minor) != self._device or int(inode) in self._linked:
            return
        self._linked.add(int(inode))
        begin, end = (int(part, 16) for part in area.split(b"-"))
        self._size += end - begin
        self._entries += 1


@contextmanager
def _descended(root: int, path: list[str]) -> Iterator[int]:
    """Open a folder below another for a moment, however deep; no two are open for long."""
    with ExitStack() as opened:
        fd = root
        for name in path:
            above = opened.pop_all()
            with above:
                fd = opened.enter_context(_opened(name, fd))
        yield fd


@contextmanager
def _opened(name: str, above: int) -> Iterator[int]:
    """Open a folder for a moment, also one that its owner, who this is, has closed."""
    try:
        fd = os.open(name, _FOLDER, dir_fd=above)
    except PermissionError:
        with _opened_up(name, above) as fd:
            yield fd
        return
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def _opened_up(name: str, above: int) -> Iterator[int]:
    """Give the owner of a folder the right to look into it, for a moment."""
    found = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    try:
        mode = stat.S_IMODE(os.fstat(found).st_mode)
        itself = f"/proc/self/fd/{found}"  # not by its name, which may be another's by now
        os.chmod(itself, mode | 0o500)
        try:
            fd = os.open(itself, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                yield fd
            finally:
                os.close(fd)
        finally:
            os.chmod(itself, mode)
    finally:
        os.close(found)
