"""Runs one program to its end: its input, output, time limit, and the end of its descendants."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from flowengine_envs.inside import keepers
from flowengine_envs.inside.loop import Outbox, ScheduledCall, close_quietly
from flowengine_envs.inside.output import Capture, OutputLimits
from flowengine_envs.inside.programs import ProgramEnd, ProgramStarter

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
                loop, reader, output, f"{name}-{stream}", partial(self._pass_on, stream), self._look
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
        """Terminate it, and kill it after the grace period or if it continues to fill the disk.

        Args:
            why: The reason for the result: `timeout`, `cancelled`, `disk` or another word.
        """
        if self._ended is not None:
            return
        if self._stopped is None:
            self._stopped = why
            self._program.signal_all(signal.SIGTERM)
            self._loop.after(self._task.grace, self._program.kill)
        elif why == "disk":
            self._program.kill()

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
        self._look()

    def _look(self) -> None:
        """Finish once the program has ended and no more output can arrive."""
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
            self._look()

    def _close_result(self) -> None:
        if self._reader is not None:
            self._loop.forget(self._reader)
            os.close(self._reader)
            self._reader = None
