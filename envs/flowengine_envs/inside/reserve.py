"""Ends programs that write while the file systems of the sandbox have little free space left."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Sequence
from typing import Optional

from flowengine_envs.inside import killing, system
from flowengine_envs.inside.loop import EventLoop
from flowengine_envs.workspaces.files import Workspace
from flowengine_envs.workspaces.free_space import GLANCE, FreeSpace

_SELDOM = 0.25
"""Seconds between searches for processes that calls have left, which take longer."""


class Reserve:
    """The reserve of free space for one sandbox.

    Args:
        busy: Returns whether a call runs.
        stop: Ends the running calls.
        own: Returns the processes that no call has started.
    """

    def __init__(
        self,
        loop: EventLoop,
        busy: Callable[[], bool],
        stop: Callable[[], None],
        own: Callable[[], Collection[int]],
    ) -> None:
        self._loop = loop
        self._busy = busy
        self._stop = stop
        self._own = own
        self._space: Optional[FreeSpace] = None  # noqa: UP045
        self._watching = False
        self._looked = 0.0
        self._ending = False
        """Whether calls were already ended, so that whatever still writes is killed."""
        self._ended_left = False

    def hold(self, places: Sequence[Workspace]) -> None:
        """Keep it on the file systems of directories from now on."""
        self._space = FreeSpace([place.fd for place in places])

    def begins(self) -> None:
        """Watch from now on, for as long as anything runs."""
        if self._space is None:
            return
        if self._ending and not self._busy():
            self._ended_left = self._ended_left or self._left()
            self._kill()
            self._ending = False
        if not self._watching:
            self._watching = True
            self._space.begins()
            self._loop.after(GLANCE, self._glance)

    def took_left(self) -> bool:
        """Return whether processes left by calls were ended since the last request."""
        ended, self._ended_left = self._ended_left, False
        return ended

    def _glance(self) -> None:
        assert self._space is not None
        busy, is_short = self._busy(), self._space.is_short()
        if not busy and (is_short or time.monotonic() - self._looked > _SELDOM):
            self._looked = time.monotonic()
            self._watching = self._left()
            if not self._watching:
                return
        if is_short:
            self._space.begins()
            if busy:
                self._stop()
            if not busy or self._ending:
                self._ended_left = self._ended_left or not busy
                self._kill()
        self._ending = busy and (is_short or self._ending)
        self._loop.after(GLANCE, self._glance)

    def _kill(self) -> None:
        assert self._space is not None
        killing.kill_below(os.getpid(), spare=set(self._own()))
        self._space.begins()

    def _left(self) -> bool:
        """Return whether any process left by a call runs."""
        own = self._own()
        return any(each.pid not in own for each in system.descendants(os.getpid()))
