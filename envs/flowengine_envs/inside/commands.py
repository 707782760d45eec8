"""Runs one program to its end: its input, output, time limit, and the end of its descendants."""

from __future__ import annotations

import array
import fcntl
import os
import signal
import termios
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from flowengine_envs.inside import keepers
from flowengine_envs.inside.loop import Call, EventLoop, Outbox, ScheduledCall, close_quietly
from flowengine_envs.inside.programs import ProgramEnd, ProgramStarter

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
            self._append(data)
        return len(data)

    def _append(self, data: bytes) -> None:
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
        except OSError:  # The disk is full, or the file. The result reports how much is missing.
            os.close(self._file)
            self._file = None


STREAMS = {1: "stdout", 2: "stderr"}
RESULT = 3
"""Descriptor on which a program may return a result in addition to its output."""
LARGEST_RESULT = 16 * 1024 * 1024
_AFTER = 1.0
"""Seconds to wait for output after all processes have ended."""

Say = Callable[[dict[str, Any], bytes], None]


class CommandTask(NamedTuple):
    """A program to run."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    limits: Mapping[str, int]
    timeout: float | None
    grace: float
    """Seconds between SIGTERM and SIGKILL."""
    result: bool
    """Whether the program returns a result on descriptor 3."""
    preload: Sequence[str] | None
    """For a fork server: modules that it imports before it forks, see `keepers.Launch`."""


class RunningCommand:
    """A running command.

    Args:
        programs: Starts it.
        task: The program to run.
        output: Limits of the kept output.
        name: Names its output files.
        say: Called with messages. The last one has `done`.
    """

    def __init__(
        self, programs: ProgramStarter, task: CommandTask, output: OutputLimits, name: str, say: Say
    ) -> None:
        loop = programs.loop
        self._loop = loop
        self._task = task
        self._say = say
        self._stopped: str | None = None
        self._ended: ProgramEnd | None = None
        self._result = bytearray()
        self._done = False
        self._timer: ScheduledCall | None = None
        source, feed = os.pipe()
        os.set_blocking(feed, False)
        self._input = Outbox(loop, feed, partial(self._close_input, now=True))
        self._feed: int | None = feed
        sinks = {0: source}
        self._captures: dict[str, Capture] = {}
        for fd, stream in STREAMS.items():
            reader, sinks[fd] = os.pipe()
            self._captures[stream] = Capture(
                loop, reader, output, f"{name}-{stream}", partial(self._pass_on, stream), self._poll
            )
        self._reader: int | None = None
        if task.result:
            self._reader, sinks[RESULT] = os.pipe()
            os.set_blocking(self._reader, False)
            loop.reading(self._reader, self._read_result)
        self._program = programs.start(
            keepers.Launch(task.argv, task.env, task.cwd, task.limits, task.preload),
            sinks,
            self._has_ended,
        )
        for fd in sinks.values():
            os.close(fd)
        if task.timeout is not None:
            self._timer = loop.after(task.timeout, partial(self.stop, "timeout"))

    def write(self, data: bytes, *, last: bool) -> None:
        """Write input to the program.

        Args:
            data: The next bytes.
            last: Whether they are the last ones.
        """
        if self._feed is not None:
            self._input.write(data)
            if last:
                self._input.when_empty(self._close_input)

    def signal(self, number: int) -> None:
        """Send a signal to the program and its descendants."""
        self._program.signal_all(number)

    def stop(self, why: str) -> None:
        """Terminate it, and kill it after the grace period.

        Args:
            why: The reason for the result: `timeout`, `cancelled`, `disk` or another word.
        """
        if self._ended is not None:
            return
        if self._stopped is None:
            self._stopped = why
            self._program.signal_all(signal.SIGTERM)
            self._loop.after(self._task.grace, self._program.kill)

    def pause(self) -> None:
        """Pause reading output."""
        for capture in self._captures.values():
            capture.pause()

    def resume(self) -> None:
        """Resume reading output."""
        for capture in self._captures.values():
            capture.resume()

    def _pass_on(self, stream: str, data: bytes) -> None:
        self._say({"stream": stream}, data)

    def _has_ended(self, ended: ProgramEnd) -> None:
        self._ended = ended
        self._close_input(now=True)
        if self._timer is not None:
            self._timer.cancel()
        self._loop.after(_AFTER, self._finish)
        self._poll()

    def _poll(self) -> None:
        """Finish once the program has ended and its output is complete."""
        waiting = self._reader is not None or any(each.open for each in self._captures.values())
        if self._ended is not None and not waiting:
            self._finish()

    def _finish(self) -> None:
        if self._done:
            return
        self._done = True
        self._close_result()
        streams = {}
        for name, capture in self._captures.items():
            streams[name] = capture.finish()
            if capture.tail:
                self._say({"stream": name, "tail": True}, capture.tail)
        ended = self._ended
        assert ended is not None
        header = {
            "done": True,
            "exit_code": ended.exit_code,
            "signal": ended.signal,
            "failed": ended.failed,
            "stopped": self._stopped,
            "streams": streams,
            "result": bool(self._result),
        }
        self._say(header, bytes(self._result))

    def _close_input(self, *, now: bool = False) -> None:
        if self._feed is not None:
            if now:
                self._input.close()
            self._loop.forget(self._feed)
            close_quietly(self._feed)
            self._feed = None

    def _read_result(self) -> None:
        assert self._reader is not None
        try:
            data = os.read(self._reader, 1 << 18)
        except BlockingIOError:
            return
        self._result += data[: LARGEST_RESULT + 1 - len(self._result)]
        if not data:
            self._close_result()
            self._poll()

    def _close_result(self) -> None:
        if self._reader is not None:
            self._loop.forget(self._reader)
            os.close(self._reader)
            self._reader = None
