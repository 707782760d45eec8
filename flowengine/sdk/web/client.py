"""HTTP over checked connections, for step kinds and environments.

It uses no `.netrc` or cookies, sends only the given data, and verifies certificates against those
that the system trusts. Proxies of the process's environment are used only on request.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from importlib.util import find_spec
from ipaddress import ip_network
from typing import Any
from urllib.parse import unquote, urlsplit

import httpcore2
from httpcore2 import AsyncNetworkStream

from flowengine.sdk.web.connections import Network, Rules
from flowengine.sdk.web.responses import BadAnswer, ConnectionInterrupted, ResponseHead
from flowengine.sdk.web.urls import PORTS, Url, literal, not_public

CONNECTING = 15.0
SILENCE = 30.0
"""Seconds without receiving a byte."""
_PROXIES = frozenset({"http", "https", "socks5", "socks5h"})
_LONGEST_REASON = 300
_LARGEST_HEAD = 1024 * 1024
"""Maximum bytes before the body of a response, with all informational responses."""
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})


class HttpClient:
    """Sends requests, each over a new connection.

    Args:
        network: The allowed places.
        silence: Maximum seconds without receiving a byte. `None` for no limit.
        proxies: Whether the proxies in the usual environment variables are used. They are never
            used for this machine itself.
    """

    def __init__(
        self,
        network: Network,
        silence: float | None = SILENCE,
        *,
        proxies: bool = False,
    ) -> None:
        self._network = network
        self._silence = silence
        self._proxies = proxies

    @asynccontextmanager
    async def send(
        self, method: str, url: Url, headers: Mapping[str, str], body: bytes = b""
    ) -> AsyncIterator[tuple[ResponseHead, AsyncIterator[bytes]]]:
        """Send a request, without following redirects.

        Args:
            method: `GET`, `POST`, …
            url: The address.
            headers: Headers in addition to `Host`, by lower-case name.
            body: Body of the request.

        Yields:
            The head of the response, and its body as it arrives, still encoded.

        Raises:
            UrlRefused: The policy forbids the address.
            TimeoutError: The server does not respond, or stops sending.
            ConnectionInterrupted: The server ended the connection too early.
            ConnectionError: The connection failed.
            BadAnswer: The response is not HTTP.
        """
        sent = {"host": url.origin.partition("://")[2], "connection": "close", **headers}
        if (body or method in _WITH_BODY) and "transfer-encoding" not in sent:
            sent.setdefault("content-length", str(len(body)))
        timeout = {"connect": CONNECTING, "pool": CONNECTING}
        if self._silence is not None:
            timeout |= {"read": self._silence, "write": self._silence}
        trust = _trust() if url.scheme == "https" else None
        network, proxy = self._network, _proxy(url) if self._proxies else None
        if proxy is not None:
            await network.permit(url.host, url.port)
            network = Network(Rules(any=True))
        backend = _Backend(network)
        where = httpcore2.URL(
            scheme=url.scheme.encode(),
            host=url.bracketed.encode(),
            port=None if url.port == PORTS[url.scheme] else url.port,
            target=url.target.encode(),
        )
        with _translated(backend):
            async with (
                httpcore2.AsyncConnectionPool(trust, proxy, network_backend=backend) as pool,
                pool.stream(
                    method,
                    where,
                    headers=[*sent.items()],
                    content=body,
                    extensions={"timeout": timeout},
                ) as answer,
            ):
                backend.awaits_head = False
                pieces = _received(answer.aiter_stream(), backend)
                yield ResponseHead.of(answer.status, answer.headers), pieces


async def _received(body: AsyncIterator[bytes], backend: _Backend) -> AsyncIterator[bytes]:
    with _translated(backend):
        async for piece in body:
            yield piece


@contextmanager
def _translated(backend: _Backend) -> Iterator[None]:
    """Raise exceptions of the library as those of `HttpClient.send`."""
    broke_off = "the connection broke off"
    try:
        yield
    except httpcore2.TimeoutException as error:
        raise TimeoutError(str(error) or "it fell silent") from None
    except httpcore2.ProtocolError as error:
        if backend.is_at_end:
            raise ConnectionInterrupted(str(error) or broke_off) from None
        raise BadAnswer(f"the response is not valid HTTP: {error}"[:_LONGEST_REASON]) from None
    except httpcore2.ProxyError as error:
        raise ConnectionError(f"the proxy refused: {error}") from None
    except httpcore2.ConnectError as error:
        raise ConnectionError(str(error) or "the connection failed") from None
    except httpcore2.NetworkError as error:
        raise ConnectionInterrupted(str(error) or broke_off) from None


@cache
def _trust() -> ssl.SSLContext:
    return httpcore2.default_ssl_context()


def _proxy(url: Url) -> httpcore2.Proxy | None:
    """Return the proxy of the process's environment for an address, if any.

    Raises:
        OSError: It cannot be used.
    """
    from urllib.request import getproxies

    found = getproxies()
    text = found.get(url.scheme) or found.get("all")
    kind = "" if (address := literal(url.host)) is None else not_public(address)
    is_here = kind.startswith(("loopback", "unspecified")) or url.host.endswith(".localhost")
    if not text or is_here or url.host == "localhost":
        return None
    if any(_is_exempt(url, entry.strip()) for entry in found.get("no", "").split(",")):
        return None
    parts = urlsplit(text if "://" in text else f"http://{text}")
    if parts.scheme not in _PROXIES or not parts.hostname:
        raise OSError(
            f"the proxy in the variable {url.scheme}_proxy or all_proxy is not valid: "
            "write http://HOST:PORT"
        )
    if parts.scheme.startswith("socks") and find_spec("socksio") is None:
        raise OSError("the proxy in the variable all_proxy needs socksio: pip install socksio")
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    return httpcore2.Proxy(
        httpcore2.URL(scheme=parts.scheme, host=parts.hostname, port=parts.port, target="/"),
        (user.encode(), password.encode()) if user or password else None,
    )


def _is_exempt(url: Url, entry: str) -> bool:
    """Return whether an entry of `NO_PROXY` names a host.

    It is `*`, an address, a network (`10.0.0.0/8`), a name with all below it, or `.name` or
    `*.name` for those below it only, each optionally with a port.
    """
    name, colon, port = entry.lower().rpartition(":")
    if not (colon and port.isdecimal() and (":" not in name or name.endswith("]"))):
        name, port = entry.lower(), ""
    if not name or (port and int(port) != url.port):
        return False
    address = literal(url.host)
    if name == "*" or address is None:
        below = name.removeprefix("*")
        return below == "" or url.host.endswith(f".{below.removeprefix('.')}") or url.host == below
    try:
        return address in ip_network(name.strip("[]"), strict=False)
    except ValueError:
        return False


class _Backend(httpcore2.AsyncNetworkBackend):
    def __init__(self, network: Network) -> None:
        self._network = network
        self.is_at_end = False
        """Whether a server has ended a connection."""
        self.awaits_head = True
        self._received = 0

    def count(self, data: bytes) -> None:
        """Count received bytes.

        Raises:
            RemoteProtocolError: A server sends informational responses without an end.
        """
        self.is_at_end |= not data
        self._received += len(data)
        if self.awaits_head and self._received > _LARGEST_HEAD:
            raise httpcore2.RemoteProtocolError("its head is too long")

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> AsyncNetworkStream:
        reader, writer = await self._network.connect(host, port, timeout or CONNECTING)
        return _Stream(reader, writer, self)


class _Stream(httpcore2.AsyncNetworkStream):
    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, backend: _Backend
    ) -> None:
        self._backend = backend
        self._reader = reader
        self._writer = writer

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            async with asyncio.timeout(timeout):
                data = await self._reader.read(max_bytes)
        except TimeoutError:
            raise httpcore2.ReadTimeout(f"it was silent for {timeout:.0f} s") from None
        except OSError as error:
            raise httpcore2.ReadError(str(error)) from None
        self._backend.count(data)
        return data

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
            reason = getattr(error, "verify_message", "") or getattr(error, "reason", "")
            raise httpcore2.ConnectError(f"TLS: {reason or error!s}") from None
        return self

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":
            return self._reader.at_eof()
        return self._writer.get_extra_info("ssl_object" if info == "ssl_object" else info)
