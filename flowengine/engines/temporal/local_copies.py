"""Copies of files on this machine, which threads share."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory


class LocalCopies:
    """A temporary directory with copies, made for the first one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._folder: TemporaryDirectory[str] | None = None

    def path(self, digest: str) -> Path:
        """Return the path of a copy, which may not exist yet.

        Args:
            digest: The digest of its content.
        """
        with self._lock:
            if self._folder is None:
                self._folder = TemporaryDirectory(prefix="flowengine-")
            return Path(self._folder.name, digest)

    def write(self, path: Path, content: Iterable[bytes]) -> None:
        """Write a copy, whole or not at all, because other threads may read it.

        Args:
            path: As returned by `path`.
            content: Its parts.
        """
        part = path.with_suffix(f".{os.urandom(4).hex()}")
        with part.open("wb") as file:
            file.writelines(content)
        part.replace(path)

    def close(self) -> None:
        """Remove all copies. A later one is written to another directory."""
        with self._lock:
            folder, self._folder = self._folder, None
        if folder is not None:
            folder.cleanup()
