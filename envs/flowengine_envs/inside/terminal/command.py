"""A running command of a terminal, and the plan of a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, Optional

from flowengine_envs.inside.loop import Call, ScheduledCall
from flowengine_envs.inside.terminal import foreground
from flowengine_envs.inside.terminal.transcript import Transcript

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
