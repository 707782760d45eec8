"""Answers about a command, the requests that wait for it, and its records, without secrets."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, Optional

from flowengine_envs.inside.commands import Say
from flowengine_envs.inside.loop import EventLoop, ScheduledCall
from flowengine_envs.inside.terminal.command import StartedCommand, TerminalPlan
from flowengine_envs.inside.terminal.shell import TerminalShell
from flowengine_envs.inside.terminal.transcript import TranscriptFiles
from flowengine_envs.link.frames import PIECE
from flowengine_envs.link.terminal_text import masked


class CommandAnswer(NamedTuple):
    """The state of a command and its output."""

    header: dict[str, Any]
    raw: bytes
    background: bytes

    def tell(self, say: Say) -> None:
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
            answer.tell(say)

    def _over(self, request: int) -> None:
        waiter = self._waiting.pop(request, None)
        answer = self._stands() if waiter is not None else None
        if waiter is not None and answer is not None:
            answer.tell(waiter[0])


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
