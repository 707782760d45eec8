"""Connections of the step kind `http`: through the system's proxies, to any server."""

from __future__ import annotations

import ipaddress
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING

import httpx2

from flowengine.sdk.web.responses import ResponseHead
from flowengine.sdk.web.urls import Url

if TYPE_CHECKING:
    import ssl

CONNECT_SECONDS = 15.0


class SystemClient:
    """Sends requests, each over a new connection.

    Proxies are taken from the usual environment variables, but never used for this machine itself.
    Certificates are verified against those that the system trusts.

    Args:
        silence: Maximum seconds without receiving a byte. `None` for no limit.
    """

    def __init__(self, silence: float | None) -> None:
        self._timeout = httpx2.Timeout(silence, connect=CONNECT_SECONDS)

    @asynccontextmanager
    async def send(
        self, method: str, url: Url, headers: Mapping[str, str], body: bytes = b""
    ) -> AsyncIterator[tuple[ResponseHead, AsyncIterator[bytes]]]:
        """Send a request, as declared by `flowengine.sdk.web.redirects.RequestSender`."""
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
