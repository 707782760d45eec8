"""Captures a program's output: beginning, end, size of the gap, and all of it in a file.

Output is truncated here, in the sandbox, so that a program that prints gigabytes costs the engine
nothing. The beginning is forwarded as it arrives. The end is known when the program has ended.
Output beyond the limit is written, with the beginning, to a file of the workspace.
"""

from __future__ import annotations

import array
import fcntl
import os
import termios
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from flowengine_envs.inside.loop import Call, EventLoop

READ = 256 * 1024


class OutputLimits(NamedTuple):
    """Limits for the kept part of each stream, and the place for the rest."""

    kept: int
    """Bytes in the result: half from the beginning, half from the end."""
    file: int
    """Maximum size of a file in bytes."""
    folder: str
    """Directory of such files."""


class Capture:
    """One stream.

    Args:
        fd: Descriptor to read. It is closed at the end.
        limits: Limits of the kept part.
        name: Prefix of its file name.
        on_output: Called with bytes of the beginning as they arrive.
        closed: Called when no more output can arrive.
    """

    def __init__(
        self,
        loop: EventLoop,
        fd: int,
        limits: OutputLimits,
        name: str,
        on_output: Callable[[bytes], None],
        closed: Call,
    ) -> None:
        self._loop = loop
        self._fd = fd
        self._limits = limits
        self._name = name
        self._on_output = on_output
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
        """Pause reading, which blocks the program."""
        if self.open:
            self._loop.reading(self._fd, None)

    def resume(self) -> None:
        """Resume reading."""
        if self.open:
            self._loop.reading(self._fd, self._ready)

    def drain(self) -> None:
        """Read only output that has already been written."""
        if not self.open:
            return
        waiting = array.array("i", [0])
        fcntl.ioctl(self._fd, termios.FIONREAD, waiting)
        left = waiting[0]
        while left > 0 and self.open:
            left -= self._read(left)

    def finish(self, late: Callable[[bytes], None] | None = None) -> dict[str, Any]:
        """Close the file, and return the result's description of this stream.

        Args:
            late: Called with later output. None: reading stops.

        Returns:
            `total`, and if output was left out, `left_out`, `file` and the bytes `missing` in it.
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
        """Output after the beginning, or after the part that was left out."""
        return bytes(self._tail)

    def close(self) -> None:
        """Stop reading."""
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
            self._on_output(begins)
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
        except OSError:  # Disk full or over quota. The result reports how much is missing.
            os.close(self._file)
            self._file = None
