"""The output of a terminal: beginning and end in memory, and records in files."""

from __future__ import annotations

import json
import os
from typing import Any

from flowengine_envs.link.terminal_text import clean

RECORDS = 16 * 1024 * 1024
"""Bytes of a record file, after which it is renamed and a new one started."""


class Transcript:
    """Keeps the beginning and the end of output.

    Args:
        kept: Number of bytes to keep, half of them from the end.
    """

    def __init__(self, kept: int) -> None:
        self._half = max(1, kept // 2)
        self._head = bytearray()
        self._tail = bytearray()
        self._cut_off = 0

    @property
    def left_out(self) -> int:
        """Bytes between the beginning and the end that `bytes` does not return."""
        return self._cut_off + max(0, len(self._tail) - self._half)

    def add(self, data: bytes) -> None:
        """Add output."""
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._half:
            self._cut()

    def bytes(self) -> bytes:
        """Return the kept output, with a line that reports how much is missing."""
        if len(self._tail) > self._half:
            self._cut()
        if not self.left_out:
            return bytes(self._head + self._tail)
        gap = f"\n... {self.left_out} bytes left out ...\n".encode()
        return bytes(self._head) + gap + bytes(self._tail)

    def _cut(self) -> None:
        over = len(self._tail) - self._half
        self._cut_off += over
        del self._tail[:over]


class TranscriptFiles:
    """Two files, `raw.log` and `clean.log`, with one entry per command.

    An entry is a line of JSON, whose `bytes` is the length of the output after it, then the output
    and a line feed.

    Args:
        folder: Their directory, created if necessary.
        limit: Maximum bytes of each. The previous file is kept as `raw.log.1`.
    """

    def __init__(self, folder: str, limit: int = RECORDS) -> None:
        self._folder = folder
        self._limit = limit
        self._make()

    def add(self, entry: dict[str, Any], raw: bytes) -> None:
        """Add an entry to both. If the disk is full, the entry is lost."""
        for name, whole in (("raw.log", raw), ("clean.log", clean(raw).encode())):
            data = whole[: self._limit // 2]
            head = json.dumps({**entry, "bytes": len(data)}, ensure_ascii=False)
            try:
                self._make()
                self._append(os.path.join(self._folder, name), head.encode() + b"\n" + data + b"\n")
            except OSError:
                continue

    def _make(self) -> None:
        """Create the directory, which programs may have removed."""
        os.makedirs(self._folder, mode=0o700, exist_ok=True)

    def _append(self, path: str, data: bytes) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        if os.path.exists(path) and os.path.getsize(path) + len(data) > self._limit:
            os.replace(path, path + ".1")
        fd = os.open(path, flags, 0o600)
        try:
            os.write(fd, data)
        finally:
            os.close(fd)
