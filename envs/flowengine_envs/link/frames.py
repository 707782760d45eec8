"""Messages between the engine and a supervisor: framed, numbered and authenticated.

    frame    4 bytes length of the body, 16 bytes code, body
    body     header (JSON object that begins with its id, a part), payload (any bytes)
    code     the first 16 bytes of HMAC-SHA256 over direction (1 byte), number (8 bytes) and body

The key is created for one run of a supervisor and sent before the first frame. Code in the sandbox
does not have it, so it cannot forge messages on a pipe that it has obtained. Numbered frames
prevent replays. A frame that is not authentic ends the connection. An authentic but unusable frame
(too long, not JSON) fails only its request.
"""

from __future__ import annotations

import hmac
import io
import json
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from flowengine_envs.link import parts

VERSION = 1
KEY = 32
"""Bytes of a key."""
LARGEST = 32 * 1024 * 1024
"""Maximum bytes of a body. Larger data is sent in pieces."""
PIECE = 256 * 1024
"""Bytes of such a piece."""
TO_SUPERVISOR = b"\x01"
TO_ENGINE = b"\x02"

_CODE = 16
_HEAD = 4 + _CODE


class Unauthentic(Exception):
    """Bytes that the other side did not send, or not now. The connection is unusable."""


class TooLong(Exception):
    """A message that the other side would refuse."""


class LinkMessage(NamedTuple):
    """A header and its payload."""

    header: dict[str, Any]
    payload: bytes


class Unusable(NamedTuple):
    """An authentic frame that contains no message."""

    id: int | None
    """Id of the request, if it is known."""
    reason: str


class Sealer:
    """Creates frames of one direction.

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
            header: Data that JSON can represent.
            payload: Bytes to send with it.

        Returns:
            The bytes to write.

        Raises:
            TooLong: They would be refused.
        """
        text = json.dumps(header, separators=(",", ":")).encode()
        if len(text) + len(payload) > LARGEST - _HEAD:
            raise TooLong(f"a message has more than {LARGEST >> 20} MiB")
        return self.seal_body(parts.part(text) + payload)

    def seal_body(self, body: bytes) -> bytes:
        """Return the next frame for any body. Use `seal` for messages."""
        signed = self._direction + struct.pack(">Q", self._number) + body
        self._number += 1
        code = hmac.digest(self._key, signed, "sha256")[:_CODE]
        return struct.pack(">I", len(body)) + code + body


class Opener:
    """Reads frames of one direction from a stream of bytes.

    Args:
        key: The key of the connection.
        direction: `TO_SUPERVISOR` or `TO_ENGINE`.
    """

    def __init__(self, key: bytes, direction: bytes) -> None:
        self._key = key
        self._direction = direction
        self._number = 0
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[LinkMessage | Unusable]:
        """Process bytes, and yield complete frames.

        Args:
            data: Any number of bytes, split anywhere.

        Yields:
            Messages, and frames that contain none.

        Raises:
            Unauthentic: The bytes do not come from the other side.
        """
        self._buffer += data
        while True:
            if len(self._buffer) < _HEAD:
                return
            (length,) = struct.unpack_from(">I", self._buffer)
            if length > LARGEST:
                raise Unauthentic(f"a frame of over {LARGEST} bytes")
            if len(self._buffer) < _HEAD + length:
                return
            code = bytes(self._buffer[4:_HEAD])
            body = bytes(self._buffer[_HEAD : _HEAD + length])
            del self._buffer[: _HEAD + length]
            signed = self._direction + struct.pack(">Q", self._number) + body
            digest = hmac.digest(self._key, signed, "sha256")
            if not hmac.compare_digest(code, digest[:_CODE]):
                raise Unauthentic("a frame that is not authentic")
            self._number += 1
            yield message(body)


def message(body: bytes) -> LinkMessage | Unusable:
    """Read a body.

    Args:
        body: Content of a frame.

    Returns:
        The message, or why it is invalid.
    """
    if not body:
        return Unusable(None, "a body without a header")
    source = io.BytesIO(body)
    text = parts.read(source.read)
    if text is None:
        return Unusable(None, "a header longer than its body")
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Unusable(None, f"a header that is not JSON: {error}")
    if not isinstance(header, dict):
        return Unusable(None, "a header that is not an object")
    return LinkMessage(header, source.read())
