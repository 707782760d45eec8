r"""Passes a command to the shell, and holds back input typed for it until then.

The typed line is always the same, ` \. FOLDER/7`, where `7` is a pipe. When the shell has opened
it, the echo is complete and the command is written into it. A line that another one has replaced
has its own name for that pipe, `7-1`, so that it is known which of them the shell has read.
The line after the command, which reports how it ended, consists only of redirections: it contains
no builtin that the command could have replaced.
"""

from __future__ import annotations

import os
import shutil
import termios
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Optional

from flowengine_documents.terminal_text import clean
from flowengine_envs.inside.loop import EventLoop, Outbox, WatchedFolder
from flowengine_envs.inside.terminal import foreground
from flowengine_envs.inside.terminal.command import BACKGROUND, Phase, StartedCommand, Transcript
from flowengine_envs.inside.terminal.ending import Ending
from flowengine_envs.inside.terminal.shell import TerminalShell, TerminalStream
from flowengine_envs.inside.terminal.tmux import Tmux
from flowengine_envs.link.masking import masked


class TerminalFiles:
    """A new directory of this kind, repaired after programs have removed parts of it.

    Args:
        loop: The loop.
        folder: Its path.
        happened: Called with an event and the name of its file.
    """

    def __init__(self, loop: EventLoop, folder: str, happened: Callable[[int, str], None]) -> None:
        self.folder = folder
        self._draft = f"{folder}.pipe"
        """A pipe under construction, outside the watched directory."""
        self._loop = loop
        self._happened = happened
        self._gates: dict[str, int] = {}
        self._texts: dict[str, str] = {}
        self._events: Optional[WatchedFolder] = None  # noqa: UP045
        _remove(folder)
        self.mend()

    def mend(self) -> None:
        """Create missing parts, which programs may have removed.

        Raises:
            OSError: One cannot be created.
        """
        with suppress(FileExistsError):
            os.makedirs(self.folder, mode=0o700)
            self._forget()
            self._events = WatchedFolder(self._loop, self.folder, self._happened)
        for name, text in self._texts.items():
            if not os.path.exists(self.path(name)):
                self.write(name, text)
        self.make_gate("exit")

    def _forget(self) -> None:
        if self._events is not None:
            self._events.close()
            self._events = None
        for file in list(self._gates):
            self.close_gate(file, keep=True)

    def path(self, name: object) -> str:
        return f"{self.folder}/{name}"

    def write(self, name: str, text: str) -> None:
        """Write a permanent file."""
        self._texts[name] = text
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def make_pipe(self, name: object) -> int:
        """Create a pipe and return its writing end, before any program can open it."""
        os.mkfifo(self._draft, 0o600)
        fd = os.open(self._draft, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        os.rename(self._draft, self.path(name))
        return fd

    def make_gate(self, name: object) -> str:
        """Create a gate unless it exists, and return its path."""
        path = self.path(f"{name}.gate")
        with suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        return path

    def open_gate(self, name: object) -> None:
        """Release the processes that wait at a gate, and those that arrive later."""
        file = f"{name}.gate"
        if file not in self._gates:
            with suppress(OSError):
                flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
                self._gates[file] = os.open(self.path(file), flags)

    def is_open(self, file: str) -> bool:
        """Return whether a file is an open gate."""
        return file in self._gates

    def close_gate(self, file: str, *, keep: bool = False) -> None:
        """Close an open gate, and remove it unless it is kept for the next command."""
        fd = self._gates.pop(file, None)
        if fd is not None:
            os.close(fd)
            if not keep:
                self.remove(file)

    def close(self) -> None:
        """Close open descriptors and remove the directory."""
        self._forget()
        _remove(self.folder)

    def remove(self, name: object) -> None:
        """Remove a file if it exists."""
        with suppress(OSError):
            os.unlink(self.path(name))


def _remove(folder: str) -> None:
    """Remove a directory. Contents created by programs may be nested too deep, and then stay."""
    with suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)


