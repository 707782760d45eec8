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
from contextlib import suppress
from functools import cache

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
        place = urllib.parse.urlsplit(where)
        if place.scheme == "unix":  # the library would leave its socket open
            with socket.socket(socket.AF_UNIX) as trial:
                trial.settimeout(_TIMEOUT)
                trial.connect(place.path)
        else:  # an error of the library does not say why
            socket.create_connection(
                (place.hostname or "localhost", place.port or 2375), _TIMEOUT
            ).close()
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


def _why(error: Exception, where: str) -> str:
    """Describe why the daemon cannot be used."""
    if isinstance(error, PermissionError):
        return (
            f"the Docker daemon at {where} cannot be used by this user: "
            "sudo usermod -aG docker $USER, then log in again"
        )
    if isinstance(error, FileNotFoundError):
        return (
            f"no Docker daemon at {where}: install it (Debian: sudo apt-get install docker.io) "
            "or start it (sudo systemctl start docker)"
        )
    if isinstance(error, ConnectionRefusedError):
        return f"nothing answers at {where}: start the Docker daemon (sudo systemctl start docker)"
    return f"the Docker daemon at {where} does not answer like one: {error}"


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


async def attached(path: str, body: bytes = b"") -> Attached:
    """Request the streams of a program from the daemon.

    Args:
        path: Path and query of the request: `/exec/ID/start`.
        body: JSON.

    Returns:
        Its streams.

    Raises:
        EnvironmentLost: The daemon refused it or is not reachable.
    """
    source, sink = await connection()
    try:
        sink.write(
            f"POST {path} HTTP/1.1\r\nHost: docker\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
            "Content-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        head = await source.readuntil(b"\r\n\r\n")
        if head.split(b" ", 2)[1] not in {b"101", b"200"}:
            text = (await source.read(500) or head).decode("utf-8", "replace").strip()
            raise EnvironmentLost(f"the Docker daemon refused a stream: {text}")
    except BaseException as error:
        sink.transport.abort()
        if isinstance(error, OSError | asyncio.IncompleteReadError):
            raise EnvironmentLost("the Docker daemon closed the connection") from error
        raise
    return Attached(source, sink)


class Attached:
    """The input of a program, and frames of its output and errors.

    A frame consists of a byte for the stream, three zero bytes, four bytes of length, and the data:
    https://docs.docker.com/reference/api/engine/ (Attach to a container).

    Args:
        source: The frames.
        stdin: Its input.
    """

    def __init__(self, source: asyncio.StreamReader, stdin: asyncio.StreamWriter) -> None:
        self.stdin = stdin
        self.stdout, self.stderr = asyncio.StreamReader(_BLOCK), asyncio.StreamReader(_BLOCK)
        self.reading = asyncio.ensure_future(self._read(source))
        """Has ended when the program has, or the connection to it."""
        self.reading.add_done_callback(self._end)

    def close(self) -> None:
        """End the connection."""
        self.reading.cancel()

    async def _read(self, source: asyncio.StreamReader) -> None:
        sinks = [(reader, _Gate(reader)) for reader in (self.stdout, self.stderr)]
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await source.readexactly(8)
                reader, gate = sinks[head[0] == 2]
                left = int.from_bytes(head[4:], "big")
                while left and (piece := await source.read(min(left, _BLOCK))):
                    left -= len(piece)
                    reader.feed_data(piece)
                    await gate.opened.wait()

    def _end(self, _: object) -> None:
        self.stdout.feed_eof()
        self.stderr.feed_eof()
        self.stdin.transport.abort()


class _Gate(asyncio.ReadTransport):
    """Lets a reader that falls behind pause the connection."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        super().__init__()
        self.opened = asyncio.Event()
        self.opened.set()
        reader.set_transport(self)

    def pause_reading(self) -> None:
        self.opened.clear()

    def resume_reading(self) -> None:
        self.opened.set()


# Programs started in a running container.

_KILLED = 137


class ContainerProgram:
    """A program in a container.

    Args:
        client: A client of the daemon.
        exec_id: The daemon's id of the program.
        streams: Its streams.
    """

    def __init__(self, client: library.DockerClient, exec_id: str, streams: Attached) -> None:
        self._client = client
        self._exec = exec_id
        self._streams = streams
        self.stdin: asyncio.StreamWriter | None = streams.stdin
        self.stdout: asyncio.StreamReader | None = streams.stdout
        self.stderr: asyncio.StreamReader | None = streams.stderr
        self.returncode: int | None = None

    @property
    def pid(self) -> int:
        """Its process id on the daemon's machine."""
        return int(self._client.api.exec_inspect(self._exec)["Pid"])

    async def wait(self) -> int:
        """Wait until it has ended, and return its exit code."""
        await asyncio.wait([self._streams.reading])
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
        self._streams.close()
