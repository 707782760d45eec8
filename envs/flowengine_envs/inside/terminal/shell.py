"""The shell of a terminal: its start, its child processes, and signals to running programs."""

from __future__ import annotations

import os
import secrets
import shlex
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Optional, Protocol

from flowengine_envs.inside.loop import Call, EventLoop, ScheduledCall
from flowengine_envs.inside.terminal import foreground

START = """\
unset HISTFILE; set +H; shopt -u checkwinsize; PS1= PS2= PROMPT_COMMAND=
bind 'set enable-bracketed-paste off' 2>/dev/null; bind 'set bell-style none' 2>/dev/null
>"{folder}/ready.$$"
"""
"""Commands that a shell reads at its start."""
_PANE = """\
unset TMUX TMUX_PANE TERM_PROGRAM TERM_PROGRAM_VERSION
{shell}
exec 3>&2 2>/dev/null
bash --noprofile --rcfile '{folder}/start' -i 2>&3 3>&-
>"{folder}/exit.$?"
>"{folder}/exit.gate"
"""


def pane(folder: str, shell: Optional[str]) -> str:  # noqa: UP045
    """Return the script that runs on the terminal and reports how the shell ended.

    Args:
        folder: Directory of its files.
        shell: The declared variable SHELL, which tmux overwrites, or None.
    """
    kept = "unset SHELL" if shell is None else f"export SHELL={shlex.quote(shell)}"
    return _PANE.format(folder=folder, shell=kept)


class TerminalShell:
    """The current shell, and the one at its prompt, which may have been started in it."""

    def __init__(self) -> None:
        self.pid = 0
        """Process id, or 0 without a shell."""
        self.idle = 0
        """The shell that reads the next command."""
        self.plain = False
        """Whether that shell has no `PIPESTATUS`, because it is not bash."""
        self.pane = 0
        """The parent process of all shells."""
        self.way = 0
        """Index of the line with which the shell at its prompt reads a command."""

    def started(self, pid: int) -> None:
        """Record a shell that has just started."""
        self.pid = self.idle = pid
        self.plain = False
        self.way = 0
        entry = foreground.process(pid)
        self.pane = entry.parent if entry is not None else pid

    def with_parents(self) -> list[int]:
        """Return the shell at its prompt and its ancestors."""
        processes, each = [], foreground.process(self.idle or self.pid)
        while each is not None and each.pid > 1:
            processes.append(each.pid)
            each = foreground.process(each.parent)
        return processes

    def inspect(self, tty: int) -> foreground.TerminalState:
        return foreground.inspect(self.pane, tty, self.idle)

    def at_prompt(self, seen: foreground.TerminalState) -> None:
        """Record the shell that was found at its prompt."""
        if seen.shell != self.idle:
            self.way = 0
        self.idle, self.plain = seen.shell, seen.plain

    def fall_back(self) -> None:
        """Return to the first shell if the one at its prompt has ended."""
        if self.idle and foreground.process(self.idle) is None:
            self.idle = self.pid
            self.way = 0

    def kill(self) -> None:
        if self.pid:
            with suppress(OSError):
                os.kill(self.pid, signal.SIGKILL)

    def signal(self, number: int) -> bool:
        """Send a signal to the foreground group.

        Args:
            number: Number of the signal.

        Returns:
            Whether any process of the group lives. Between two programs it is still the first
            one's.
        """
        entry = foreground.process(self.pid)
        group = entry.foreground if entry is not None else 0
        if group <= 1:
            return False
        if not any(
            each.group == group and each.state not in "ZX" for each in foreground.tree(self.pane)
        ):
            return False  # The number may already belong to another group.
        with suppress(OSError):
            os.killpg(group, number)
        return True

    def has_terminal(self) -> bool:
        """Return whether the shell or a copy without its own program has the terminal.

        A program that is also a shell, such as `bash -c`, differs from a copy by its arguments.
        """
        entry = foreground.process(self.idle)
        if entry is None:
            return False
        return entry.foreground == entry.group or any(self._copies(entry.foreground))

    def _copies(self, group: int) -> Iterator[int]:
        """Yield the copies of the shell without their own program in a group."""
        own = foreground.arguments(self.idle)
        for each in foreground.tree(self.pane):
            if each.group == group and foreground.arguments(each.pid) == own:
                yield each.pid

    def take_terminal(self) -> None:
        """Make the shell at its prompt take the terminal back.

        Interrupted while it starts a program, bash goes to its prompt at once. The copy that would
        have become the program may take the terminal after that, and wait forever to be released.
        """
        entry = foreground.process(self.idle)
        with suppress(OSError):
            for pid in self._copies(entry.foreground) if entry is not None else ():
                os.kill(pid, signal.SIGKILL)
            os.kill(self.idle, signal.SIGINT)

    def kill_foreground(self) -> bool:
        """Kill the foreground group. Return whether it is not the shell's own."""
        entry = foreground.process(self.pid)
        if entry is None or entry.foreground == entry.group:
            return False
        self.signal(signal.SIGKILL)
        with suppress(OSError):
            os.kill(self.pid, signal.SIGINT)  # A shell loop may start the next program.
        return True

    def chain(self) -> list[int]:
        """Return the shell at its prompt, and the shells that contain it."""
        lines = []
        each = foreground.process(self.idle)
        while each is not None and each.pid > 1:
            lines.append(each.pid)
            if each.pid == self.pid:
                break
            each = foreground.process(each.parent)
        return lines

    def running(self, secrets: Sequence[bytes]) -> list[dict[str, Any]]:
        """Return the processes on the terminal other than the shell and its parent."""
        return foreground.described([*foreground.tree(self.pane)][2:], secrets)

    def jobs(self, secrets: Sequence[bytes]) -> list[dict[str, Any]]:
        """Return the remaining descendants of the shell at its prompt."""
        tree = foreground.tree(self.idle)
        return foreground.described([each for each in tree if each.pid != self.idle], secrets)

    def cwd(self, default: str) -> str:
        """Return the directory of the shell at its prompt."""
        try:
            return os.readlink(f"/proc/{self.idle or self.pid}/cwd")
        except OSError:
            return default


