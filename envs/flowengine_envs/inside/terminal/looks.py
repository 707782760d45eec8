"""Checks during a command whether its processes wait for input or have ended."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from flowengine_envs.inside.loop import Loop
from flowengine_envs.inside.terminal import foreground
from flowengine_envs.inside.terminal.command import Running
from flowengine_envs.inside.terminal.ending import Ending
from flowengine_envs.inside.terminal.shell import TerminalShell
from flowengine_envs.inside.terminal.stream import TerminalStream

_LAST = 0.15
"""Maximum seconds between checks."""
_SURE = 3
"""Number of consecutive checks that must agree."""
_LOST = 5
"""Number of checks without the shell's parent after which the shell counts as lost."""


class Looks:
    """Checks processes at increasing intervals.

    Args:
        loop: The loop.
        shell: The shell in which the command runs.
        stream: Provides the terminal.
        ending: Repeats interrupts that came too early.
        at_prompt: Called when a shell at its prompt has the terminal: the command has ended.
        waits: Called when the command waits for input.
        lost: Called when the whole shell has ended.
    """

    def __init__(
        self,
        loop: Loop,
        shell: TerminalShell,
        stream: TerminalStream,
        ending: Ending,
        at_prompt: Callable[[Running, foreground.Seen], None],
        waits: Callable[[Running], None],
        lost: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._shell = shell
        self._stream = stream
        self._ending = ending
        self._at_prompt = at_prompt
        self._waits = waits
        self._lost = lost

    def begin(self, running: Running) -> None:
        """Check a command from now on until it has ended."""
        running.timers.append(self._loop.after(running.pause, partial(self._look, running)))

    def _look(self, running: Running) -> None:
        tty = self._stream.tty
        if running.over or running.ending or tty is None:
            return
        if foreground.process(self._shell.pane) is None:
            running.missing += 1
            if running.missing == _LOST:
                self._lost()
                return
        self._ending.interrupt_again(running)
        seen = foreground.look(self._shell.pane, tty)
        running.count = running.count + 1 if running.seen == seen else 1
        running.seen = seen
        if running.count >= _SURE and seen.shell:
            self._at_prompt(running, seen)
            return
        if running.count >= _SURE and seen.waiting is not None:
            if running.waiting is None:
                running.waiting = {"kind": seen.waiting, "prompt": ""}
                self._waits(running)
        elif seen.waiting is None:
            running.waiting = None
        running.pause = min(running.pause * 1.3, _LAST)
        self._loop.after(running.pause, partial(self._look, running))
