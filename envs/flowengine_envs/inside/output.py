"""Captures what a program writes: beginning and end, how much is between, and all in a file.

Output is cut here, in the sandbox, so that a program that prints gigabytes costs the engine
nothing. The beginning is passed on as it comes; the end is known when the program has ended. What
goes beyond the limit is written, with the beginning, to a file of the workspace.
"""

from __future__ import annotations

import array
import fcntl
import os
import termios
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from flowengine_envs.inside.loop import Call, Loop

READ = 256 * 1024


class OutputLimits(NamedTuple):
    """How much of each stream is kept, and where the rest goes."""

    kept: int
    """Bytes in the result: half from the beginning, half from the end."""
    file: int
    """Bytes that a file may have."""
    folder: str
    """Folder of such files."""


class Capture:
    """One stream.

    Args:
        fd: Where to read; it is closed at the end.
        limits: How much is kept.
        name: Beginning of the name of its file.
        said: Called with bytes of the beginning as they come.
        closed: Called when nothing more can come.
    """

    def __init__(
        self,
        loop: Loop,
        fd: int,
        limits: OutputLimits,
        name: str,
        said: Callable[[bytes], None],
        closed: Call,
    ) -> None:
        self._loop = loop
        self._fd = fd
        self._limits = limits
        self._name = name
        self._said = said
        self._closed = closed
        self._head = bytearray()
        self._tail = bytearray()
        self._file: int | None = None
        self._path: str | None = None
        self._in_file = 0
        self._late: Callable[[bytes], None] | None = None
        self.total = 0
        self.open = True
        os.set_blocking(fd, False)
        loop.reading(fd, self._ready)

    def pause(self) -> None:
        """Read no more for now: the program then waits."""
        if self.open:
            self._loop.reading(self._fd, None)

    def resume(self) -> None:
        """Read again."""
        if self.open:
            self._loop.reading(self._fd, self._ready)

    def drain(self) -> None:
        """Read what has been written up to now, and no more than that."""
        if not self.open:
            return
        waiting = array.array("i", [0])
        fcntl.ioctl(self._fd, termios.FIONREAD, waiting)
        left = waiting[0]
        while left > 0 and self.open:
            left -= self._read(left)

    def finish(self, late: Callable[[bytes], None] | None = None) -> dict[str, Any]:
        """Return what the result says of this stream; the file is closed.

        Args:
            late: Called with what is written from now on; None: nothing more is read.

        Returns:
            `total`, and if something was left out `left_out`, `file` and `missing` in it.
        """
        self._late = late
        if late is None:
            self.close()
        if self._file is not None:
            os.close(self._file)
            self._file = None
        kept = len(self._head) + len(self._tail)
        result: dict[str, Any] = {"total": self.total}
        if self.total > kept:
            result["left_out"] = self.total - kept
            result["file"] = self._path
            result["missing"] = self.total - self._in_file
        return result

    @property
    def tail(self) -> bytes:
        """What comes after the beginning, or after what was left out."""
        return bytes(self._tail)

    def close(self) -> None:
        """Read no more."""
        if self.open:
            self.open = False
            self._loop.forget(self._fd)
            os.close(self._fd)
            self._closed()

    def _ready(self) -> None:
        self._read()

    def _read(self, most: int = READ) -> int:
        try:
            data = os.read(self._fd, min(most, READ))
        except BlockingIOError:
            return most
        if not data:
            self.close()
            return most
        if self._late is not None:
            self._late(data)
        else:
            self._take(data)
        return len(data)

    def _take(self, data: bytes) -> None:
        self.total += len(data)
        half = self._limits.kept // 2
        begins = data[: half - len(self._head)]
        if begins:
            self._head += begins
            self._said(begins)
        rest = data[len(begins) :]
        if not rest:
            return
        if self._path is None and self.total > self._limits.kept:
            self._begin_file()
        self._tail += rest
        if len(self._tail) > self._limits.kept - half:
            del self._tail[: len(self._tail) - (self._limits.kept - half)]
        self._write(rest)

    def _begin_file(self) -> None:
        self._path = os.path.join(self._limits.folder, f"{self._name}-{os.urandom(4).hex()}.txt")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with suppress(OSError):
            os.makedirs(self._limits.folder, exist_ok=True)
            self._file = os.open(self._path, flags, 0o644)
        self._write(bytes(self._head))
        self._write(bytes(self._tail))

    def _write(self, data: bytes) -> None:
        part = memoryview(data)[: self._limits.file - self._in_file]
        if self._file is None or not part:
            return
        try:
            while part:
                written = os.write(self._file, part)
                self._in_file += written
                part = part[written:]
        except OSError:  # full, or over the quota: the result says how much is missing
            os.close(self._file)
            self._file = None
