"""Forwards connections from the sandbox to the places that the engine names, and to no others.

The only network device inside is the loopback device, to whose addresses the names of the places
resolve. The supervisor listens there, and connects each connection to the engine's socket for the
place. The engine connects to the place from outside, confirms with one byte, and then forwards
data. Reading stops while the other end does not accept data.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Optional

from flowengine_envs.inside.loop import Call, EventLoop
from flowengine_envs.link.words import MOST, REACHED

_READ = 64 * 1024
_WAITING = 1_024
"""Number of connections that wait to be accepted. Beyond it, a program tries again after 1 s."""


class Forwarding:
    """All places.

    Args:
        places: For each, the addresses to listen on (`listen`: host, port) and the path of the
            engine's socket (`socket`).

    Raises:
        OSError: It cannot listen on one of the addresses.
    """

    def __init__(self, loop: EventLoop, places: Sequence[Mapping[str, Any]]) -> None:
        self._loop = loop
        self._accepting: dict[socket.socket, Call] = {}
        self._open: set[_Connection] = set()
        for place in places:
            for host, port in place["listen"]:
                listening = _listen(host, port)
                if listening is None:
                    continue
                self._accepting[listening] = partial(self._accept, listening, place["socket"])
        self._accept_more()

    def _accept_more(self) -> None:
        for listening, accept in self._accepting.items():
            self._loop.reading(listening.fileno(), accept)

    def _accept(self, listening: socket.socket, path: str) -> None:
        try:
            inside, _ = listening.accept()
        except OSError:  # The client disconnected, or descriptors ran out.
            return
        outside = socket.socket(socket.AF_UNIX)
        for each in (inside, outside):
            each.setblocking(False)
        try:
            outside.connect(path)
        except OSError:
            outside.close()
            _reset(inside)
            return
        inside.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._open.add(_Connection(self._loop, inside, outside, self._forget))
        if len(self._open) >= MOST:
            for each in self._accepting:
                self._loop.reading(each.fileno(), None)

    def _forget(self, connection: _Connection) -> None:
        self._open.discard(connection)
        if len(self._open) == MOST - 1:
            self._accept_more()


class _Connection:
    """A program's connection and the engine's socket connected to it."""

    def __init__(
        self, loop: EventLoop, inside: socket.socket, outside: socket.socket, closed: Any
    ) -> None:
        self._loop = loop
        self._inside = inside
        self._outside = outside
        self._closed = closed
        self._reached = False
        self._ways = 2
        _Way(loop, inside, outside, partial(self._end_way, outside), self._break)
        _Way(loop, outside, inside, self._end_inward, self._break, self._first)

    def _first(self, data: bytes) -> bytes:
        """Remove the engine's confirmation from the forwarded data."""
        self._reached = True
        return data[len(REACHED) :]

    def _end_inward(self) -> None:
        if self._reached:
            self._end_way(self._inside)
        else:
            self._break()

    def _end_way(self, sink: socket.socket) -> None:
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
        self._ways -= 1
        if not self._ways:
            self._forget()
            self._inside.close()

    def _break(self) -> None:
        """Reset the program's connection instead of closing it normally."""
        self._forget()
        _reset(self._inside)

    def _forget(self) -> None:
        for each in (self._inside, self._outside):
            self._loop.forget(each.fileno())
        self._outside.close()
        self._closed(self)


class _Way:
    """One direction of a connection.

    Args:
        source: Descriptor to read.
        sink: Descriptor to write.
        ended: Called once when everything has been forwarded.
        broken: Called when either end is lost.
        first: Transforms the first bytes.
    """

    def __init__(
        self,
        loop: EventLoop,
        source: socket.socket,
        sink: socket.socket,
        ended: Call,
        broken: Call,
        first: Any = None,
    ) -> None:
        self._loop = loop
        self._source = source
        self._sink = sink
        self._ended = ended
        self._broken = broken
        self._first = first
        self._held = memoryview(b"")
        loop.reading(source.fileno(), self._read)

    def _read(self) -> None:
        try:
            data = self._source.recv(_READ)
        except BlockingIOError:
            return
        except OSError:
            self._broken()
            return
        if not data:
            self._loop.reading(self._source.fileno(), None)
            self._ended()
            return
        if self._first is not None:
            data = self._first(data)
            self._first = None
        self._held = memoryview(data)
        self._write()

    def _write(self) -> None:
        try:
            self._held = self._held[self._sink.send(self._held) :]
        except BlockingIOError:
            pass
        except OSError:
            self._broken()
            return
        waits = len(self._held) > 0
        self._loop.writing(self._sink.fileno(), self._write if waits else None)
        self._loop.reading(self._source.fileno(), None if waits else self._read)


def _listen(host: str, port: int) -> Optional[socket.socket]:  # noqa: UP045
    """Return a listening socket, or None if the address does not exist."""
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(_WAITING)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRNOTAVAIL:
            return None
        raise OSError(error.errno, f"{host}:{port}: {error.strerror}") from None
    listening.setblocking(False)
    return listening


def _reset(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
