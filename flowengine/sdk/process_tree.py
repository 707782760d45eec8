"""Finds the processes that belong to an attempt or an environment, and kills them.

A process is found by three marks, since a program may lose any one of them: its session (each
program is started as the leader of one), its parents, and an environment variable that names its
attempt or environment (which finds daemons that changed session and parent). Only a process that
loses all three - `env -i setsid ...` whose parent has ended - escapes.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from flowengine.sdk.process_identity import (
    as_text,
    from_text,
    has_ended,
    is_dead,
    this_process,
)

MARK = "FLOWENGINE_ATTEMPT"
"""The environment variable by which a process is found: `execution:unit@owner`."""
VARIABLE = "FLOWENGINE_ENVIRONMENT"
"""The environment variable that marks every process of an environment, with the value of
`Request.mark`. It identifies the processes of a dead owner."""
ROUNDS = 250
"""How often the search for processes to kill is repeated at most."""
_STOPPING = 5_000
"""How often processes are stopped at most until none has started another one. On a busy machine,
each round may find just one more of a chain of processes that start each other."""


class Family:
    """A group of related processes: those of a session, those marked, and their descendants.

    Args:
        mark: Value of the marking variable. A value that ends in `:` is a prefix. None means that
            marks are ignored.
        leader: Process that leads the session, if there is one. It counts as long as its id has not
            been reused by a process with another start time.
        variable: Name of the marking variable.
    """

    def __init__(
        self, mark: str | None, leader: int | None = None, *, variable: str = MARK
    ) -> None:
        self._mark = None if mark is None else f"{variable}={mark}".encode()
        self._leader = leader
        self._since = 0
        """Ticks since boot: processes older than the leader do not belong to it."""
        if leader is not None and (leader_process := _process(leader)):
            self._since = leader_process.started

    def members(self) -> list[int]:
        """Return the living processes, without zombies and this process."""
        alive = {process.pid: process for process in processes(self._since)}
        alive.pop(os.getpid(), None)
        leader = self._leader
        if leader in alive and alive[leader].started != self._since:
            leader = None  # the kernel has reused its id, so its whole session has ended
        related = {
            process.pid
            for process in alive.values()
            if leader in {process.session, process.pid} or self._is_marked(process.pid)
        }
        return [pid for pid in alive if _descends(pid, related, alive)]

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal to all processes.

        Before SIGKILL, all are stopped. A stopped process starts no other one, and a child that it
        has just started is still found, by its parent.

        Returns:
            Whether there was any.
        """
        members = self.members()
        if number == signal.SIGKILL:
            members = self._stop(members)
        _send(members, number)
        return bool(members)

    def _stop(self, members: list[int]) -> list[int]:
        """Stop processes and all that they started meanwhile, and return them."""
        stopped: set[int] = set()
        for _ in range(_STOPPING):
            running = [pid for pid in members if pid not in stopped]
            if not running:
                break
            _send(running, signal.SIGSTOP)
            stopped.update(running)
            members = self.members()
        return members

    def kill(self) -> None:
        """Kill all processes, and wait until they are dead."""
        for _ in range(ROUNDS):
            if not self.signal(signal.SIGKILL):
                return

    def _is_marked(self, pid: int) -> bool:
        if self._mark is None:
            return False
        variables = _environment(pid)
        if self._mark.endswith(b":"):
            return any(variable.startswith(self._mark) for variable in variables)
        return self._mark in variables


def _send(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def end_marked(execution: str) -> None:
    """Kill the processes of an execution that a dead engine process left running.

    Call it before interrupted attempts are run again: a script whose engine was killed keeps
    running, and its second run must not overlap the first.

    Args:
        execution: Id of the execution.
    """
    Family(f"{execution}:").kill()


def mark_of(execution: str, unit: int) -> str:
    """Return the mark of an attempt's processes. It names the process that runs the attempt."""
    return f"{execution}:{unit}@{as_text(this_process())}"


def end_orphans() -> list[str]:
    """Kill the processes of attempts whose engine is dead.

    Returns:
        Their marks, without the dead process: `execution:unit`.
    """
    ended = []
    for mark in sorted(set(marked(MARK).values())):
        name, _, owner = mark.rpartition("@")
        process = from_text(owner)
        if process is not None and is_dead(process):
            Family(mark).kill()
            ended.append(name)
    return ended


def marked(variable: str) -> dict[int, str]:
    """Return the living processes whose environment has a variable.

    Args:
        variable: Its name.

    Returns:
        Pid → value, without this process.
    """
    start = f"{variable}=".encode()
    values = {}
    for pid in _pids():
        if pid != os.getpid():
            for entry in _environment(pid):  # a zombie has none
                if entry.startswith(start):
                    values[pid] = entry[len(start) :].decode(errors="replace")
    return values


def end_session(leader: int, started: int) -> None:
    """Kill a process, its session and all its descendants, if it is still the same process.

    The leader itself may have ended: as long as a member lives, the kernel does not reuse its id.

    Args:
        leader: The process that leads, or led, the session.
        started: When it started, in ticks since boot.
    """
    now = _process(leader)
    if now is not None and now.started != started:
        return
    if leader in {os.getpid(), os.getsid(0)}:
        return  # it would end this process's own session
    Family(None, leader).kill()


class ProcessEntry(NamedTuple):
    """A process."""

    pid: int
    parent: int
    session: int
    started: int
    """In ticks since boot."""


def _process(pid: int) -> ProcessEntry | None:
    """Return a process, or None if it has ended or is a zombie."""
    try:
        # "pid (name) state parent group session ...", and the name may hold anything
        fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split(maxsplit=20)
    except OSError:
        return None
    if has_ended(fields):
        return None
    return ProcessEntry(pid, int(fields[1]), int(fields[3]), int(fields[19]))


def _environment(pid: int) -> list[bytes]:
    try:
        return _read(f"/proc/{pid}/environ").split(b"\0")
    except OSError:  # ended, or another user's
        return []


def _read(path: str) -> bytes:
    """Return the content of a kernel file, three times as fast as through a file object."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = more = os.read(fd, 65536)
        while more:
            more = os.read(fd, 65536)
            data += more
        return data
    finally:
        os.close(fd)


def _pids() -> Iterator[int]:
    """Yield the ids of all processes."""
    return (int(name) for name in os.listdir("/proc") if name.isdecimal())


def processes(since: int = 0) -> Iterator[ProcessEntry]:
    """Yield the living processes, without zombies, that started at a tick since boot or later."""
    for pid in _pids():
        process = _process(pid)
        if process is not None and process.started >= since:
            yield process


def _descends(pid: int, ancestors: set[int], processes: Mapping[int, ProcessEntry]) -> bool:
    while pid not in ancestors:
        if pid not in processes:
            return False
        pid = processes[pid].parent
    return True
