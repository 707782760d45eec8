"""An HTTP proxy on a Unix socket: the only connection out for programs without another network.

    proxy = Proxy(Network(Rules.of("public")), refused=print)
    await proxy.open(socket_path)      # a program connects there, and speaks HTTP to a proxy
    ...
    await proxy.close()

`CONNECT host:port` opens a tunnel, through which TLS, WebSockets and other protocols pass
unchanged. Other requests are forwarded, one per connection. Forbidden targets are answered with 403
and reported to `refused`, and unreachable ones with 502 or 504. The proxy resolves names, so
programs behind it need no DNS and cannot be misled by it.

In a sandbox with `policy: {network: public}` the supervisor listens at `http://127.0.0.1:PORT` and
forwards to this socket (`egress.Egress.proxies`).
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from flowengine.sdk import printable
from flowengine.sdk.web.connections import CONNECTING, READ, Network, Stream
from flowengine.sdk.web.responses import failure_reason
from flowengine.sdk.web.urls import UrlRefused


class Accepted:
    """The tasks that handle connections, until each has ended or all are ended."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    @contextmanager
    def connection(self) -> Iterator[None]:
        """Handle one connection in the current task."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            # Cancelled by `close`. Otherwise the streams of Python 3.11 log a cancelled task as an
            # error.
            with suppress(asyncio.CancelledError):
                yield
        finally:
            self._tasks.discard(task)

    async def close(self) -> None:
        """End all connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


NAME = "flowengine"
"""Its name in the header `Proxy-Status` (RFC 9209) of responses that it creates itself."""
_ERRORS = {
    400: "http_request_error",
    403: "destination_ip_prohibited",
    502: "destination_unavailable",
    504: "connection_timeout",
}
MOST = 256
"""Maximum number of concurrent connections. Further ones are closed."""
_LONGEST_HEAD = 64 * 1024
_ASKING = 30.0
"""Seconds within which a client must send its request."""
_LINGERING = 2.0
"""Seconds for a client to read an error response."""
_NOT_PASSED_ON = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization", b"te"),
        *(b"upgrade", b"host"),
    }
)
_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER = re.compile(_TOKEN.pattern + rb":[^\r\n\0]*")
"""Rejects bare line feeds, after which a server may see an unchecked header."""


class Refusal(NamedTuple):
    """A connection that was not made."""

    host: str
    port: int
    reason: str

    def __str__(self) -> str:
        return f"{printable(self.host)}:{self.port}: {self.reason}"


Judge = Callable[[str, int], str]
"""Receives a normalized host and a port. Returns why it is refused, or an empty string."""


class _Bad(Exception):
    """The request is not a valid proxy request."""


class Proxy:
    """A proxy. Everything runs on the loop that opened it.

    Args:
        network: The allowed places.
        refused: Called for each connection that the rules forbid.
        greeting: Sent first on each connection. The supervisor of a sandbox expects a byte.
    """

    def __init__(
        self,
        network: Network,
        refused: Callable[[Refusal], object] | None = None,
        greeting: bytes = b"",
    ) -> None:
        self._network = network
        self.judge: Judge | None = None
        """An additional check after the rules of the network."""
        self._refused = refused
        self._greeting = greeting
        self._server: asyncio.Server | None = None
        self._accepted = Accepted()

    async def open(self, at: Path | socket.socket) -> None:
        """Start accepting connections on a Unix socket.

        Args:
            at: Its path, or a socket that is already bound.
        """
        self._server = await (
            asyncio.start_unix_server(self._answer, sock=at, limit=_LONGEST_HEAD)
            if isinstance(at, socket.socket)
            else asyncio.start_unix_server(self._answer, at, limit=_LONGEST_HEAD)
        )

    async def close(self) -> None:
        """Close all connections and stop accepting."""
        if self._server is not None:
            self._server.close()
        await self._accepted.close()

    async def _answer(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        with self._accepted.connection():
            try:
                if len(self._accepted) <= MOST:
                    client.write(self._greeting)
                    await self._serve(reader, client)
            except (OSError, TimeoutError):
                pass
            finally:
                client.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_ASKING):
                head = await reader.readuntil(b"\r\n\r\n")
            request = _read(head)
        except asyncio.IncompleteReadError:
            return
        except (_Bad, asyncio.LimitOverrunError) as error:
            await _respond((reader, client), 400, "Bad Request", str(error))
            return
        try:
            onward, server = await self._connect(request.host, request.port)
        except UrlRefused as error:
            if self._refused is not None:
                self._refused(Refusal(request.host, request.port, error.message))
            await _respond((reader, client), 403, "Forbidden", error.message)
        except TimeoutError as error:
            await _respond((reader, client), 504, "Gateway Timeout", failure_reason(error))
        except (OSError, ValueError) as error:
            await _respond((reader, client), 502, "Bad Gateway", failure_reason(error))
        else:
            try:
                server.write(request.onward)
                if request.is_tunnel:
                    client.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                await join((reader, client), (onward, server))
            finally:
                server.transport.abort()

    async def _connect(self, host: str, port: int) -> Stream:
        if self.judge is not None:
            name, where = self._network.check(host, port)
            if reason := self.judge(name, port):
                raise UrlRefused(f"{where} {reason}")
        return await self._network.connect(host, port, CONNECTING)


