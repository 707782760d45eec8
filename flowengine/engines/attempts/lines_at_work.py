"""Logs of running attempts, in files that outlive their process.

The lines of an attempt are recorded with its end. If its process dies, the next one finds them in
the user's state directory and records them with the interruption. There is one file for each
execution whose attempts log, until all of them have ended:

    STATE/stores/ID/logs/EXECUTION   JSON, one [unit, attempt, time (ms), level, text] a line

The files are not synced: they survive the process, not a power failure.
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from threading import Lock
from weakref import WeakValueDictionary

from flowengine.kernel.events import Log
from flowengine.store_folder import claim, known, make_private

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

    def __init__(self) -> None:
        self._lines: deque[Line] = deque()
        self._size = 0
        self._left_out = 0
        self._lock = Lock()

    def append(self, level: int, text: str) -> Line:
        """Append a line.

        Args:
            level: Its level, as a number of `logging`.
            text: Its text, with secrets masked.

        Returns:
            The stored form of the line.
        """
        import logging

        now, name = time.time_ns() // 1_000_000, logging.getLevelName(level)[:LONGEST_LEVEL]
        shown = text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
        line = (now, name, shown.encode(errors="replace"))
        self.keep(line)
        return line

    def keep(self, line: Line) -> None:
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


Attempt = tuple[int, int]
"""Unit and number of an attempt."""

LARGEST = 1024 * 1024
"""Bytes of a file from which the lines of ended attempts are removed from it."""
_FOLDER = "logs"
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW
_LONGEST_TEXT = LONGEST + 1
_LONGEST_JSON = 6 * _LONGEST_TEXT + 200
"""Maximum number of bytes of a line of the file."""


class LinesAtWork:
    """The file of one execution. Failures of it have no effect on attempts.

    Args:
        store: The directory of the store, which is the user's own.
        execution: Full id.
    """

    def __init__(self, store: str, execution: str) -> None:
        self._store = store
        self._execution = execution
        self._at_work: WeakValueDictionary[Attempt, LogLines] = WeakValueDictionary()
        self._descriptor: int | None = None
        self._size = 0
        self._most = LARGEST
        self._lock = Lock()

    def append(self, attempt: Attempt, lines: LogLines, line: Line) -> None:
        """Write a line, from any thread.

        Args:
            attempt: The attempt.
            lines: All its lines, including this one. It is at work as long as they exist.
            line: The line.
        """
        with self._lock, suppress(OSError):  # a full disk, for example
            if self._descriptor is None:
                self._descriptor = self._opened()
            self._at_work[attempt] = lines
            if self._size > self._most:
                self._compact()
            else:
                self._write(_packed(attempt, line))

    def read(self) -> dict[Attempt, Log]:
        """Return the logs of attempts of an earlier process."""
        logged: dict[Attempt, LogLines] = {}
        with suppress(OSError):
            for attempt, line in self._lines():
                logged.setdefault(attempt, LogLines()).keep(line)
        return {attempt: lines.log() for attempt, lines in logged.items()}

    def close(self, *, is_over: bool) -> None:
        """Close the file.

        Args:
            is_over: Whether all attempts have ended and are recorded. The file is removed then.
        """
        with self._lock:
            descriptor, self._descriptor = self._descriptor, None
            if descriptor is not None:
                os.close(descriptor)
            if is_over and (path := self._path()) is not None:
                with suppress(OSError):
                    os.unlink(path)

    def _path(self) -> str | None:
        """Return the path of the file, whether or not it exists. None: the store is unknown."""
        private = known(self._store)
        return None if private is None else os.path.join(private, _FOLDER, self._name())

    def _name(self) -> str:
        import hashlib

        return hashlib.sha256(self._execution.encode()).hexdigest()[:32]

    def _opened(self) -> int:
        folder = os.path.join(claim(self._store, by_name=True), _FOLDER)
        make_private(folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | _FLAGS
        descriptor = os.open(os.path.join(folder, self._name()), flags, 0o600)
        self._size = os.fstat(descriptor).st_size
        return descriptor

    def _write(self, data: bytes) -> None:
        assert self._descriptor is not None
        self._size += os.write(self._descriptor, data)

    def _compact(self) -> None:
        """Keep only the lines of attempts that are at work."""
        assert self._descriptor is not None
        os.ftruncate(self._descriptor, 0)
        self._size = 0
        for attempt, lines in list(self._at_work.items()):
            self._write(b"".join(_packed(attempt, line) for line in lines.kept()))
        self._most = max(LARGEST, 2 * self._size)

    def _lines(self) -> Iterator[tuple[Attempt, Line]]:
        """Yield the lines of the file, without damaged ones."""
        path = self._path()
        if path is None:
            return
        with open(os.open(path, os.O_RDONLY | _FLAGS), "rb") as file:
            while data := file.readline(_LONGEST_JSON):
                with suppress(ValueError):
                    yield _unpacked(data)


def _packed(attempt: Attempt, line: Line) -> bytes:
    at, level, text = line
    return json.dumps([*attempt, at, level, text.decode()]).encode() + b"\n"


def _unpacked(data: bytes) -> tuple[Attempt, Line]:
    """Return a line of the file.

    Raises:
        ValueError: It is damaged.
    """
    try:
        unit, attempt, at, level, text = json.loads(data)
    except (TypeError, RecursionError) as error:
        raise ValueError from error
    fits = [*map(type, (unit, attempt, at, level, text))] == [int, int, int, str, str]
    if not fits or len(level) > LONGEST_LEVEL or len(text) > _LONGEST_TEXT:
        raise ValueError
    return (unit, attempt), (at, level, text.encode(errors="replace"))
