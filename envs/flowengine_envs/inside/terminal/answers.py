"""What is told of a command, and what is written down of it: no secret is in either."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any, Optional

from flowengine_envs.inside.terminal.command import Running, TerminalPlan
from flowengine_envs.inside.terminal.shell import TerminalShell
from flowengine_envs.inside.terminal.transcript import Records
from flowengine_envs.inside.terminal.waiters import Answer
from flowengine_envs.link.terminal_text import masked


class Answers:
    """Makes them.

    Args:
        plan: How the terminal was made.
        shell: Its shell.
    """

    def __init__(self, plan: TerminalPlan, shell: TerminalShell) -> None:
        self._plan = plan
        self._shell = shell
        self._records = Records(f"{plan.folder}/records")

    def standing(self, running: Running, status: str) -> Answer:
        """Return how a command stands that has not ended.

        Args:
            running: The command.
            status: In one word.
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
        if running.tail:  # shown by `set -v`
            raw = raw.replace(running.tail.replace(b"\n", b"\r\n"), b"").replace(running.tail, b"")
        return Answer(header, masked(raw, self._plan.secrets), b"")

    def ended(
        self,
        running: Running,
        code: Optional[int],  # noqa: UP045
        codes: list[int],
        *,
        restarted: bool,
    ) -> Answer:
        """Return how a command ended, and write it down.

        Args:
            running: The command.
            code: Its exit code, if anybody knows it.
            codes: Those of its last pipeline.
            restarted: Whether the shell ended with it.
        """
        header, raw, _none = self.standing(running, running.stopped or "done")
        left = self._shell.jobs(self._plan.secrets)
        header.update(
            exit_code=code, pipe_codes=codes, jobs=left, processes=left, restarted=restarted
        )
        if running.begun:
            self._record(running, header, raw)
        else:
            header["command"] = 0
        return Answer(header, raw, masked(running.background, self._plan.secrets))

    def _path(self, path: str) -> str:
        return os.fsdecode(masked(os.fsencode(path), self._plan.secrets))

    def _record(self, running: Running, header: Mapping[str, Any], raw: bytes) -> None:
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
