"""Starts a program so that everything it starts can be found and ended.

A program is not a child of the supervisor but of a *keeper*, a forked copy of the supervisor that
does nothing but wait. The keeper adopts whatever loses its parent below it - daemons, `setsid`,
double forks - so the tree below a keeper is exactly what the program has started, whichever tricks
it used. It tells how the program ended, and ends itself when nothing is left below it. When it is
killed, what it had adopted becomes the supervisor's, which ends such strangers; when the supervisor
ends, so does every tree.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import signal
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from flowengine_envs.supervisor import system
from flowengine_envs.supervisor.loop import Loop, close_quietly

_RECORD = struct.Struct(">cii")
_STARTED = b"s"
_FAILED = b"f"
_ENDED = b"e"
_ROUNDS = 400
"""How often those that are being killed are looked for again: one may just have forked."""
_HIGH = 100
"""Number from which a keeper has its own descriptors: code likes to close the first ones."""


class Ended(NamedTuple):
    """How a program ended."""

    exit_code: int | None
    """None: by a signal."""
    signal: int | None
    failed: int | None = None
    """Number of the error for which it was not started."""


class Program:
    """A program that runs below a keeper.

    Args:
        loop: The loop.
        argv: Program and arguments.
        env: Its whole environment.
        cwd: Its working directory.
        fds: Descriptor in the program → descriptor here, for all that it gets.
        limits: Name of a resource limit (`DATA`, `NPROC`, ...) → value.
        ended: Called once, when it has ended or could not be started.
    """

    def __init__(
        self,
        loop: Loop,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str,
        fds: Mapping[int, int],
        limits: Mapping[str, int],
        ended: Callable[[Ended], None],
    ) -> None:
        self._loop = loop
        self._ended = ended
        self._status, sink = os.pipe()
        self._data = b""
        self.pid: int | None = None
        """Of the program itself, once it is known."""
        self.ended: Ended | None = None
        try:
            self.keeper = os.fork()
        except OSError as error:
            os.close(self._status)
            os.close(sink)
            failed = Ended(None, None, error.errno)
            loop.after(0, lambda: self._end(failed))
            self.keeper = 0
            return
        if self.keeper == 0:
            _keep(argv, env, cwd, fds, limits, sink)
        os.close(sink)
        loop.reading(self._status, self._read)

    def signal(self, number: int) -> None:
        """Send a signal to the program itself, if it runs."""
        if self.pid is not None and self.ended is None:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, number)

    def signal_all(self, number: int) -> None:
        """Send a signal to the program and all that it has started."""
        for each in system.descendants(self.keeper) if self.keeper else ():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(each.pid, number)

    def kill(self) -> None:
        """End the program and all that it has started, at once."""
        if self.keeper:
            kill_below(self.keeper)

    def _read(self) -> None:
        data = os.read(self._status, 4096)
        self._data += data
        while len(self._data) >= _RECORD.size:
            kind, value, extra = _RECORD.unpack_from(self._data)
            self._data = self._data[_RECORD.size :]
            if kind == _STARTED:
                self.pid = value
            elif kind == _FAILED:
                self._end(Ended(None, None, value))
            else:
                self._end(_decode(value), alone=bool(extra))
        if not data:
            self._loop.forget(self._status)
            os.close(self._status)
            if self.ended is None:  # the keeper was killed: what it held is nobody's now
                self._end(Ended(None, int(signal.SIGKILL)))

    def _end(self, ended: Ended, *, alone: bool = True) -> None:
        if self.ended is None:
            self.ended = ended
            if not alone:
                self.kill()
            self._ended(ended)


def kill_below(root: int, since: int = 0, but: int = 0) -> int:
    """Kill the descendants of a process until there are none.

    They are stopped first: what is stopped cannot fork away.

    Args:
        root: A process, which itself is spared.
        since: Spare those that were started before, in `system.ticks`.
        but: A process that is spared.

    Returns:
        How many were found at first.
    """
    first = 0
    for count in range(_ROUNDS):
        found = [
            each.pid
            for each in system.descendants(root)
            if each.started >= since and each.pid != but
        ]
        if not found:
            break
        first = first or len(found)
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in found:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
        if count > 2:
            time.sleep(0.005)
    return first


def _decode(status: int) -> Ended:
    if os.WIFSIGNALED(status):
        return Ended(None, os.WTERMSIG(status))
    return Ended(os.WEXITSTATUS(status), None)


def _keep(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    fds: Mapping[int, int],
    limits: Mapping[str, int],
    sink: int,
) -> None:
    """Be the keeper: start the program, tell how it ends, wait until nothing is left."""
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        system.adopt_orphans()
        fds = {target: _high(fd) for target, fd in fds.items()}
        sink = _high(sink)
        _close_all_but({*fds.values(), sink})
        failure, told = (_high(fd) for fd in os.pipe())
        leader = os.fork()
        if leader == 0:
            _become(argv, env, cwd, fds, limits, told)
        signal.signal(signal.SIGTERM, lambda *_: (kill_below(os.getpid()), os._exit(1)))
        system.die_with_parent(signal.SIGTERM)
        _close_all_but({failure, sink})
        code = os.read(failure, 4)
        if code:
            os.write(sink, _RECORD.pack(_FAILED, struct.unpack(">i", code)[0], 0))
        else:
            os.write(sink, _RECORD.pack(_STARTED, leader, 0))
            _wait(leader, sink)
        os._exit(0)
    finally:
        os._exit(1)


def _high(fd: int) -> int:
    """Return a copy of a descriptor with a number that no program expects, closed when it runs."""
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH)


def _close_all_but(kept: set[int]) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            close_quietly(int(name))


def _become(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    fds: Mapping[int, int],
    limits: Mapping[str, int],
    told: int,
) -> None:
    """Be the program: take its descriptors, limits, directory, and replace this copy by it.

    Until then it is as unreadable as the supervisor: it holds the same memory.
    """
    try:
        os.setsid()
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them
            signal.signal(number, signal.SIG_DFL)
        for target, fd in fds.items():
            os.dup2(fd, target, inheritable=True)
        system.gain_no_privileges()
        for name, value in limits.items():
            _limit(name, value)
        os.chdir(cwd)
        os.execvpe(argv[0], list(argv), dict(env))
    except OSError as error:
        os.write(told, struct.pack(">i", error.errno or errno.EINVAL))
    except BaseException:
        os.write(told, struct.pack(">i", errno.EINVAL))
    finally:
        os._exit(127)


def _limit(name: str, value: int) -> None:
    which = getattr(resource, f"RLIMIT_{name}")
    _soft, hard = resource.getrlimit(which)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(which, (value, value))


def _wait(leader: int, sink: int) -> None:
    """Reap whatever ends below until nothing is left, and tell how the leader ended."""
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, 0)
            if pid == leader:
                with suppress(BrokenPipeError):
                    os.write(sink, _RECORD.pack(_ENDED, status, _alone()))


def _alone() -> bool:
    """Reap what has ended, and return whether nothing else is left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False
