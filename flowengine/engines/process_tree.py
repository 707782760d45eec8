"""Finds the processes that belong to an attempt, and kills them.

A process is found by three signs, since a program may leave any one of them behind: its session
(each program is started as the leader of one), its parents, and a variable in its environment that
names the attempt (so that also a daemon that changed session and parent is found). Only a process
that sheds all three - `env -i setsid ...` whose parent is gone - escapes.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

MARK = "FLOWENGINE_ATTEMPT"
"""The environment variable by which a process is found again: `execution:unit`."""
ROUNDS = 250
"""How often those that are being killed are looked for again: one may just have forked."""


class Family:
    """All processes of an attempt: those of a session, those marked, and their descendants.

    Args:
        mark: Value of the marking variable; one that ends in `:` stands for all that begin so.
        leader: Process that leads the session, if there is one.
    """

    def __init__(self, mark: str, leader: int | None = None) -> None:
        self._mark = f"{MARK}={mark}".encode()
        self._leader = leader
        self._since = 0
        """Ticks since boot: what is older than the leader comes from elsewhere."""
        if leader is not None and (leader_process := _process(leader)):
            self._since = leader_process.started

    def members(self) -> list[int]:
        """Return who lives now, and is no zombie; this process is never among them."""
        processes = {process.pid: process for process in _processes(self._since)}
        processes.pop(os.getpid(), None)
        found = {
            process.pid
            for process in processes.values()
            if process.session == self._leader or self._is_marked(process.pid)
        }
        return [pid for pid in processes if _descends(pid, found, processes)]

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal to all; return whether there was one."""
        members = self.members()
        for pid in members:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        return bool(members)

    def _is_marked(self, pid: int) -> bool:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                variables = file.read().split(b"\0")
        except OSError:  # gone, or another user's
            return False
        if self._mark.endswith(b":"):
            return any(variable.startswith(self._mark) for variable in variables)
        return self._mark in variables


def end_marked(execution: str) -> None:
    """Kill what a dead engine process left running of an execution.

    Call it before attempts that were cut off are run again: a script whose engine was killed runs
    on by itself, and its second run must not meet the first.

    Args:
        execution: Id of the execution.
    """
    family = Family(f"{execution}:")
    for _ in range(ROUNDS):
        if not family.signal(signal.SIGKILL):
            return


class _Process(NamedTuple):
    pid: int
    parent: int
    session: int
    started: int


def _process(pid: int) -> _Process | None:
    """Return a process, or None if it is gone or only a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # "pid (name) state parent group session ...", and the name may hold anything
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    if fields[0] in {b"Z", b"X"}:
        return None
    return _Process(pid, int(fields[1]), int(fields[3]), int(fields[19]))


def _processes(since: int) -> Iterator[_Process]:
    for name in os.listdir("/proc"):
        if name.isdecimal():
            process = _process(int(name))
            if process is not None and process.started >= since:
                yield process


def _descends(pid: int, ancestors: set[int], processes: Mapping[int, _Process]) -> bool:
    while pid not in ancestors:
        if pid not in processes:
            return False
        pid = processes[pid].parent
    return True
