"""Follows redirects: the data sent to each server, and the limit of the response."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from flowengine.sdk import HttpError
from flowengine_envs.network.connections import UrlRefused, why
from flowengine_envs.network.http import BadAnswer, Client, Head, TooLarge, unpacked
from flowengine_envs.network.urls import Url, read_url

MOST = 10
"""Maximum number of redirects of one request."""
_STATUSES = frozenset({301, 302, 303, 307, 308})
_FOLLOWED = frozenset({"GET", "HEAD"})


@asynccontextmanager
async def asked(
    client: Client,
    chain: Sequence[Url],
    headers: Mapping[str, str],
    own: Mapping[str, str],
    largest: int,
    method: str = "GET",
    body: bytes = b"",
) -> AsyncIterator[tuple[Head, AsyncIterator[bytes] | Url]]:
    """Send the request to the current address of a redirect chain.

    Args:
        client: Sends it.
        chain: The first address and the redirect targets. The last one is requested.
        headers: Sent to every server.
        own: Sent only to the server of the first address, such as credentials.
        largest: Maximum bytes of the response, compressed and decompressed.
        method: `GET`, `POST`, … Only `GET` and `HEAD` are redirected.
        body: Body of the request.

    Yields:
        The head of the response, and its decompressed body, or the address that it redirects to.

    Raises:
        TooLarge: The response exceeds the limit.
        UrlRefused: The policy forbids the address, or the redirect target is invalid.
        TimeoutError, OSError, BadAnswer: As for `Client.send`.
    """
    url = chain[-1]
    sent = {**headers, **_authorization(url), **(own if url.origin == chain[0].origin else {})}
    # Of duplicates, the last one counts.
    folded = {name.lower(): value for name, value in sent.items()}
    folded["accept-encoding"] = "gzip, deflate"
    async with client.send(method, url, folded, body) as (head, pieces):
        moved = head.headers.get("location", "")
        if head.status in _STATUSES and moved and method in _FOLLOWED:
            yield head, next_url(url, moved)
            return
        declared = head.headers.get("content-length", "")
        if method != "HEAD" and declared.isdecimal() and int(declared) > largest:
            raise TooLarge(largest, f"it has {int(declared):,} bytes")
        encodings = head.headers.get("content-encoding", "").lower().split(",")
        yield head, unpacked(pieces, [each.strip() for each in encodings], largest)


def follow(chain: list[Url], found: Url) -> None:
    """Add the target of a redirect.

    Raises:
        HttpError: There are too many redirects, or they form a cycle.
    """
    chain.append(found)
    if len(chain) > MOST + 1 or found in chain[:-1]:
        raise HttpError(f"too many redirects: {shown(chain)}", retryable=False)


def refused(chain: Sequence[Url], error: UrlRefused) -> UrlRefused:
    """Return an error that lists the redirects that led to an address."""
    if len(chain) == 1 and chain[0].bracketed in error.message:
        return error
    return UrlRefused(f"{shown(chain)}: {error.message}", retryable=False)


def failed(chain: Sequence[Url], error: Exception) -> HttpError:
    """Return the error for a failed request. `BadAnswer` is not worth a retry."""
    told = f"{shown(chain)}: {why(error)}"
    return HttpError(told, data={"status": None}, retryable=not isinstance(error, BadAnswer))


def shown(chain: Sequence[Url]) -> str:
    """Return addresses in the order in which they were requested."""
    each = [*map(str, chain)]
    return " -> ".join([*each[:4], "...", *each[-2:]] if len(each) > 7 else each)


def next_url(url: Url, location: str) -> Url:
    """Return the target of a redirect. Credentials are kept only for the same server.

    Args:
        url: The requested address.
        location: The header of the response.

    Raises:
        UrlRefused: It is not a web address.
    """
    try:
        # Servers send UTF-8 although only ASCII is allowed.
        text = location.encode("latin-1").decode("utf-8", "replace")
    except UnicodeEncodeError:
        text = location
    try:
        found = read_url(text, url)
    except UrlRefused as error:
        raise UrlRefused(f"it redirects, and {error.message}", retryable=False) from None
    kept = url.credentials if found.origin == url.origin else ""
    return found._replace(credentials=found.credentials or kept)


def _authorization(url: Url) -> Mapping[str, str]:
    """Return the header for the credentials in an address, if any."""
    if not url.credentials:
        return {}
    return {"Authorization": f"Basic {b64encode(url.credentials.encode()).decode()}"}
