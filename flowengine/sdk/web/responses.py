"""Responses of servers: their head, their decompressed body within a limit, and redirects."""

from __future__ import annotations

import os
import re
import time
import zlib
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, NamedTuple, Protocol

from flowengine.sdk.errors import HttpError, Refused
from flowengine.sdk.texts.sizes import size_text
from flowengine.sdk.web.urls import Url, UrlRefused, read_url

# Responses: their head, their decompressed body within a limit, and errors.

_SINGLE = frozenset({"content-type", "location", "retry-after"})
_PACKED = frozenset({"br", "compress", "dcb", "dcz", "deflate", "gzip", "pack200-gzip", "zstd"})
"""Content encodings that compress, with `x-` before them or not. Servers also declare names that
mean nothing, such as `utf-8`, with a body as it is."""
_GZIP = zlib.MAX_WBITS + 16
_GZIP_MAGIC = b"\x1f\x8b"
_SHORTEST = len(_GZIP_MAGIC)
_PIECE = 64 * 1024
"""Maximum bytes that are decompressed at once."""


class TooLarge(Exception):
    """A body exceeds its limit.

    Args:
        limit: Maximum bytes.
        what: Description of the actual size.
    """

    def __init__(self, limit: int, what: str) -> None:
        super().__init__(f"{what}: the limit 'bytes' is {limit:,}")
        self.limit = limit


class BadAnswer(Exception):
    """A server sent an unreadable response."""


class ConnectionInterrupted(ConnectionError):
    """A connection was interrupted. Another attempt may succeed."""


def phrase_of(status: int) -> str:
    """Return the standard phrase of a status, empty if it has none."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def retry_after(header: str | None) -> float | None:
    """Return the seconds that a server requests to wait, as a number or a date."""
    if header is None:
        return None
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - time.time())
    except (ValueError, OverflowError, TypeError):
        return None


class ResponseHead(NamedTuple):
    """The response before its body."""

    status: int
    headers: Mapping[str, str]
    """Headers by lower-case name. The values of repeated headers are joined by commas, those of
    `set-cookie` by line feeds, because a cookie may contain a comma. Of a header that can have only
    one value, such as `content-type`, the last one counts."""

    @classmethod
    def of(cls, status: int, lines: Iterable[tuple[bytes, bytes]]) -> ResponseHead:
        """Return the head with these header lines."""
        headers: dict[str, str] = {}
        for name, value in lines:
            folded, text = name.decode("ascii", "replace").lower(), _decoded(value)
            between = "\n" if folded == "set-cookie" else ", "
            is_more = folded in headers and folded not in _SINGLE
            headers[folded] = f"{headers[folded]}{between}{text}" if is_more else text
        return cls(status, headers)


def _decoded(value: bytes) -> str:
    """Decode the value of a header. Servers send UTF-8 although only ASCII is allowed."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def failure_reason(error: BaseException) -> str:
    """Return a readable reason for a failed connection."""
    if isinstance(error, Refused):
        return error.message
    number = getattr(error, "errno", None) or 0
    return os.strerror(number) if number > 0 else getattr(error, "strerror", None) or str(error)


async def unpacked(
    body: AsyncIterator[bytes], encodings: Sequence[str], limit: int, declared: str = ""
) -> AsyncIterator[bytes]:
    """Yield a body without its content encodings, in pieces, up to its limit.

    Args:
        body: The encoded body.
        encodings: Content encodings, in the server's order.
        limit: Maximum bytes, compressed and decompressed.
        declared: Declared length of the encoded body, if known. A larger one is not read.

    Raises:
        TooLarge: It exceeds the limit.
        BadAnswer: It cannot be decompressed.
    """
    if declared.isdecimal() and int(declared) > limit:
        raise TooLarge(limit, f"it has {size_text(int(declared))}")
    names = [each.strip().lower().removeprefix("x-") for each in encodings]
    packed = [name for name in names if name in _PACKED]
    unknown = [name for name in packed if name not in {"gzip", "deflate"}]
    if unknown or len(packed) > 1:
        raise BadAnswer(f"its encoding is not understood: {', '.join(packed)[:200]}")
    layer = _Layer(packed[0]) if packed else None
    wire = size = 0
    async for data in body:
        wire += len(data)
        if wire > limit:
            raise TooLarge(limit, f"more than {size_text(limit)} were sent")
        for piece in [data] if layer is None else layer.pieces(data):
            size += len(piece)
            if size > limit:
                raise TooLarge(limit, f"it unpacks to more than {size_text(limit)}")
            yield piece
    if layer is not None:
        if rest := layer.rest():
            yield rest
        if not layer.is_whole:
            raise BadAnswer("its packed body breaks off")


