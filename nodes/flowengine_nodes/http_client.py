"""Connections of the step kind `http`: through the system's proxies, to any server."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING

import httpx2

from flowengine.sdk import HttpError
from flowengine.sdk.threads import on_thread
from flowengine.sdk.web.responses import ResponseHead
from flowengine.sdk.web.urls import Url

if TYPE_CHECKING:
    import ssl

CONNECT_SECONDS = 15.0
_METADATA = (ipaddress.ip_address("fd00:ec2::254"),)
"""Metadata services of clouds that have no link-local address."""


class SystemClient:
    """Sends requests, each over a new connection.

    Proxies are taken from the usual environment variables, but never used for this machine itself.
    Certificates are verified against those that the system trusts.

    Args:
        silence: Maximum seconds without receiving a byte. `None` for no limit.
        named: The address that the flow names. Redirects lead to others.
    """

    def __init__(self, silence: float | None, named: Url) -> None:
        self._timeout = httpx2.Timeout(silence, connect=CONNECT_SECONDS)
        self._named = named

    @asynccontextmanager
    async def send(
        self, method: str, url: Url, headers: Mapping[str, str], body: bytes = b""
    ) -> AsyncIterator[tuple[ResponseHead, AsyncIterator[bytes]]]:
        """Send a request, as declared by `flowengine.sdk.web.redirects.RequestSender`."""
        if url.host != self._named.host:
            await on_thread(lambda: self._check(url))
        request = httpx2.Request(method, str(url), headers=headers, content=body or None)
        client = httpx2.AsyncClient(
            verify=_trust(), trust_env=not _is_here(url.host), timeout=self._timeout
        )
        try:
            async with client:
                response = await client.send(request, stream=True)
                try:
                    yield (
                        ResponseHead.of(response.status_code, response.headers.raw),
                        response.aiter_raw(),
                    )
                finally:
                    await response.aclose()
        except httpx2.TimeoutException as error:
            raise TimeoutError(_reason(error)) from None
        except httpx2.TransportError as error:
            raise ConnectionError(_reason(error)) from None

    def _check(self, url: Url) -> None:
        """Check that a server does not redirect to what only this machine can reach.

        Raises:
            HttpError: It redirects to this machine or to a metadata service of a cloud.
        """
        kinds = _kinds(url) - {""}
        if kinds and not kinds <= _kinds(self._named):
            raise HttpError(
                f"{self._named.origin} redirects to {url.origin}, which is {kinds.pop()}; name "
                "that address if it is meant",
                data={"status": None},
                retryable=False,
            )


def _kinds(url: Url) -> set[str]:
    """Return what the addresses of a host are: of this machine, of the link, or neither (`""`)."""
    try:
        found = {each[4][0] for each in socket.getaddrinfo(url.host, url.port)}
    except OSError:  # only a proxy may know it
        return set()
    return {_kind(ipaddress.ip_address(str(address).partition("%")[0])) for address in found}


def _kind(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    mapped = getattr(address, "ipv4_mapped", None) or address
    if mapped.is_loopback or mapped.is_unspecified:
        return "this machine"
    return "a link-local address" if mapped.is_link_local or mapped in _METADATA else ""


@cache
def _trust() -> ssl.SSLContext:
    return httpx2.create_ssl_context()


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _reason(error: Exception) -> str:
    text = str(error)
    return text[:1].lower() + text[1:] if text else type(error).__name__
