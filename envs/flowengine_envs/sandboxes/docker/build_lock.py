"""A lock between a user's processes on this machine while one of them builds an image."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from flowengine.sdk.confined_files import take_lock

PAUSE = 0.1
"""Seconds between two checks whether another process has built it."""


class BuildLock:
    """The lock for one image. Its file exists only while a process holds it.

    Args:
        tag: Tag of the image.
    """

    def __init__(self, tag: str) -> None:
        name = f"{tag.replace(':', '-')}-{os.getuid()}.lock"
        self._path = Path(tempfile.gettempdir()) / name
        self._file: int | None = None

    def take(self) -> bool:
        """Take the lock unless another process holds it.

        Returns:
            Whether it was taken.
        """
        file = take_lock(self._path)
        if file is None:
            return False
        if not self._is_there(file):
            os.close(file)
            return False
        self._file = file
        return True

    def release(self) -> None:
        """Release the lock."""
        self._path.unlink(missing_ok=True)  # before another process can take it
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _is_there(self, file: int) -> bool:
        """Return whether the file still exists: the previous holder may have removed it."""
        try:
            return os.path.samestat(os.fstat(file), os.lstat(self._path))
        except FileNotFoundError:
            return False
