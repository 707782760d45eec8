"""A running command of a terminal, and the plan of a terminal."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import Any, NamedTuple, Optional

from flowengine_documents.terminal_text import clean
from flowengine_envs.inside.commands import Say
from flowengine_envs.inside.loop import Call, EventLoop, ScheduledCall
from flowengine_envs.inside.terminal import foreground
from flowengine_envs.inside.terminal.shell import TerminalShell
from flowengine_envs.link.frames import PIECE
from flowengine_envs.link.masking import masked

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


BACKGROUND = 1024 * 1024
"""Bytes kept of the output of jobs between commands."""
FIRST_LOOK = 0.02
"""Seconds until the first check of the processes while a command runs."""


class TerminalPlan(NamedTuple):
    """The plan of a terminal."""

    env: Mapping[str, str]
    cwd: str
    limits: Mapping[str, int]
    folder: str
    """Directory of the records."""
    live: str
    """Directory of the pipes and the socket."""
    secrets: Sequence[bytes]
    """Secrets, which no answer or record may contain."""


class TypedCommand(NamedTuple):
    """A command."""

    text: bytes
    timeout: Optional[float]  # noqa: UP045
    grace: float
    kept: int
    follow: bool = False
    """Whether its output is also reported as it arrives."""


class Phase(IntEnum):
    """How far a command has come. A phase may be skipped, but never returns.

    | phase | next, when |
    |---|---|
    | `TYPED`: the line with which the shell opens the command's pipe was typed | `READ`, when the shell opens the pipe |
    | `READ`: the shell waits for the command | `HANDED`, when all earlier output was read |
    | `HANDED`: the command is in the pipe, or was interrupted before and never will be | `ENDED`, when its last line creates a file, or `ASKED` |
    | `ASKED`: a shell at its prompt has the terminal, and was asked how the command ended | `ENDED`, when it creates that file |
    | `ENDED`: how it ended is known, or its shell has ended | `OVER`, when all output was read or a new shell is ready |
    | `OVER`: the last answer was sent | |
    """  # noqa: E501 - a table

    TYPED = 0
    READ = 1
    HANDED = 2
    ASKED = 3
    ENDED = 4
    OVER = 5


class StartedCommand:
    """A command that was started."""

    def __init__(self, id: int, request: int, task: TypedCommand, cwd: str) -> None:
        self.id = id
        self.request = request
        self.task = task
        self.began = time.time()
        self.clock = time.monotonic()
        self.cwd = cwd
        self.output = Transcript(task.kept)
        self.follow: Optional[Callable[[bytes], None]] = None  # noqa: UP045
        """Called with its output as it arrives."""
        self.phase = Phase.TYPED
        self.was_read = False
        """Whether a shell has opened its pipe."""
        self.clock_interrupted = 0.0
        self.interrupted = False
        """It must not be handed over, or only the shell has received the interrupt so far."""
        self.held: list[tuple[Call, Call]] = []
        """Input to type for it, with the function to call if it is never typed."""
        self.stopped: Optional[str] = None  # noqa: UP045
        self.waiting: Optional[dict[str, Any]] = None  # noqa: UP045
        self.seen = foreground.TerminalState()
        self.count = 0
        self.missing = 0
        self.lines = 0
        self.tail = b""
        self.code: Optional[int] = None  # noqa: UP045
        self.echo = Transcript(BACKGROUND)
        self.background = b""
        self.typed: list[bytes] = []
        """The lines typed so that the shell reads it."""
        self.pipes: list[str] = []
        """The names of its pipe, one for each of these lines."""
        self.stopped_at = 0.0
        self.pause = FIRST_LOOK
        self.timers: list[ScheduledCall] = []
        self.pipe: Optional[int] = None  # noqa: UP045

    def add(self, data: bytes) -> None:
        """Add output of the command."""
        self.output.add(data)
        if self.follow is not None:
            self.follow(data)

    def look_anew(self) -> None:
        """Discard earlier checks, after input or a signal was sent to it."""
        self.waiting = None
        self.count = 0
        self.pause = FIRST_LOOK


class Busy(Exception):
    """Another command runs.

    Args:
        id: Number of that command.
    """

    def __init__(self, id: int) -> None:
        super().__init__(f"command {id} runs")


class Gone(Exception):
    """The terminal has ended."""


class NoCommand(Exception):
    """No command has been run."""

    def __init__(self) -> None:
        super().__init__("no command was run yet, so there is none to wait for")


# Answers about a command, the requests that wait for it, and its records, without secrets.


class CommandAnswer(NamedTuple):
    """The state of a command and its output."""

    header: dict[str, Any]
    raw: bytes
    background: bytes

    def send(self, say: Say) -> None:
        """Send it, with pieces of output first."""
        for name, data in (("raw", self.raw), ("background", self.background)):
            for start in range(0, len(data), PIECE):
                say({"part": name}, data[start : start + PIECE])
        say({"done": True, **self.header}, b"")


class Waiters:
    """Requests that wait for the running command.

    Args:
        loop: The loop.
        stands: Called for the answer to a request whose wait has elapsed.
    """

    def __init__(self, loop: EventLoop, stands: Callable[[], Optional[CommandAnswer]]) -> None:  # noqa: UP045
        self._loop = loop
        self._stands = stands
        self._waiting: dict[int, tuple[Say, Optional[ScheduledCall]]] = {}  # noqa: UP045

    def __contains__(self, request: int) -> bool:
        return request in self._waiting

    def add(self, request: int, wait: Optional[float], say: Say) -> None:  # noqa: UP045
        """Add a waiting request.

        Args:
            request: Its number.
            wait: Seconds after which it is answered in any case. None: unbounded.
            say: Called with the answer.
        """
        timer = None
        if wait is not None:
            timer = self._loop.after(wait, partial(self._over, request))
        self._waiting[request] = (say, timer)

    def forget(self, request: int) -> bool:
        """Remove a waiting request. Return whether it was waiting."""
        waiter = self._waiting.pop(request, None)
        if waiter is None:
            return False
        say, timer = waiter
        if timer is not None:
            timer.cancel()
        say({"done": True, "status": "running"}, b"")
        return True

    def answer(self, answer: CommandAnswer) -> None:
        """Answer all requests."""
        waiting, self._waiting = self._waiting, {}
        for say, timer in waiting.values():
            if timer is not None:
                timer.cancel()
            answer.send(say)

    def _over(self, request: int) -> None:
        waiter = self._waiting.pop(request, None)
        answer = self._stands() if waiter is not None else None
        if waiter is not None and answer is not None:
            answer.send(waiter[0])


class Answers:
    """Creates the answers.

    Args:
        plan: The plan of the terminal.
        shell: Its shell.
    """

    def __init__(self, plan: TerminalPlan, shell: TerminalShell) -> None:
        self._plan = plan
        self._shell = shell
        self._records = TranscriptFiles(f"{plan.folder}/records")

    def standing(self, running: StartedCommand, status: str) -> CommandAnswer:
        """Return the state of a command that has not ended.

        Args:
            running: The command.
            status: Its status, in one word.
        """
        header = {
            "status": status,
            "command": running.id,
            "exit_code": None,
            "pipe_codes": [],
            "cwd": self._path(self._shell.cwd(self._plan.cwd)),
            "duration": time.monotonic() - running.clock,
            "waiting": running.waiting if status == "waiting_for_input" else None,
            "processes": self._shell.running(self._plan.secrets),
            "jobs": [],
            "restarted": False,
            "shells": self._shell.chain(),
            "left_out": running.output.left_out,
        }
        raw = running.output.bytes()
        if running.tail:  # printed by `set -v`
            raw = raw.replace(running.tail.replace(b"\n", b"\r\n"), b"").replace(running.tail, b"")
        return CommandAnswer(header, masked(raw, self._plan.secrets), b"")

    def ended(
        self,
        running: StartedCommand,
        code: Optional[int],  # noqa: UP045
        codes: list[int],
        *,
        restarted: bool,
    ) -> CommandAnswer:
        """Return the result of an ended command, and record it.

        Args:
            running: The command.
            code: Its exit code, if it is known.
            codes: Those of its last pipeline.
            restarted: Whether the shell ended with it.
        """
        header, raw, _none = self.standing(running, running.stopped or "done")
        left = self._shell.jobs(self._plan.secrets)
        header.update(
            exit_code=code, pipe_codes=codes, jobs=left, processes=left, restarted=restarted
        )
        if running.was_read:
            self._record(running, header, raw)
        else:
            header["command"] = 0
        return CommandAnswer(header, raw, masked(running.background, self._plan.secrets))

    def _path(self, path: str) -> str:
        return os.fsdecode(masked(os.fsencode(path), self._plan.secrets))

    def _record(self, running: StartedCommand, header: Mapping[str, Any], raw: bytes) -> None:
        command = masked(running.task.text, self._plan.secrets).decode(errors="replace")
        entry = {
            "id": running.id,
            "command": command,
            "cwd": self._path(running.cwd),
            "start": running.began,
            "end": time.time(),
            "status": header["status"],
            "exit": header["exit_code"],
        }
        self._records.add(entry, raw)
