"""The HTTP protocol of uvicorn with deadlines and bounds.

Middleware would come too late: it sees a request only once its head has arrived. So each head is
collected and checked here before h11 parses it:

- a head must arrive within 10 s, a body must not pause for 30 s, and not be slower than 8 KiB/s
- a reader of an answer, a stream or messages must take some of it within 60 s
- heads are bounded in bytes and in lines, connections in all and for each address
- a head must not be ambiguous: no `Content-Length` beside `Transfer-Encoding`, no folded lines, no
  bare line feeds, no names with `_`, which other programs confuse with `-`
- one request at a time: bytes that arrive before the answer are dropped with the connection
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from flowengine.sdk.sizes import size_text

_END = b"\r\n\r\n"
_BARE = re.compile(rb"(?<!\r)\n|\r(?!\n)|\x00")
_LOOKS = 10
"""How often in a row a reader is seen to have taken nothing before it is cut off. A server that was
held up itself sends between two looks, so that this is not taken for the reader's fault."""
_PHRASES = {
    400: b"Bad Request",
    403: b"Forbidden",
    408: b"Request Timeout",
    431: b"Request Header Fields Too Large",
    503: b"Service Unavailable",
}


class ProtocolLimits(NamedTuple):
    """Limits in front of the router."""

    head_seconds: float = 10.0
    body_seconds: float = 30.0
    body_rate: int = 8 * 1024
    """Least number of bytes of a body in a second, after the first `body_seconds`."""
    reader_seconds: float = 60.0
    reader_rate: int = 1024
    """Least number of bytes that a reader takes in a second, after the first `reader_seconds`."""
    head_bytes: int = 32 * 1024
    header_lines: int = 100
    connections: int = 1000
    connections_of_address: int = 200
    proxies: tuple[str, ...] = ()
    """Addresses of proxies, through which many users connect."""
    proxies_only: bool = False
    """Whether only proxies may connect, because others would send their tokens in plain text."""


class Connections:
    """Counts the open connections of a server.

    Args:
        limits: The limits of the server.
        note: Records a refusal: address, status and reason.
    """

    def __init__(self, limits: ProtocolLimits, note: Callable[[str, int, str], None]) -> None:
        self.limits = limits
        self.note = note
        self._of_address: Counter[str] = Counter()

    def admit(self, address: str) -> bool:
        """Count a connection, and return whether it is within the limits."""
        limits = self.limits
        own = limits.connections if address in limits.proxies else limits.connections_of_address
        if self._of_address.total() >= limits.connections or self._of_address[address] >= own:
            return False
        self._of_address[address] += 1
        return True

    def end(self, address: str) -> None:
        """Stop counting a connection."""
        self._of_address[address] -= 1
        if not self._of_address[address]:
            del self._of_address[address]


def fault_of(head: bytes, limits: ProtocolLimits) -> tuple[int, str] | None:
    """Return why a head is refused, as status and reason, or None.

    Args:
        head: The request line and the headers, with their line ends.
        limits: The limits of the server.
    """
    if _BARE.search(head):
        return 400, "the head has a bare line feed, carriage return or NUL"
    _, *lines = head.split(b"\r\n")
    if len(lines) > limits.header_lines:
        return 431, f"the head has more than {limits.header_lines} lines"
    names = Counter[bytes]()
    for line in lines:
        if line[:1] in (b" ", b"\t"):
            return 400, "the head has a folded line"
        name = line.partition(b":")[0].lower()
        if b"_" in name:
            return 400, "the name of a header has an underscore"
        names[name] += 1
    if names[b"content-length"] + names[b"transfer-encoding"] > 1:
        return 400, "the head gives the length of the body twice"
    return None


class _LimitedReader(asyncio.Protocol):
    """Cuts off a reader that takes too little. Before a protocol of uvicorn."""

    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    limits: ProtocolLimits
    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Have `pause_writing` called for bytes that a reader has not taken.

        Transports with TLS count up to and including the limit, so 0 would pause without any bytes.
        They ask at once, so the protocol must be ready.
        """
        super().connection_made(transport)
        cast("asyncio.Transport", transport).set_write_buffer_limits(high=1, low=0)

    def pause_writing(self) -> None:
        """Wait for a slow reader, but not forever."""
        super().pause_writing()
        if self._patience is None:
            self._look_later(_LOOKS, self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """Continue: the reader has taken all."""
        super().resume_writing()
        self._end_patience()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer: the reader is gone."""
        self._end_patience()
        super().connection_lost(exc)

    def _look_later(self, looks: float, left: int) -> None:
        seconds = self.limits.reader_seconds / _LOOKS
        self._patience = self.loop.call_later(seconds, self._look, looks - 1, left)

    def _look(self, looks: float, before: int) -> None:
        """Count down, and up by the bytes that the reader has taken since."""
        left = self.transport.get_write_buffer_size()
        of_a_look = self.limits.reader_rate * self.limits.reader_seconds / _LOOKS
        looks = min(looks + max(before - left, 0) / of_a_look, _LOOKS)
        if looks > 0:
            self._look_later(looks, left)
        else:
            self.transport.abort()

    def _end_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


