"""Files and folders that are whole or absent, whatever interrupts: a crash, a full disk.

A file is written under another name, synced, and gets its own name only then. Files are readable
for this user only, and so are folders, whatever the umask.
"""

from __future__ import annotations

import os
from contextlib import suppress

DRAFT = ".new"
"""End of the names of files that are being written."""


def make_folder(path: str, *, synced: bool) -> None:
    """Create a folder and its missing parents, accessible for this user only.

    Args:
        synced: Whether its name must be on disk when this returns.
    """
    if os.path.isdir(path):
        return
    above = os.path.dirname(path)
    make_folder(above, synced=synced)
    with suppress(FileExistsError):  # others may create it at the same time
        os.mkdir(path, 0o700)
        os.chmod(path, 0o700)  # whatever the umask has taken away
    if synced:
        sync_folder(above)


def write_whole(
    path: str | os.PathLike[str], content: bytes, *, replace: bool = True, synced: bool = True
) -> bool:
    """Write a file that is found whole or not at all.

    Args:
        path: Its name.
        content: All that is in it.
        replace: Whether it takes the place of a file of this name.
        synced: Whether it must be on disk when this returns.

    Returns:
        Whether it was written; False: there is a file of this name, which stays.

    Raises:
        OSError: It cannot be written; nothing is left of it.
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
    """Return a name for a file that is being written; it names the process, too."""
    return f"{path}.{os.getpid()}.{os.urandom(4).hex()}{DRAFT}"


def give_name(draft: str, path: str) -> bool:
    """Give a file its name unless another process was faster; return whether it has it now."""
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
    """Make sure that the names in a folder are on disk."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_file(path: str) -> None:
    """Make sure that what a file holds is on disk."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
