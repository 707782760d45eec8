"""Folders of the store: private, and with names that survive a power cut."""

from __future__ import annotations

import os
from contextlib import suppress


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


def sync_folder(path: str) -> None:
    """Make sure that the names in a folder are on disk."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_file(path: str) -> None:
    """Make sure that what a file holds is on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