class _Request(NamedTuple):
    host: str
    port: int
    onward: bytes
    """The request head for the server, which replaces the one for the proxy."""
    is_tunnel: bool


def _read(head: bytes) -> _Request:
    """Parse the head of a request."""
    first, *headers = head[:-4].split(b"\r\n")
    try:
        method, target, version = first.decode("ascii").split(" ")
    except ValueError:
        raise _Bad("this is not a request to a proxy") from None
    if method == "CONNECT":
        return _Request(*_host_and_port(f"//{target}", None), b"", is_tunnel=True)
    if not target.lower().startswith("http://") or not version.startswith("HTTP/1."):
        raise _Bad("a proxy is asked for http://… or by CONNECT")
    host, port = _host_and_port(target, 80)
    if not _TOKEN.fullmatch(method.encode()) or not all(map(_HEADER.fullmatch, headers)):
        raise _Bad("its method or headers cannot be read")
    parts = urlsplit(target)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    kept = [each for each in headers if each.partition(b":")[0].lower() not in _NOT_PASSED_ON]
    # The request goes to the host that was checked, regardless of the client's header (RFC 9112,
    # 3.2.2), because several hosts may share an address. Each connection carries one request,
    # because the next may be for another host.
    asked = f"Host: {parts.netloc.rpartition('@')[2]}".encode()
    first = f"{method} {path} HTTP/1.1".encode()
    lines = [first, asked, *kept, b"Connection: close", b"", b""]
    return _Request(host, port, b"\r\n".join(lines), is_tunnel=False)


def _host_and_port(target: str, default: int | None) -> tuple[str, int]:
    try:
        parts = urlsplit(target)
        port = parts.port or default
    except ValueError as error:
        raise _Bad(str(error)) from None
    if not parts.hostname or port is None:
        raise _Bad("the host and port are missing")
    return parts.hostname, port


async def join(
    inside: Stream,
    outside: Stream,
) -> None:
    """Connect two streams until both sides have ended."""
    (inward, client), (onward, server) = inside, outside
    await asyncio.gather(_pass_on(inward, server), _pass_on(onward, client))
    for writer in (client, server):
        writer.close()
        await writer.wait_closed()


async def _pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Forward all data, no faster than it is accepted, and its end."""
    while data := await source.read(READ):
        sink.write(data)
        await sink.drain()
    with suppress(OSError):
        sink.write_eof()


async def _respond(stream: Stream, status: int, phrase: str, reason: str) -> None:
    reader, client = stream
    body = f"{reason}\n".encode("utf-8", "replace")
    head = (
        f"HTTP/1.1 {status} {phrase}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nProxy-Status: {NAME}; error={_ERRORS[status]}\r\n"
        "Connection: close\r\n\r\n"
    )
    client.write(head.encode() + body)
    client.write_eof()
    # A connection closed with unread data is reset, and its response may be lost.
    with suppress(TimeoutError):
        async with asyncio.timeout(_LINGERING):
            while await reader.read(READ):
                pass
