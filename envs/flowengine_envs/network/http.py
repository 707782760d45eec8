"""HTTP over checked connections, independent of the process's own settings.

It uses no system proxy, `.netrc` or cookies, and sends only the given data.
"""

from __future__ import annotations

import asyncio
import ssl
import zlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import httpcore2

from flowengine_envs.network.connections import READ, Network, UrlRefused
from flowengine_envs.network.urls import Url

if TYPE_CHECKING:
    from httpcore2 import AsyncNetworkStream

CONNECTING = 15.0
SILENCE = 30.0
"""Seconds without receiving a byte."""
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
_MOST_ENCODINGS = 2
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS


class TooLarge(Exception):
    """A body exceeds its limit.

    Args:
        limit: Maximum bytes.
        what: Description of the actual size.
    """

    def __init__(self, limit: int, what: str) -> None:
        super().__init__(f"{what}; the limit 'bytes' is {limit:,}")
        self.limit = limit


class BadAnswer(Exception):
    """A server sent an unreadable response."""


class Interrupted(ConnectionError):
    """A connection was interrupted. Another attempt may succeed."""


class Head(NamedTuple):
    """The response before its body."""

    status: int
    headers: Mapping[str, str]
    """Headers by lower-case name. Of duplicates, the last one."""


class Client:
    """Sends requests, each over a new connection.

    Args:
        network: The allowed places.
        trust: Certificate authorities that are accepted. Default: the system's.
    """

    def __init__(self, network: Network, trust: ssl.SSLContext | None = None) -> None:
        self._backend = _Backend(network)
        self._trust = trust

    @asynccontextmanager
    async def send(
        self, method: str, url: Url, headers: Mapping[str, str], body: bytes = b""
    ) -> AsyncIterator[tuple[Head, AsyncIterator[bytes]]]:
        """Send a request.

        Args:
            method: `GET`, `POST`, …
            url: The address.
            headers: Headers in addition to `Host`.
            body: Body of the request.

        Yields:
            The head of the response, and its body as it arrives, still encoded.

        Raises:
            UrlRefused: The policy forbids the address.
            TimeoutError: The server does not respond, or stops sending.
            OSError: The connection failed.
            BadAnswer: The response is not HTTP.
        """
        timeout = {"connect": CONNECTING, "read": SILENCE, "write": SILENCE, "pool": CONNECTING}
        sent = {"Host": url.origin.partition("://")[2], "Connection": "close", **headers}
        if body or method in _WITH_BODY:
            sent["Content-Length"] = str(len(body))
        pool = httpcore2.AsyncConnectionPool(self._trust or _trust(), network_backend=self._backend)
        where = httpcore2.URL(
            scheme=url.scheme.encode(),
            host=url.bracketed.encode(),
            port=url.port,
            target=url.target.encode(),
        )
        try:
            async with (
                pool,
                pool.stream(
                    method,
                    where,
                    headers=[*sent.items()],
                    content=body,
                    extensions={"timeout": timeout},
                ) as answer,
            ):
                named = {
                    name.decode("ascii", "replace").lower(): value.decode("latin-1")
                    for name, value in answer.headers
                }
                yield Head(answer.status, named), answer.aiter_stream()
        except httpcore2.TimeoutException as error:
            raise TimeoutError(_reason(error, "it fell silent")) from None
        except httpcore2.ProtocolError as error:
            raise BadAnswer(_reason(error, "this is not HTTP")) from None
        except httpcore2.ConnectError as error:
            raise ConnectionError(_reason(error, "the connection failed")) from None
        except httpcore2.NetworkError as error:
            raise Interrupted(_reason(error, "the connection broke off")) from None


@cache
def _trust() -> ssl.SSLContext:
    return httpcore2.default_ssl_context()


def _reason(error: Exception, otherwise: str) -> str:
    return str(error) or otherwise


class _Backend(httpcore2.AsyncNetworkBackend):
    def __init__(self, network: Network) -> None:
        self._network = network

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> AsyncNetworkStream:
        reader, writer = await self._network.connect(host, port, timeout or CONNECTING)
        return _Stream(reader, writer)


