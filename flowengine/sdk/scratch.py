"""Temporary directories that are removed even if their process is killed.

Each is locked by that process, and the kernel releases the lock when its holder ends. A directory
that can be locked was therefore left by a dead process. The next process that creates a directory
removes it.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from flowengine.folder_removal import remove_tree

__all__ = [
    "PREFIX",
    "make_scratch",
    "remove_scratch",
    "remove_tree",
    "scratch_folder",
    "sweep_scratch",
]
PREFIX = "flowengine-scratch-"

_locks: dict[str, int] = {}
_swept: set[str] = set()


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Create a temporary directory for a `with` block, and remove those of dead processes."""
    path = make_scratch()
    try:
        yield path
    finally:
        remove_scratch(path)


def make_scratch() -> Path:
    """Create a temporary directory, to be removed by `remove_scratch`."""
    place = tempfile.gettempdir()
    if place not in _swept:
        _swept.add(place)
        sweep_scratch()
    while True:
        path = tempfile.mkdtemp(prefix=PREFIX)
        with suppress(FileNotFoundError):
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(handle, fcntl.LOCK_EX)
            # another process's sweep may have removed it before it was locked
            if os.path.exists(path):
                _locks[path] = handle
                return Path(path)
            os.close(handle)


def remove_scratch(path: Path) -> None:
    """Remove a temporary directory with all its content."""
    remove_tree(path)
    handle = _locks.pop(str(path), None)
    if handle is not None:
        os.close(handle)


def sweep_scratch() -> list[Path]:
    """Remove the directories of dead processes, and end the programs that ran in them.

    Returns:
        The removed directories.
    """
    left = [(path, handle) for path in _existing() if (handle := _locked(path)) is not None]
    if left:
        from flowengine.sdk.process_tree import end_orphans

        end_orphans()
    for path, handle in left:
        remove_tree(path)
        os.close(handle)
    return [path for path, _ in left]


def _locked(path: Path) -> int | None:
    """Return the lock on a directory of this user, or None if it is in use or another user's."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with suppress(OSError):
        if os.fstat(handle).st_uid == os.geteuid():
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return handle
    os.close(handle)
    return None


def _existing() -> list[Path]:
    try:
        with os.scandir(tempfile.gettempdir()) as entries:
            return [Path(each.path) for each in entries if each.name.startswith(PREFIX)]
    except OSError:
        return []
