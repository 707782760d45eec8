"""Keepers: processes that start programs and hold all their descendants.

A keeper is an idle fork of the supervisor. It adopts every orphan below it (daemons, `setsid`,
double forks), so the tree below a keeper contains exactly the descendants of its program. When the
tree is empty, the keeper is free for the next program, because forking this process costs more than
starting most programs. A fork server stays below its keeper between runs, until it has been idle
for a while or another one is needed. If a keeper is killed, its adopted processes become children
of the supervisor, which kills such strangers. When the supervisor ends, so does every keeper with
its tree.
"""

from __future__ import annotations

import errno
import gc
import json
import os
import resource
import select
import signal
import socket
import struct
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, NoReturn

from flowengine_envs.inside import fork_servers, system
from flowengine_envs.inside.fork_servers import ForkServer, close_all_but, high, standing
from flowengine_envs.inside.killed_first import KilledFirst, kill_program_first
from flowengine_envs.inside.killing import kill_below
from flowengine_envs.inside.loop import EventLoop, Outbox, close_quietly
from flowengine_envs.link import parts

RECORD = struct.Struct(">cii")
TAKEN = b"t"
STARTED = b"s"
FAILED = b"f"
"""With the error number. The keeper is free."""
ENDED = b"e"
"""With the program's status, and 1 if no other process is left: the keeper is free."""
FREE = b"r"
SERVER = b"v"
"""The fork server's process id, or 0 when it has ended."""
_MOST_FDS = 8
_NICE = 10
"""Priority offset of programs, so that the supervisor can run among hundreds of them."""
_OWN_DATA = 256 * 1024 * 1024
"""Minimum memory limit with which a keeper can do its own work."""
_IDLE = 30.0
"""Seconds after which an idle fork server is ended, because it holds memory."""