class LimitedSocket(_LimitedReader, WebSocketsSansIOProtocol):
    """A connection after its upgrade to WebSocket.

    Args:
        first: The connection before.
        options: As for uvicorn's class.
    """

    def __init__(self, first: LimitedProtocol, **options: Any) -> None:
        super().__init__(**options)
        self._first = first
        self.limits = first.limits

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting the connection."""
        self._first.uncount()
        super().connection_lost(exc)


class LimitedProtocol(_LimitedReader, H11Protocol):
    """One connection.

    Args:
        connections: Counts the connections of the server.
        options: As for uvicorn's class.
    """

    def __init__(self, connections: Connections, **options: Any) -> None:
        super().__init__(**options)
        self._connections = connections
        self.limits = connections.limits
        self._head = bytearray()
        self._address: str | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._body_until: float | None = None
        """Time by which the next part of a body must arrive. None: no body arrives, or it was not
        read."""
        self._is_upgraded = False
        self.ws_protocol_class = partial(LimitedSocket, self)  # type: ignore[assignment]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection, and wait for a head."""
        super().connection_made(transport)
        address = self.client[0] if self.client else ""
        if self.limits.proxies_only and address not in self.limits.proxies:
            self._refuse(403, "only the proxy may connect")
            return
        if not self._connections.admit(address):
            self._refuse(503, "too many connections")
            return
        self._address = address
        self._set_deadline(self.limits.head_seconds, self._head_is_late)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting the connection."""
        self._end_deadline()
        self.uncount()
        super().connection_lost(exc)

    def uncount(self) -> None:
        """Stop counting the connection, which is lost."""
        if self._address is not None:
            self._connections.end(self._address)
            self._address = None

    def data_received(self, data: bytes) -> None:
        """Collect a head, or pass on a part of a body."""
        state = self.conn.their_state
        if state is h11.SEND_BODY:
            self._pass_on(data)
        elif state is h11.IDLE:
            self._collect(data)
        else:
            self._answer_no_more()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Pass the connection on. It is still counted until it is lost."""
        self._is_upgraded = True
        super().handle_websocket_upgrade(event)

    # Internals

    def _collect(self, data: bytes) -> None:
        """Add data to the head, and pass it on once it is complete."""
        if self.transport.is_closing():
            return
        if not self._head:
            self._unset_keepalive_if_required()
            if self._deadline is None:
                self._set_deadline(self.limits.head_seconds, self._head_is_late)
        searched = max(0, len(self._head) - len(_END) + 1)
        self._head += data
        end = self._head.find(_END, searched)
        if (end if end >= 0 else len(self._head)) > self.limits.head_bytes:
            self._refuse(431, f"the head has more than {size_text(self.limits.head_bytes)}")
            return
        if end < 0:
            return
        fault = fault_of(bytes(self._head[:end]), self.limits)
        if fault is not None:
            self._refuse(*fault)
            return
        whole, self._head = bytes(self._head), bytearray()
        self._end_deadline()
        self._pass_on(whole)

    def _pass_on(self, data: bytes) -> None:
        """Let uvicorn read a complete head or a part of a body."""
        super().data_received(data)
        if self._is_upgraded:
            self._end_deadline()
            return
        if self.conn.trailing_data[0] and self.conn.their_state is not h11.SEND_BODY:
            self._answer_no_more()
        if self.conn.their_state is h11.SEND_BODY:
            self._await_body(len(data))
        else:
            self._body_until = None
            self._end_deadline()

    def _await_body(self, received: int) -> None:
        """Set the deadline of the next part of a body. Each part defers it as its size allows."""
        now, limits = self.loop.time(), self.limits
        latest = now + limits.body_seconds
        if self._body_until is not None:
            latest = min(latest, self._body_until + received / limits.body_rate)
        # While the application does not read, the client cannot send.
        self._body_until = None if self.flow.read_paused else latest
        self._set_deadline(latest - now, self._body_is_late)

    def _answer_no_more(self) -> None:
        """Close the connection after this answer: the next request came before it."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None:
            cycle.keep_alive = False

    def _set_deadline(self, seconds: float, late: Any) -> None:
        self._end_deadline()
        self._deadline = self.loop.call_later(seconds, late)

    def _end_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _head_is_late(self) -> None:
        self._refuse(408, "the head did not arrive in time")

    def _body_is_late(self) -> None:
        if self.flow.read_paused or self._body_until is None:  # it was not the client
            self._await_body(0)
        else:
            self._refuse(408, "the body did not arrive in time")

    def _refuse(self, status: int, why: str) -> None:
        """Close the connection, with an answer unless one has begun."""
        self._end_deadline()
        self._head.clear()
        if self.transport.is_closing():
            return
        self._connections.note(self.client[0] if self.client else "", status, why)
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or not cycle.response_started or cycle.response_complete:
            from flowengine.server.problems import MEDIA_TYPE, RequestRefused, as_json, problem_of

            body = as_json(problem_of(RequestRefused(status, why)))
            lines = (
                b"HTTP/1.1 %d %s" % (status, _PHRASES[status]),
                b"content-type: " + MEDIA_TYPE.encode(),
                b"content-length: %d" % len(body),
                b"connection: close",
                b"",
                body,
            )
            self.transport.write(b"\r\n".join(lines))
        self.transport.close()
