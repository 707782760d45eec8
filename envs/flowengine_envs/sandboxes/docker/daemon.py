"""The Docker daemon: its availability, a client, and streams of attached programs.

The `docker` package manages containers and images, but not the byte streams of a program. These are
opened here, so that they belong to an event loop like those of any other process.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
import urllib.parse
from functools import cache
from typing import Any

from flowengine.sdk import EnvironmentLost, EnvironmentUnavailable
from flowengine.sdk.python.extras import install_command
from flowengine_envs.sandboxes.docker import library
from flowengine_envs.sandboxes.mounts import host

_TIMEOUT = 60
"""Seconds to wait for a response of the daemon."""
_BLOCK = 1 << 20
_importing = threading.Lock()


def connect() -> library.DockerClient:
    """Return a client of the daemon, which has responded.

    Raises:
        EnvironmentUnavailable: No daemon responds, this user has no access, or the `docker` package
            is missing. The message states the cause and its remedy.
    """
    try:
        load()
    except ModuleNotFoundError as error:
        raise EnvironmentUnavailable(
            f"the docker sandbox needs the package docker: {install_command('docker')}"
        ) from error
    import docker

    where = host()
    if not where.startswith(("unix://", "tcp://")):
        raise EnvironmentUnavailable(
            f"DOCKER_HOST={where}: only unix:// and tcp:// are supported. For a remote daemon, "
            "forward its socket: ssh -L /tmp/docker.sock:/var/run/docker.sock HOST"
        )
    try:
        if where.startswith("unix://"):  # the library would leave its socket open
            with socket.socket(socket.AF_UNIX) as trial:
                trial.settimeout(_TIMEOUT)
                trial.connect(where.removeprefix("unix://"))
        client = _client(where, os.getpid())
        client.ping()
    except (docker.errors.DockerException, OSError) as error:
        raise EnvironmentUnavailable(_why(error, where)) from error
    return client


def load() -> None:
    """Import the `docker` package, which takes a while, on one thread at a time.

    Its modules import one another in a cycle, so threads that start with different modules would
    find them half initialized. An interrupted import, for example after too many open files, leaves
    modules whose package is missing. They are removed, because otherwise `docker` could not be
    imported in this process again.
    """
    with _importing:
        before = set(sys.modules)
        try:
            import docker.types  # noqa: F401 - with everything that it imports
        except BaseException:
            for name in sys.modules.keys() - before:
                if name.partition(".")[0] not in sys.modules:
                    del sys.modules[name]
            raise


@cache
def _client(where: str, pid: int) -> library.DockerClient:
    """Return the client for a daemon and process: its connections must not cross a fork."""
    import docker

    return docker.DockerClient(base_url=where, timeout=_TIMEOUT, max_pool_size=32)


def _why(error: BaseException, where: str) -> str:
    """Describe why the daemon cannot be used."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, PermissionError):
            return (
                f"the Docker daemon at {where} cannot be used by this user: "
                "sudo usermod -aG docker $USER, then log in again"
            )
        if isinstance(cause, FileNotFoundError):
            return (
                f"no Docker daemon at {where}: install it (Debian: sudo apt-get install docker.io) "
                "or start it (sudo systemctl start docker)"
            )
        if isinstance(cause, ConnectionRefusedError):
            return (
                f"nothing answers at {where}: start the Docker daemon (sudo systemctl start docker)"
            )
        cause = _inner(cause)
    return f"the Docker daemon at {where} does not answer like one: {error}"


def _inner(error: BaseException) -> BaseException | None:
    """Return the error that an error wraps. The HTTP library keeps it among the arguments."""
    for argument in error.args:
        if isinstance(argument, BaseException):
            return argument
    return error.__cause__ or error.__context__


async def attached(path: str, body: bytes = b"") -> tuple[Attached, asyncio.StreamWriter]:
    """Request a two-way stream of a program from the daemon.

    Args:
        path: Path and query of the request: `/exec/ID/start`.
        body: JSON.

    Returns:
        The program's output and input streams.

    Raises:
        EnvironmentLost: The daemon refused it or is not reachable.
    """
    where = urllib.parse.urlsplit(host())
    loop = asyncio.get_running_loop()
    streams = Attached(loop)
    try:
        if where.scheme == "unix":
            transport, _ = await loop.create_unix_connection(lambda: streams, where.path)
        else:
            transport, _ = await loop.create_connection(
                lambda: streams, where.hostname or "localhost", where.port or 2375
            )
    except OSError as error:
        raise EnvironmentLost(f"the Docker daemon at {host()} is gone: {error}") from error
    transport.write(
        f"POST {path} HTTP/1.1\r\nHost: docker\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        + body
    )
    await streams.upgraded
    return streams, asyncio.StreamWriter(transport, streams, None, loop)


