r"""How a command gets into the shell, and what was typed for it before it is there.

The line that is typed is always the same, ` \. FOLDER/7`, and `7` is a pipe: when the shell has
opened it, the echo is over and the command is written into it. The line behind the command, which
reports how it ended, consists of redirections only: there is no builtin in it which the command
could have replaced.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial

from flowengine_envs.inside.loop import Loop, Outbox
from flowengine_envs.inside.terminal import foreground
from flowengine_envs.inside.terminal.command import BACKGROUND, Running
from flowengine_envs.inside.terminal.ending import Ending
from flowengine_envs.inside.terminal.files import TerminalFiles
from flowengine_envs.inside.terminal.shell import TerminalShell
from flowengine_envs.inside.terminal.stream import TerminalStream
from flowengine_envs.inside.terminal.tmux import Tmux
from flowengine_envs.inside.terminal.transcript import Transcript
from flowengine_envs.link.terminal_text import clean, masked

BEGIN = 10.0
"""Seconds within which a shell at its prompt takes a line."""
_CLEAR = b"\x15"
"""Takes back what stands at a prompt, whoever reads it."""
_MISSED = 0.2
"""Seconds after which a shell is looked at that has not come for its command."""
_LOOK = 0.03
_SURE = 3
"""Looks in a row that must find it at its prompt."""
_PIPES = 16
"""Programs of a pipeline whose exit codes are told."""
_SHOWN = 150
"""Characters of a command that are shown to those who watch."""
_WAYS = (
    r" \. {}",
    r" \source {}",
    r" \command . {}",
    r" \command source {}",
    r" \builtin . {}",
)
"""Lines with which a shell reads a command from its pipe: a function may stand before a builtin,
and a builtin may be turned off."""


class Lines:
    """Writes them.

    Args:
        files: By which the shell and the supervisor talk.
        shell: Who reads them.
        secrets: What nobody may see.
    """

    def __init__(
        self, files: TerminalFiles, shell: TerminalShell, secrets: Sequence[bytes]
    ) -> None:
        self._files = files
        self._shell = shell
        self._secrets = secrets

    def taking(self, running: Running) -> bytes:
        """Return the line that is typed: with it the shell reads a command from its pipe."""
        return _WAYS[self._shell.way].format(self._files.path(running.id)).encode()

    def next_way(self) -> bool:
        """Take another line for that; returns whether there is one more."""
        self._shell.way = (self._shell.way + 1) % len(_WAYS)
        return self._shell.way > 0

    def telling(self, running: Running) -> bytes:
        """Return the line that tells how the command before it ended, and has the same status.

        Its descriptor is none that is written to: bash, interrupted here, does not take it back.
        """
        gate = self._files.make_gate(running.id)
        codes = ""
        if not self._shell.plain:
            codes = "".join(f"${{PIPESTATUS[{at}]-}}." for at in range(_PIPES))
        mark = f"{self._files.path(running.id)}.$?.{codes}"
        return f' 9>"{mark}" 9>"{gate}" 9>"/dev/null$(exit $?)"\n'.encode()

    def shown(self, running: Running) -> bytes:
        """Return what puts the command in the place of the line that was typed."""
        text = clean(masked(running.task.text, self._secrets)).strip()
        line = "".join(each for each in text.partition("\n")[0] if each.isprintable())
        up = b"\x1b[%dA" % running.lines if running.lines else b""
        return up + b"\r\x1b[J$ " + line[:_SHOWN].encode() + b"\n"


class Handover:
    """Hands commands over to the shell.

    Args:
        loop: The loop.
        shell: The shell.
        files: Where the pipes are.
        lines: What is typed, and shown in its place.
        stream: What is written to the terminal.
        tmux: The terminal.
        ending: Ends what was stopped before it was handed over.
        begun: Called with a command that the shell has been given.
    """

    def __init__(
        self,
        loop: Loop,
        shell: TerminalShell,
        files: TerminalFiles,
        lines: Lines,
        stream: TerminalStream,
        tmux: Tmux,
        ending: Ending,
        begun: Callable[[Running], None],
    ) -> None:
        self._loop = loop
        self._shell = shell
        self._files = files
        self._lines = lines
        self._stream = stream
        self._tmux = tmux
        self._ending = ending
        self._begun = begun
        self._between = Transcript(BACKGROUND)
        self._jobs = False

    def rest(self, *, jobs: bool) -> None:
        """Keep what is written until the next command is handed over.

        Args:
            jobs: Whether the one before has left some, which may write.
        """
        self._jobs = jobs
        self._between = Transcript(BACKGROUND)
        self._stream.sink = self._between

    def prepare(self, running: Running) -> None:
        """Make the pipe of a command."""
        running.pipe = self._files.make_pipe(running.id)
        running.timers.append(self._loop.after(BEGIN, partial(self._ending.stuck, running)))

    def type(self, running: Running) -> None:
        """Have the shell at its prompt open the pipe of a command."""
        # Where no job was left, what came since the last command is the prompt.
        running.background = self._between.bytes() if self._jobs else b""
        self._stream.sink = running.echo
        self._type(running)

    def _type(self, running: Running) -> None:
        running.typed.append(self._lines.taking(running))
        # What was typed at the prompt before is no part of it.
        self._tmux.type(_CLEAR + running.typed[-1] + b"\r")
        running.timers.append(self._loop.after(_MISSED, partial(self._look, running, 0)))

    def _look(self, running: Running, found: int) -> None:
        """Look whether the shell is back at its prompt; tmux must have passed on what was typed."""
        self._tmux.cursor(lambda *_: self._tmux.cursor(lambda *_: self._typed(running, found)))

    def _typed(self, running: Running, found: int) -> None:
        tty = self._stream.tty
        if running.begun or running.ending or running.over or tty is None:
            return
        found = found + 1 if foreground.look(self._shell.pane, tty).shell else 0
        if found < _SURE:
            running.timers.append(self._loop.after(_LOOK, partial(self._look, running, found)))
        elif self._lines.next_way():  # it did something else instead
            self._type(running)
        else:
            self._ending.stuck(running)

    def opened(self, running: Running) -> None:
        """Give the shell, which now reads from the pipe, the command."""
        running.begun = True
        for timer in running.timers:
            timer.cancel()
        self._stream.barrier(partial(self._show, running))

    def _show(self, running: Running) -> None:
        """Put the command in the place of the line that was typed, for those who watch."""
        running.lines = running.echo.bytes().count(b"\n")
        running.lines += sum(len(line) // self._tmux.columns for line in running.typed)
        self._stream.barrier(partial(self._begin, running), self._lines.shown(running))

    def _begin(self, running: Running) -> None:
        if self._jobs:
            echo = running.echo.bytes()
            shown = self._lines.shown(running).replace(b"\n", b"\r\n")
            for part in (*(line + b"\r\n" for line in running.typed), shown):
                echo = echo.replace(part, b"")
            running.background += echo
        self._stream.sink = running
        self._hand(running)
        self._begun(running)

    def _hand(self, running: Running) -> None:
        """Write the command into the pipe; of one that was interrupted already nothing."""
        assert running.pipe is not None
        running.handed = True
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

    def _let_type(self, running: Running) -> None:
        held, running.held = running.held, []
        for call, _dropped in held:
            call()

    def close_pipe(self, running: Running) -> None:
        """Close the pipe of a command, whose rest is read by nobody."""
        if running.pipe is not None:
            self._loop.forget(running.pipe)
            os.close(running.pipe)
            running.pipe = None
            self._files.remove(running.id)
