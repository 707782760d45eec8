"""Atomic writes of files and directories, which survive a crash or a full disk.

A file is written under another name, synced, and then renamed. Files and directories are accessible
only to this user, for any umask.
"""

from __future__ import annotations

import os
from contextlib import suppress

DRAFT = ".new"
"""Suffix of the names of files that are being written."""


def make_folder(path: str, *, synced: bool) -> None:
    """Create a directory and its missing parents, accessible for this user only.

    Args:
        synced: Whether its name must be on disk when this returns.
    """
    if os.path.isdir(path):
        return
    above = os.path.dirname(path)
    make_folder(above, synced=synced)
    with suppress(FileExistsError):  # another process may create it at the same time
        os.mkdir(path, 0o700)
        os.chmod(path, 0o700)  # undo the effect of the umask
    if synced:
        sync_folder(above)


def write_whole(
    path: str | os.PathLike[str], content: bytes, *, replace: bool = True, synced: bool = True
) -> bool:
    """Write a file atomically.

    Args:
        path: Its name.
        content: Its content.
        replace: Whether it replaces an existing file.
        synced: Whether it must be on disk when this returns.

    Returns:
        Whether it was written. False if a file of this name exists and was kept.

    Raises:
        OSError: It cannot be written. Nothing of it remains.
    """
    path = os.fspath(path)
    draft = draft_of(path)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o600)
            file.write(content)
            file.flush()
            if synced:
                os.fsync(descriptor)
        if replace:
            os.rename(draft, path)
        elif not give_name(draft, path):
            return False
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft)
    if synced:
        sync_folder(os.path.dirname(path) or os.curdir)
    return True


def draft_of(path: str) -> str:
    """Return a name for a file that is being written, which includes the process id."""
    return f"{path}.{os.getpid()}.{os.urandom(4).hex()}{DRAFT}"


def give_name(draft: str, path: str) -> bool:
    """Give a file its name unless another process was faster, and return whether it has it now."""
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    except OSError:  # a file system without hard links
        if os.path.lexists(path):
            return False
        os.rename(draft, path)
    return True


def sync_folder(path: str) -> None:
    """Make sure that the names in a directory are on disk."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_file(path: str) -> None:
    """Make sure that the content of a file is on disk."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
