"""Streams of an execution's events (server-sent events).

Each event of a followed execution is read and encoded once, whatever the number of its readers. The
newest ones are kept, and each reader sends them at its own pace. One that falls behind continues
from the journal, and one that accepts nothing is cut off. It comes back with the number of the last
event that it has received.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from flowengine.sdk.threads import on_thread
from flowengine.server.problems import as_json

if TYPE_CHECKING:
    from sse_starlette import EventSourceResponse

    from flowengine.engines.engine import Engine
    from flowengine.server.calls import Call

RECENT_BYTES = 8 * 1024 * 1024
"""Size of the newest events of an execution that are kept in memory."""
PIECE_BYTES = 64 * 1024
"""Size from which events are not merged into a piece any more."""
BATCH = 200
"""Events that are read at once."""
LOOK_SECONDS = 0.02
"""Seconds between two checks whether a process has committed. One costs microseconds."""
SURE_SECONDS = 1.0
"""Seconds after which the followed journals are read anyway."""
HEARTBEAT_SECONDS = 15
SEND_SECONDS = 10
"""Seconds that a reader may take for a piece."""
LONGEST_SECONDS = 600.0
"""Seconds after which a stream ends. The reader comes back, and its credential is checked again."""
_END = b"event: end\ndata: {}\n\n"


class _Event(NamedTuple):
    number: int
    piece: bytes


class _Feed:
    """The newest events of one execution, for all its readers.

    Args:
        entries: The entries of its journal, see `Engine.feed`.
    """

    def __init__(self, entries: Iterator[dict[str, Any] | None]) -> None:
        self.readers = 0
        self.next = 0
        """Number of the next event."""
        self.has_ended = False
        self._entries = entries
        self._recent: deque[_Event] = deque()
        self._size = 0
        self._reading = asyncio.Lock()
        self._changed = asyncio.Event()

    @property
    def first(self) -> int:
        """Number of the oldest event that is kept."""
        return self._recent[0].number if self._recent else self.next

    def since(self, number: int) -> list[_Event]:
        """Return the events from a number on, not before `first`."""
        return list(islice(self._recent, number - self.first, None))

    async def read(self) -> None:
        """Read all new events."""
        async with self._reading:
            while not self.has_ended:
                batch, self.has_ended = await on_thread(self._batch)
                for event in batch:
                    self._recent.append(event)
                    self._size += len(event.piece)
                    self.next = event.number + 1
                while self._size > RECENT_BYTES and len(self._recent) > 1:
                    self._size -= len(self._recent.popleft().piece)
                if batch or self.has_ended:
                    self.wake()
                if len(batch) < BATCH:
                    return

    def wake(self) -> None:
        """Wake all readers."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def changed(self, until: float) -> bool:
        """Wait for a change, and return whether there was one before a time (monotonic)."""
        try:
            await asyncio.wait_for(self._changed.wait(), until - time.monotonic())
        except TimeoutError:
            return False
        return True

    def _batch(self) -> tuple[list[_Event], bool]:
        """Return the next events, and whether the execution has ended."""
        found: list[_Event] = []
        for entry in self._entries:
            if entry is None:
                return found, False
            found.append(_encoded(entry))
            if len(found) >= BATCH:
                return found, False
        return found, True


class Streams:
    """The open streams of a server.

    Args:
        engine: Contains the executions.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._feeds: dict[str, _Feed] = {}
        self._watching: asyncio.Task[None] | None = None
        self._closed = False

    async def response(self, call: Call, last: str | None) -> EventSourceResponse:
        """Return the stream of an execution's events.

        Args:
            call: The request.
            last: `Last-Event-ID`: the number of the last event that the reader has received.
        """
        from sse_starlette import EventSourceResponse
        from sse_starlette.sse import AppStatus

        # The server ends its streams itself when it stops.
        AppStatus.enable_automatic_graceful_drain = False
        since = call.query.from_seq
        if last is not None and last.isdecimal():
            since = int(last) + 1
        return EventSourceResponse(
            self._pieces(call.path["execution"], since),
            ping=HEARTBEAT_SECONDS,
            send_timeout=SEND_SECONDS,
            sep="\n",
        )

    def close(self) -> None:
        """End all streams."""
        self._closed = True
        if self._watching is not None:
            self._watching.cancel()
        for feed in self._feeds.values():
            feed.wake()

    async def _pieces(self, execution: str, since: int) -> AsyncIterator[bytes]:
        """Yield the events from a number on, until the execution or the time of the stream ends."""
        until = time.monotonic() + LONGEST_SECONDS
        feed = self._join(execution)
        try:
            await feed.read()
            while not self._closed and time.monotonic() < until:
                if since < feed.first:
                    async for event in self._past(execution, since, feed):
                        yield event.piece
                        since = event.number + 1
                elif since < feed.next:
                    for piece, following in _merged(feed.since(since)):
                        yield piece
                        since = following
                elif feed.has_ended:
                    yield _END
                    return
                elif not await feed.changed(until):
                    return
        finally:
            self._leave(execution, feed)

    async def _past(self, execution: str, since: int, feed: _Feed) -> AsyncIterator[_Event]:
        """Yield events of the journal, up to the oldest that is kept in memory."""
        entries = self._engine.events(execution, from_seq=since)
        while since < feed.first:
            batch = await on_thread(lambda: [_encoded(entry) for entry in islice(entries, BATCH)])
            for event in batch:
                yield event
            if not batch:
                return
            since = batch[-1].number + 1

    def _join(self, execution: str) -> _Feed:
        feed = self._feeds.get(execution)
        if feed is None or feed.has_ended:
            feed = self._feeds[execution] = _Feed(self._engine.feed(execution))
        feed.readers += 1
        if self._watching is None or self._watching.done():
            self._watching = asyncio.get_running_loop().create_task(self._watch())
        return feed

    def _leave(self, execution: str, feed: _Feed) -> None:
        feed.readers -= 1
        if not feed.readers and self._feeds.get(execution) is feed:
            del self._feeds[execution]

    async def _watch(self) -> None:
        """Read the followed journals whenever a process has committed."""
        seen, sure = -1, 0.0
        while self._feeds:
            changes = self._engine.store.changes()
            if changes != seen or time.monotonic() >= sure:
                seen, sure = changes, time.monotonic() + SURE_SECONDS
                for feed in list(self._feeds.values()):
                    await feed.read()
            await asyncio.sleep(LOOK_SECONDS)


def _merged(events: list[_Event]) -> Iterator[tuple[bytes, int]]:
    """Yield events in larger pieces, each with the number that follows it."""
    pieces, size = [], 0
    for event in events:
        pieces.append(event.piece)
        size += len(event.piece)
        if size >= PIECE_BYTES or event is events[-1]:
            yield b"".join(pieces), event.number + 1
            pieces, size = [], 0


def _encoded(entry: dict[str, Any]) -> _Event:
    number = entry["seq"]
    return _Event(number, b"id: %d\nevent: entry\ndata: %s\n\n" % (number, as_json(entry)))
