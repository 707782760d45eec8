"""Keepers: processes that start programs, and hold all that these have started.

A keeper is a forked copy of the supervisor that does nothing but wait. It adopts whatever loses its
parent below it - daemons, `setsid`, double forks - so the tree below a keeper is exactly what its
program has started, whichever tricks it used. When nothing is left below it, it is free to keep the
next program: to fork a process like this one costs more than to start most programs. When it is
killed, what it had adopted becomes the supervisor's, which ends such strangers; when the supervisor
ends, so does every keeper with its tree.
"""

from __future__ import annotations

import errno
import fcntl
import gc
import json
import os
import resource
import signal
import socket
import struct
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from flowengine_envs.supervisor import system
from flowengine_envs.supervisor.killing import kill_below
from flowengine_envs.supervisor.loop import Loop, Outbox, close_quietly

RECORD = struct.Struct(">cii")
TAKEN = b"t"
STARTED = b"s"
FAILED = b"f"
ENDED = b"e"
FREE = b"r"
_LENGTH = struct.Struct(">I")
_MOST_FDS = 8
_READ = 1 << 18
_HIGH = 100
"""Number from which a keeper has its own descriptors: programs get the first ones."""
_NICE = 10
"""How far programs stand back, so that the supervisor gets its turn among hundreds of them."""
_OWN_DATA = 256 * 1024 * 1024
"""Below this limit of memory a keeper could not do its own work."""


_Limits = tuple[tuple[int, int], ...]


class Task(NamedTuple):
    """What a keeper is to start."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    limits: Mapping[str, int]
    """Name of a resource limit (`DATA`, `NPROC`, ...) → value."""


class Keeper:
    """The supervisor's side of a keeper.

    Args:
        entrances: Where it enters the control groups of programs.
    """

    def __init__(self, loop: Loop, entrances: system.Entrances) -> None:
        self._loop = loop
        self._data = b""
        self._socket, theirs = socket.socketpair()
        try:
            self.pid = os.fork()
        except OSError:
            self._socket.close()
            theirs.close()
            raise
        if self.pid == 0:
            _keep(theirs, entrances)
        theirs.close()
        self._socket.setblocking(False)
        self._outbox = Outbox(loop, self._socket.fileno(), lambda: None)
        self.heard: Callable[[bytes, int, int], None] = lambda *_: None
        """Called with each record."""
        self.lost: Callable[[], None] = lambda: None
        """Called when it has ended."""
        loop.reading(self._socket.fileno(), self._read)

    def start(self, task: Task, fds: Mapping[int, int]) -> None:
        """Have it start a program; it must be free.

        Args:
            fds: Descriptor in the program → descriptor here, for all that it gets.
        """
        self.wake()  # a program before may have stopped it
        body = json.dumps({**task._asdict(), "fds": list(fds)}).encode()
        data = _LENGTH.pack(len(body)) + body
        with suppress(OSError):  # that it is gone is heard of soon
            sent = socket.send_fds(self._socket, [data], list(fds.values()))
            if sent < len(data):
                self._outbox.write(data[sent:])

    def wake(self) -> None:
        """Continue it if somebody has stopped it."""
        with suppress(OSError):
            os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """End it; it must be free."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def _read(self) -> None:
        try:
            data = self._socket.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._data += data
        while len(self._data) >= RECORD.size:
            record = RECORD.unpack_from(self._data)
            self._data = self._data[RECORD.size :]
            self.heard(*record)
        if not data:
            self._loop.forget(self._socket.fileno())
            self._outbox.close()
            self._socket.close()
            self.lost()


def _keep(channel: socket.socket, entrances: system.Entrances) -> None:
    """Be a keeper until the supervisor ends."""
    try:
        entrances.enter()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _end)
        # A group of its own: when the supervisor ends, the system wakes it if it was stopped
        # (SIGHUP and SIGCONT for a group that is orphaned), so that it hears of it.
        os.setpgid(0, 0)
        system.die_with_parent(signal.SIGTERM)
        system.adopt_orphans()
        system.gain_no_privileges()
        os.nice(_NICE)
        channel = socket.socket(fileno=_high(channel.fileno()))
        _close_all_but(channel.fileno())
        gc.freeze()  # what is not looked at stays the supervisor's memory
        limits = None
        while True:
            limits = _keep_one(channel, limits)
    finally:
        os._exit(1)