class _Layer:
    """One content encoding. It decompresses no more at once than requested.

    Args:
        name: `gzip` or `deflate`. Some servers send `deflate` without its wrapper, and declare
            `gzip` for a body that is not compressed.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._unpacker: Any = None
        self._head = b""
        """The beginning of the body or of a further member, until it shows the format."""
        self._is_plain = False

    @property
    def is_whole(self) -> bool:
        return self._unpacker is None or self._unpacker.eof

    def pieces(self, data: bytes) -> Iterable[bytes]:
        if self._unpacker is None and not self._is_plain:
            data = self._head = self._head + data
            if len(data) < _SHORTEST:
                return
            self._begin(data)
        while data:
            if self._is_plain:
                yield data
                return
            if self._unpacker.eof:
                data = self._head + data
                self._head = data if len(data) < _SHORTEST else b""
                if not data.startswith(_GZIP_MAGIC):
                    return  # what follows is padding, or is known with the next data
                self._unpacker = zlib.decompressobj(_GZIP)
            try:
                piece = self._unpacker.decompress(data, _PIECE)
            except zlib.error as error:
                raise BadAnswer(f"it cannot be unpacked: {error}") from None
            data = self._unpacker.unconsumed_tail or self._unpacker.unused_data
            if piece:
                yield piece

    def rest(self) -> bytes:
        """Return the bytes that were too few to be compressed."""
        return self._head if self._unpacker is None and not self._is_plain else b""

    def _begin(self, data: bytes) -> None:
        self._head = b""
        if data.startswith(_GZIP_MAGIC):
            self._unpacker = zlib.decompressobj(_GZIP)
        elif data[0] & 15 == zlib.DEFLATED and data[0] < 128 and int.from_bytes(data[:2]) % 31 == 0:
            self._unpacker = zlib.decompressobj()
        elif self._name == "deflate":
            self._unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
        else:
            self._is_plain = True


# Follows redirects: the data sent to each server, and the limit of the response.

MOST = 10
"""Maximum number of redirects of one request."""
_STATUSES = frozenset({301, 302, 303, 307, 308})
_FOLLOWED = frozenset({"GET", "HEAD"})
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e]*")


def check_headers(headers: Mapping[str, object]) -> None:
    """Check that headers can be sent.

    Raises:
        ValueError: One cannot. The message contains no value.
    """
    for name, value in headers.items():
        is_name = _NAME.fullmatch(name) is not None
        if not is_name or not isinstance(value, str) or not _VALUE.fullmatch(value):
            is_cut = re.search(r"[\0\r\n]", str(value)) is not None
            what = "a line break" if is_cut else "a character beyond ASCII"
            reason = f": it contains {what}" if is_name else ""
            raise ValueError(f"{name!r:.100} is not a header that can be sent{reason}")


class RequestSender(Protocol):
    """Sends one request to one address, without following redirects."""

    def send(
        self, method: str, url: Url, headers: Mapping[str, str], body: bytes = b""
    ) -> AbstractAsyncContextManager[tuple[ResponseHead, AsyncIterator[bytes]]]:
        """Send a request.

        Args:
            method: `GET`, `POST`, …
            url: The address.
            headers: Headers in addition to `Host`.
            body: Body of the request.

        Returns:
            A context with the head of the response and its body as it arrives, still encoded.

        Raises:
            UrlRefused: The address is forbidden.
            TimeoutError: The server does not respond, or stops sending.
            OSError: The connection failed.
            BadAnswer: The response is not HTTP.
        """


class WebRequest(NamedTuple):
    """A request, without its address."""

    headers: Mapping[str, str]
    """Sent to every server."""
    own: Mapping[str, str]
    """Sent only to the server of the first address, such as credentials, and no longer once a
    redirect has led to another server."""
    largest: Callable[[ResponseHead], int]
    """Returns the maximum bytes of a response, compressed and decompressed."""
    method: str = "GET"
    """`GET`, `POST`, … Only `GET` and `HEAD` are redirected."""
    body: bytes = b""
    """Sent only to the first address."""


@asynccontextmanager
async def followed(
    client: RequestSender, chain: list[Url], request: WebRequest
) -> AsyncIterator[tuple[ResponseHead, AsyncIterator[bytes]]]:
    """Send a request and follow its redirects.

    Args:
        client: Sends it.
        chain: The first address. Each redirect target is appended.
        request: The request.

    Yields:
        The head of the last response, and its decompressed body. Reading it raises `TooLarge` if it
        exceeds the limit.

    Raises:
        HttpError: There are too many redirects.
        UrlRefused, TimeoutError, OSError, BadAnswer: As for `requested`.
    """
    while True:
        async with requested(client, chain, request) as (head, body):
            if not isinstance(body, Url):
                yield head, body
                return
        follow(chain, body)


@asynccontextmanager
async def requested(
    client: RequestSender, chain: Sequence[Url], request: WebRequest
) -> AsyncIterator[tuple[ResponseHead, AsyncIterator[bytes] | Url]]:
    """Send a request to the current address of a redirect chain.

    Args:
        client: Sends it.
        chain: The first address and the redirect targets. The last one is requested.
        request: The request.

    Yields:
        The head of the response, and its decompressed body, or the address that it redirects to.
        Reading the body raises `TooLarge` if it exceeds the limit.

    Raises:
        UrlRefused: The address is forbidden, or the redirect target is invalid.
        TimeoutError, OSError, BadAnswer: As for `RequestSender.send`.
    """
    url, method = chain[-1], request.method
    own = request.own if all(_is_same_server(chain[0], each) for each in chain) else {}
    sent = {"Accept-Encoding": "gzip, deflate", **request.headers}
    if url.credentials:
        sent["Authorization"] = f"Basic {b64encode(url.credentials.encode()).decode()}"
    sent |= own
    # Of duplicates, the last one counts.
    folded = {name.lower(): value for name, value in sent.items()}
    body = request.body if len(chain) == 1 else b""
    async with client.send(method, url, folded, body) as (head, pieces):
        moved = head.headers.get("location", "")
        if head.status in _STATUSES and moved and method in _FOLLOWED:
            yield head, next_url(url, moved)
            return
        declared = head.headers.get("content-length", "") if method != "HEAD" else ""
        encodings = head.headers.get("content-encoding", "").split(",")
        yield head, unpacked(pieces, encodings, request.largest(head), declared)


def follow(chain: list[Url], target: Url) -> None:
    """Append the target of a redirect to a chain.

    Raises:
        HttpError: There are too many redirects.
    """
    chain.append(target)
    if len(chain) > MOST + 1:
        visited = shown([each._replace(target=each.target.partition("?")[0]) for each in chain])
        raise HttpError(f"too many redirects: {visited}", data={"status": None}, retryable=False)


def refused(chain: Sequence[Url], error: UrlRefused) -> UrlRefused:
    """Return an error that lists the redirects that led to an address."""
    if len(chain) == 1 and chain[0].bracketed in error.message:
        return error
    return UrlRefused(f"{shown(chain)}: {error.message}", retryable=False)


def failed(chain: Sequence[Url], error: Exception, head: ResponseHead | None = None) -> HttpError:
    """Return the error for a failed request. `BadAnswer` is not worth a retry.

    Args:
        chain: The requested addresses.
        error: The failure.
        head: The response, if only its body failed.
    """
    status = None if head is None else head.status
    reason = failure_reason(error) if head is None else body_failure(head, error)
    message = f"{shown(chain)}: {reason}"
    return HttpError(message, data={"status": status}, retryable=not isinstance(error, BadAnswer))


def body_failure(head: ResponseHead, error: Exception) -> str:
    """Return a readable reason for a response whose body was not received."""
    return f"status {head.status}, but its body cannot be read: {failure_reason(error)}"


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
        target = read_url(location, url)
    except UrlRefused as error:
        raise UrlRefused(f"it redirects, and {error.message}", retryable=False) from None
    kept = url.credentials if _is_same_server(url, target) else ""
    return target._replace(credentials=target.credentials or kept)


def _is_same_server(first: Url, other: Url) -> bool:
    """Return whether it is the same server, or the same one with encryption."""
    if first.origin == other.origin:
        return True
    upgraded = (first.scheme, first.port, other.scheme, other.port) == ("http", 80, "https", 443)
    return upgraded and first.host == other.host