class _Stream(httpcore2.AsyncNetworkStream):
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            async with asyncio.timeout(timeout):
                return await self._reader.read(max_bytes)
        except TimeoutError:
            raise httpcore2.ReadTimeout(f"it was silent for {timeout:.0f} s") from None
        except OSError as error:
            raise httpcore2.ReadError(str(error)) from None

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        try:
            async with asyncio.timeout(timeout):
                self._writer.write(buffer)
                await self._writer.drain()
        except TimeoutError:
            raise httpcore2.WriteTimeout("it takes nothing") from None
        except OSError as error:
            raise httpcore2.WriteError(str(error)) from None

    async def aclose(self) -> None:
        self._writer.transport.abort()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> AsyncNetworkStream:
        try:
            await self._writer.start_tls(
                ssl_context,
                server_hostname=(server_hostname or "").strip("[]"),
                ssl_handshake_timeout=timeout,
            )
        except (ssl.SSLError, OSError) as error:
            await self.aclose()
            raise httpcore2.ConnectError(f"TLS: {_tls(error)}") from None
        return self

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":
            return self._reader.at_eof()
        return self._writer.get_extra_info("ssl_object" if info == "ssl_object" else info)


def _tls(error: Exception) -> str:
    found = getattr(error, "verify_message", "") or getattr(error, "reason", "")
    return str(found or error)


async def unpacked(
    body: AsyncIterator[bytes], encodings: Sequence[str], limit: int
) -> AsyncIterator[bytes]:
    """Yield a body without its content encodings, in pieces, up to its limit.

    Args:
        body: The encoded body.
        encodings: Content encodings, in the server's order.
        limit: Maximum bytes, compressed and decompressed.

    Raises:
        TooLarge: It exceeds the limit.
        BadAnswer: It cannot be decompressed.
    """
    packed = [each for each in encodings if each not in {"", "identity"}]
    unknown = [each for each in packed if each not in {"gzip", "x-gzip", "deflate"}]
    if unknown or len(packed) > _MOST_ENCODINGS:
        raise BadAnswer(f"its encoding is not understood: {', '.join(packed)[:200]}")
    layers = [_Layer() for _ in packed]
    wire = size = 0
    async for data in body:
        wire += len(data)
        if wire > limit:
            raise TooLarge(limit, f"more than {limit:,} bytes were sent")
        for piece in _through(layers, data):
            size += len(piece)
            if size > limit:
                raise TooLarge(limit, f"it unpacks to more than {limit:,} bytes")
            yield piece
    if any(not layer.is_whole for layer in layers):
        raise BadAnswer("its packed body breaks off")


def _through(layers: Sequence[_Layer], data: bytes) -> Iterable[bytes]:
    if not layers:
        yield data
        return
    for piece in layers[-1].pieces(data):
        yield from _through(layers[:-1], piece)


class _Layer:
    """One content encoding. It decompresses no more at once than requested."""

    def __init__(self) -> None:
        self._unpacker = zlib.decompressobj(_GZIP_OR_ZLIB)
        self._begun = False

    @property
    def is_whole(self) -> bool:
        return self._unpacker.eof or not self._begun

    def pieces(self, data: bytes) -> Iterable[bytes]:
        if data and not self._begun:
            self._begun = True
            if not _is_wrapped(data):  # Some servers send `deflate` without its wrapper.
                self._unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
        while data and not self._unpacker.eof:
            try:
                piece = self._unpacker.decompress(data, READ)
            except zlib.error as error:
                raise BadAnswer(f"it cannot be unpacked: {error}") from None
            data = self._unpacker.unconsumed_tail
            if piece:
                yield piece


def _is_wrapped(data: bytes) -> bool:
    return data[:1] in {b"\x1f", b"\x78"}


__all__ = ["BadAnswer", "Client", "Head", "Interrupted", "TooLarge", "UrlRefused", "unpacked"]
