"""Identity of processes, and detection of processes that are certainly dead.

A pid alone is ambiguous because it is reused. Pid, start time, boot of the machine and pid
namespace together identify one process permanently.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

from flowengine.named_tuples import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class ProcessIdentity(NamedTuple):
    """The identity of a process. No other process ever has the same four values."""

    pid: int
    started: int
    """Start of the process, in the kernel's ticks since the machine's boot."""
    boot: str
    """Which boot of the machine, and which namespace of pids, `pid` and `started` belong to."""
    host: str
    """Name of the machine."""


class HasOwner(Protocol):
    """Anything that identifies a process like `ProcessIdentity`."""

    @property
    def pid(self) -> int:
        """Its pid."""

    @property
    def started(self) -> int:
        """Its start in ticks."""

    @property
    def boot(self) -> str:
        """Boot and namespace."""

    @property
    def host(self) -> str:
        """Machine."""


def this_process() -> ProcessIdentity:
    """Return the identity of this process."""
    pid = os.getpid()
    return ProcessIdentity(pid, started(pid) or 0, boot(), os.uname().nodename)


def as_text(owner: ProcessIdentity) -> str:
    """Return a process of this machine as text, for marks in environment variables."""
    return f"{owner.pid}.{owner.started}.{owner.boot}"


def from_text(text: str) -> ProcessIdentity | None:
    """Return the process of this machine that a text of `as_text` names, or None."""
    try:
        pid, began, boot_ = text.split(".", 2)
        return ProcessIdentity(int(pid), int(began), boot_, os.uname().nodename)
    except ValueError:
        return None


def is_dead(owner: HasOwner) -> bool:
    """Return whether a process is certainly dead.

    It is dead if this machine has been rebooted since, or if, in a shared pid namespace, its pid is
    free or belongs to a process that started at another time. A stopped process is alive, and so is
    one with a running thread.

    Args:
        owner: The process.
    """
    here = boot()
    if not here:
        return False
    if owner.boot != here:
        same_machine = owner.host == os.uname().nodename
        return same_machine and owner.boot.partition("/")[0] != here.partition("/")[0]
    return started(owner.pid) != owner.started


def is_stopped(owner: HasOwner) -> bool:
    """Return whether a process is stopped, by a signal or a debugger, and not dead."""
    fields = _fields(owner.pid) if owner.boot == boot() else None
    return fields is not None and fields[0] in {b"T", b"t"} and int(fields[19]) == owner.started


def is_program(owner: HasOwner, name: str) -> bool:
    """Return whether a process runs a command, as a script or as a Python module of that name."""
    try:
        with open(f"/proc/{owner.pid}/cmdline", "rb") as file:
            words = [word.decode(errors="replace") for word in file.read().split(b"\0")]
    except OSError:
        return False
    is_script = any(os.path.basename(word) == name for word in words[:2])
    return owner.boot == boot() and (is_script or words[1:3] == ["-m", name])


def boot() -> str:
    """Return which boot of the machine, and which namespace of pids, this process is in."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            text = file.read().strip()
        return f"{text}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def started(pid: int) -> int | None:
    """Return the start of a process in ticks since boot, or None if it has ended."""
    fields = _fields(pid)
    return None if fields is None or has_ended(fields) else int(fields[19])


def _fields(pid: int) -> list[bytes] | None:
    """Return the fields after the name in the `stat` of a process, or None if there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The program's name, in parentheses, may contain any character. The remaining fields
            # are regular.
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return None


def has_ended(fields: Sequence[bytes]) -> bool:
    """Return whether a process has ended, although its parent has not been told yet (a zombie).

    The kernel reports this state as soon as the first thread has ended. Other threads may still
    run, and after `kill -9` they hold its files and may finish a write.

    Args:
        fields: The fields after the name in its `stat`.
    """
    return fields[0] in {b"Z", b"X"} and int(fields[17]) <= 1
