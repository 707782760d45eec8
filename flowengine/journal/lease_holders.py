"""Lease holders, and detection of dead ones.

All processes that share a store run on one machine, because SQLite's write-ahead log needs shared
memory. A killed holder is therefore detected at once by its pid and start time. Leases are timed by
a clock that cannot be set, the time since boot, so a wrong date does not end or prolong a lease.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from flowengine.journal.records import Owner
from flowengine.sdk import processes
from flowengine.sdk.processes import is_dead

__all__ = ["IsDead", "is_dead", "steady_now", "this_process"]

IsDead = Callable[[Owner], bool]
"""Returns True if the process of an owner is certainly dead, False if it may be alive."""


def steady_now() -> int:
    """Return milliseconds since boot, including sleep. Equal in all processes."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def this_process() -> Owner:
    """Return a new owner for an engine object of this process."""
    return Owner(id=os.urandom(8).hex(), **processes.this_process()._asdict())
