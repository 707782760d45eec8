"""Programs of this machine, started and killed together with their descendants.

bubblewrap starts a sandbox in stages. Each stage is a new process that only at its end arranges to
die with the previous one. Killing the first process before that would leave the others behind: they
wait for it forever, or continue without it, and keep its streams open.
"""

from __future__ import annotations

import asyncio
import signal
from asyncio.subprocess import Process, SubprocessStreamProtocol
from contextlib import suppress
from typing import Any

from flowengine.sdk.process_tree import MARK, Family

_LIMIT = 1 << 16
"""Approximate number of bytes that a program can write ahead of the reader."""


class _Streams(SubprocessStreamProtocol):
    """The streams of a program, which can be ended without being read to their ends.

    asyncio considers a program ended when its pipes are, and does not notice the end of a pipe that
    it has paused.
    """

    _dropped = False

    def pipe_data_received(self, fd: int, data: bytes | str) -> None:
        if not self._dropped:
            super().pipe_data_received(fd, data)

    def drop(self, transport: asyncio.SubprocessTransport) -> None:
        """Read and discard all remaining output."""
        self._dropped = True
        for fd in (1, 2):
            pipe: Any = transport.get_pipe_transport(fd)
            if pipe is not None:
                pipe.resume_reading()


class StartedProgram:
    """A program that leads a session, with its streams.

    Args:
        transport: The process.
        streams: Its streams.
        mark: Variable and value that mark it and its descendants. None: no mark.
    """

    def __init__(
        self,
        transport: asyncio.SubprocessTransport,
        streams: _Streams,
        mark: tuple[str, str] | None = None,
    ) -> None:
        process = Process(transport, streams, asyncio.get_running_loop())
        self.stdin = process.stdin
        self.stdout = process.stdout
        self.stderr = process.stderr
        self._process = process
        self._transport = transport
        self._streams = streams
        variable, value = mark or (MARK, None)
        self.family = Family(value, process.pid, variable=variable)
        """The program and its descendants."""

    @property
    def pid(self) -> int:
        """Id of its first process."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Its exit code, negative for the signal that ended it. None while it runs."""
        return self._process.returncode

    async def wait(self) -> int:
        """Wait until it has ended, and return the exit code."""
        return await self._process.wait()

    def terminate(self) -> None:
        """Send it SIGTERM."""
        with suppress(ProcessLookupError):
            self._process.terminate()

    def kill(self) -> None:
        """Kill it and its descendants. Unread output is lost."""
        self._streams.drop(self._transport)
        self.family.signal(signal.SIGKILL)


async def start(*argv: str, mark: tuple[str, str] | None = None, **options: Any) -> StartedProgram:
    """Start a program in its own session. If the caller is cancelled, the program is killed.

    Args:
        argv: The program and its arguments.
        mark: As for `StartedProgram`. The caller sets the variable.
        options: Those of `asyncio.create_subprocess_exec`.

    Returns:
        The program.

    Raises:
        OSError: It cannot be started.
    """
    loop = asyncio.get_running_loop()
    options = {"stdin": None, "stdout": None, "stderr": None, **options}
    starting = asyncio.ensure_future(
        loop.subprocess_exec(
            lambda: _Streams(_LIMIT, loop), *argv, start_new_session=True, **options
        )
    )
    try:
        return StartedProgram(*await asyncio.shield(starting), mark)
    except asyncio.CancelledError:
        with suppress(OSError):
            program = StartedProgram(*await starting, mark)
            program.kill()
            await program.wait()
        raise
