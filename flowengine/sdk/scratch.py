"""Temporary folders that are removed after the process that created them, even if it was killed.

Each is locked by that process, and the kernel releases a lock with its holder. So a folder that can
be locked was left by a dead process, and the next process that creates a folder removes it.
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
    """Create a temporary folder for a `with` block; folders of dead processes are removed."""
    path = make_scratch()
    try:
        yield path
    finally:
        remove_scratch(path)


def make_scratch() -> Path:
    """Create a temporary folder; remove it with `remove_scratch`."""
    place = tempfile.gettempdir()
    if place not in _swept:
        _swept.add(place)
        sweep_scratch()
    while True:
        path = tempfile.mkdtemp(prefix=PREFIX)
        with suppress(FileNotFoundError):
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(handle, fcntl.LOCK_EX)
            if os.path.exists(path):  # no sweep was faster than the lock
                _locks[path] = handle
                return Path(path)
            os.close(handle)


def remove_scratch(path: Path) -> None:
    """Remove a temporary folder with all its content."""
    remove_tree(path)
    handle = _locks.pop(str(path), None)
    if handle is not None:
        os.close(handle)


def sweep_scratch() -> list[Path]:
    """Remove the folders of dead processes, and end the programs that ran in them.

    Returns:
        What was removed.
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
    """Return the lock on a folder of ours, or None if it is in use or somebody else's."""
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
