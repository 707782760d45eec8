"""Sends the screen of a terminal to viewers each time it has changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Optional

from flowengine_envs.inside.commands import Say
from flowengine_envs.inside.loop import EventLoop
from flowengine_envs.inside.terminal.tmux import Tmux
from flowengine_envs.link.terminal_text import masked

_PAUSE = 0.05
"""Minimum seconds between two screens."""


class Watching:
    """The viewers of one terminal.

    Args:
        loop: The loop.
        tmux: Provides the screen.
        secrets: Values to hide.
        busy: Returns whether earlier answers are still unread.
    """

    def __init__(
        self, loop: EventLoop, tmux: Tmux, secrets: Sequence[bytes], busy: Callable[[], bool]
    ) -> None:
        self._loop = loop
        self._tmux = tmux
        self._secrets = secrets
        self._busy = busy
        self._watchers: dict[int, Say] = {}
        self._shown: Optional[tuple[bytes, bytes]] = None  # noqa: UP045
        self._due = False
        self._again = False

    def add(self, request: int, say: Say) -> None:
        """Send the screen from now on until the request is cancelled."""
        self._watchers[request] = say
        self._shown = None
        self.changed()

    def forget(self, request: int) -> bool:
        """Stop sending it. Return whether it was sent."""
        say = self._watchers.pop(request, None)
        if say is not None:
            say({"done": True}, b"")
        return say is not None

    def changed(self) -> None:
        """Check the screen soon, after output."""
        if not self._watchers:
            return
        self._again = self._due
        if not self._due:
            self._due = True
            self._loop.after(_PAUSE, self._look)

    def close(self) -> None:
        """Report the end to all viewers."""
        for request in list(self._watchers):
            self.forget(request)

    def _look(self) -> None:
        if self._busy():
            self._loop.after(_PAUSE, self._look)
            return
        self._again = False
        self._tmux.cursor(lambda _well, place: self._tmux.drawn(partial(self._show, place)))

    def _show(self, cursor: bytes, _well: bool, screen: bytes) -> None:
        self._due = False
        if self._again:
            self.changed()
        if (cursor, screen) == self._shown:
            return
        self._shown = (cursor, screen)
        column, _, row = cursor.decode("ascii", "replace").partition(" ")
        at = [int(each) if each.isdecimal() else 0 for each in (column, row)]
        for say in list(self._watchers.values()):
            say({"cursor": at}, masked(screen, self._secrets))
