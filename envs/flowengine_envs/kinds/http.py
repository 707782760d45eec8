"""`http`: requests of agents and steps to the places that a policy names, and to no others.

The engine sends the requests. It checks each connection before it is made, each redirect
separately, and the IP address as well as the name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

from flowengine.sdk import (
    LimitExceeded,
    Timeout,
    ValidationError,
)
from flowengine.sdk.environments import (
    Capabilities,
    Provider,
    Request,
    Resource,
    Spec,
    both_forms,
)
from flowengine.sdk.texts.sizes import size_text
from flowengine.sdk.web import responses
from flowengine.sdk.web.client import HttpClient
from flowengine.sdk.web.connections import Network, Rules
from flowengine.sdk.web.responses import BadAnswer, TooLarge, WebRequest
from flowengine.sdk.web.urls import Url, UrlRefused, read_url

SECONDS = 60.0
"""Seconds for a request with its redirects, if the spec sets no `time`."""
LARGEST = 8 * 1024 * 1024
"""Maximum bytes of a response, compressed and decompressed, if the spec sets no `output`."""
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_OURS = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade"}
)
"""Headers that control how a request is sent."""
_SENT = {"User-Agent": "flowengine", "Accept": "*/*"}


class HttpResponse(NamedTuple):
    """A server's response."""

    status: int
    headers: Mapping[str, str]
    """Headers by lower-case name. The values of repeated headers are joined by commas."""
    url: str
    """Final address, without credentials."""
    body: bytes
    """The decompressed body."""


class WebClient(Resource):
    """Sends requests to the places that its policy names.

    Args:
        request: The request to open this environment.
        rules: The rules for the places that may be reached.
    """

    def __init__(self, request: Request, rules: Rules) -> None:
        super().__init__(request)
        self._rules = rules
        self._client = HttpClient(Network(rules))
        self._seconds = request.limits.time or SECONDS
        self._largest = int(request.limits.output or LARGEST)

    async def _send(
        self,
        url: str,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> HttpResponse:
        """Send a request and return the response, with any status.

        Redirects of GET and HEAD are followed. `headers` are not sent to another server. Any other
        redirect is returned as the response.

        Args:
            url: `https://…` or `http://…`.
            method: One of `METHODS`.
            headers: Headers in addition to the usual ones.
            body: Body of the request.

        Raises:
            UrlRefused: The policy forbids the address, or one that it redirects to.
            HttpError: No response was received.
            Timeout: No response was received in time.
            LimitExceeded: The response is too large.
            ValidationError: The request is invalid.
        """
        if method not in METHODS:
            raise ValidationError(f"the method is one of {', '.join(METHODS)}, not {method!r:.50}")
        sent = _checked(headers or {})
        chain = [read_url(url)]
        if not self._rules.allows_anything:
            raise UrlRefused(
                f"{chain[0]}: {self.name} may reach nothing: declare it with policy: "
                "{network: public} or the hosts that it may reach"
            )
        try:
            async with asyncio.timeout(self._seconds):
                return await self._response(
                    chain, WebRequest(_SENT, sent, lambda _: self._largest, method, body)
                )
        except UrlRefused as error:
            raise responses.refused(chain, error) from None
        except TooLarge as error:
            data = {"limit": "output", "value": error.limit}
            size = size_text(error.limit)
            message = f"{chain[-1]}: the answer has more than {size} (limits.output)"
            raise LimitExceeded(message, data=data, retryable=False) from None
        except TimeoutError as error:
            waited = str(error) or f"no answer in {self._seconds:g} s"
            raise Timeout(f"{chain[-1]}: {waited}") from None
        except (OSError, BadAnswer) as error:
            raise responses.failed(chain, error) from None

    send, async_send = both_forms(_send)

    async def _response(self, chain: list[Url], request: WebRequest) -> HttpResponse:
        async with responses.followed(self._client, chain, request) as (head, pieces):
            try:
                is_empty = request.method == "HEAD"
                body = b"" if is_empty else b"".join([piece async for piece in pieces])
            except TimeoutError:
                raise
            except (OSError, BadAnswer) as error:
                raise responses.failed(chain, error, head) from None
            return HttpResponse(head.status, head.headers, str(chain[-1]), body)


def _checked(headers: Mapping[str, Any]) -> Mapping[str, str]:
    """Check the headers of a caller. The client selects the encodings that it can decompress."""
    try:
        responses.check_headers(headers)
    except ValueError as error:
        raise ValidationError(str(error)) from None
    for name in headers:
        if name.lower() in _OURS or name.lower().startswith("proxy-"):
            raise ValidationError(f"the header {name} cannot be set: it controls the transport")
    return {name: headers[name] for name in headers if name.lower() != "accept-encoding"}


class Http(Provider[WebClient]):
    """Opens clients, which start nothing and leave nothing behind."""

    kind = "http"
    leaves_traces = False

    def capabilities(self, sandbox: Capabilities) -> Capabilities:
        """Return the guarantees that the client enforces."""
        return Capabilities(
            "none",
            {
                "network": "each connection is judged before it is made",
                "time": "a request is given up",
                "output": "a larger answer is not taken in",
            },
            {"time": SECONDS, "output": LARGEST},
        )

    async def probe(self, spec: Spec) -> None:
        """Do nothing: the engine contains everything that it needs."""

    async def ensure(self, request: Request) -> WebClient:
        """Return a new client."""
        policy = request.policy
        return WebClient(request, Rules.of(policy.network, policy.deny_network))

    def health_check(self, resource: WebClient) -> bool:
        """Return whether it is open. It has no process that could end."""
        return not resource.given_back

    async def release(self, resource: WebClient) -> None:
        """Do nothing: each request has its own connection."""
