"""The state of a terminal's processes: whether one waits for input, and for which kind.

It is derived from system data: the foreground group, the system calls of its processes, and the
terminal's settings. Output is never used. Program names are used only to distinguish a shell at its
prompt from a shell that reads.
"""

from __future__ import annotations

import os
import struct
import termios
from collections.abc import Iterator, Sequence
from contextlib import suppress
from fcntl import ioctl
from typing import Any, NamedTuple, Optional

from flowengine_envs.link.masking import masked

_ARM = os.uname().machine in {"aarch64", "arm64"}
_READ = 63 if _ARM else 0
_POLLS = {22, 72, 73} if _ARM else {7, 23, 232, 270, 271, 281}
"""System calls that wait for one of several descriptors."""
_SHELLS = {"bash", "dash", "sh", "ksh", "mksh", "zsh", "busybox"}
_WHOLE = 512
"""Minimum bytes that a shell requests at its prompt. The builtin `read` requests fewer."""
_COMMAND = 200
_CROWD = 100
_DISABLED = b"\0"
_OWN = os.makedev(5, 0)
"""`/dev/tty`: the terminal of the calling process."""
_NEXT = getattr(termios, "VLNEXT", 15)


class TerminalProcess(NamedTuple):
    """A process of the terminal."""

    pid: int
    parent: int
    group: int
    state: str
    foreground: int
    """Foreground group of its terminal."""
    name: str


class TerminalState(NamedTuple):
    """The state of a terminal."""

    shell: int = 0
    """Process id of the shell at its prompt, or 0."""
    plain: bool = False
    """Whether that shell does not support `PIPESTATUS`."""
    waiting: Optional[str] = None  # noqa: UP045
    """Input that a program waits for: `line`, `secret`, `keys`. None: none from this terminal."""
    group: int = 0
    """Foreground group of the terminal."""
    robbed: bool = False
    """Whether the shell is at its prompt, but another group has the terminal."""


def process(pid: int) -> Optional[TerminalProcess]:  # noqa: UP045
    """Return a process, or None if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            head, _, tail = file.read().rpartition(b")")
    except OSError:
        return None
    name = head.partition(b"(")[2].decode(errors="replace")
    fields = tail.split()
    state = fields[0].decode()
    return TerminalProcess(pid, int(fields[1]), int(fields[2]), state, int(fields[5]), name)


def tree(root: int) -> Iterator[TerminalProcess]:
    """Yield a process and its descendants."""
    entry = process(root)
    if entry is None:
        return
    yield entry
    with suppress(OSError), open(f"/proc/{root}/task/{root}/children", encoding="ascii") as file:
        for child in file.read().split():
            yield from tree(int(child))


def described(
    processes: Sequence[TerminalProcess], secrets: Sequence[bytes]
) -> list[dict[str, Any]]:
    """Return a description of processes for a result, without secrets.

    With many processes, only names are included. The kernel blocks a reader of a process's command
    line while that process changes its memory. With hundreds of forking processes, this takes
    minutes.
    """
    if len(processes) > _CROWD:
        return [_description(each, each.name) for each in processes[:_CROWD]]
    return [_description(each, _command(each, secrets)) for each in processes]


def _description(each: TerminalProcess, command: str) -> dict[str, Any]:
    return {"pid": each.pid, "command": command, "state": each.state}


def _command(each: TerminalProcess, secrets: Sequence[bytes]) -> str:
    command = ""
    with suppress(OSError), open(f"/proc/{each.pid}/cmdline", "rb") as file:
        line = masked(file.read(_COMMAND * 4).replace(b"\0", b" "), secrets)
        command = line.decode(errors="replace").strip()
    return command[:_COMMAND] or each.name


def inspect(root: int, fd: int, idle: int) -> TerminalState:
    """Return the state of a terminal.

    Args:
        root: First process of the terminal.
        fd: The terminal.
        idle: The shell that was at its prompt last.

    Returns:
        The state.
    """
    processes = list(tree(root))
    if not processes:
        return TerminalState()
    group = processes[0].foreground
    try:
        flags = termios.tcgetattr(fd)
        arrived = unread(fd)
        device = os.fstat(fd).st_rdev
    except (OSError, termios.error):
        return TerminalState(group=group)
    lines, echo = bool(flags[3] & termios.ICANON), bool(flags[3] & termios.ECHO)
    waiting, robbed = None, False
    if not arrived:
        for each in processes:
            if each.state not in "SD" or (each.group != group and each.pid != idle):
                continue
            count = _asks(each.pid, device)
            if count is None or (lines and count == 0):
                continue
            if _at_prompt(each.pid, count, flags, lines=lines):
                if each.group == group:
                    return TerminalState(each.pid, plain=program(each.pid) != "bash", group=group)
                robbed = True
            if each.group != group:
                continue
            waiting = "keys" if not lines else "line" if echo else "secret"
            if not lines and program(each.pid) == "bash" and not echo:
                waiting = "secret"  # `read -s` reads characters, not lines
    return TerminalState(waiting=waiting, group=group, robbed=robbed)


def unread(fd: int) -> int:
    """Return how many typed bytes no program has read yet.

    Raises:
        OSError: The terminal does not exist any more.
    """
    return int(struct.unpack("i", ioctl(fd, termios.FIONREAD, b"\0" * 4))[0])


def _asks(pid: int, device: int) -> Optional[int]:  # noqa: UP045
    """Return how many bytes a process waits to read from the terminal. 0: it polls."""
    try:
        with open(f"/proc/{pid}/syscall", encoding="ascii") as file:
            fields = file.read().split()
        number = int(fields[0])
        if number == _READ:
            fd, count = int(fields[1], 16), int(fields[3], 16)
        elif number in _POLLS:
            fd, count = 0, 0
        else:
            return None
        read = os.stat(f"/proc/{pid}/fd/{fd}").st_rdev
        return count if read in {device, _OWN} else None
    except (OSError, ValueError, IndexError):
        return None


def _at_prompt(pid: int, count: int, flags: Any, *, lines: bool) -> bool:
    """Return whether a process that reads the terminal is a shell at its prompt."""
    name = program(pid)
    if name not in _SHELLS:
        return False
    if lines:  # bash requests as many bytes in `read`, but its prompt does not read lines
        return name != "bash" and count >= _WHOLE
    if name == "bash":  # Readline sets the terminal like this, but `read -n` and `read -s` do not.
        return bool(flags[6][_NEXT] == _DISABLED)
    return True


def arguments(pid: int) -> bytes:
    """Return the arguments of a process, its program first. Empty: it has ended."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return b""


def program(pid: int) -> str:
    """Return the name of a process's program file. Empty: it has ended."""
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return ""
