"""Ends process trees, even if their processes fork faster than they can be found.

A stopped process cannot fork, so processes are stopped before they are killed. Known process groups
are stopped with one call each, which no member escapes. Other processes are stopped when they are
found. If all process ids belong to the supervisor's sandbox, one call stops everything, and
unrelated processes continue a moment later.
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
"""Seconds during which processes to kill are searched for again."""
_ROUNDS = 10
"""Minimum number of searches, because they take longer on a busy machine."""
_MOMENT = 0.002
"""Seconds for the kernel to remove killed processes."""
_INSTANT = 0.0002
"""Seconds between checks of this process's own children, which are few."""
_CROWD = 100
"""Number of processes above which all are stopped during a search, because it takes long."""
_EVERYONE = -1
"""As a process id: all signalable processes except this one and the first of the namespace."""

_apart = False


def own_process_numbers() -> None:
    """Record that all visible processes belong to this sandbox."""
    global _apart  # noqa: PLW0603 - it applies to the whole process and its forks
    _apart = True


def has_own_processes() -> bool:
    """Return whether all visible processes belong to this sandbox."""
    return _apart


def signal_below(root: int, number: int) -> None:
    """Send a signal to the descendants of a process.

    Args:
        root: A process, which is spared itself.
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
        root: A process, which is spared itself.
        since: Spare processes started earlier, in `system.ticks`.
        spare: Processes to spare.
        groups: Process groups without any process to spare.
        without: Processes to spare with all their descendants.
    """
    with _stopped(groups):
        known: set[int] = set()
        end = time.monotonic() + _PATIENCE
        rounds = count()
        while next(rounds) < _ROUNDS or time.monotonic() < end:
            members = {
                each.pid
                for each in system.descendants(root, without)
                if each.started >= since and each.pid not in spare
            }
            if not members:
                return
            # A killed process frees a slot for another fork, a stopped one does not. Nothing is
            # therefore killed while new processes appear.
            new = members - known
            for pid in new or members:
                _send(pid, signal.SIGSTOP if new else signal.SIGKILL)
            known |= new
            if not new:
                time.sleep(_MOMENT)


def kill_everything() -> None:
    """Kill all descendants of this process, at once if no other processes are visible."""
    if _apart:
        _send(_EVERYONE, signal.SIGKILL)
    kill_below(os.getpid())
    _kill_children()


def _kill_children() -> None:
    """Kill the children of this process, which adopts orphans, until it has none.

    A process that repeatedly forks and exits always escapes a search. But one of its kind is always
    a child of this process, or becomes one when its parent is killed.
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
    """Stop process groups, or everything if there are many processes. Continue them afterwards."""
    targets = [-group for group in groups]
    if _apart and sum(name.isdecimal() for name in os.listdir("/proc")) > _CROWD:
        targets = [_EVERYONE]
    for target in targets:
        _send(target, signal.SIGSTOP)
    try:
        yield
    finally:
        for target in targets:
            _send(target, signal.SIGCONT)


def _send(target: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(target, number)
