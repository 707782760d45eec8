"""Fork servers: programs that stay loaded and fork a process for each run.

Starting an interpreter and importing libraries takes longer than reading most files. A fork server
does this once, and each run is a separate process with its own descriptors, session and memory. A
server never reads the input or output of a run, so no run can find data of an earlier one in its
memory. Runs cannot compromise their server either: other processes of the user cannot read or
change its memory, or take its descriptors. A new process waits until its server has answered the
keeper, since it could stop or kill the server before that. Its remaining effects are undone or
detected before the next run: signals, another priority, lower limits.

A keeper starts a server and sends it requests through a socket. A request is a list of modules as
JSON, with the descriptors 0, 1, 2 and up of the new process. The answer is the process id, or a
negated error number. Zero means that the server was changed from outside and must be replaced. The
new process becomes a child of the keeper, because the intermediate process has ended by then.
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
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

from flowengine_envs.inside import system
from flowengine_envs.inside.loop import close_quietly

CONTROL = 3
"""Initial descriptor of a server's socket."""
_ANSWER = struct.Struct(">i")
_GO = b"g"
_LONGEST = 1 << 16
_MOST_FDS = 8
_HIGH = 100
"""Lowest number of this process's own descriptors. Programs receive lower ones."""

Standing = tuple[Any, ...]


class ForkServer:
    """A keeper's side of a fork server.

    Args:
        plan: The plan that it was started with. It serves no other plan.
        pid: Its process.
        channel: The socket to it.
    """

    def __init__(self, plan: Any, pid: int, channel: socket.socket) -> None:
        self.plan = plan
        self.pid = pid
        self._channel = channel

    def fork(self, modules: Sequence[str], fds: Mapping[int, int]) -> int:
        """Request a fork.

        Args:
            modules: Modules that it imports first, unless already imported.
            fds: Descriptor in the process, from 0 without gaps → descriptor here.

        Returns:
            The process id. 0 if another server is needed, or the server's own id if it has ended.

        Raises:
            OSError: It cannot fork.
        """
        data = json.dumps([*modules]).encode()
        os.kill(self.pid, signal.SIGCONT)  # A previous process may have stopped it.
        try:
            socket.send_fds(self._channel, [data], [fds[at] for at in range(len(fds))])
            answer = self._channel.recv(_ANSWER.size)
        except ConnectionError:
            answer = b""
        if not answer:
            return self.pid
        (status,) = _ANSWER.unpack(answer)
        if status < 0:
            raise OSError(-status, os.strerror(-status))
        return int(status)

    def close(self) -> None:
        self._channel.close()


def serve(run: Callable[[], None]) -> None:
    """Fork a process for each request until the keeper ends.

    Args:
        run: Called in each process, which then exits, with 1 if it raises.
    """
    system.become_unreadable()
    channel = socket.socket(fileno=high(CONTROL))
    os.close(CONTROL)
    with open(os.devnull, "r+b", buffering=0) as null:
        for fd in (0, 1, 2):
            os.dup2(null.fileno(), fd)
    given = standing()
    while True:
        data, fds, _flags, _address = socket.recv_fds(
            channel, _LONGEST, _MOST_FDS, socket.MSG_CMSG_CLOEXEC
        )
        if not data:
            os._exit(0)
        if standing() != given:
            channel.sendall(_ANSWER.pack(0))
            os._exit(1)
        for module in json.loads(data):
            with suppress(Exception):  # The process that needs the module reports the error.
                import_module(module)
        gc.freeze()  # Frozen objects are not visited, so their memory stays shared.
        gate, opening = os.pipe()
        answer = _forked(fds, run, gate)
        for fd in (*fds, gate):
            os.close(fd)
        channel.sendall(_ANSWER.pack(answer))
        with suppress(BrokenPipeError):  # It has ended, or there is none.
            os.write(opening, _GO)
        os.close(opening)


def _forked(fds: Sequence[int], run: Callable[[], None], gate: int) -> int:
    """Fork a child of the keeper. Return its process id, or a negated error number."""
    reader, tell = os.pipe()
    try:
        middle = os.fork()
    except OSError as error:
        os.close(reader)
        os.close(tell)
        return -(error.errno or errno.EAGAIN)
    if middle == 0:
        _fork_again(tell, fds, run, gate)
    os.close(tell)
    answer = os.read(reader, _ANSWER.size)
    os.close(reader)
    os.waitpid(middle, 0)
    if len(answer) < _ANSWER.size:
        return -errno.EAGAIN
    return int(_ANSWER.unpack(answer)[0])


def _fork_again(tell: int, fds: Sequence[int], run: Callable[[], None], gate: int) -> None:
    """Fork the process that runs, and exit."""
    try:
        pid = os.fork()
    except OSError as error:
        pid = -(error.errno or errno.EAGAIN)
    if pid != 0:
        os.write(tell, _ANSWER.pack(pid))
        os._exit(0)
    status = 1
    try:
        os.setsid()
        fds, gate = [high(fd) for fd in fds], high(gate)
        for target, fd in enumerate(fds):
            os.dup2(fd, target)
        close_all_but([*range(len(fds)), gate])
        if os.read(gate, len(_GO)) != _GO:
            os._exit(1)  # The server has ended, so the keeper does not know this process.
        os.close(gate)
        system.become_readable()  # Debuggers of the user's code need it.
        run()
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    except BaseException:
        sys.__excepthook__(*sys.exc_info())  # Importing `traceback` takes 3 ms per sandbox.
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def high(fd: int) -> int:
    """Return a close-on-exec copy of a descriptor with a number that no program expects."""
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH)


def close_all_but(kept: Sequence[int]) -> None:
    """Close the other descriptors of this process."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            close_quietly(int(name))


def standing() -> Standing:
    """Return attributes that other processes can change: limits, priority, CPUs."""
    names = (name for name in dir(resource) if name.startswith("RLIMIT_"))
    return (
        tuple(resource.getrlimit(getattr(resource, name)) for name in names),
        os.getpriority(os.PRIO_PROCESS, 0),
        _scheduler(),
        frozenset(os.sched_getaffinity(0)),
    )


def _scheduler() -> int | None:
    try:
        return os.sched_getscheduler(0)
    except OSError:  # not available with Alpine's C library
        return None
