"""Responses: their head, their decompressed body within a limit, and errors."""

from __future__ import annotations

import os
import zlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import NamedTuple

from flowengine.sdk.errors import Refused
from flowengine.sdk.sizes import size_text

_MOST_ENCODINGS = 2
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
_PIECE = 64 * 1024
"""Maximum bytes that are decompressed at once."""


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


class ConnectionInterrupted(ConnectionError):
    """A connection was interrupted. Another attempt may succeed."""


class ResponseHead(NamedTuple):
    """The response before its body."""

    status: int
    headers: Mapping[str, str]
    """Headers by lower-case name. The values of repeated headers are joined by commas, those of
    `set-cookie` by line feeds, because a cookie may contain a comma."""

    @classmethod
    def of(cls, status: int, lines: Iterable[tuple[bytes, bytes]]) -> ResponseHead:
        """Return the head with these header lines."""
        headers: dict[str, str] = {}
        for name, value in lines:
            folded, text = name.decode("ascii", "replace").lower(), _decoded(value)
            between = "\n" if folded == "set-cookie" else ", "
            headers[folded] = f"{headers[folded]}{between}{text}" if folded in headers else text
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
    packed = [name for each in encodings if (name := each.strip()) not in {"", "identity"}]
    unknown = [each for each in packed if each not in {"gzip", "x-gzip", "deflate"}]
    if unknown or len(packed) > _MOST_ENCODINGS:
        raise BadAnswer(f"its encoding is not understood: {', '.join(packed)[:200]}")
    layers = [_Layer() for _ in packed]
    wire = size = 0
    async for data in body:
        wire += len(data)
        if wire > limit:
            raise TooLarge(limit, f"more than {size_text(limit)} were sent")
        for piece in _through(layers, data):
            size += len(piece)
            if size > limit:
                raise TooLarge(limit, f"it unpacks to more than {size_text(limit)}")
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
                piece = self._unpacker.decompress(data, _PIECE)
            except zlib.error as error:
                raise BadAnswer(f"it cannot be unpacked: {error}") from None
            data = self._unpacker.unconsumed_tail
            if piece:
                yield piece


def _is_wrapped(data: bytes) -> bool:
    return data[:1] in {b"\x1f", b"\x78"}
