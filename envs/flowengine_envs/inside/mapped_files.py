"""Counts removed files that programs have mapped, in a child process.

Inspecting the memory of a program may block. It blocks the child instead of the supervisor.
"""

from __future__ import annotations

import os
import signal
import struct
import time
from collections.abc import Callable, Collection
from contextlib import suppress

from flowengine_envs.inside import system
from flowengine_envs.inside.loop import EventLoop
from flowengine_envs.workspaces.disk_usage import DiskUsage, Look

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
