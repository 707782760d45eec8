"""Ownership of the files of containers.

Programs in a container run as the user of this process, so that the user owns their files. If this
process is root, they run as an ordinary user instead: the engine's own directories are lent to that
user while containers run, and taken back afterwards. Directories of users keep their owners.
"""

from __future__ import annotations

import os
import stat
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

_ORDINARY = 1000


def user() -> int:
    """Return the user id of programs in containers, which is never root's."""
    return os.getuid() or _ORDINARY


def group() -> int:
    """Return the group id of programs in containers, which is never root's."""
    return os.getgid() or _ORDINARY


def writable_inside(folder: Path) -> bool:
    """Return whether root's container programs may write a directory, by its owner and mode."""
    if os.getuid() != 0:
        return True
    status = os.stat(folder)
    if status.st_uid == user():
        return bool(status.st_mode & stat.S_IWUSR)
    bit = stat.S_IWGRP if status.st_gid == group() else stat.S_IWOTH
    return bool(status.st_mode & bit)


_lent: Counter[Path] = Counter()
_not_lent: dict[Path, set[tuple[int, int]]] = {}
"""Entries that the ordinary user owned before a directory was lent: device and inode."""
_alone = threading.Lock()


def lend(folders: Iterable[Path]) -> None:
    """Allow root's containers to write root's files in directories.

    Args:
        folders: On this machine. Each may be lent several times.
    """
    if os.getuid() == 0:
        with _alone:
            for folder in folders:
                if not _lent[folder]:
                    _not_lent[folder] = _owned(folder, (user(), group()))
                _lent[folder] += 1
                _chown(folder, (0, 0), (user(), group()))


def take_back(folders: Iterable[Path]) -> None:
    """Make root the owner of files written by root's containers, once the last one has ended.

    Files that the container user owned before keep their owner: a workspace can be a directory of
    that user.

    Args:
        folders: On this machine. Missing ones are skipped.
    """
    if os.getuid() == 0:
        with _alone:
            for folder in folders:
                _lent[folder] -= 1
                _give_back(folder)


def take_back_left(folders: Iterable[Path]) -> None:
    """Take back the directories lent by a dead process, unless this one has lent them again.

    Args:
        folders: On this machine. Missing ones are skipped.
    """
    if os.getuid() == 0:
        with _alone:
            for folder in folders:
                _give_back(folder)


def _give_back(folder: Path) -> None:
    if _lent[folder] <= 0:
        del _lent[folder]
        _chown(folder, (user(), group()), (0, 0), _not_lent.pop(folder, set()))


def _owned(folder: Path, owner: tuple[int, int]) -> set[tuple[int, int]]:
    """Return the entries that belong to an owner."""
    ids = set()

    def note(name: str, above: int, info: os.stat_result) -> None:
        if (info.st_uid, info.st_gid) == owner:
            ids.add((info.st_dev, info.st_ino))

    _visit(folder, note)
    return ids


def _chown(
    folder: Path,
    old: tuple[int, int],
    new: tuple[int, int],
    but: Iterable[tuple[int, int]] = (),
) -> None:
    """Change the owner of entries, except for given ones and new entries in their directories."""
    others = set(but)

    def change(name: str, above: int, info: os.stat_result) -> None:
        identity, parent = (info.st_dev, info.st_ino), os.fstat(above)
        if (info.st_uid, info.st_gid) != old or identity in others:
            return
        if (parent.st_dev, parent.st_ino) in others:
            others.add(identity)
        else:
            os.chown(name, *new, dir_fd=above, follow_symlinks=False)

    _visit(folder, change)


def _visit(folder: Path, visit: Callable[[str, int, os.stat_result], None]) -> None:
    """Visit a directory and everything below it without following any link, even a new one.

    Entries that disappear or are nested too deep to be reached are skipped.
    """
    above = [_Open(str(folder), None)]
    try:
        above[0].visit(".", visit)
        while above:
            here = above[-1]
            if not here.names:
                here.close()
                above.pop()
                continue
            name = here.names.pop()
            if here.visit(name, visit):
                above.append(_Open(name, here.fd))
    finally:
        for each in above:
            each.close()


class _Open:
    """An open directory, and the names in it that remain to be visited."""

    def __init__(self, name: str, above: int | None) -> None:
        self.fd: int | None = None
        self.names: list[str] = []
        with suppress(OSError):
            self.fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
            self.names = os.listdir(self.fd)

    def visit(self, name: str, visit: Callable[[str, int, os.stat_result], None]) -> bool:
        """Visit an entry with its name, directory and status. Return whether it is a directory."""
        with suppress(OSError):
            if self.fd is not None:
                status = os.stat(name, dir_fd=self.fd, follow_symlinks=False)
                visit(name, self.fd, status)
                return stat.S_ISDIR(status.st_mode)
        return False

    def close(self) -> None:
        """Close the directory."""
        if self.fd is not None:
            os.close(self.fd)
