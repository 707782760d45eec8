"""The end of a command: found by checking processes, or brought about by signals.

| how the end is found | when |
|---|---|
| the command's last line creates a file (`terminal`) | it runs to its end |
| a shell at its prompt has the terminal | the last line was not reached: after an interrupt, or in another shell |
| the script around the shell creates a file (`terminal`) | the shell exits or is killed |
| the script around the shell is gone | a program has killed it, too |
"""  # noqa: E501 - a table

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from functools import partial

from flowengine_envs.inside.loop import EventLoop
from flowengine_envs.inside.terminal import foreground
from flowengine_envs.inside.terminal.command import Phase, StartedCommand
from flowengine_envs.inside.terminal.shell import TerminalShell, TerminalStream

_STARTING = 5.0
"""Seconds after an interrupt during which a copy of the shell may still become a program."""
_AGAIN = 0.3
_BETWEEN = 0.01
_INTERRUPTS = 500
"""Maximum number of attempts to find a process to interrupt, and the seconds between them."""
_LAST = 0.15
"""Maximum seconds between checks."""
_SURE = 3
"""Number of consecutive checks that must agree."""
_LOST = 5
"""Number of checks without the shell's parent after which the shell counts as lost."""


class Ending:
    """Checks commands at increasing intervals, and ends them.

    One that has not been handed over is ended when it would be.

    Args:
        loop: The loop.
        shell: The shell in which they run.
        stream: Provides the terminal.
        at_prompt: Called when a shell at its prompt has the terminal: the command has ended.
        waits: Called when a command waits for input.
        lost: Called when the whole shell has ended.
    """

    def __init__(
        self,
        loop: EventLoop,
        shell: TerminalShell,
        stream: TerminalStream,
        at_prompt: Callable[[StartedCommand, foreground.TerminalState], None],
        waits: Callable[[StartedCommand], None],
        lost: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._shell = shell
        self._stream = stream
        self._at_prompt = at_prompt
        self._waits = waits
        self._lost = lost

    def watch(self, running: StartedCommand) -> None:
        """Check a command from now on until it has ended."""
        running.timers.append(self._loop.after(running.pause, partial(self._poll, running)))

    def _poll(self, running: StartedCommand) -> None:
        tty = self._stream.tty
        if running.phase >= Phase.ENDED or tty is None:
            return
        if foreground.process(self._shell.pane) is None:
            running.missing += 1
            if running.missing == _LOST:
                self._lost()
                return
        self._interrupt_again(running)
        seen = self._shell.inspect(tty)
        running.count = running.count + 1 if running.seen == seen else 1
        running.seen = seen
        if running.count >= _SURE and seen.shell:
            self._at_prompt(running, seen)
            return
        if running.count >= _SURE and seen.robbed:
            self._shell.take_terminal()
            running.count = 0
        if running.count >= _SURE and seen.waiting is not None:
            if running.waiting is None:
                running.waiting = {"kind": seen.waiting, "prompt": ""}
                self._waits(running)
        elif seen.waiting is None:
            running.waiting = None
        running.pause = min(running.pause * 1.3, _LAST)
        self._loop.after(running.pause, partial(self._poll, running))

    def interrupt(self, running: StartedCommand) -> None:
        """Interrupt a command once."""
        running.look_anew()
        if running.phase < Phase.HANDED:
            running.interrupted = True
        else:
            self._interrupt(running, _INTERRUPTS)

    def _interrupt(self, running: StartedCommand, tries: int) -> None:
        """Interrupt the foreground group, which may be empty between two programs."""
        if running.phase >= Phase.ASKED:  # It has already ended.
            return
        running.interrupted = self._shell.has_terminal()
        running.clock_interrupted = time.monotonic()
        if not self._shell.signal(signal.SIGINT) and tries:
            again = partial(self._interrupt, running, tries - 1)
            running.timers.append(self._loop.after(_BETWEEN, again))

    def _interrupt_again(self, running: StartedCommand) -> None:
        """Interrupt a program that the shell was about to start at the first interrupt."""
        if not running.interrupted or self._shell.has_terminal():
            return
        running.interrupted = False
        if time.monotonic() - running.clock_interrupted < _STARTING:
            self._shell.signal(signal.SIGINT)

    def stop(self, running: StartedCommand, why: str) -> None:
        """End a command by SIGINT, SIGTERM and SIGKILL.

        Args:
            running: The command.
            why: Its status: `timeout`, `cancelled`, `disk`.
        """
        if running.phase >= Phase.ASKED or running.stopped is not None:
            return
        running.stopped = why
        running.look_anew()
        if running.phase is Phase.HANDED:
            self._end(running)
        else:
            running.interrupted = True

    def catch_up(self, running: StartedCommand) -> None:
        """End a command that was interrupted or stopped before it was handed over."""
        running.interrupted = False
        if running.stopped is not None:
            self._end(running)
        else:
            self._shell.signal(signal.SIGINT)

    def stuck(self, running: StartedCommand) -> None:
        """Kill a shell that does not read a command."""
        if running.phase is Phase.TYPED:
            running.stopped = "lost"
            self._shell.kill()

    def _end(self, running: StartedCommand) -> None:
        running.stopped_at = time.monotonic()
        grace = running.task.grace
        self._shell.signal(signal.SIGINT)
        for share, call in (
            (0.4, self._ask_to_end),
            (0.8, partial(self._kill, running)),
        ):
            running.timers.append(self._loop.after(grace * share, call))

    def _ask_to_end(self) -> None:
        self._shell.signal(signal.SIGTERM)

    def _kill(self, running: StartedCommand) -> None:
        """Kill the foreground group repeatedly, because a shell loop may start the next program."""
        if running.phase >= Phase.ASKED:
            return
        if not self._shell.kill_foreground():
            if time.monotonic() - running.stopped_at > 2 * running.task.grace:
                self._shell.kill()
            else:
                self._shell.signal(signal.SIGINT)
        running.timers.append(self._loop.after(_AGAIN, partial(self._kill, running)))
