"""Keeps what is too large for a result as files, as long as the environment lives."""

from __future__ import annotations

import hashlib
import shutil
import threading
from os import PathLike
from pathlib import Path

from flowengine.sdk import File
from flowengine.sdk.scratch import make_scratch, remove_scratch


class TemporaryArtifacts:
    """Files by digest in a temporary folder, which is made when the first one comes."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._lock = threading.Lock()

    def put(self, source: bytes | PathLike[str], name: str) -> File:
        """Keep bytes or a copy of a file under a name."""
        with self._lock:
            if self._folder is None:
                self._folder = make_scratch()
            folder = self._folder
        new = folder / f"new-{threading.get_ident()}"
        if isinstance(source, bytes):
            new.write_bytes(source)
        else:
            shutil.copyfile(source, new)
        with new.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        size = new.stat().st_size
        path = new.rename(folder / digest)
        return {"path": str(path), "name": name, "size": size, "sha256": digest}

    def path(self, sha256: str) -> str:
        """Return where a kept file can be read.

        Raises:
            KeyError: No file of this digest is kept.
        """
        path = None if self._folder is None else self._folder / sha256
        if path is None or len(sha256) != 64 or not path.is_file():
            raise KeyError(sha256)
        return str(path)

    def remove(self) -> None:
        """Remove all files."""
        with self._lock:
            folder, self._folder = self._folder, None
        if folder is not None:
            remove_scratch(folder)
