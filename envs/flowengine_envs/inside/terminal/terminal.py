"""A persistent shell on a terminal: separate commands, one after another.

The content of the screen is never interpreted. A command is written into a pipe (see `handover`).
Its last line creates a file whose name states how the command ended, and then waits until all
output has been read. The start and end of its output are found by a number written to the terminal
itself, after all earlier output (see `stream`).

A command that was interrupted, or that started another shell, does not reach that line. In that
case a shell at its prompt has the terminal (see `foreground`), and reports the status in the same
way.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Optional

from flowengine_documents.terminal_text import clean
from flowengine_envs.inside.commands import Say
from flowengine_envs.inside.loop import CLOSED, MADE, OPENED, Call
from flowengine_envs.inside.programs import ProgramEnd, ProgramStarter
from flowengine_envs.inside.terminal import foreground
from flowengine_envs.inside.terminal.command import (
    Answers,
    Busy,
    CommandAnswer,
    Gone,
    NoCommand,
    Phase,
    StartedCommand,
    TerminalPlan,
    TypedCommand,
    Waiters,
)
from flowengine_envs.inside.terminal.ending import Ending
from flowengine_envs.inside.terminal.handover import BEGIN, Handover, LineWriter, TerminalFiles
from flowengine_envs.inside.terminal.shell import START, TerminalShell, TerminalStream, pane
from flowengine_envs.inside.terminal.tmux import SETTINGS, Tmux, Watching
from flowengine_envs.link.masking import masked

_NUMBER = re.compile(r"[0-9]{1,9}")
_CODES = re.compile(r"[0-9]{1,9}\.[0-9.]*|[0-9]{1,9}")
"""Content of file names. Programs can create files with any name."""
_AGAIN = 0.3
_START = 30.0
"""Seconds within which a new shell must replace another one."""


class Terminal:
    """A persistent shell.

    Args:
        programs: Starts it.
        plan: Its plan.
        opened: Called once, with None when the shell is ready, or with the reason for its failure.
        full: Returns whether earlier answers are still unread by the engine.
    """

    def __init__(
        self, programs: ProgramStarter, plan: TerminalPlan, opened: Any, full: Callable[[], bool]
    ) -> None:
        loop = programs.loop
        self._loop = loop
        self._full = full
        self._plan = plan
        self._opened = opened
        self._files = TerminalFiles(loop, plan.live, self._happened)
        self._files.write("start", START.format(folder=plan.live))
        self._files.write("pane", pane(plan.live, plan.env.get("SHELL")))
        self._files.write("settings", SETTINGS)
        self._stream = TerminalStream(loop)
        self._shell = TerminalShell()
        self._lines = LineWriter(self._files, self._shell, plan.secrets)
        self._answers = Answers(plan, self._shell)
        self._running: Optional[StartedCommand] = None  # noqa: UP045
        self._last: Optional[CommandAnswer] = None  # noqa: UP045
        self._waiters = Waiters(loop, self._stands)
        self._commands = 0
        self._restarted = False
        self._starts = 0
        self.alive = True
        self._closed: list[Call] = []
        self._tmux = Tmux(
            programs,
            plan.live,
            {**plan.env, "TERM": "screen-256color"},
            plan.cwd,
            plan.limits,
            self._wrote,
            self._ended,
        )
        self._watching = Watching(loop, self._tmux, plan.secrets, full)
        self._ending = Ending(
            loop, self._shell, self._stream, self._at_prompt, self._waits, self._shell_ended
        )
        self._handover = Handover(
            loop,
            self._shell,
            self._files,
            self._lines,
            self._stream,
            self._tmux,
            self._ending,
        )

    @property
    def busy(self) -> bool:
        """Whether a command runs."""
        return self._running is not None

    # Requests

    def run(self, request: int, task: TypedCommand, wait: Optional[float], say: Say) -> None:  # noqa: UP045
        """Start a command.

        Args:
            request: Number of the request.
            task: The command.
            wait: Seconds after which it is answered even if it still runs. None: unbounded.
            say: Called with the answer: pieces of output, then its state.

        Raises:
            Busy: Another command runs. Nothing was typed.
            Gone: The terminal has ended.
        """
        if not self.alive:
            raise Gone
        if self._running is not None:
            raise Busy(self._running.id)
        if not self._mended():
            raise Gone
        self._commands += 1
        running = StartedCommand(self._commands, request, task, self._shell.cwd(self._plan.cwd))
        if task.follow:
            running.follow = partial(self._follow, request, say)
        self._running = running
        self._waiters.add(request, wait, say)
        self._handover.prepare(running)
        if self._restarted:  # since the last command, whose answer could not include it
            self._lose(running)
        if self._shell.pid and running is self._running:
            self._stream.barrier(partial(self._type, running, self._shell.pid))

    def _follow(self, request: int, say: Say, data: bytes) -> None:
        """Report output of a command to its caller. It is dropped while the engine is behind."""
        if request in self._waiters and not self._full():
            say({"part": "followed"}, data)

    def _type(self, running: StartedCommand, pid: int) -> None:
        if pid == self._shell.pid:  # Otherwise its end is reported.
            self._handover.type(running)

    def _lose(self, running: StartedCommand) -> None:
        """End a command that no shell has started. The next shell may need activation first."""
        running.stopped = "lost"
        running.phase = Phase.ENDED
        if self._shell.pid:
            self._finish(running, None, [])

    @property
    def own(self) -> set[int]:
        """The processes of tmux, and the shells up to the one at its prompt.

        While it runs a command, which may be a loop, that one is the command's.
        """
        client = self._tmux.program.pid
        shells = self._shell.with_parents()[1 if self.busy else 0 :]
        return {*shells, *([] if client is None else [client])}

    def wait(self, request: int, wait: Optional[float], say: Say) -> None:  # noqa: UP045
        """Answer when the running command has ended or waits for input, as `run` does.

        Args:
            request: Number of the request.
            wait: Seconds, as for `run`.
            say: As for `run`.

        Raises:
            NoCommand: No command has been run yet.
        """
        if self._running is None:
            if self._last is None:
                raise NoCommand
            self._last.send(say)
            return
        self._waiters.add(request, wait, say)
        if self._running.waiting is not None:
            self._answer("waiting_for_input")

    def forget(self, request: int) -> bool:
        """End a command whose request is cancelled, or stop waiting for one.

        Args:
            request: Number of the request.

        Returns:
            Whether the request existed.
        """
        running = self._running
        if running is not None and running.request == request and request in self._waiters:
            self.stop("cancelled")
            return True
        return self._waiters.forget(request) or self._watching.forget(request)

    def send(self, data: bytes, done: Call) -> None:
        if data:
            self._typed(partial(self._tmux.type, data, lambda *_: self._arrived(done)), done)
        else:
            done()

    def press(self, keys: Sequence[str], done: Any) -> None:
        """Press keys. `done` is called with whether all are known."""

        def pressed(well: bool, _words: bytes) -> None:
            self._arrived(partial(done, well))

        press = partial(self._tmux.press, keys, pressed)
        self._typed(press, partial(done, True))

    def screen(self, done: Any) -> None:
        """Call a function with the content of the screen."""

        def on_screen(_well: bool, text: bytes) -> None:
            done(masked(text, self._plan.secrets))

        self._tmux.screen(on_screen)

    def resize(self, columns: int, rows: int, done: Call) -> None:
        """Set the size of the terminal."""
        self._tmux.resize(columns, rows, lambda *_: done())

    def watch(self, request: int, say: Say) -> None:
        """Report the screen at each change until the request is cancelled."""
        self._watching.add(request, say)

    def interrupt(self) -> bool:
        """Interrupt the running or pending command. Return whether there is one."""
        if self._running is None:
            return False
        self._ending.interrupt(self._running)
        return True

    def stop(self, why: str) -> None:
        """End the running command by SIGINT, SIGTERM and SIGKILL.

        Args:
            why: Its status: `timeout`, `cancelled`, `disk`.
        """
        if self._running is not None:
            self._ending.stop(self._running, why)

    def close(self, closed: Call) -> None:
        """End everything, and then call a function."""
        if not self.alive:
            closed()
            return
        self._closed.append(closed)
        self._kill_all()

    def _kill_all(self) -> None:
        if self.alive:
            self._tmux.program.kill()
            self._loop.after(_AGAIN, self._kill_all)  # It may still be starting.

    def _arrived(self, done: Call) -> None:
        """Discard earlier checks. Until tmux typed the input, the program waited as before."""
        if self._running is not None:
            self._running.look_anew()
        done()

    def _typed(self, call: Call, dropped: Call) -> None:
        """Type input, except while the shell reads our line, which Ctrl-C would delete.

        Args:
            call: Types it.
            dropped: Called instead if the command never reads it.
        """
        running = self._running
        if running is None or running.phase in {Phase.HANDED, Phase.ENDED}:
            call()
        else:
            running.held.append((call, dropped))

    # Events

    def _wrote(self, data: bytes) -> None:
        self._stream.feed(data)
        self._watching.changed()

    def _happened(self, what: int, name: str) -> None:
        id, _, rest = name.partition(".")
        running = self._running
        if what == MADE and id == "ready" and _NUMBER.fullmatch(rest):
            self._ready(int(rest))
        elif what == MADE and id == "exit" and _NUMBER.fullmatch(rest):
            self._files.remove(name)
            self._stream.barrier(partial(self._shell_ended, int(rest)))
        elif what == OPENED and running is not None and name in running.pipes:
            if running.phase is Phase.TYPED:
                self._handover.opened(running, name)
        elif what == MADE and _NUMBER.fullmatch(id) and _CODES.fullmatch(rest):
            self._files.remove(name)
            self._marked(int(id), rest)
        elif what == CLOSED and self._files.is_open(name):
            keep = name == "exit.gate"
            self._loop.after(0, partial(self._files.close_gate, name, keep=keep))

    def _marked(self, id: int, rest: str) -> None:
        """Handle the end of a command, or of an earlier one whose shell has now ended."""
        running = self._running
        if running is None or running.id != id or running.phase >= Phase.ENDED:
            self._files.open_gate(id)
            return
        asked = running.phase is Phase.ASKED
        running.phase = Phase.ENDED
        codes = [int(code) for code in rest.split(".") if code]
        if asked:
            self._finish(running, codes[0], codes[:1])
        else:
            self._stream.barrier(partial(self._finish, running, codes[0], codes[1:] or codes[:1]))

    def _ready(self, pid: int) -> None:
        """Handle the start of a shell, or a file with which a program imitates one."""
        self._files.remove(f"ready.{pid}")
        has_terminal = self._stream.open(f"/proc/{pid}/fd/0")
        if self._shell.pid and not has_terminal:
            return
        # The previous shell may have ended before it reached its gate.
        self._files.close_gate("exit.gate", keep=True)
        self._shell.started(pid)
        opened, self._opened = self._opened, None
        if opened is not None:
            self._stream.barrier(partial(self._first, opened))
        running = self._running
        if running is not None and running.phase is Phase.ENDED:
            self._finish(running, running.code, [])

    def _first(self, opened: Any) -> None:
        self._handover.rest(jobs=False)
        opened(None)

    def _shell_ended(self, code: Optional[int] = None) -> None:  # noqa: UP045
        """Start a new shell. The command that ended the old one is answered when it is ready."""
        if not self._shell.pid:
            return
        self._restarted = True
        running = self._running
        self._stream.sink = None
        self._shell.pid = 0
        if running is not None and (running.was_read or running.stopped is not None):
            running.phase = Phase.ENDED
            running.code = code
            self._handover.close_pipe(running)
        elif running is not None:
            self._lose(running)
        self._starts += 1
        self._loop.after(_START, partial(self._not_started, self._starts))
        if self._mended():
            self._files.open_gate("exit")
            self._tmux.again(self._plan.cwd)

    def _not_started(self, start: int) -> None:
        if start == self._starts and not self._shell.pid:
            self._kill_all()

    def _mended(self) -> bool:
        """Restore removed parts of the directory. If that fails, end the terminal."""
        try:
            self._files.mend()
        except OSError:
            self._kill_all()
            return False
        return True

    def _ended(self, ended: ProgramEnd, words: str) -> None:
        """Handle the end of the whole terminal."""
        self.alive = False
        opened, self._opened = self._opened, None
        if opened is not None:
            opened(words or _last_words(ended))
        self._restarted = False
        if self._running is not None:
            self._running.stopped = "lost"
            self._finish(self._running, None, [])
        self._watching.close()
        self._stream.close()
        self._files.close()
        for closed in self._closed:
            closed()

    # Events found by checking processes

    def _at_prompt(self, running: StartedCommand, seen: foreground.TerminalState) -> None:
        # The rest of a command that was interrupted while the shell read it is not needed.
        self._handover.close_pipe(running)
        self._shell.at_prompt(seen)
        running.phase = Phase.ASKED
        self._stream.barrier(partial(self._ask, running))

    def _waits(self, running: StartedCommand) -> None:
        self._stream.barrier(partial(self._report_waiting, running))

    def _report_waiting(self, running: StartedCommand) -> None:
        if running is self._running and running.waiting is not None:
            text = clean(masked(running.output.bytes(), self._plan.secrets))
            running.waiting["prompt"] = text.rpartition("\n")[2]
            self._answer("waiting_for_input")

    def _ask(self, running: StartedCommand) -> None:
        """Make the shell at its prompt report how the last command ended."""
        if running is self._running and running.phase < Phase.ENDED and self._mended():
            self._stream.sink = None
            self._tmux.type(self._lines.telling(running).rstrip(b"\n") + b"\r")
            running.timers.append(self._loop.after(BEGIN, self._shell.kill))

    # Answers

    def _stands(self) -> Optional[CommandAnswer]:  # noqa: UP045
        return None if self._running is None else self._answers.standing(self._running, "running")

    def _answer(self, status: str) -> None:
        running = self._running
        if running is not None:
            self._waiters.answer(self._answers.standing(running, status))

    def _finish(self, running: StartedCommand, code: Optional[int], codes: list[int]) -> None:  # noqa: UP045
        if running is not self._running:
            return
        self._running = None
        running.phase = Phase.OVER
        for timer in running.timers:
            timer.cancel()
        self._handover.close_pipe(running)
        self._shell.fall_back()
        self._last = self._answers.ended(running, code, codes, restarted=self._restarted)
        self._restarted = False
        self._handover.rest(jobs=bool(self._last.header["jobs"]))
        self._waiters.answer(self._last)
        for _call, dropped in running.held:
            dropped()
        self._files.open_gate(running.id)


def _last_words(ended: ProgramEnd) -> str:
    if ended.failed is not None:
        return f"tmux cannot be started: {os.strerror(ended.failed)}"
    return f"tmux ended (exit code {ended.exit_code}, signal {ended.signal})"
