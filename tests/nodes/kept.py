"""Kept files of an execution, for a step that runs without an engine."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from flowengine.sdk import File


class Kept:
    """Artifacts in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, source: bytes | os.PathLike[str], name: str) -> File:
        data = source if isinstance(source, bytes) else Path(source).read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        self.folder.mkdir(exist_ok=True)
        (self.folder / digest).write_bytes(data)
        path = str(self.folder / digest)
        return {"path": path, "name": name, "size": len(data), "sha256": digest}

    def path(self, sha256: str) -> str:
        if not (self.folder / sha256).exists():
            raise KeyError(sha256)
        return str(self.folder / sha256)
