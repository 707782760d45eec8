"""The last lines that an attempt has logged, which are recorded with its end."""

from __future__ import annotations

import logging
import time
from collections import deque
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flowengine.kernel.events import Log

MOST_LINES = 200
MOST_BYTES = 16 * 1024
"""Maximum size of all lines together, in UTF-8."""
LONGEST = 4000
"""Maximum number of characters of a line, which may contain line breaks."""
LONGEST_LEVEL = 20
"""Maximum number of characters of the name of a level."""
Line = tuple[int, str, bytes]
"""Time (ms), level and text."""


class LogLines:
    """Collects lines, from any thread. Older ones make room for newer ones."""

    __slots__ = ("__weakref__", "_left_out", "_lines", "_lock", "_size")

    def __init__(self) -> None:
        self._lines: deque[Line] = deque()
        self._size = 0
        self._left_out = 0
        self._lock = Lock()

    def take(self, level: int, text: str) -> Line:
        """Take a line.

        Args:
            level: Its level, as a number of `logging`.
            text: Its text, with secrets masked.

        Returns:
            The line as it is kept.
        """
        now, name = time.time_ns() // 1_000_000, logging.getLevelName(level)[:LONGEST_LEVEL]
        shown = text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
        line = (now, name, shown.encode(errors="replace"))
        self.keep(line)
        return line

    def keep(self, line: Line) -> None:
        """Keep a line."""
        with self._lock:
            self._lines.append(line)
            self._size += len(line[2])
            while len(self._lines) > MOST_LINES or self._size > MOST_BYTES:
                self._size -= len(self._lines.popleft()[2])
                self._left_out += 1

    def kept(self) -> list[Line]:
        """Return the lines so far, oldest first."""
        with self._lock:
            return [*self._lines]

    def log(self) -> Log:
        """Return the lines so far, as an event records them."""
        with self._lock:
            lines = [[at, level, data.decode()] for at, level, data in self._lines]
            found: Log = {"lines": lines}
            if self._left_out:
                found["left_out"] = self._left_out
            return found
