"""Streams of an execution's events (server-sent events).

Each event of a followed execution is read and encoded once, whatever the number of its readers. A
reader has a bounded queue: one that falls behind is cut off, and comes back with the number of the
last event that it received.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

from flowengine.sdk.threads import on_thread
from flowengine.server.problems import as_json

if TYPE_CHECKING:
    from sse_starlette import EventSourceResponse

    from flowengine.engines.engine import Engine
    from flowengine.server.calls import Call

QUEUE = 256
"""Events that a reader may fall behind."""
RECENT = 1000
"""Events of an execution that are kept for readers that come back."""
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


class _Event(NamedTuple):
    number: int
    text: str


class _Reader:
    """One open stream."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[_Event | None] = asyncio.Queue(QUEUE)
        """None: the stream ends."""
        self.is_cut_off = False

    def put(self, event: _Event | None) -> bool:
        """Add an event, and return whether the reader keeps up."""
        if not self.queue.full():
            self.queue.put_nowait(event)
            return True
        self.cut_off()
        return False

    def cut_off(self) -> None:
        """End the stream at once."""
        self.is_cut_off = True
        while not self.queue.empty():
            self.queue.get_nowait()
        self.queue.put_nowait(None)


class _Feed:
    """The events of one execution, for all its readers."""

    def __init__(self, entries: Iterator[dict[str, Any] | None]) -> None:
        self._entries = entries
        self.streams = 0
        """How many streams use it, also those that are not readers yet."""
        self.readers: set[_Reader] = set()
        self.recent: deque[_Event] = deque(maxlen=RECENT)
        self.next = 0
        """Number of the next event."""
        self.has_ended = False
        self._reading = asyncio.Lock()

    async def read(self) -> None:
        """Pass on all new events."""
        async with self._reading:
            while not self.has_ended:
                batch, self.has_ended = await on_thread(self._batch)
                for event in batch:
                    self.next = event.number + 1
                    self.recent.append(event)
                    self.readers -= {one for one in self.readers if not one.put(event)}
                if not batch:
                    break
            if self.has_ended:
                for reader in self.readers:
                    reader.put(None)
                self.readers.clear()

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
        since = call.query.since
        if last is not None and last.isdecimal():
            since = int(last) + 1
        return EventSourceResponse(
            self._events(call.path["execution"], since),
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
            for reader in feed.readers:
                reader.cut_off()

    async def _events(self, execution: str, since: int) -> AsyncIterator[dict[str, str]]:
        feed, reader = self._join(execution), _Reader()
        try:
            await feed.read()  # it is not a reader yet, because its queue could not hold the past
            end, recent = feed.next, list(feed.recent)
            feed.readers.add(reader)
            async for event in self._missed(execution, since, end, recent):
                since = event.number + 1
                yield _piece(event)
            async for event in self._live(feed, reader):
                if event.number >= since:
                    yield _piece(event)
            if feed.has_ended and not reader.is_cut_off:
                yield {"event": "end", "data": "{}"}
        finally:
            feed.readers.discard(reader)
            self._leave(execution, feed)

    async def _live(self, feed: _Feed, reader: _Reader) -> AsyncIterator[_Event]:
        """Yield events as they happen, until the execution or the time of the stream ends."""
        until = time.monotonic() + LONGEST_SECONDS
        while not self._closed and not (feed.has_ended and reader.queue.empty()):
            try:
                event = await asyncio.wait_for(reader.queue.get(), until - time.monotonic())
            except TimeoutError:
                reader.is_cut_off = True
                return
            if event is None:
                return
            yield event

    async def _missed(
        self, execution: str, since: int, end: int, recent: list[_Event]
    ) -> AsyncIterator[_Event]:
        """Yield the events that happened before the reader came."""
        first = recent[0].number if recent else end
        if since < first:
            for event in await on_thread(lambda: self._history(execution, since, first)):
                yield event
        for event in recent:
            if event.number >= since:
                yield event

    def _history(self, execution: str, since: int, end: int) -> list[_Event]:
        """Return events from the journal, before a number."""
        entries = takewhile(
            lambda entry: entry["seq"] < end, self._engine.events(execution, since=since)
        )
        return [_encoded(entry) for entry in entries]

    def _join(self, execution: str) -> _Feed:
        feed = self._feeds.get(execution)
        if feed is None or feed.has_ended:
            feed = self._feeds[execution] = _Feed(self._engine.feed(execution))
        feed.streams += 1
        if self._watching is None or self._watching.done():
            self._watching = asyncio.get_running_loop().create_task(self._watch())
        return feed

    def _leave(self, execution: str, feed: _Feed) -> None:
        feed.streams -= 1
        if not feed.streams and self._feeds.get(execution) is feed:
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


def _encoded(entry: dict[str, Any]) -> _Event:
    return _Event(entry["seq"], as_json(entry).decode())


def _piece(event: _Event) -> dict[str, str]:
    return {"id": str(event.number), "event": "entry", "data": event.text}
