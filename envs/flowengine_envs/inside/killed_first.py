"""Which process the kernel kills when memory is at its limit: programs first, this one last.

The kernel kills the process with the highest score. That of programs is the highest, those of
keepers and of other forks of the supervisor are between it and the supervisor's.

A killed program can hold its memory for a while after the kernel has stopped considering it: its
first thread has ended, but another has not, or its files are still open. A process that allocates
memory then makes the kernel kill the next process. Where the supervisor shares the limit of the
programs, it therefore has a *reserve*: processes that hold memory, which the kernel kills before it
and its keepers.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
from contextlib import suppress
from typing import Optional

from flowengine_envs.inside import system
from flowengine_envs.inside.fork_servers import close_all_but
from flowengine_envs.inside.loop import EventLoop
from flowengine_envs.link.words import RESERVE

_FIRST = 1000
"""The highest score."""
_PARTS = 3
"""Processes that hold the reserve: each time that memory is at its limit may cost one."""
_SOON = 0.25
"""Seconds until a process of the reserve is replaced, or until there is room for it."""
_TRIES = 200
_MOMENT = 0.0005
"""Seconds until a program is looked at again."""
_CGROUPS = (
    ("/sys/fs/cgroup/", "memory.max", "memory.current", "inactive_file"),
    (
        "/sys/fs/cgroup/memory/",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        "total_inactive_file",
    ),
)
"""Directory, limit, usage, and the line in `memory.stat` about memory that can be reclaimed."""


class KilledFirst:
    """Makes the kernel kill forks of this process before it.

    It must be created before `become_unreadable`, which closes the file to this process, too. If
    the file is not writable, as in a namespace of root's, the kernel treats all processes alike.
    """

    def __init__(self) -> None:
        self._file = -1
        self._own = 0
        with suppress(OSError):
            low = os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
            self._file = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 100)
            os.close(low)
            self._own = int(os.read(self._file, 16))
        self.size = int(os.environ.pop(RESERVE, "0"))
        """Bytes of the reserve that this process needs, 0 if it has its own limit."""

    def fork(self, part: float = 0.5) -> int:
        """Fork. The child inherits a temporary score of this process.

        Args:
            part: Where its score is between those of this process and of programs.
        """
        self._set(self._own + int((_FIRST - self._own) * part))
        try:
            return os.fork()
        finally:
            self._set(self._own)

    def _set(self, score: int) -> None:
        with suppress(OSError):
            os.pwrite(self._file, b"%d" % score, 0)


def kill_program_first(pid: int) -> None:
    """Give a program that was just started the highest score, and the children that it has by now.

    Later ones inherit it.
    """
    tries = iter(range(_TRIES))
    while True:
        try:
            file = os.open(f"/proc/{pid}/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        except PermissionError:  # A moment after its start is known, the program is still a fork.
            if system.process(pid) is None or next(tries, None) is None:
                return
            time.sleep(_MOMENT)
        except OSError:  # A namespace of root's keeps the file from being written.
            return
        else:
            with suppress(OSError):
                os.write(file, b"%d" % _FIRST)
            os.close(file)
            for child in system.children(pid):
                kill_program_first(child)
            return


class Reserve:
    """Memory that becomes free when a process that the kernel no longer considers holds the rest.

    Args:
        killed_first: Has its size.
    """

    def __init__(self, loop: EventLoop, killed_first: KilledFirst) -> None:
        self._loop = loop
        self._killed_first = killed_first
        self._size = killed_first.size // _PARTS
        self.pids: set[int] = set()
        """The processes that hold it."""
        if self._size:
            self._fill()

    def ended(self, pid: int) -> None:
        """Replace a process of the reserve soon. Ignore other processes."""
        if pid in self.pids:
            self.pids.remove(pid)
            self._loop.after(_SOON, self._refill)

    def _refill(self) -> None:
        """Replace missing processes if that brings no program to the limit. Else try again."""
        room = _room()
        if room is None:
            return
        if room > 2 * self._size * _PARTS:
            self._fill()
        elif len(self.pids) < _PARTS:
            self._loop.after(_SOON, self._refill)

    def _fill(self) -> None:
        with suppress(OSError):  # The process limit is reached.
            while len(self.pids) < _PARTS:
                pid = self._killed_first.fork(0.75)
                if pid == 0:
                    _hold(self._size)
                self.pids.add(pid)


def _hold(size: int) -> None:
    """Hold memory until this process is killed."""
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        system.die_with_parent(signal.SIGKILL)
        close_all_but([])
        held = b"1" * size
        while held:
            signal.pause()
    finally:
        os._exit(1)


def _room() -> Optional[int]:  # noqa: UP045
    """Return how much memory the container may still use, or None if that is not visible."""
    for folder, limit, usage, reclaimable in _CGROUPS:
        with suppress(OSError, ValueError):
            room = _number(folder + limit) - _number(folder + usage)
            with open(f"{folder}memory.stat") as file:
                lines = [line.split() for line in file]
            return room + sum(int(value) for name, value in lines if name == reclaimable)
    return None


def _number(path: str) -> int:
    with open(path) as file:
        return int(file.read())
