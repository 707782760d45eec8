"""Linux system calls that Python's standard library does not provide, and data from /proc."""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
from collections.abc import Container, Iterator
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
    """Protect this process's memory and descriptors from other processes of the same user."""
    _prctl(_SET_DUMPABLE, 0)


def become_readable() -> None:
    """Undo `become_unreadable`, which a forked process has inherited."""
    _prctl(_SET_DUMPABLE, 1)


def adopt_orphans() -> None:
    """Become the parent of descendants whose parents end."""
    _prctl(_SET_CHILD_SUBREAPER, 1)


def gain_no_privileges() -> None:
    """Prevent started programs from gaining privileges: setuid has no effect."""
    _prctl(_SET_NO_NEW_PRIVS, 1)


def die_with_parent(number: signal.Signals) -> None:
    """Request a signal for when the parent ends."""
    _prctl(_SET_PDEATHSIG, int(number))


class Entrances:
    """Lets programs join their control groups, which do not include this process."""

    def __init__(self) -> None:
        given = [int(fd) for fd in os.environ.pop(ENTRANCES, "").split(",") if fd]
        self._fds = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 100) for fd in given]
        for fd in given:
            os.close(fd)

    def enter(self) -> None:
        """Move this process into them. Its children start there."""
        for fd in self._fds:
            os.write(fd, b"0")


class LivingProcess(NamedTuple):
    """A living process."""

    pid: int
    parent: int
    started: int
    """Clock ticks since boot."""


def process(pid: int) -> LivingProcess | None:
    """Return a process, or None if it has ended or is a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # "pid (name) state parent ...", and the name may contain any characters
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    if fields[0] in {b"Z", b"X"}:
        return None
    return LivingProcess(pid, int(fields[1]), int(fields[19]))


def processes() -> Iterator[LivingProcess]:
    """Yield all visible living processes."""
    for name in os.listdir("/proc"):
        if name.isdecimal():
            entry = process(int(name))
            if entry is not None:
                yield entry


def children(parent: int = 0) -> list[int]:
    """Return the children of a process, including zombies. 0: this process."""
    parent = parent or os.getpid()
    try:
        with open(f"/proc/{parent}/task/{parent}/children", "rb") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:  # The kernel was built without this file.
        return [each.pid for each in processes() if each.parent == parent]


def descendants(root: int, without: Container[int] = ()) -> list[LivingProcess]:
    """Return the living descendants of a process, without itself.

    Args:
        root: The process.
        without: Processes to omit with all their descendants.
    """
    children: dict[int, list[LivingProcess]] = {}
    for each in processes():
        children.setdefault(each.parent, []).append(each)
    living: list[LivingProcess] = []
    parents = [root]
    while parents:
        below = [each for each in children.pop(parents.pop(), []) if each.pid not in without]
        living += below
        parents += [each.pid for each in below]
    return living


def ticks() -> int:
    """Return the current time in the unit of `LivingProcess.started`."""
    import time

    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))