async def connection() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a connection to the daemon, for a single request.

    Raises:
        EnvironmentLost: The daemon is not reachable.
    """
    where = urllib.parse.urlsplit(host())
    try:
        if where.scheme == "unix":
            return await asyncio.open_unix_connection(where.path, limit=_BLOCK)
        return await asyncio.open_connection(
            where.hostname or "localhost", where.port or 2375, limit=_BLOCK
        )
    except OSError as error:
        raise EnvironmentLost(f"the Docker daemon at {host()} is gone: {error}") from error


class Attached(asyncio.streams.FlowControlMixin):
    """The response to an upgrade, followed by frames of a program's output and errors.

    A frame consists of a byte for the stream, three zero bytes, four bytes of length, and the data:
    https://docs.docker.com/reference/api/engine/ (Attach to a container).

    Args:
        loop: The event loop that it belongs to.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.stdout = asyncio.StreamReader(_BLOCK, loop)
        self.stderr = asyncio.StreamReader(_BLOCK, loop)
        self.upgraded: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()
        self._head = bytearray()
        self._frame = bytearray()
        self._left = 0
        self._to = self.stdout

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Let readers that fall behind pause the connection."""
        assert isinstance(transport, asyncio.Transport)
        shared = _Paused(transport)
        for reader in (self.stdout, self.stderr):
            reader.set_transport(_Pausing(shared, reader))

    def data_received(self, data: bytes) -> None:
        """Process the next bytes of the connection."""
        if not self.upgraded.done():
            self._head += data
            head, separator, data = bytes(self._head).partition(b"\r\n\r\n")
            if not separator:
                return
            self._head.clear()
            status = head.split(b"\r\n", 1)[0]
            if b" 101 " not in status and b" 200 " not in status:
                text = (data or head)[:500].decode("utf-8", "replace").strip()
                self.upgraded.set_exception(
                    EnvironmentLost(f"the Docker daemon refused a stream: {text}")
                )
                return
            self.upgraded.set_result(None)
        at = 0
        while at < len(data):
            if self._left:
                piece = data[at : at + self._left]
                self._to.feed_data(piece)
                self._left -= len(piece)
                at += len(piece)
                continue
            missing = 8 - len(self._frame)
            self._frame += data[at : at + missing]
            at += missing
            if len(self._frame) == 8:
                self._to = self.stderr if self._frame[0] == 2 else self.stdout
                self._left = int.from_bytes(self._frame[4:], "big")
                self._frame.clear()

    def eof_received(self) -> bool:
        """End the readers' streams. The owner of the connection closes it."""
        self._end()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """End the streams, and wake every waiter."""
        super().connection_lost(exc)
        if not self.upgraded.done():
            self.upgraded.set_exception(EnvironmentLost("the Docker daemon closed the connection"))
        self._end()

    def _end(self) -> None:
        self.stdout.feed_eof()
        self.stderr.feed_eof()
        if not self.ended.done():
            self.ended.set_result(None)

    def _get_close_waiter(self, stream: Any) -> asyncio.Future[None]:
        return self.ended


class _Paused:
    """A connection that several readers may pause. It resumes when none of them does."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._by: set[int] = set()

    def pause(self, reader: int) -> None:
        self._by.add(reader)
        if len(self._by) == 1:
            self._transport.pause_reading()

    def resume(self, reader: int) -> None:
        self._by.discard(reader)
        if not self._by:
            self._transport.resume_reading()


class _Pausing(asyncio.ReadTransport):
    """The connection as one reader sees it."""

    def __init__(self, shared: _Paused, reader: asyncio.StreamReader) -> None:
        super().__init__()
        self._shared = shared
        self._reader = id(reader)

    def pause_reading(self) -> None:
        self._shared.pause(self._reader)

    def resume_reading(self) -> None:
        self._shared.resume(self._reader)


# Programs started in a running container.

_KILLED = 137


class ContainerProgram:
    """A program in a container.

    Args:
        client: A client of the daemon.
        exec_id: The daemon's id of the program.
        streams: Its output streams.
        stdin: Its input stream.
    """

    def __init__(
        self,
        client: library.DockerClient,
        exec_id: str,
        streams: Attached,
        stdin: asyncio.StreamWriter,
    ) -> None:
        self._client = client
        self._exec = exec_id
        self._streams = streams
        self._input = stdin
        self.stdin: asyncio.StreamWriter | None = stdin
        self.stdout: asyncio.StreamReader | None = streams.stdout
        self.stderr: asyncio.StreamReader | None = streams.stderr
        self.returncode: int | None = None

    @property
    def pid(self) -> int:
        """Its process id on the daemon's machine."""
        return int(self._client.api.exec_inspect(self._exec)["Pid"])

    async def wait(self) -> int:
        """Wait until it has ended, and return its exit code."""
        await asyncio.shield(self._streams.ended)
        while self.returncode is None:
            code = await asyncio.to_thread(self._inspect)
            if code is None:
                await asyncio.sleep(0.01)  # The streams have ended, and the process is about to.
            if self.returncode is None:
                self.returncode = code
        return self.returncode

    def _inspect(self) -> int | None:
        try:
            state = self._client.api.exec_inspect(self._exec)
        except (library.APIError, OSError):
            return _KILLED  # The container is gone, and every process with it.
        code = state["ExitCode"]
        return None if state["Running"] or code is None else int(code)

    def kill(self) -> None:
        """Close its input. A program that does not end then ends with the container."""
        self.returncode = _KILLED
        self._input.transport.abort()
