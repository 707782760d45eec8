"""Parts of a stream: four bytes of length, then as many bytes.

All programs of an environment exchange what is longer than a record in parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Optional

_HEAD = 4
_PIECE = 1 << 20


class TooLong(ValueError):
    """A part is announced that is longer than it may be.

    Args:
        length: Its bytes.
    """

    def __init__(self, length: int) -> None:
        super().__init__(f"a part of {length:,} bytes")


def part(data: bytes) -> bytes:
    """Return bytes as a part."""
    return len(data).to_bytes(_HEAD, "big") + data


def read(
    source: Callable[[int], bytes],
    *,
    begun: bytes = b"",
    largest: Optional[int] = None,  # noqa: UP045
) -> Optional[bytes]:  # noqa: UP045
    """Read a part.

    Args:
        source: Returns at most so many bytes, none at the end.
        begun: The beginning of its length, if that was read already.
        largest: Bytes that it may have; None: any number.

    Returns:
        What it holds; None: the stream ends before.

    Raises:
        TooLong: It is longer than it may be.
    """
    head = _exactly(source, _HEAD - len(begun))
    if head is None:
        return None
    length = int.from_bytes(begun + head, "big")
    if largest is not None and length > largest:
        raise TooLong(length)
    return _exactly(source, length)


def _exactly(source: Callable[[int], bytes], size: int) -> Optional[bytes]:  # noqa: UP045
    """Read so many bytes, and none of what is behind them; None: there are fewer."""
    pieces = []
    while size:
        piece = source(min(size, _PIECE))
        if not piece:
            return None
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


class Parts:
    """Takes parts out of bytes as they come.

    Args:
        largest: Bytes that one may have.
    """

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take bytes, cut anywhere, and yield what the complete parts hold.

        Raises:
            TooLong: One is announced that is longer than it may be.
        """
        self._data += data
        while len(self._data) >= _HEAD:
            length = int.from_bytes(self._data[:_HEAD], "big")
            if length > self._largest:
                raise TooLong(length)
            if len(self._data) < _HEAD + length:
                return
            body = bytes(self._data[_HEAD : _HEAD + length])
            del self._data[: _HEAD + length]
            yield body
