"""HTTP over checked connections, independent of the process's own settings.

It uses no system proxy, `.netrc` or cookies, and sends only the given data.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import httpcore2

from flowengine.sdk.web.responses import BadAnswer, ConnectionInterrupted, ResponseHead
from flowengine.sdk.web.urls import Url
from flowengine_envs.network.connections import Network

if TYPE_CHECKING:
    from httpcore2 import AsyncNetworkStream

CONNECTING = 15.0
SILENCE = 30.0
"""Seconds without receiving a byte."""
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})


class HttpClient:
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
    ) -> AsyncIterator[tuple[ResponseHead, AsyncIterator[bytes]]]:
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
                yield ResponseHead.of(answer.status, answer.headers), answer.aiter_stream()
        except httpcore2.TimeoutException as error:
            raise TimeoutError(_reason(error, "it fell silent")) from None
        except httpcore2.ProtocolError as error:
            raise BadAnswer(_reason(error, "this is not HTTP")) from None
        except httpcore2.ConnectError as error:
            raise ConnectionError(_reason(error, "the connection failed")) from None
        except httpcore2.NetworkError as error:
            raise ConnectionInterrupted(_reason(error, "the connection broke off")) from None


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
    reason = getattr(error, "verify_message", "") or getattr(error, "reason", "")
    return str(reason or error)
