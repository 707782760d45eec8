"""Folders whose names survive a power cut."""

from __future__ import annotations

import os


def make_folder(path: str, *, synced: bool) -> None:
    """Make a folder and those above it, where they are absent.

    Args:
        path: The folder.
        synced: Whether its name must be on disk when this returns.
    """
    if os.path.isdir(path):
        return
    above = os.path.dirname(path)
    make_folder(above, synced=synced)
    os.makedirs(path, exist_ok=True)  # others may make it at the same time
    if synced:
        sync_folder(above)


def sync_folder(path: str) -> None:
    """Make sure that the names in a folder are on disk.

    Args:
        path: The folder.
    """
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
