"""Parts of a stream: four bytes of length, then that number of bytes.

All programs of an environment exchange data longer than a record in parts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Optional

_HEAD = 4
_PIECE = 1 << 20


class TooLong(ValueError):
    """The announced length of a part exceeds the limit.

    Args:
        length: Its length in bytes.
    """

    def __init__(self, length: int) -> None:
        super().__init__(f"a part of {length:,} bytes")


def part(data: bytes) -> bytes:
    return len(data).to_bytes(_HEAD, "big") + data


def read(
    source: Callable[[int], bytes],
    *,
    begun: bytes = b"",
    largest: Optional[int] = None,  # noqa: UP045
) -> Optional[bytes]:  # noqa: UP045
    """Read a part.

    Args:
        source: Returns at most the given number of bytes, or none at the end.
        begun: Bytes of its length that were already read.
        largest: Maximum size in bytes. None: unlimited.

    Returns:
        Its content. None: the stream ended early.

    Raises:
        TooLong: It exceeds the maximum.
    """
    head = exactly(source, _HEAD - len(begun))
    if head is None:
        return None
    return exactly(source, _length(begun + head, largest))


async def async_read(read_exactly: Callable[[int], Awaitable[bytes]], *, largest: int) -> bytes:
    """Read a part of an asynchronous stream.

    Args:
        read_exactly: Returns exactly the given number of bytes, or raises an error.
        largest: Maximum size in bytes.

    Returns:
        Its content.

    Raises:
        TooLong: It exceeds the maximum.
    """
    return await read_exactly(_length(await read_exactly(_HEAD), largest))


def _length(head: bytes, largest: Optional[int]) -> int:  # noqa: UP045
    """Return the length that a part announces. Raises `TooLong` if it exceeds the maximum."""
    length = int.from_bytes(head, "big")
    if largest is not None and length > largest:
        raise TooLong(length)
    return length


def exactly(source: Callable[[int], bytes], size: int) -> Optional[bytes]:  # noqa: UP045
    """Read exactly a number of bytes.

    Args:
        source: Returns at most the given number of bytes, or none at the end.
        size: The number.

    Returns:
        The bytes. None: the stream ended early.
    """
    pieces = []
    while size:
        piece = source(min(size, _PIECE))
        if not piece:
            return None
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


class Parts:
    """Extracts parts from a stream of bytes.

    Args:
        largest: Maximum bytes of a part.
    """

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Process bytes, split anywhere, and yield the contents of complete parts.

        Raises:
            TooLong: The announced length of a part exceeds the maximum.
        """
        self._data += data
        while len(self._data) >= _HEAD:
            length = _length(bytes(self._data[:_HEAD]), self._largest)
            if len(self._data) < _HEAD + length:
                return
            body = bytes(self._data[_HEAD : _HEAD + length])
            del self._data[: _HEAD + length]
            yield body
