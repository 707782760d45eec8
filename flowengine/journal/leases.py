"""Who holds an execution, and whether that process still lives.

All processes that share a store are on one machine (SQLite's write-ahead log needs shared memory).
So a holder that was killed can be told at once by its pid and start time, and leases can be timed
by a clock that nobody sets: the time since boot. A wrong date neither ends nor prolongs a lease.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from flowengine.journal.store import Owner

IsDead = Callable[[Owner], bool]
"""Says for certain that the process of an owner is gone; False when that cannot be known."""


def steady_now() -> int:
    """Return milliseconds since the machine started, sleep included; the same in all processes."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def this_process() -> Owner:
    """Return a new owner for an engine object of this process."""
    pid = os.getpid()
    return Owner(
        id=os.urandom(8).hex(),
        pid=pid,
        started=_started(pid) or 0,
        host=os.uname().nodename,
        boot=_boot(),
    )


def is_dead(owner: Owner) -> bool:
    """Return whether the process of `owner` is certainly gone.

    It is if this machine has started again since, or if, in the process namespace that both share,
    its pid is free or belongs to a process that started at another time. A stopped process lives.

    Args:
        owner: A holder of leases.
    """
    boot = _boot()
    if not boot:
        return False
    if owner.boot != boot:
        same_machine = owner.host == os.uname().nodename
        return same_machine and owner.boot.partition("/")[0] != boot.partition("/")[0]
    return _started(owner.pid) != owner.started


def _boot() -> str:
    """Return which boot of the machine, and which namespace of pids, this process is in."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _started(pid: int) -> int | None:
    """Return when a process started, in ticks since boot; None if it is gone or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name of the program, in brackets, may hold anything; what follows it is regular.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    state, started = fields[0], int(fields[19])
    return None if state in {b"Z", b"X"} else started
