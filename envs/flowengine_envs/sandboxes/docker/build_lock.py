"""A lock between a user's processes on this machine while one of them builds an image."""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path

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
        self._file = -1

    def take(self) -> bool:
        """Take the lock unless another process holds it.

        Returns:
            Whether it was taken.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(self._path, flags, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._is_there(file):
                self._file, file = file, -1
        except BlockingIOError:
            pass
        finally:
            if file >= 0:
                os.close(file)
        return self._file >= 0

    def release(self) -> None:
        """Release the lock."""
        self._path.unlink(missing_ok=True)  # before another process can take it
        os.close(self._file)
        self._file = -1

    def _is_there(self, file: int) -> bool:
        """Return whether the file still exists: the previous holder may have removed it."""
        try:
            return os.path.samestat(os.fstat(file), os.lstat(self._path))
        except FileNotFoundError:
            return False
