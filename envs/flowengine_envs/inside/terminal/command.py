"""A command of a terminal, while it runs; and what a terminal is made of."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Optional

from flowengine_envs.inside.loop import Call, Timer
from flowengine_envs.inside.terminal import foreground
from flowengine_envs.inside.terminal.transcript import Transcript

BACKGROUND = 1024 * 1024
"""Bytes kept of what jobs write between commands."""
FIRST_LOOK = 0.02
"""Seconds to the first look at the processes, while a command runs."""


class TerminalPlan(NamedTuple):
    """How a terminal is made."""

    env: Mapping[str, str]
    cwd: str
    limits: Mapping[str, int]
    folder: str
    """For the records."""
    live: str
    """For pipes and the socket."""
    secrets: Sequence[bytes]
    """What no answer and no record may hold."""


class TypedCommand(NamedTuple):
    """A command."""

    text: bytes
    timeout: Optional[float]  # noqa: UP045
    grace: float
    kept: int
    follow: bool = False
    """Whether its output is told as it comes, too."""


class Running:
    """A command that was begun."""

    def __init__(self, id: int, request: int, task: TypedCommand, cwd: str) -> None:
        self.id = id
        self.request = request
        self.task = task
        self.began = time.time()
        self.clock = time.monotonic()
        self.cwd = cwd
        self.output = Transcript(task.kept)
        self.follow: Optional[Callable[[bytes], None]] = None  # noqa: UP045
        """Takes what it writes, as it comes."""
        self.begun = False
        """The shell reads from the pipe."""
        self.handed = False
        """The command is in the pipe, or what was interrupted before will never be."""
        self.clock_interrupted = 0.0
        self.interrupted = False
        """It is not to be handed over; or it is, and the shell alone has heard of it so far."""
        self.held: list[tuple[Call, Call]] = []
        """What is to be typed for it, and what is called if it never is."""
        self.asked = False
        self.ending = False
        self.stopped: Optional[str] = None  # noqa: UP045
        self.waiting: Optional[dict[str, Any]] = None  # noqa: UP045
        self.seen = foreground.Seen()
        self.count = 0
        self.missing = 0
        self.lines = 0
        self.tail = b""
        self.code: Optional[int] = None  # noqa: UP045
        self.echo = Transcript(BACKGROUND)
        self.background = b""
        self.typed: list[bytes] = []
        """The lines with which the shell was to take it."""
        self.stopped_at = 0.0
        self.pause = FIRST_LOOK
        self.timers: list[Timer] = []
        self.pipe: Optional[int] = None  # noqa: UP045
        self.over = False
        """It has been answered for."""

    def add(self, data: bytes) -> None:
        """Take what it has written."""
        self.output.add(data)
        if self.follow is not None:
            self.follow(data)

    def look_anew(self) -> None:
        """Something was typed for it, or sent to it: what was seen before counts no more."""
        self.waiting = None
        self.count = 0
        self.pause = FIRST_LOOK


class Busy(Exception):
    """Another command runs.

    Args:
        id: Of that command.
    """

    def __init__(self, id: int) -> None:
        super().__init__(f"command {id} runs")


class Gone(Exception):
    """The terminal has ended."""


class NoCommand(Exception):
    """There is none to wait for."""

    def __init__(self) -> None:
        super().__init__("no command was run yet, so there is none to wait for")