def _end(_number: int, _frame: Any) -> None:
    """End with all that is below."""
    kill_below(os.getpid())
    os._exit(1)


def _keep_one(channel: socket.socket, limits: _Limits | None) -> _Limits | None:
    """Start a program, tell how it ends, wait until nothing is left of it; return the limits."""
    told, fds = _received(channel)
    if limits not in {None, _own_limits()} or len(fds) != len(told["fds"]):
        os._exit(1)  # a program has lowered them: a new keeper does it
    channel.sendall(RECORD.pack(TAKEN, 0, 0))
    try:
        for_program = _limit_self(told["limits"])
        limits = _own_limits()
        targets = dict(zip(told["fds"], fds))  # noqa: B905 - Python 3.9
        leader = _start(told, targets, for_program)
    except OSError as error:
        channel.sendall(RECORD.pack(FAILED, error.errno or errno.EINVAL, 0))
    except (ValueError, subprocess.SubprocessError):
        channel.sendall(RECORD.pack(FAILED, errno.EINVAL, 0))
    else:
        channel.sendall(RECORD.pack(STARTED, leader, 0))
        _wait(leader, channel)
    channel.sendall(RECORD.pack(FREE, 0, 0))
    return limits


def _received(channel: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Wait for what is to be started."""
    flags = socket.MSG_CMSG_CLOEXEC
    data, got, _flags, _address = socket.recv_fds(channel, _READ, _MOST_FDS, flags)
    fds = [_high(fd) for fd in got]
    for fd in got:
        os.close(fd)
    body = bytearray(data)
    while not body or len(body) < _LENGTH.size + _LENGTH.unpack_from(body)[0]:
        part = channel.recv(_READ) if body else b""
        if not part:
            os._exit(0)  # the supervisor is gone
        body += part
    return json.loads(body[_LENGTH.size :]), fds


def _start(told: Mapping[str, Any], fds: Mapping[int, int], limits: Mapping[str, int]) -> int:
    """Start a program in a session of its own, and return its process."""
    more = [target for target in fds if target > 2]
    try:
        for target in more:
            os.dup2(fds[target], target)
        program = subprocess.Popen(
            told["argv"],
            env=told["env"],
            cwd=told["cwd"],
            stdin=fds[0],
            stdout=fds[1],
            stderr=fds[2],
            close_fds=False,  # none can be inherited but those that are meant to
            start_new_session=True,
            preexec_fn=partial(_limit, limits) if limits else None,  # noqa: PLW1509 - one thread
        )
    finally:
        for fd in (*fds.values(), *more):
            close_quietly(fd)
    program.returncode = 0  # it is waited for here, with all others
    return program.pid


def _high(fd: int) -> int:
    """Return a copy of a descriptor with a number that no program expects, closed when it runs."""
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH)


def _close_all_but(kept: int) -> None:
    """Close what the supervisor has open; the first three read nothing and write nowhere."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd, inheritable=False)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != kept:
            close_quietly(int(name))


def _limit_self(limits: Mapping[str, int]) -> dict[str, int]:
    """Limit this process, which programs inherit; return the limits that it cannot live with."""
    # A program that sets limits itself has to be started as a copy of this process, which is slow.
    small = {"DATA"} if limits.get("DATA", _OWN_DATA) < _OWN_DATA else set()
    _limit({name: value for name, value in limits.items() if name not in small})
    return {name: limits[name] for name in small}


def _own_limits() -> _Limits:
    names = (name for name in dir(resource) if name.startswith("RLIMIT_"))
    return tuple(resource.getrlimit(getattr(resource, name)) for name in names)


def _limit(limits: Mapping[str, int]) -> None:
    for name, value in limits.items():
        which = getattr(resource, f"RLIMIT_{name}")
        _soft, hard = resource.getrlimit(which)
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (most, most))


def _wait(leader: int, channel: socket.socket) -> None:
    """Reap whatever ends below until nothing is left, and tell how the leader ended."""
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, 0)
            if pid == leader:
                channel.sendall(RECORD.pack(ENDED, status, _alone()))


def _alone() -> bool:
    """Reap what has ended, and return whether nothing else is left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False
