"""Runs programs, and ends them with all that they started.

A process is found again by three signs, since a program may leave any one of them behind: its
session (each program is started as the leader of one), its parents, and a variable in its
environment that names the attempt (so that also a daemon that changed session and parent is found).
Only a process that sheds all three - `env -i setsid ...` whose parent is gone - escapes.

Output is read to the end and never held in memory beyond a bound: what is larger goes to a file.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import IO, NamedTuple

from flowengine.sdk import Artifacts, Completed, File, Plain

MARK = "FLOWENGINE_ATTEMPT"
"""The environment variable by which a process is found again: `execution:unit`."""
KEPT = 64 * 1024
"""Bytes kept of each output stream."""
MOST = 64 * 1024 * 1024
"""Bytes of an output stream that go to a file; what a program writes beyond is dropped."""
GRACE = 3.0
"""Seconds between SIGTERM and SIGKILL."""

_ROUND = 0.02
_ROUNDS = 250


class ProcessRunner:
    """Starts the processes of one attempt.

    Args:
        artifacts: Where output goes that is too large to be kept in the result.
        mark: Names the attempt's activation among all of this machine.
        mask: Replaces secrets in the output.
        grace: Seconds that processes have to end by themselves when they are told to.
    """

    def __init__(
        self,
        artifacts: Artifacts,
        mark: str,
        mask: Callable[[Plain], Plain],
        *,
        grace: float = GRACE,
    ) -> None:
        self._artifacts = artifacts
        self._mark = mark
        self._mask = mask
        self._grace = grace

    async def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str,
        stdin: bytes | None = None,
    ) -> Completed:
        """Run a program to its end; see `flowengine.sdk.Processes`."""
        with _input(stdin) as source, _Capture() as out, _Capture() as err:
            process = _start(argv, {**env, MARK: self._mark}, cwd, source, out.pipe, err.pipe)
            family = _Family(self._mark, process.pid)
            try:
                await out.connect()
                await err.connect()
                await _ended(process)
                # What it left running ends with it: it could hold the pipes open for ever.
                await end_processes(family, self._grace)
                await asyncio.wait([out.closed, err.closed], timeout=self._grace)
            except BaseException:
                await _uncut(end_processes(family, self._grace))
                raise
            finally:
                process.wait()
            stdout, stdout_file = self._keep(out, "stdout.txt")
            stderr, stderr_file = self._keep(err, "stderr.txt")
        code = process.returncode
        exit_code = code if code >= 0 else 128 - code
        return Completed(exit_code, stdout, stderr, stdout_file, stderr_file)

    def _keep(self, output: _Capture, name: str) -> tuple[str, File | None]:
        """Return what is kept of an output stream, and all of it as a file if that is more."""
        text = str(self._mask(output.text()))
        data = text.encode()
        if len(data) <= KEPT:
            return text, None
        file = self._artifacts.put(data, name)
        head = data[: KEPT // 2].decode(errors="ignore")
        tail = data[-KEPT // 2 :].decode(errors="ignore")
        left_out = len(data) - KEPT
        dropped = f"; {output.dropped} more were dropped" if output.dropped else ""
        return (
            f"{head}\n... {left_out} bytes left out, all are in {name}{dropped} ...\n{tail}",
            file,
        )


def _start(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    stdin: IO[bytes] | int,
    stdout: IO[bytes],
    stderr: IO[bytes],
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv, env=env, cwd=cwd, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True
    )


class _Capture(asyncio.Protocol):
    """Reads an output stream to its end: a little in memory, more in a file."""

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=2 * KEPT)  # noqa: SIM115
        self._transport: asyncio.BaseTransport | None = None
        self._size = 0
        source, sink = os.pipe()
        self._source: IO[bytes] = os.fdopen(source, "rb", buffering=0)
        self.pipe: IO[bytes] = os.fdopen(sink, "wb", buffering=0)
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.dropped = 0

    def __enter__(self) -> _Capture:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._transport is not None:
            self._transport.close()
        self._source.close()
        self.pipe.close()
        self._file.close()

    async def connect(self) -> None:
        """Begin to read; the writing end is the program's alone from now on."""
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.connect_read_pipe(lambda: self, self._source)
        self.pipe.close()

    def data_received(self, data: bytes) -> None:
        """Keep what was read."""
        if self._file.closed:
            return
        wanted = data[: max(0, MOST - self._size)]
        self._size += len(wanted)
        self.dropped += len(data) - len(wanted)
        self._file.write(wanted)

    def connection_lost(self, error: Exception | None) -> None:
        """All writing ends are closed."""
        if not self.closed.done():
            self.closed.set_result(None)

    def text(self) -> str:
        """Return all that was read and not dropped."""
        self._file.seek(0)
        return self._file.read().decode(errors="replace")


@contextlib.contextmanager
def _input(data: bytes | None) -> Iterator[IO[bytes] | int]:
    """Give a program its input as a file: it may read it when, and as far as, it likes."""
    if data is None:
        yield subprocess.DEVNULL
        return
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        yield file


async def _ended(process: subprocess.Popen[bytes]) -> None:
    """Wait until a process has ended."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    handle = os.pidfd_open(process.pid)
    loop.add_reader(handle, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)


async def _uncut(work: Coroutine[None, None, None]) -> None:
    """Await something that another cancellation must not cut short."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(task)
    task.result()


# Ending


class _Family:
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
        """Return who lives now, and is no zombie."""
        processes = {process.pid: process for process in _processes(self._since)}
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
            with contextlib.suppress(ProcessLookupError, PermissionError):
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
    family = _Family(f"{execution}:")
    for _ in range(_ROUNDS):
        if not family.signal(signal.SIGKILL):
            return


async def end_processes(family: _Family, grace: float) -> None:
    """Tell processes to end, and kill those that are still there after the grace period."""
    if not await asyncio.to_thread(family.signal, signal.SIGTERM):
        return
    loop = asyncio.get_running_loop()
    deadline = loop.time() + grace
    while loop.time() < deadline:
        await asyncio.sleep(_ROUND)
        if not await asyncio.to_thread(family.members):
            return
    for _ in range(_ROUNDS):  # again and again: one that is being killed may just have forked
        if not await asyncio.to_thread(family.signal, signal.SIGKILL):
            return
        await asyncio.sleep(_ROUND)


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
