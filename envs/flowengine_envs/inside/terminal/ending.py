"""Ends a command: interrupts it, terminates it, kills it."""

from __future__ import annotations

import signal
import time
from functools import partial

from flowengine_envs.inside.loop import Loop
from flowengine_envs.inside.terminal.command import Running
from flowengine_envs.inside.terminal.shell import TerminalShell

_STARTING = 5.0
"""Seconds after an interrupt during which a copy of the shell may still become a program."""
_AGAIN = 0.3
_BETWEEN = 0.01
_INTERRUPTS = 500
"""Maximum number of attempts to find a process to interrupt, and the seconds between them."""


class Ending:
    """Ends commands. One that has not been handed over is ended when it would be.

    Args:
        loop: The loop.
        shell: The shell in which they run.
    """

    def __init__(self, loop: Loop, shell: TerminalShell) -> None:
        self._loop = loop
        self._shell = shell

    def interrupt(self, running: Running) -> None:
        """Interrupt a command once."""
        running.look_anew()
        if not running.handed:
            running.interrupted = True
        else:
            self._interrupt(running, _INTERRUPTS)

    def _interrupt(self, running: Running, tries: int) -> None:
        """Interrupt the foreground group, which may be empty between two programs."""
        if running.over or running.asked or running.ending:  # It has already ended.
            return
        running.interrupted = self._shell.has_terminal()
        running.clock_interrupted = time.monotonic()
        if not self._shell.signal(signal.SIGINT) and tries:
            again = partial(self._interrupt, running, tries - 1)
            running.timers.append(self._loop.after(_BETWEEN, again))

    def interrupt_again(self, running: Running) -> None:
        """Interrupt a program that the shell was about to start at the first interrupt."""
        if not running.interrupted or self._shell.has_terminal():
            return
        running.interrupted = False
        if time.monotonic() - running.clock_interrupted < _STARTING:
            self._shell.signal(signal.SIGINT)

    def stop(self, running: Running, why: str) -> None:
        """End a command by SIGINT, SIGTERM and SIGKILL, at once if it continues to fill the disk.

        Args:
            running: The command.
            why: Its status: `timeout`, `cancelled`, `disk`.
        """
        if running.over or running.asked or running.ending:
            return
        if running.stopped is not None:
            if why == "disk" and running.handed:
                self._kill(running)
            return
        running.stopped = why
        running.look_anew()
        if running.handed:
            self._end(running)
        else:
            running.interrupted = True

    def catch_up(self, running: Running) -> None:
        """End a command that was interrupted or stopped before it was handed over."""
        running.interrupted = False
        if running.stopped is not None:
            self._end(running)
        else:
            self._shell.signal(signal.SIGINT)

    def stuck(self, running: Running) -> None:
        """Kill a shell that does not read a command."""
        if not (running.over or running.begun):
            running.stopped = "lost"
            self._shell.kill()

    def _end(self, running: Running) -> None:
        running.stopped_at = time.monotonic()
        grace = running.task.grace
        self._shell.signal(signal.SIGINT)
        for share, call in (
            (0.4, self._tell_to_end),
            (0.8, partial(self._kill, running)),
        ):
            running.timers.append(self._loop.after(grace * share, call))

    def _tell_to_end(self) -> None:
        self._shell.signal(signal.SIGTERM)

    def _kill(self, running: Running) -> None:
        """Kill the foreground group repeatedly, because a shell loop may start the next program."""
        if running.over or running.ending or running.asked:
            return
        if not self._shell.kill_foreground():
            if time.monotonic() - running.stopped_at > 2 * running.task.grace:
                self._shell.kill()
            else:
                self._shell.signal(signal.SIGINT)
        running.timers.append(self._loop.after(_AGAIN, partial(self._kill, running)))
