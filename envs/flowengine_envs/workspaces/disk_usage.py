"""What folders take of a disk: bytes and entries, also those that are hidden.

Hidden is what lies in folders that their owner has closed (mode 0), and what has been removed but
is still held open or mapped by a process. What a process has closed to this one altogether
(`PR_SET_DUMPABLE`) and then removed cannot be seen.

Programs decide how deep and how many the folders are. So each is opened once, however deep it is,
and a look that has counted several times what there may be ends there.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple, Optional

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
_OPEN = 64
"""Folders in folders that are held open; to those below, the way back leads through `..`."""
_EACH = 16 * 1024
"""Bytes of a quota for which there may be one entry: what file systems are made for."""
_FEWEST = 1000
"""Entries that there may be with any quota."""
_ENOUGH = 4
"""How many times as many entries as there may be are counted."""
_AT_ONCE = 1000
"""Entries of a folder that are counted in one step."""


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
        """Return how much that is of a quota of bytes.

        More than 1 is too much. Infinite is more than was counted, and more than any other.
        """
        if self.entries > most_entries(quota) * _ENOUGH:
            return math.inf
        return max(self.size / quota, self.entries / most_entries(quota))


def most_entries(quota: int) -> int:
    """Return how many entries there may be with a quota of bytes."""
    return max(_FEWEST, quota // _EACH)


def measure(roots: Sequence[int], quota: int) -> Usage:
    """Return what folders take together; arguments as of `Look`."""
    look = Look(roots, quota)
    for _ in look.steps():
        pass
    return look.usage


class Look:
    """One look at folders and those who use them.

    Args:
        roots: Descriptors of the folders, all on one file system.
        quota: Bytes that they may take: far beyond that, nothing more is counted.
        pids: Processes that may have files open that have been removed from them.
    """

    def __init__(self, roots: Sequence[int], quota: int, pids: Iterable[int] = ()) -> None:
        self._roots = roots
        self._pids = pids
        self._enough = most_entries(quota) * _ENOUGH
        self._device = os.fstat(roots[0]).st_dev
        self._linked: set[int] = set()
        """Files with several names, and removed ones, that are counted already."""
        self._size = 0
        self._entries = 0

    @property
    def usage(self) -> Usage:
        """What has been counted up to now."""
        return Usage(self._size, self._entries)

    def steps(self) -> Iterator[None]:
        """Count; whoever asks for the next step may do something else before."""
        for root in self._roots:
            yield from self._below(root)
        for pid in self._pids:
            self._opened_by(pid)
            yield

    def _below(self, root: int) -> Iterator[None]:
        """Count all below a folder: the way down from it, and of each folder on it what is left."""
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
        """Count what is in a folder, and note what has to be entered."""
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


class _Folder:
    """A folder that is looked into.

    Args:
        fd: Its descriptor; closed at the end.
        mode: The rights that it has otherwise, if it was opened up.
    """

    def __init__(self, fd: int, mode: Optional[int] = None) -> None:  # noqa: UP045
        self.fd = fd
        self._mode = mode
        self._is_open = True
        self._identity = _identity(fd)
        self.below: list[str] = []
        """The folders in it that are still to be looked into."""

    def set_aside(self) -> None:
        """Give back the descriptor until the way leads back here."""
        os.close(self.fd)
        self._is_open = False

    def come_back(self, below: int) -> bool:
        """Open it again from a folder in it; returns whether that is still in it."""
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
        """Give it back, with the rights that it had."""
        if not self._is_open:
            return
        if self._mode is not None:
            with suppress(OSError):
                os.fchmod(self.fd, self._mode)
        os.close(self.fd)
        self._is_open = False


def _entered(name: str, above: int) -> _Folder:
    """Open a folder, also one that its owner, who this is, has closed."""
    try:
        return _Folder(os.open(name, _FOLDER, dir_fd=above))
    except PermissionError:
        return _opened_up(name, above)


def _opened_up(name: str, above: int) -> _Folder:
    """Give the owner of a folder the right to look into it, until that is done."""
    found = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    try:
        mode = stat.S_IMODE(os.fstat(found).st_mode)
        itself = f"/proc/self/fd/{found}"  # not by its name, which may be another's by now
        os.chmod(itself, mode | 0o500)
        try:
            return _Folder(os.open(itself, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), mode)
        except OSError:
            os.chmod(itself, mode)
            raise
    finally:
        os.close(found)


def _leave(way: list[_Folder]) -> None:
    """Go back to the folder above; if this one was moved, to the next above that is open."""
    last = way.pop()
    while way and not way[-1].come_back(last.fd):
        way.pop()
    last.close()


def _identity(fd: int) -> tuple[int, int]:
    info = os.fstat(fd)
    return info.st_dev, info.st_ino
