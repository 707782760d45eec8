"""Messages between the engine and a supervisor: framed, numbered and authenticated.

    frame    4 bytes length of the body, 16 bytes code, body
    body     4 bytes length of the header, header (JSON object), payload (any bytes)
    code     the first 16 bytes of HMAC-SHA256 over direction (1 byte), number (8 bytes) and body

The key is made for one execution of a supervisor and sent before the first frame. Code that runs in
the sandbox does not have it, so what it writes into a pipe it got hold of is no message; and since
frames are numbered, an old message is none either. What is not authentic ends the connection. An
authentic frame that cannot be used - too long, not JSON - costs that one request.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from flowengine_envs.link.parts import part

VERSION = 1
KEY = 32
"""Bytes of a key."""
LARGEST = 32 * 1024 * 1024
"""Bytes of a body; what is larger goes in pieces."""
_ABSURD = 8 * LARGEST
"""Bytes that no mistake of the other side would announce: it is not the other side."""
PIECE = 256 * 1024
"""Bytes of such a piece."""
TO_SUPERVISOR = b"\x01"
TO_ENGINE = b"\x02"

_CODE = 16
_HEAD = 4 + _CODE
_KEPT = 4096
"""Bytes kept of a body that is too long: enough to tell which request it was."""


class Unauthentic(Exception):
    """Bytes that the other side did not send, or not now: the connection is of no more use."""


class Message(NamedTuple):
    """A header and what goes with it."""

    header: dict[str, Any]
    payload: bytes


class Unusable(NamedTuple):
    """An authentic frame that is no message."""

    id: int | None
    """Of the request, if it can be told."""
    reason: str


class Sealer:
    """Makes frames of one direction.

    Args:
        key: The key of the connection.
        direction: `TO_SUPERVISOR` or `TO_ENGINE`.
    """

    def __init__(self, key: bytes, direction: bytes) -> None:
        self._key = key
        self._direction = direction
        self._number = 0

    def seal(self, header: dict[str, Any], payload: bytes = b"") -> bytes:
        """Return the next frame.

        Args:
            header: Plain data that JSON can hold.
            payload: Bytes that go with it.

        Returns:
            The bytes to write.
        """
        text = json.dumps(header, separators=(",", ":")).encode()
        return self.seal_body(part(text) + payload)

    def seal_body(self, body: bytes) -> bytes:
        """Return the next frame around any body; `seal` is for those that mean something."""
        signed = self._direction + struct.pack(">Q", self._number) + body
        self._number += 1
        code = hmac.digest(self._key, signed, "sha256")[:_CODE]
        return struct.pack(">I", len(body)) + code + body


class Opener:
    """Reads frames of one direction from bytes as they come.

    Args:
        key: The key of the connection.
        direction: `TO_SUPERVISOR` or `TO_ENGINE`.
    """

    def __init__(self, key: bytes, direction: bytes) -> None:
        self._key = key
        self._direction = direction
        self._number = 0
        self._buffer = bytearray()
        self._long: _LongFrame | None = None

    def feed(self, data: bytes) -> Iterator[Message | Unusable]:
        """Take bytes, and yield what is complete.

        Args:
            data: Any number of bytes, cut anywhere.

        Yields:
            Messages, and what should have been one.

        Raises:
            Unauthentic: The bytes are not of the other side.
        """
        self._buffer += data
        while True:
            if self._long is not None and not self._read_long():
                return
            if self._long is not None:
                yield self._end_long(self._long)
                continue
            if len(self._buffer) < _HEAD:
                return
            (length,) = struct.unpack_from(">I", self._buffer)
            if length > _ABSURD:
                raise Unauthentic("a frame of absurd length")
            if length > LARGEST:
                self._begin_long(length)
                continue
            if len(self._buffer) < _HEAD + length:
                return
            code = bytes(self._buffer[4:_HEAD])
            body = bytes(self._buffer[_HEAD : _HEAD + length])
            del self._buffer[: _HEAD + length]
            self._check(code, hmac.digest(self._key, self._prefix() + body, "sha256"))
            yield message(body)

    def _prefix(self) -> bytes:
        return self._direction + struct.pack(">Q", self._number)

    def _check(self, code: bytes, digest: bytes) -> None:
        if not hmac.compare_digest(code, digest[:_CODE]):
            raise Unauthentic("a frame that is not authentic")
        self._number += 1

    def _begin_long(self, length: int) -> None:
        signed = hmac.new(self._key, self._prefix(), hashlib.sha256)
        self._long = _LongFrame(length, bytes(self._buffer[4:_HEAD]), signed)
        del self._buffer[:_HEAD]

    def _read_long(self) -> bool:
        """Pass over a body that is too long; return whether that is done."""
        frame = self._long
        assert frame is not None
        part = bytes(self._buffer[: frame.length - frame.seen])
        del self._buffer[: len(part)]
        frame.signed.update(part)
        frame.kept += part[: _KEPT - len(frame.kept)]
        frame.seen += len(part)
        return frame.seen == frame.length

    def _end_long(self, frame: _LongFrame) -> Unusable:
        self._long = None
        self._check(frame.code, frame.signed.digest())
        return Unusable(_id_of(bytes(frame.kept)), f"a frame of over {LARGEST} bytes")


class _LongFrame:
    def __init__(self, length: int, code: bytes, signed: hmac.HMAC) -> None:
        self.length = length
        self.code = code
        self.signed = signed
        self.seen = 0
        self.kept = bytearray()


def message(body: bytes) -> Message | Unusable:
    """Read a body.

    Args:
        body: What a frame holds.

    Returns:
        The message, or why it is none.
    """
    if len(body) < 4:
        return Unusable(None, "a body without a header")
    (length,) = struct.unpack_from(">I", body)
    if length > len(body) - 4:
        return Unusable(None, "a header longer than its body")
    try:
        header = json.loads(body[4 : 4 + length])
    except (ValueError, RecursionError) as error:
        return Unusable(None, f"a header that is not JSON: {error}")
    if not isinstance(header, dict):
        return Unusable(None, "a header that is no object")
    return Message(header, body[4 + length :])


def _id_of(start: bytes) -> int | None:
    """Return the id of a message of which only the start is known."""
    found = message(start)
    id = found.header.get("id") if isinstance(found, Message) else None
    return id if isinstance(id, int) else None