class Launch(NamedTuple):
    """A program for a keeper to start."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    limits: Mapping[str, int]
    """Name of a resource limit (`DATA`, `NPROC`, ...) → value."""
    preload: Sequence[str] | None = None
    """If `argv` starts a fork server, the modules that it imports before it forks."""


class Keeper:
    """The supervisor's side of a keeper.

    Args:
        killed_first: Makes the kernel kill it before the supervisor.
        entrances: Lets it join the control groups of programs.
    """

    def __init__(
        self, loop: EventLoop, killed_first: KilledFirst, entrances: system.Entrances
    ) -> None:
        self._loop = loop
        self._data = b""
        self._socket, theirs = socket.socketpair()
        try:
            self.pid = killed_first.fork()
        except OSError:
            self._socket.close()
            theirs.close()
            raise
        if self.pid == 0:
            _keep(theirs, entrances)
        theirs.close()
        self._socket.setblocking(False)
        self._outbox = Outbox(loop, self._socket.fileno(), lambda: None)
        self.on_record: Callable[[bytes, int, int], None] = lambda *_: None
        """Called with each record."""
        self.lost: Callable[[], None] = lambda: None
        """Called when it has ended."""
        self.server = 0
        """Process id of its fork server, or 0."""
        loop.reading(self._socket.fileno(), self._read)

    def start(self, task: Launch, fds: Mapping[int, int]) -> None:
        """Start a program. The keeper must be free.

        Args:
            fds: Descriptor in the program → descriptor here, for all that it inherits.
        """
        self.wake()  # A previous program may have stopped it.
        data = parts.part(json.dumps({**task._asdict(), "fds": list(fds)}).encode())
        with suppress(OSError):  # Its end will be reported soon.
            sent = socket.send_fds(self._socket, [data], list(fds.values()))
            if sent < len(data):
                self._outbox.write(data[sent:])

    def wake(self) -> None:
        """Continue it if another process has stopped it."""
        with suppress(OSError):
            os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """End it. The keeper must be free."""
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
            if record[0] == SERVER:
                self.server = record[1]
            else:
                self.on_record(*record)
        if not data:
            self._loop.forget(self._socket.fileno())
            self._outbox.close()
            self._socket.close()
            self.lost()


def _keep(channel: socket.socket, entrances: system.Entrances) -> None:
    """Run as a keeper until the supervisor ends."""
    try:
        entrances.enter()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _end)
        # Its own group: when the supervisor ends, the kernel wakes a stopped member of an orphaned
        # group (SIGHUP and SIGCONT), so that the keeper notices the end.
        os.setpgid(0, 0)
        system.die_with_parent(signal.SIGTERM)
        system.adopt_orphans()
        system.gain_no_privileges()
        os.nice(_NICE)
        channel = socket.socket(fileno=high(channel.fileno()))
        _hold_nothing_but(channel.fileno())
        gc.freeze()  # Frozen objects are not visited, so their memory stays shared.
        keeping = _Keeping(channel)
        while True:
            keeping.keep_one()
    finally:
        os._exit(1)


def _end(_number: int, _frame: Any) -> NoReturn:
    """Exit with all descendants."""
    kill_below(os.getpid())
    os._exit(1)


class _Keeping:
    """The work of a keeper.

    Args:
        channel: The socket to the supervisor.
    """

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._given: fork_servers.Standing | None = None
        self._server: ForkServer | None = None

    def keep_one(self) -> None:
        """Start a program, report how it ends, and wait until no descendant is left."""
        request, fds = self._received()
        if self._given not in {None, standing()} or len(fds) != len(request["fds"]):
            os._exit(1)  # A program has changed this keeper, so a new one is needed.
        self._send(TAKEN)
        try:
            leader = self._start(request, dict(zip(request["fds"], fds)))  # noqa: B905 - Python 3.9
        except OSError as error:
            self._send(FAILED, error.errno or errno.EINVAL)
        except (ValueError, subprocess.SubprocessError):
            self._send(FAILED, errno.EINVAL)
        else:
            self._send(STARTED, leader)
            self._wait(leader)

    def _send(self, kind: bytes, value: int = 0, extra: int = 0) -> None:
        self._channel.sendall(RECORD.pack(kind, value, extra))

    def _received(self) -> tuple[dict[str, Any], list[int]]:
        """Wait for a program to start. End a fork server that is idle for too long."""
        if self._server is not None and not select.select([self._channel], [], [], _IDLE)[0]:
            self._end_server(self._server)
        flags = socket.MSG_CMSG_CLOEXEC
        head, got, _flags, _address = socket.recv_fds(self._channel, 1, _MOST_FDS, flags)
        fds = [high(fd) for fd in got]
        for fd in got:
            os.close(fd)
        body = parts.read(self._channel.recv, begun=head) if head else None
        if body is None:
            os._exit(0)  # The supervisor has ended.
        return json.loads(body), fds

    def _start(self, request: Mapping[str, Any], fds: Mapping[int, int]) -> int:
        """Start or fork a program, and return its process id."""
        try:
            for_program = _limit_self(request["limits"])
            self._given = standing()
            if request["preload"] is None:
                return _start(request, fds, for_program)
            return self._fork(request, fds, for_program)
        finally:
            for fd in fds.values():
                close_quietly(fd)

    def _fork(
        self, request: Mapping[str, Any], fds: Mapping[int, int], limits: Mapping[str, int]
    ) -> int:
        """Fork from a matching fork server, started if necessary. Return the process id.

        It is that of the server itself if a new server ends.
        """
        plan = [request[name] for name in ("argv", "env", "cwd", "limits")]
        self._alone()  # The server may have ended by now.
        if self._server is not None and self._server.plan == plan:
            pid = self._server.fork(request["preload"], fds)
            if pid not in {0, self._server.pid}:
                return pid
        if self._server is not None:
            self._end_server(self._server)
        ours, theirs = map(_moved, socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        with theirs:
            own = {0: 0, 1: 1, 2: fds[2], fork_servers.CONTROL: theirs.fileno()}
            pid = _start(request, own, limits)
        self._server = ForkServer(plan, pid, ours)
        self._send(SERVER, pid)
        return self._server.fork(request["preload"], fds)

    def _end_server(self, server: ForkServer) -> None:
        os.kill(server.pid, signal.SIGKILL)
        os.waitpid(server.pid, 0)
        self._reaped(server.pid)

    def _reaped(self, pid: int) -> None:
        if self._server is not None and pid == self._server.pid:
            self._server.close()
            self._server = None
            self._send(SERVER)

    def _wait(self, leader: int) -> None:
        """Reap ended descendants until none is left, and report how the leader ended."""
        pid = status = 0
        while pid != leader:
            pid, status = os.waitpid(-1, 0)
            self._reaped(pid)
        alone = self._alone()
        self._send(ENDED, status, alone)
        if not alone:
            while not self._alone():
                self._reaped(os.waitpid(-1, 0)[0])
            self._send(FREE)

    def _alone(self) -> bool:
        """Reap ended children. Return whether only the fork server is left."""
        try:
            while pid := os.waitpid(-1, os.WNOHANG)[0]:
                self._reaped(pid)
        except ChildProcessError:
            return True
        return self._server is not None and system.children() == [self._server.pid]


def _start(request: Mapping[str, Any], fds: Mapping[int, int], limits: Mapping[str, int]) -> int:
    """Start a program in its own session, and return its process id."""
    more = [target for target in fds if target > 2]
    try:
        for target in more:
            os.dup2(fds[target], target)
        program = subprocess.Popen(
            request["argv"],
            env=request["env"],
            cwd=request["cwd"],
            stdin=fds[0],
            stdout=fds[1],
            stderr=fds[2],
            close_fds=False,  # Only intended descriptors are inheritable.
            start_new_session=True,
            preexec_fn=partial(_limit, limits) if limits else None,  # noqa: PLW1509 - one thread
        )
    finally:
        for fd in more:
            close_quietly(fd)
    kill_program_first(program.pid)
    program.returncode = 0  # The keeper waits for it together with all others.
    return program.pid


def _moved(connection: socket.socket) -> socket.socket:
    """Return a socket with a descriptor number that no program expects."""
    with connection:
        return socket.socket(fileno=high(connection.fileno()))


def _hold_nothing_but(kept: int) -> None:
    """Close the supervisor's descriptors, and connect the first three to /dev/null."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd, inheritable=False)
    close_all_but([0, 1, 2, kept])


def _limit_self(limits: Mapping[str, int]) -> dict[str, int]:
    """Set inherited limits on this process. Return those too low for itself."""
    # Setting limits per program requires a fork of this process, which is slow.
    small = {"DATA"} if limits.get("DATA", _OWN_DATA) < _OWN_DATA else set()
    _limit({name: value for name, value in limits.items() if name not in small})
    return {name: limits[name] for name in small}


def _limit(limits: Mapping[str, int]) -> None:
    for name, value in limits.items():
        which = getattr(resource, f"RLIMIT_{name}")
        _soft, hard = resource.getrlimit(which)
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (most, most))
