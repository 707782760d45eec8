"""Holds a workspace and its home folder to a quota: looks while something runs, ends what exceeds.

Nothing tells of a folder that grows, and only some file systems can hold one to a size. So it is
looked at: often while a call runs, seldom while something is left of one, and never so often that
looking itself is what takes the time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Sequence
from typing import Optional

from flowengine_envs.supervisor import disk_usage, killing, system
from flowengine_envs.supervisor.files import Workspace
from flowengine_envs.supervisor.loop import Loop
from flowengine_envs.supervisor.mapped_files import MappedFiles

_OFTEN = 0.25
"""Seconds between looks while a call runs."""
_SELDOM = 1.0
"""Seconds between looks while only something runs that calls have left."""
_SHARE = 20
"""How many times as long as a look takes the next one waits."""
_CHEAP = 0.01
"""Seconds of a look that may be had each time something begins."""


class Quota:
    """The quota of a workspace.

    Args:
        busy: Returns whether a call runs.
        stop: Ends the calls that run.
        own: Returns the processes that no call has started.
    """

    def __init__(
        self,
        loop: Loop,
        busy: Callable[[], bool],
        stop: Callable[[], None],
        own: Callable[[], Collection[int]],
    ) -> None:
        self._loop = loop
        self._busy = busy
        self._stop = stop
        self._own = own
        self._mapped = MappedFiles(loop)
        self._places: Sequence[Workspace] = ()
        self._quota = 0
        self._over = 0.0
        """How much is taken while that is more than the quota, as a part of it."""
        self._watching = False
        self._looked = self._cost = 0.0
        self._ended_left = False

    def hold(self, places: Sequence[Workspace], quota: Optional[int]) -> None:  # noqa: UP045
        """Hold folders together to a number of bytes from now on; None: to nothing."""
        if quota is not None:
            self._places, self._quota = places, quota
            self._measure()

    def begins(self) -> None:
        """Look before something begins: what is full by then is not its doing."""
        if not self._places:
            return
        if self._watching:
            if self._cost < _CHEAP or time.monotonic() > self._looked + self._cost * _SHARE:
                self._look()
        elif self._over:
            self._measure()
        if not self._watching:
            self._watching = True
            self._loop.after(_OFTEN, self._look_again)

    def took_left(self) -> bool:
        """Return whether something that calls had left was ended since this was last asked."""
        ended, self._ended_left = self._ended_left, False
        return ended

    def _measure(self) -> None:
        began = time.process_time()
        own = self._own_processes()
        pids = [each.pid for each in system.descendants(os.getpid())]
        look = disk_usage.look_at([place.fd for place in self._places], pids)
        taken = look.usage.also(self._mapped.usage).part_of(self._quota)
        self._over = taken if taken > 1 else 0.0
        self._mapped.count(look, [pid for pid in pids if pid not in own])
        cost = time.process_time() - began
        self._looked, self._cost = time.monotonic(), cost + self._mapped.cost

    def _own_processes(self) -> set[int]:
        """Return the processes that no call has started."""
        return {*self._own(), self._mapped.child}

    def _look(self) -> None:
        before = self._over
        self._measure()
        if self._over <= before:
            return
        if self._busy():
            self._stop()
        elif self._left():
            self._ended_left = True
            killing.kill_below(os.getpid(), spare=self._own_processes())

    def _look_again(self) -> None:
        self._look()
        pause = _OFTEN if self._busy() else _SELDOM
        self._watching = self._busy() or self._left()
        if self._watching:
            self._loop.after(max(pause, self._cost * _SHARE), self._look_again)

    def _left(self) -> bool:
        """Return whether something runs that calls have left."""
        own = self._own_processes()
        return any(each.pid not in own for each in system.descendants(os.getpid()))