BEGIN = 10.0
"""Seconds within which a shell at its prompt reads a line."""
_CLEAR = b"\x15"
"""Deletes text typed at a prompt, in any shell or program."""
_MISSED = 0.2
"""Seconds after which a shell that has not opened the pipe is checked."""
_LOOK = 0.03
_SURE = 3
"""Number of consecutive checks that must find it at its prompt."""
_ARRIVES = 5.0
"""Seconds within which a typed line arrives at the terminal."""
_PIPES = 16
"""Maximum number of exit codes reported for a pipeline."""
_SHOWN = 150
"""Maximum characters of a command shown to viewers."""
_WAYS = (
    r" \. {}",
    r" \source {}",
    r" \command . {}",
    r" \command source {}",
    r" \builtin . {}",
)
"""Lines with which a shell reads a command from its pipe.

There are several, because a function may shadow a builtin, and a builtin may be disabled.
"""


class LineWriter:
    """Writes these lines.

    Args:
        files: Files shared by the shell and the supervisor.
        shell: The shell that reads them.
        secrets: Values to hide from viewers.
    """

    def __init__(
        self, files: TerminalFiles, shell: TerminalShell, secrets: Sequence[bytes]
    ) -> None:
        self._files = files
        self._shell = shell
        self._secrets = secrets

    def taking(self, running: StartedCommand) -> bytes:
        """Return the line to type, with which the shell reads a command from its pipe."""
        path = self._files.path(running.pipes[-1])
        return _WAYS[self._shell.way].format(path).encode()

    def next_way(self) -> bool:
        """Select the next such line. Return whether there is one."""
        self._shell.way = (self._shell.way + 1) % len(_WAYS)
        return self._shell.way > 0

    def telling(self, running: StartedCommand) -> bytes:
        """Return the line that reports how the previous command ended and keeps its status.

        No output goes to its descriptor, which an interrupted bash does not restore.
        """
        gate = self._files.make_gate(running.id)
        codes = ""
        if not self._shell.plain:
            codes = "".join(f"${{PIPESTATUS[{at}]-}}." for at in range(_PIPES))
        mark = f"{self._files.path(running.id)}.$?.{codes}"
        return f' 9>"{mark}" 9>"{gate}" 9>"/dev/null$(exit $?)"\n'.encode()

    def shown(self, running: StartedCommand) -> bytes:
        """Return terminal output that replaces the typed line by the command."""
        text = clean(masked(running.task.text, self._secrets)).strip()
        line = "".join(each for each in text.partition("\n")[0] if each.isprintable())
        up = b"\x1b[%dA" % running.lines if running.lines else b""
        return up + b"\r\x1b[J$ " + line[:_SHOWN].encode() + b"\n"


