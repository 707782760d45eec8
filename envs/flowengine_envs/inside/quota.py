"""Enforces a quota on a workspace and its home directory: scans while code runs, ends violators.

The kernel reports no growth of a directory, and only some file systems support directory quotas.
The directories are therefore scanned (see `disk_usage`) in small slices, so that requests and
timeouts never wait for a scan.
"""

from __future__ import annotations

import math
import os
import signal
import struct
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from typing import Optional

from flowengine_envs.inside import killing, system
from flowengine_envs.inside.loop import EventLoop
from flowengine_envs.workspaces import disk_usage
from flowengine_envs.workspaces.disk_usage import GLANCE, DiskUsage, Look, Pace
from flowengine_envs.workspaces.files import Workspace

_ANSWER = struct.Struct(">qqd")
_PATIENCE = 10.0
"""Seconds for a child before the next scan starts another."""


class MappedFiles:
    """Usage of removed files that are mapped.

    Args:
        fork: Forks the child.
    """

    def __init__(self, loop: EventLoop, fork: Callable[[], int]) -> None:
        self._fork = fork
        self._loop = loop
        self._source = -1
        self._began = 0.0
        self.child = 0
        """Process id of the running scan, or 0."""
        self.usage = DiskUsage(0, 0)
        """Their size, excluding everything that the last scan of files counted."""
        self.cost = 0.0
        """CPU seconds used to report them."""

    def count(self, look: Look, pids: Collection[int]) -> None:
        """Start a new count unless one is running.

        Args:
            look: The scan of files, whose files are not counted again.
            pids: The processes.
        """
        if not pids:
            self.usage, self.cost = DiskUsage(0, 0), 0.0
            return
        if self.child:
            if time.monotonic() < self._began + _PATIENCE:
                return
            with suppress(ProcessLookupError):
                os.kill(self.child, signal.SIGKILL)
            self._forget()
        self._source, sink = os.pipe()
        self._began = time.monotonic()
        try:
            self.child = self._fork()
        except OSError:  # The process limit is reached.
            os.close(self._source)
        else:
            if self.child == 0:
                _count(look, pids, sink)
            self._loop.reading(self._source, self._read)
        finally:
            os.close(sink)

    def _read(self) -> None:
        answer = os.read(self._source, _ANSWER.size)
        if len(answer) == _ANSWER.size:
            size, entries, self.cost = _ANSWER.unpack(answer)
            self.usage = DiskUsage(size, entries)
        self._forget()

    def _forget(self) -> None:
        self._loop.forget(self._source)
        os.close(self._source)
        self.child = 0


def _count(look: Look, pids: Collection[int], sink: int) -> None:
    """Count in the child, and report the result."""
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        system.die_with_parent(signal.SIGKILL)
        before = look.usage
        for pid in pids:
            look.mapped_by(pid)
        size, entries = look.usage.size - before.size, look.usage.entries - before.entries
        os.write(sink, _ANSWER.pack(size, entries, time.process_time()))
    finally:
        os._exit(0)


_OFTEN = 0.25
"""Seconds between scans while a call runs."""
_SELDOM = 1.0
"""Seconds between scans while only processes left by calls run."""
_CHEAP = 0.01
"""Duration in seconds of a scan that is cheap enough for every call."""
_SLICE = 0.05
"""Seconds of a scan in one go."""


class Quota:
    """The quota of a workspace.

    Args:
        busy: Returns whether a call runs.
        stop: Ends the running calls.
        own: Returns the processes that no call has started.
        fork: Forks the process that inspects programs.
    """

    def __init__(
        self,
        loop: EventLoop,
        busy: Callable[[], bool],
        stop: Callable[[], None],
        own: Callable[[], Collection[int]],
        fork: Callable[[], int] = os.fork,
    ) -> None:
        self._loop = loop
        self._busy = busy
        self._stop = stop
        self._own = own
        self._mapped = MappedFiles(loop, fork)
        self._places: Sequence[Workspace] = ()
        self._quota = 0
        self._pace: Optional[Pace] = None  # noqa: UP045
        self._over = 0.0
        """Usage while it exceeds the quota, as a ratio to the quota."""
        self._watching = False
        self._look: Optional[disk_usage.Look] = None  # noqa: UP045
        """The scan in progress."""
        self._steps: Iterator[None] = iter(())
        self._judges = self._stops = False
        """Whether that scan ends violators, and whether these are calls."""
        self._cost = 0.0
        """CPU seconds used by the last scan, or so far by this one."""
        self._ended_left = False

    def hold(self, places: Sequence[Workspace], quota: Optional[int]) -> None:  # noqa: UP045
        """Enforce a quota on directories from now on. None: no quota."""
        if quota is not None:
            self._places, self._quota = places, quota
            self._pace = Pace(places[0].fd, quota)
            self._begin_look(judges=False)

    def begins(self) -> None:
        """Scan before a call begins, so that earlier usage is not attributed to it."""
        if self._pace is None:
            return
        watched, self._watching = self._watching, True
        if self._over or (watched and (self._cost < _CHEAP or self._pace.is_due(0))):
            self._begin_look(judges=watched)
        if not watched:
            self._loop.after(GLANCE, self._glance)

    def took_left(self) -> bool:
        """Return whether processes left by calls were ended since the last request."""
        ended, self._ended_left = self._ended_left, False
        return ended

    def _glance(self) -> None:
        """Scan if a scan is due, as long as anything runs."""
        assert self._pace is not None
        busy = self._busy()
        if self._look is None and self._pace.is_due(_OFTEN if busy else _SELDOM):
            self._begin_look(judges=True)
            self._watching = busy or self._left()
        if self._watching:
            self._loop.after(GLANCE, self._glance)

    def _begin_look(self, *, judges: bool) -> None:
        assert self._pace is not None
        if self._look is not None:
            self._judges = judges and self._judges
            return
        self._judges, self._stops = judges, self._busy()
        self._pace.begins()
        self._cost = 0.0
        pids = [each.pid for each in system.descendants(os.getpid())]
        self._look = disk_usage.Look([place.fd for place in self._places], self._quota, pids)
        self._steps = self._look.steps()
        self._go_on()

    def _go_on(self) -> None:
        """Scan for one slice, and continue after other events."""
        assert self._look is not None
        began, end = time.process_time(), time.monotonic() + _SLICE
        ended = all(time.monotonic() < end for _ in self._steps)
        self._cost += time.process_time() - began
        if ended:
            look, self._look = self._look, None
            self._looked(look)
        else:
            self._loop.after(0, self._go_on)

    def _looked(self, look: disk_usage.Look) -> None:
        assert self._pace is not None
        usage, before = look.usage.also(self._mapped.usage), self._over
        taken = usage.part_of(self._quota)
        self._over = taken if 1 < taken < math.inf else 0.0
        self._pace.ends(usage, self._cost + self._mapped.cost)
        own = self._own_processes()
        pids = [each.pid for each in system.descendants(os.getpid())]
        self._mapped.count(look, [pid for pid in pids if pid not in own])
        if not self._judges or taken <= max(1.0, before):
            return
        if self._busy():
            if self._stops:  # not those that began during the scan
                self._stop()
        elif self._left():
            self._ended_left = True
            killing.kill_below(os.getpid(), spare=own)

    def _own_processes(self) -> set[int]:
        """Return the processes that no call has started."""
        return {*self._own(), self._mapped.child}

    def _left(self) -> bool:
        """Return whether any process left by a call runs."""
        own = self._own_processes()
        return any(each.pid not in own for each in system.descendants(os.getpid()))
