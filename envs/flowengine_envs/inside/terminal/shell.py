"""The shell of a terminal: how it is started, what it has started, and signals to what runs."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Optional

from flowengine_envs.inside.terminal import foreground

START = """\
unset HISTFILE; set +H; shopt -u checkwinsize; PS1= PS2= PROMPT_COMMAND=
bind 'set enable-bracketed-paste off' 2>/dev/null; bind 'set bell-style none' 2>/dev/null
>"{folder}/ready.$$"
"""
"""What a shell reads when it starts."""
_PANE = """\
unset TMUX TMUX_PANE TERM_PROGRAM TERM_PROGRAM_VERSION
{shell}
exec 3>&2 2>/dev/null
bash --noprofile --rcfile '{folder}/start' -i 2>&3 3>&-
>"{folder}/exit.$?"
>"{folder}/exit.gate"
"""


def pane(folder: str, shell: Optional[str]) -> str:  # noqa: UP045
    """Return the script that runs on the terminal, and tells how the shell ended.

    Args:
        folder: For its files.
        shell: The variable SHELL that was declared, in whose place tmux puts its own; None: none.
    """
    kept = "unset SHELL" if shell is None else f"export SHELL={shlex.quote(shell)}"
    return _PANE.format(folder=folder, shell=kept)


class TerminalShell:
    """The shell that is there now, and the one at its prompt, which may have been begun in it."""

    def __init__(self) -> None:
        self.pid = 0
        """0: there is none."""
        self.idle = 0
        """The shell that takes the next command."""
        self.plain = False
        """Whether that one knows no lists of exit codes: it is not bash."""
        self.pane = 0
        """What all of it was started by."""
        self.way = 0
        """How the shell at its prompt takes a command: which of the lines that can be typed."""

    def started(self, pid: int) -> None:
        """Take a shell that has just started."""
        self.pid = self.idle = pid
        self.plain = False
        self.way = 0
        found = foreground.process(pid)
        self.pane = found.parent if found is not None else pid

    def with_parents(self) -> list[int]:
        """Return the shell at its prompt and all that it was started by."""
        found, each = [], foreground.process(self.idle or self.pid)
        while each is not None and each.pid > 1:
            found.append(each.pid)
            each = foreground.process(each.parent)
        return found

    def at_prompt(self, seen: foreground.Seen) -> None:
        """Take the shell that was seen at its prompt."""
        if seen.shell != self.idle:
            self.way = 0
        self.idle, self.plain = seen.shell, seen.plain

    def fall_back(self) -> None:
        """Take the first shell if the one at its prompt has ended."""
        if self.idle and foreground.process(self.idle) is None:
            self.idle = self.pid
            self.way = 0

    def kill(self) -> None:
        """End it at once."""
        if self.pid:
            with suppress(OSError):
                os.kill(self.pid, signal.SIGKILL)

    def signal(self, number: int) -> bool:
        """Send a signal to the group that has the terminal, a shell at its prompt excepted.

        Args:
            number: Of the signal.

        Returns:
            Whether anything in the group lives: between two programs it is still that of the first.
        """
        found = foreground.process(self.pid)
        group = found.foreground if found is not None else 0
        if group <= 1:
            return False
        if not any(
            each.group == group and each.state not in "ZX" for each in foreground.tree(self.pane)
        ):
            return False  # its number may be another's already
        with suppress(OSError):
            os.killpg(group, number)
        return True

    def has_terminal(self) -> bool:
        """Return whether the shell has the terminal, or a copy that has become no program yet.

        A program that is a shell, too, such as `bash -c`, is told from a copy by its arguments.
        """
        found = foreground.process(self.idle)
        if found is None:
            return False
        own = foreground.arguments(self.idle)
        return found.foreground == found.group or any(
            each.group == found.foreground and foreground.arguments(each.pid) == own
            for each in foreground.tree(self.pane)
        )

    def kill_foreground(self) -> bool:
        """Kill what has the terminal; returns whether something other than the shell has it."""
        found = foreground.process(self.pid)
        if found is None or found.foreground == found.group:
            return False
        self.signal(signal.SIGKILL)
        with suppress(OSError):
            os.kill(self.pid, signal.SIGINT)  # a loop of the shell may start the next
        return True

    def chain(self) -> list[int]:
        """Return the shell at its prompt, and those in which it was begun."""
        found = []
        each = foreground.process(self.idle)
        while each is not None and each.pid > 1:
            found.append(each.pid)
            if each.pid == self.pid:
                break
            each = foreground.process(each.parent)
        return found

    def running(self, secrets: Sequence[bytes]) -> list[dict[str, Any]]:
        """Return what runs on the terminal beside the shell and its parent."""
        return foreground.described([*foreground.tree(self.pane)][2:], secrets)

    def jobs(self, secrets: Sequence[bytes]) -> list[dict[str, Any]]:
        """Return what the shell at its prompt has started and what still runs."""
        tree = foreground.tree(self.idle)
        return foreground.described([each for each in tree if each.pid != self.idle], secrets)

    def cwd(self, default: str) -> str:
        """Return the directory of the shell at its prompt."""
        try:
            return os.readlink(f"/proc/{self.idle or self.pid}/cwd")
        except OSError:
            return default
