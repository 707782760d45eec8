"""Calls of Linux that Python's standard library does not have, and what /proc tells."""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
from collections.abc import Container, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from flowengine_envs.link.words import ENTRANCES

_SET_PDEATHSIG = 1
_SET_DUMPABLE = 4
_SET_NO_NEW_PRIVS = 38
_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def become_unreadable() -> None:
    """Keep other processes of the same user out of this one's memory and descriptors."""
    _prctl(_SET_DUMPABLE, 0)


def become_readable() -> None:
    """Undo `become_unreadable`, which a forked process has inherited."""
    _prctl(_SET_DUMPABLE, 1)


def adopt_orphans() -> None:
    """Become the parent of descendants whose parents end."""
    _prctl(_SET_CHILD_SUBREAPER, 1)


def gain_no_privileges() -> None:
    """Keep started programs from gaining privileges: setuid has no effect."""
    _prctl(_SET_NO_NEW_PRIVS, 1)


def die_with_parent(number: signal.Signals) -> None:
    """Get a signal when the parent ends."""
    _prctl(_SET_PDEATHSIG, int(number))


class KilledFirst:
    """Lets the kernel kill children of this process before itself, where memory is at its limit.

    To be made before `become_unreadable`, which closes the file to this process, too. Where it
    cannot be written, as in a namespace of root's, all are alike to the kernel.
    """

    def __init__(self) -> None:
        self._file = -1
        self._own = b"0"
        with suppress(OSError):
            low = os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
            self._file = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 100)
            os.close(low)
            self._own = os.read(self._file, 16)

    @contextmanager
    def born(self) -> Iterator[None]:
        """Fork such a child meanwhile: it inherits what this process is for a moment."""
        with suppress(OSError):
            os.pwrite(self._file, b"1000", 0)
        try:
            yield
        finally:
            with suppress(OSError):
                os.pwrite(self._file, self._own, 0)


class Entrances:
    """Leads into the control groups of programs, where this process is outside of them."""

    def __init__(self) -> None:
        given = [int(fd) for fd in os.environ.pop(ENTRANCES, "").split(",") if fd]
        self._fds = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 100) for fd in given]
        for fd in given:
            os.close(fd)

    def enter(self) -> None:
        """Put this process into them; its children start there."""
        for fd in self._fds:
            os.write(fd, b"0")


class Process(NamedTuple):
    """A living process."""

    pid: int
    parent: int
    started: int
    """Clock ticks since boot."""


def process(pid: int) -> Process | None:
    """Return a process, or None if it is gone or only a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # "pid (name) state parent ...", and the name may hold anything
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    if fields[0] in {b"Z", b"X"}:
        return None
    return Process(pid, int(fields[1]), int(fields[19]))


def processes() -> Iterator[Process]:
    """Yield all living processes that can be seen."""
    for name in os.listdir("/proc"):
        if name.isdecimal():
            found = process(int(name))
            if found is not None:
                yield found


def children() -> list[int]:
    """Return the children of this process, with those that have ended and were not waited for."""
    own = os.getpid()
    try:
        with open(f"/proc/self/task/{own}/children", "rb") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:  # the kernel was built without this file
        return [each.pid for each in processes() if each.parent == own]


def descendants(root: int, without: Container[int] = ()) -> list[Process]:
    """Return the living descendants of a process, without itself.

    Args:
        root: The process.
        without: Processes that are left out with all that is below them.
    """
    children: dict[int, list[Process]] = {}
    for each in processes():
        children.setdefault(each.parent, []).append(each)
    found: list[Process] = []
    parents = [root]
    while parents:
        below = [each for each in children.pop(parents.pop(), []) if each.pid not in without]
        found += below
        parents += [each.pid for each in below]
    return found


def ticks() -> int:
    """Return the present time as `Process.started` counts it."""
    import time

    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))
