"""Calls of Linux that Python's standard library does not have, and what /proc tells."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterator
from typing import NamedTuple

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


def adopt_orphans() -> None:
    """Become the parent of descendants whose parents end."""
    _prctl(_SET_CHILD_SUBREAPER, 1)


def gain_no_privileges() -> None:
    """Let no program that is started gain rights: setuid has no effect."""
    _prctl(_SET_NO_NEW_PRIVS, 1)


def die_with_parent(number: signal.Signals) -> None:
    """Get a signal when the parent ends."""
    _prctl(_SET_PDEATHSIG, int(number))


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


def descendants(root: int) -> list[Process]:
    """Return the living descendants of a process, without itself."""
    children: dict[int, list[Process]] = {}
    for each in processes():
        children.setdefault(each.parent, []).append(each)
    found: list[Process] = []
    parents = [root]
    while parents:
        below = children.pop(parents.pop(), [])
        found += below
        parents += [each.pid for each in below]
    return found


def ticks() -> int:
    """Return the present time as `Process.started` counts it."""
    import time

    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))
