"""Ends trees of processes, also those that fork faster than they can be looked for.

A process that is stopped cannot fork. So whatever is to be killed is stopped first: process groups
that are known by one call each, which nothing in them escapes, the rest as it is found. Where the
supervisor shares its process numbers with nobody else, one call stops everything at once, and
what has nothing to do with it goes on a moment later.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Container, Iterator
from contextlib import contextmanager, suppress
from itertools import count

from flowengine_envs.inside import system

_PATIENCE = 10.0
"""Seconds for which those that are being killed are looked for again."""
_ROUNDS = 10
"""How often they are looked for at least: on a busy machine that takes longer."""
_MOMENT = 0.002
"""Seconds that the kernel gets to take away what was killed."""
_INSTANT = 0.0002
"""Seconds between looks at this process's own children, of which there are few."""
_CROWD = 100
"""Processes from which looking at each takes so long that all are stopped meanwhile."""
_EVERYONE = -1
"""As a process: all that may be signalled, but this one and the first of the namespace."""

_apart = False


def own_process_numbers() -> None:
    """Know that all processes that can be seen belong to this sandbox."""
    global _apart  # noqa: PLW0603 - it is so of the whole process, and of its forks
    _apart = True


def signal_below(root: int, number: int) -> None:
    """Send a signal to the descendants of a process.

    Args:
        root: A process, which itself is spared.
        number: The signal.
    """
    with _stopped():
        for each in system.descendants(root):
            _send(each.pid, number)


def kill_below(
    root: int,
    since: int = 0,
    spare: Container[int] = (),
    groups: Collection[int] = (),
    without: Container[int] = (),
) -> None:
    """Kill the descendants of a process until there are none.

    Args:
        root: A process, which itself is spared.
        since: Spare those that were started before, in `system.ticks`.
        spare: Processes that are spared.
        groups: Process groups of which nothing is to be spared.
        without: Processes that are spared with all that is below them.
    """
    with _stopped(groups):
        known: set[int] = set()
        end = time.monotonic() + _PATIENCE
        rounds = count()
        while next(rounds) < _ROUNDS or time.monotonic() < end:
            found = {
                each.pid
                for each in system.descendants(root, without)
                if each.started >= since and each.pid not in spare
            }
            if not found:
                return
            # What is killed makes room for another fork, what is stopped does not: so nothing is
            # killed as long as there is somebody new.
            new = found - known
            for pid in new or found:
                _send(pid, signal.SIGSTOP if new else signal.SIGKILL)
            known |= new
            if not new:
                time.sleep(_MOMENT)


def kill_everything() -> None:
    """Kill all descendants of this process, and where nothing else is here, all at once."""
    if _apart:
        _send(_EVERYONE, signal.SIGKILL)
    kill_below(os.getpid())
    _kill_children()


def _kill_children() -> None:
    """Kill the children of this process, which adopts orphans, until it has none.

    A process that forks and ends at once, again and again, is never where it is looked for. But
    there is always one of its kind that is a child of this process, or will be when that is killed.
    """
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                continue
        except ChildProcessError:
            return
        for pid in system.children():
            _send(pid, signal.SIGKILL)
        time.sleep(_INSTANT)


@contextmanager
def _stopped(groups: Collection[int] = ()) -> Iterator[None]:
    """Stop process groups, and everything if there is a crowd; let what is left go on after."""
    targets = [-group for group in groups]
    if _apart and _count() > _CROWD:
        targets = [_EVERYONE]
    for target in targets:
        _send(target, signal.SIGSTOP)
    try:
        yield
    finally:
        for target in targets:
            _send(target, signal.SIGCONT)


def _count() -> int:
    return sum(name.isdecimal() for name in os.listdir("/proc"))


def _send(target: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(target, number)