# The output of a terminal, split where a command begins or ends.
#
# A number is written to the terminal itself, after all earlier output. When it is read back, all
# of that output has been read.

_MARK = 5.0
"""Seconds within which a number written to the terminal must be read back."""
_AGAIN = 0.3
_FULL = 0.005


class Sink(Protocol):
    """Receives output."""

    def add(self, data: bytes) -> None:
        """Add output."""


class TerminalStream:
    """The output of a terminal.

    Args:
        loop: The loop.
    """

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._tty: Optional[int] = None  # noqa: UP045
        self._barriers: list[tuple[bytes, Call, ScheduledCall]] = []
        self._held = b""
        self.sink: Optional[Sink] = None  # noqa: UP045
        """Receives the output. None: it is discarded."""

    @property
    def tty(self) -> Optional[int]:  # noqa: UP045
        """The terminal, opened for writing. None: it does not exist yet."""
        return self._tty

    def open(self, path: str) -> bool:
        """Switch to a terminal. The previous one is closed.

        Returns:
            Whether the terminal exists. If not, nothing changes.
        """
        try:
            tty = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:
            return False
        if not os.isatty(tty):
            os.close(tty)
            return False
        if self._tty is not None:
            os.close(self._tty)
        self._tty = tty
        for number, _call, _timer in list(self._barriers):
            self._give_up(number)
        return True

    def close(self) -> None:
        """Stop writing, and drop pending calls."""
        for _number, _call, timer in self._barriers:
            timer.cancel()
        self._barriers.clear()
        if self._tty is not None:
            os.close(self._tty)
            self._tty = None

    def feed(self, data: bytes) -> None:
        """Process output of the terminal."""
        self._held += data
        while self._barriers:
            number, call, timer = self._barriers[0]
            before, separator, after = self._held.partition(number)
            if not separator:
                keep = len(number) - 1
                self._pass(self._held[:-keep])
                self._held = self._held[-keep:]
                return
            self._pass(before)
            self._held = after
            timer.cancel()
            self._barriers.pop(0)
            call()
        self._pass(self._held)
        self._held = b""

    def barrier(self, call: Call, before: bytes = b"") -> None:
        """Call a function once all earlier output of the terminal has been processed.

        Args:
            call: The function. After a timeout it is called even if the terminal is stopped.
            before: Written to the terminal first.
        """
        number = b"\x1b]7777;%020d\x1b\\" % secrets.randbelow(10**20)
        timer = self._loop.after(_MARK, partial(self._give_up, number))
        self._barriers.append((number, call, timer))
        self._write(number, before + number)

    def _pass(self, data: bytes) -> None:
        if self.sink is not None and data:
            self.sink.add(data)

    def _write(self, number: bytes, rest: bytes) -> None:
        if self._tty is None or all(each[0] != number for each in self._barriers):
            return
        try:
            rest = rest[os.write(self._tty, rest) :]
        except BlockingIOError:
            pass
        except OSError:  # The shell or the whole terminal has ended, which will be reported soon.
            self._loop.after(_AGAIN, partial(self._give_up, number))
            return
        if rest:
            self._loop.after(_FULL, partial(self._write, number, rest))

    def _give_up(self, number: bytes) -> None:
        """Continue without the number: the terminal is stopped, or has ended."""
        for each in self._barriers:
            if each[0] == number:
                self._barriers.remove(each)
                each[2].cancel()
                each[1]()
                return
