"""The requests of OAuth flows: over checked connections, because servers name the addresses."""

from __future__ import annotations

import re
from collections.abc import Mapping

import httpx2

from flowengine.sdk import EnvironmentStartFailed, Refused
from flowengine.sdk.texts.received import received_json
from flowengine.sdk.web.client import HttpClient
from flowengine.sdk.web.connections import Destination, Network, Rules
from flowengine.sdk.web.responses import BadAnswer, ResponseHead, TooLarge, failure_reason, unpacked
from flowengine.sdk.web.urls import Url, UrlRefused, literal, not_public, read_url

_LARGEST = 1024 * 1024
"""Maximum bytes of a response."""
_PROBE = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
_REFUSALS = frozenset({400, 401, 403})
"""Statuses with which a token endpoint refuses a client or a refresh token for good."""
ERROR_CODE = re.compile(r"[A-Za-z_]{1,50}")
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,200}")
"""A scope (RFC 6749, section 3.3)."""
_MOST_SCOPES = 100


def is_protected(url: Url) -> bool:
    """Return whether an address is protected by TLS, or on this machine."""
    if url.scheme == "https" or url.host == "localhost":
        return True
    address = literal(url.host)
    return address is not None and not_public(address).startswith("loopback")


def protected_url(text: str, what: str) -> Url:
    """Return an address that tokens or codes may be sent to.

    Raises:
        Refused: It is invalid, or not protected by TLS.
    """
    try:
        url = read_url(text)
    except UrlRefused as error:
        raise Refused(f"{what}: {error.message}", retryable=False) from None
    if not is_protected(url) or url.credentials:
        raise Refused(
            f"{what} {url} is refused: it must begin with https://, and contain no password",
            retryable=False,
        )
    return url


def scopes_of(text: str | None) -> list[str]:
    """Return the valid scopes in a list of them, which comes from a server."""
    return [each for each in (text or "").split() if _SCOPE.fullmatch(each)][:_MOST_SCOPES]


class OAuthRequests:
    """Sends the requests of the protocol library over checked connections.

    The server's own address was named by the flow. All others must be public, or of the same kind
    as the server's, such as an address of this machine. A named issuer is trusted, too.

    Args:
        server: The address of the server.
        issuer: The authorization server that the flow names. Empty: the server names one.
        place: Names the environment, for messages.
    """

    def __init__(self, server: str, issuer: str, place: str) -> None:
        self.place = place
        self.issuer = issuer
        self._server = protected_url(server, f"{place}: the address of a server with 'auth'")
        named: tuple[Destination, ...] = ()
        if issuer:
            url = read_url(issuer)
            named = (Destination(url.host, url.port, below=False),)
        network = Network(Rules(public=True, named=True, allowed=named))
        self._client = HttpClient(network, proxies=True)
        self.refusal = ""
        """The last response, if the authorization server refused: status and error code."""
        self.is_final = False
        """Whether the same request would be refused again."""

    async def challenge(self) -> str:
        """Return `WWW-Authenticate` of the server's response to a request without a token.

        This is the first request, so that others can go to addresses of the same kind.

        Raises:
            EnvironmentStartFailed: The server does not respond.
        """
        headers = {
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
        }
        head, _ = await self._exchange("POST", self._server, headers, _PROBE, is_read=False)
        return head.headers.get("www-authenticate", "")

    async def send(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request of the protocol library, and return the whole response.

        Raises:
            Refused: Its address is not protected, or not allowed.
            EnvironmentStartFailed: The response is missing or invalid.
        """
        url = protected_url(str(request.url), f"{self.place}: the address")
        headers = {name.lower(): value for name, value in request.headers.items()}
        for name in ("host", "content-length", "connection"):
            headers.pop(name, None)
        headers["accept-encoding"] = "identity"
        body = await request.aread()
        head, content = await self._exchange(request.method, url, headers, body)
        self.refusal, self.is_final = "", False
        if request.method == "POST" and head.status >= 400:
            code = _error_code(content)
            self.refusal = f"{url.host} answered {request.method} {url} with HTTP status "
            self.refusal += f"{head.status}{f', {code}' if code else ''}"
            self.is_final = head.status in _REFUSALS
        return httpx2.Response(
            head.status, headers=dict(head.headers), content=content, request=request
        )

    async def _exchange(
        self,
        method: str,
        url: Url,
        headers: Mapping[str, str],
        body: bytes,
        *,
        is_read: bool = True,
    ) -> tuple[ResponseHead, bytes]:
        try:
            async with self._client.send(method, url, headers, body) as (head, pieces):
                length = head.headers.get("content-length", "")
                encodings = head.headers.get("content-encoding", "").split(",")
                content = bytearray()
                if is_read:
                    async for piece in unpacked(pieces, encodings, _LARGEST, length):
                        content += piece
                return head, bytes(content)
        except UrlRefused as error:
            raise Refused(
                f"{self.place}: {url} is not requested: {error.message}. To allow an "
                "authorization server, name it in 'auth.issuer'",
                retryable=False,
            ) from None
        except (TooLarge, BadAnswer) as error:
            raise self._failed(f"{url.host}: {error}") from None
        except OSError as error:
            raise self._failed(f"{url.host}: {failure_reason(error)}") from None

    def _failed(self, why: str) -> EnvironmentStartFailed:
        return EnvironmentStartFailed(f"{self.place}: {why}")


def _error_code(content: bytes) -> str:
    """Return the error code in a response of an authorization server (RFC 6749, section 5.2)."""
    try:
        data = received_json(content)
    except ValueError:
        return ""
    code = data.get("error") if isinstance(data, dict) else None
    return code if isinstance(code, str) and ERROR_CODE.fullmatch(code) else ""
