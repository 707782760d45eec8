"""Whose files those of a container are.

Programs in a container run as the user of this process, so that their files are the user's. Root's
containers are no root: their folders are lent to an ordinary user while they run, and given back.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

_ORDINARY = 1000


def user() -> int:
    """Return the user id of programs in containers; never root's."""
    return os.getuid() or _ORDINARY


def group() -> int:
    """Return the group id of programs in containers; never root's."""
    return os.getgid() or _ORDINARY


_lent: Counter[Path] = Counter()
_alone = threading.Lock()


def lend(folders: Iterable[Path]) -> None:
    """Let the containers of root write what is root's in folders.

    Args:
        folders: On this machine; each may be lent several times.
    """
    if os.getuid() == 0:
        with _alone:
            for folder in folders:
                _lent[folder] += 1
                _chown(folder, (0, 0), (user(), group()))


def take_back(folders: Iterable[Path]) -> None:
    """Make root the owner of what containers of root wrote, when the last of them has ended.

    Args:
        folders: On this machine; one that is gone is passed over.
    """
    if os.getuid() == 0:
        with _alone:
            for folder in folders:
                _lent[folder] -= 1
                if _lent[folder] <= 0:
                    del _lent[folder]
                    _chown(folder, (user(), group()), (0, 0))


def _chown(folder: Path, old: tuple[int, int], new: tuple[int, int]) -> None:
    """Change the owner of what has a certain one; no link is followed, not even one just made."""
    for _path, folders, files, fd in os.fwalk(folder, follow_symlinks=False):
        here = os.fstat(fd)
        if (here.st_uid, here.st_gid) == old:
            os.fchown(fd, *new)
        for name in (*folders, *files):
            try:
                found = os.stat(name, dir_fd=fd, follow_symlinks=False)
                if (found.st_uid, found.st_gid) == old:
                    os.chown(name, *new, dir_fd=fd, follow_symlinks=False)
            except FileNotFoundError:
                continue
