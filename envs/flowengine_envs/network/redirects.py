"""Requests that redirects lead on: what is sent where, and how much of an answer is read."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from flowengine.sdk import HttpError
from flowengine_envs.network.connections import UrlRefused, why
from flowengine_envs.network.http import BadAnswer, Client, Head, TooLarge, unpacked
from flowengine_envs.network.urls import Url, read_url

MOST = 10
"""Redirects of one request."""
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
    """Send the request that redirects have led to.

    Args:
        client: Sends it.
        chain: The first address, and where redirects led from there. The last one is requested.
        headers: What is sent to every server.
        own: What is sent only to the server of the first address, such as credentials.
        largest: Bytes that the answer may have, packed and unpacked.
        method: `GET`, `POST`, …; only `GET` and `HEAD` are redirected.
        body: Of the request.

    Yields:
        The head of the answer, and its unpacked body, or the address that it redirects to.

    Raises:
        TooLarge: The answer has more bytes.
        UrlRefused: The address may not be reached, or it redirects to what is no address.
        TimeoutError, OSError, BadAnswer: As of `Client.send`.
    """
    url = chain[-1]
    sent = {**headers, **_authorization(url), **(own if url.origin == chain[0].origin else {})}
    folded = {name.lower(): value for name, value in sent.items()}  # of several the last counts
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
    """Add an address that an answer redirects to.

    Raises:
        HttpError: There are too many, or they lead in a circle.
    """
    chain.append(found)
    if len(chain) > MOST + 1 or found in chain[:-1]:
        raise HttpError(f"too many redirects: {shown(chain)}", retryable=False)


def refused(chain: Sequence[Url], error: UrlRefused) -> UrlRefused:
    """Return an error that says by which redirects an address was reached."""
    if len(chain) == 1 and chain[0].bracketed in error.message:
        return error
    return UrlRefused(f"{shown(chain)}: {error.message}", retryable=False)


def failed(chain: Sequence[Url], error: Exception) -> HttpError:
    """Return the error for a request without an answer; `BadAnswer` would be answered again."""
    told = f"{shown(chain)}: {why(error)}"
    return HttpError(told, data={"status": None}, retryable=not isinstance(error, BadAnswer))


def shown(chain: Sequence[Url]) -> str:
    """Return addresses in the order in which they were requested."""
    each = [*map(str, chain)]
    return " -> ".join([*each[:4], "...", *each[-2:]] if len(each) > 7 else each)


def next_url(url: Url, location: str) -> Url:
    """Return where an answer redirects to; credentials stay with the server they are for.

    Args:
        url: What was asked for.
        location: The header of the answer.

    Raises:
        UrlRefused: That is no address of the web.
    """
    try:
        # Servers send UTF-8 where only ASCII may stand.
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
    """Return the header for the credentials in an address, if it has some."""
    if not url.credentials:
        return {}
    return {"Authorization": f"Basic {b64encode(url.credentials.encode()).decode()}"}
