"""Removal of directories in any state that programs may have left them in."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: str | Path) -> None:
    """Remove a directory with all its content, without following links.

    This works at any depth, because nested directories are moved up first, and with any
    permissions. Entries of other users that cannot be removed stay.

    Args:
        path: The directory, which may be missing.
    """
    try:
        top = _open(path, None)
    except OSError:
        return
    try:
        waiting = os.listdir(top)
        while waiting:
            with suppress(OSError):
                waiting += _clear(waiting.pop(), top)
    finally:
        os.close(top)
    with suppress(OSError):
        os.rmdir(path)


def _clear(name: str, top: int) -> list[str]:
    """Remove an entry of the top directory, and return the new names of its directories."""
    try:
        os.unlink(name, dir_fd=top)
        return []
    except IsADirectoryError:
        folder = _open(name, top)
    moved = []
    try:
        for inner in os.listdir(folder):
            try:
                os.unlink(inner, dir_fd=folder)
            except IsADirectoryError:
                os.close(_open(inner, folder))
                new = f".{os.urandom(8).hex()}"
                os.rename(inner, new, src_dir_fd=folder, dst_dir_fd=top)
                moved.append(new)
    except OSError:  # another user's: the directories that were moved up are still removed
        return moved
    finally:
        os.close(folder)
    with suppress(OSError):
        os.rmdir(name, dir_fd=top)
    return moved


def _open(name: str | Path, above: int | None) -> int:
    """Open a directory, and make it readable and writable for us."""
    handle = os.open(name, os.O_PATH | _FOLDER, dir_fd=above)
    try:
        # The permissions of such a descriptor can only be changed through this name.
        here = f"/proc/self/fd/{handle}"
        with suppress(OSError):
            os.chmod(here, 0o700)
        return os.open(here, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(handle)