class Handover:
    """Hands commands over to the shell.

    Args:
        loop: The loop.
        shell: The shell.
        files: The directory of the pipes.
        lines: The lines to type, and to show instead.
        stream: The output of the terminal.
        tmux: The terminal.
        ending: Ends commands that were stopped before the handover, and checks the others.
    """

    def __init__(
        self,
        loop: EventLoop,
        shell: TerminalShell,
        files: TerminalFiles,
        lines: LineWriter,
        stream: TerminalStream,
        tmux: Tmux,
        ending: Ending,
    ) -> None:
        self._loop = loop
        self._shell = shell
        self._files = files
        self._lines = lines
        self._stream = stream
        self._tmux = tmux
        self._ending = ending
        self._between = Transcript(BACKGROUND)
        self._jobs = False

    def rest(self, *, jobs: bool) -> None:
        """Keep output until the next command is handed over.

        Args:
            jobs: Whether the previous command left jobs, which may print.
        """
        self._jobs = jobs
        self._between = Transcript(BACKGROUND)
        self._stream.sink = self._between

    def prepare(self, running: StartedCommand) -> None:
        """Create the pipe of a command."""
        running.pipes = [str(running.id)]
        running.pipe = self._files.make_pipe(running.id)
        running.timers.append(self._loop.after(BEGIN, partial(self._ending.stuck, running)))

    def type(self, running: StartedCommand) -> None:
        """Type the line with which the shell opens the pipe of a command."""
        # Without remaining jobs, output since the last command is only the prompt.
        running.background = self._between.bytes() if self._jobs else b""
        self._stream.sink = running.echo
        self._type(running)

    def _type(self, running: StartedCommand) -> None:
        running.typed.append(self._lines.taking(running))
        # Text already typed at the prompt must not become part of it.
        self._tmux.type(_CLEAR + running.typed[-1] + b"\r")
        running.timers.append(self._loop.after(_MISSED, partial(self._poll, running, 0)))

    def _poll(self, running: StartedCommand, position: int) -> None:
        """Check whether the shell is at its prompt, after tmux has forwarded the typed line."""
        self._tmux.cursor(lambda *_: self._tmux.cursor(lambda *_: self._typed(running, position)))

    def _typed(self, running: StartedCommand, position: int) -> None:
        tty = self._stream.tty
        if running.phase > Phase.TYPED or tty is None:
            return
        position = position + 1 if self._shell.inspect(tty).shell else 0
        if position < _SURE:
            running.timers.append(self._loop.after(_LOOK, partial(self._poll, running, position)))
        elif self._lines.next_way():  # The line had another effect, or has not arrived yet.
            running.pipes.append(f"{running.id}-{len(running.pipes)}")
            with suppress(OSError):  # A program may have removed the pipe.
                os.link(self._files.path(running.id), self._files.path(running.pipes[-1]))
            self._type(running)
        else:
            self._ending.stuck(running)

    def opened(self, running: StartedCommand, name: str) -> None:
        """Hand the command to the shell, which now reads from the pipe.

        Args:
            running: The command.
            name: The name by which the shell has opened the pipe.
        """
        running.phase = Phase.READ
        running.was_read = True
        for timer in running.timers:
            timer.cancel()
        unread = running.typed[running.pipes.index(name) + 1 :]
        self._discard(running, sum(len(line) + 1 for line in unread), time.monotonic())

    def _discard(self, running: StartedCommand, unread: int, began: float) -> None:
        """Discard lines typed after the one that the shell has read, once they have arrived.

        The kernel may pass on a typed line late, when its replacement has been typed already. The
        shell would execute that one after the command.
        """
        tty = self._stream.tty
        if unread and tty is not None and running.phase is Phase.READ:
            with suppress(OSError, termios.error):  # The terminal may have ended.
                if foreground.unread(tty) < unread and time.monotonic() - began < _ARRIVES:
                    again = partial(self._discard, running, unread, began)
                    running.timers.append(self._loop.after(_LOOK, again))
                    return
                termios.tcflush(tty, termios.TCIFLUSH)
        self._stream.barrier(partial(self._show, running))

    def _show(self, running: StartedCommand) -> None:
        """Replace the typed line by the command, for viewers."""
        running.lines = running.echo.bytes().count(b"\n")
        running.lines += sum(len(line) // self._tmux.columns for line in running.typed)
        self._stream.barrier(partial(self._begin, running), self._lines.shown(running))

    def _begin(self, running: StartedCommand) -> None:
        if running.phase is not Phase.READ:  # The shell has ended since.
            return
        if self._jobs:
            echo = running.echo.bytes()
            shown = self._lines.shown(running).replace(b"\n", b"\r\n")
            for part in (*(line + b"\r\n" for line in running.typed), shown):
                echo = echo.replace(part, b"")
            running.background += echo
        self._stream.sink = running
        self._hand(running)
        self._ending.watch(running)

    def _hand(self, running: StartedCommand) -> None:
        """Write the command into the pipe, unless it was already interrupted."""
        assert running.pipe is not None
        running.phase = Phase.HANDED
        if running.interrupted:
            self._ending.catch_up(running)
            self.close_pipe(running)
            self._let_type(running)
            return
        outbox = Outbox(self._loop, running.pipe, partial(self.close_pipe, running))
        running.tail = self._lines.telling(running)
        outbox.write(running.task.text + b"\n" + running.tail)
        outbox.when_empty(partial(self.close_pipe, running))
        if running.task.timeout is not None:
            stop = partial(self._ending.stop, running, "timeout")
            running.timers.append(self._loop.after(running.task.timeout, stop))
        self._let_type(running)

    def _let_type(self, running: StartedCommand) -> None:
        held, running.held = running.held, []
        for call, _dropped in held:
            call()

    def close_pipe(self, running: StartedCommand) -> None:
        """Close the pipe of a command, discarding the rest."""
        if running.pipe is not None:
            self._loop.forget(running.pipe)
            os.close(running.pipe)
            running.pipe = None
            for name in running.pipes:
                self._files.remove(name)
