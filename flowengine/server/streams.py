"""Streams of the events of an execution, or of all executions (server-sent events).

Each event that is followed is read and encoded once for all readers. Each reader has a queue of
them, and sends them at its own pace. One that falls behind continues from the journal, and one
that accepts nothing is cut off by `protocol.py`. It comes back with the number of the last event
that it has received.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from sse_starlette import EventSourceResponse
from sse_starlette.sse import AppStatus

from flowengine.engines.arriving_replies import ReplyReader
from flowengine.engines.engine import Engine
from flowengine.engines.infos import StoreEvent
from flowengine.errors import UsageError
from flowengine.sdk.python.user_code import on_thread
from flowengine.server.calls import ApiCall
from flowengine.server.events import shown_to, view_of
from flowengine.server.problems import as_json
from flowengine.server.refusals import RequestRefused
from flowengine.server.rights import CHECKED_EVERY, Principal

LOOK_SECONDS = 0.02
"""Seconds between two checks whether a process has committed. One costs microseconds."""
SURE_SECONDS = 1.0
"""Seconds after which those who wait look at the store anyway."""


def event_source(pieces: AsyncIterator[bytes]) -> EventSourceResponse:
    """Return an answer that lasts, with pieces of server-sent events."""
    # The server ends its streams itself when it stops.
    AppStatus.enable_automatic_graceful_drain = False
    return EventSourceResponse(pieces, ping=15, sep="\n")


class Alert:
    """Wakes all who wait for it. It can be given again and again."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def give(self) -> None:
        """Wake all who wait."""
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self, until: float) -> bool:
        """Wait for the next one, and return whether it was given before a time.

        Args:
            until: By the monotonic clock, in seconds.
        """
        event = self._event
        try:
            # Not `wait_for`, which in Python 3.11 can lose a cancellation.
            async with asyncio.timeout(max(0.0, until - time.monotonic())):
                await event.wait()
        except TimeoutError:
            return False
        return True


class StoreChanges:
    """Wakes all who wait when a process has committed. It looks only while someone waits.

    Args:
        engine: That of the store.
    """

    def __init__(self, engine: Engine) -> None:
        self.number = 0
        """Grows with each change. Read it before the store, and wait for the next one."""
        self._engine = engine
        self._waiting = 0
        self._seen: int | None = None
        self._looking: asyncio.Task[None] | None = None
        self._changed = Alert()

    async def after(self, number: int, until: float) -> bool:
        """Wait for a change, and return whether there was one before a time.

        Args:
            number: The last change that the caller knows.
            until: By the monotonic clock, in seconds.
        """
        if self.number != number:
            return True
        self._waiting += 1
        try:
            if self._looking is None or self._looking.done():
                self._looking = asyncio.get_running_loop().create_task(self._poll())
            return await self._changed.wait(until)
        finally:
            self._waiting -= 1

    def wake(self) -> None:
        """Wake all who wait."""
        self.number += 1
        self._changed.give()

    def close(self) -> None:
        """Stop looking, and wake all who wait."""
        if self._looking is not None:
            self._looking.cancel()
        self.wake()

    async def _poll(self) -> None:
        sure = time.monotonic() + SURE_SECONDS
        while self._waiting:
            seen = self._version()
            if seen != self._seen or time.monotonic() >= sure:
                self._seen, sure = seen, time.monotonic() + SURE_SECONDS
                self.wake()
            await asyncio.sleep(LOOK_SECONDS)

    def _version(self) -> int | None:
        """Return a number that differs after a commit. None: the store has no such number."""
        try:
            return self._engine.store.changes()
        except UsageError:  # in Temporal
            return None


RECENT_BYTES = 8 * 1024 * 1024
"""Size of events that are kept in memory for a reader."""
PIECE_BYTES = 64 * 1024
"""Size from which events are not merged into a piece any more."""
BATCH = 200
"""Events that are read at once."""
LISTEN_SECONDS = 0.04
"""Seconds between two looks for parts of replies that models are writing."""
LONGEST_SECONDS = 600.0
"""Seconds after which a stream ends. The reader comes back."""
MOST_SKIPPED = 1000
"""After how many events that a reader does not see it receives the number to continue with."""
_LONGEST_NUMBER = 19
_NONE = 10**_LONGEST_NUMBER
"""Greater than the number of any event."""
_END = b"event: end\ndata: {}\n\n"


class _Event(NamedTuple):
    number: int
    piece: bytes
    """Messages to the readers of one execution."""
    whole: StoreEvent | None = None
    """Of a stream of all executions, in which each reader sees a different part of it."""


class _Queue:
    """What a feed has for one reader, who takes it at its own pace."""

    def __init__(self) -> None:
        self.items: list[_Event | bytes] = []
        self._size = 0

    def put(self, item: _Event | bytes) -> None:
        """Add an event, or parts of replies. A reader that is far behind reads the journal."""
        if self._size > RECENT_BYTES:
            self.take()
        self._size += len(item if isinstance(item, bytes) else item.piece)
        self.items.append(item)

    def take(self) -> list[_Event | bytes]:
        """Return all of it."""
        items, self.items, self._size = self.items, [], 0
        return items


class _Feed:
    """The new events of one execution or of all, for all readers.

    Args:
        entries: The events, see `Engine.executions.newest`.
        first: Number of the first of them.
        replies: Those of the execution that models are writing.
    """

    def __init__(
        self,
        entries: Iterator[_Event | None],
        first: int = 0,
        replies: ReplyReader | None = None,
    ) -> None:
        self.readers: list[_Queue] = []
        self.next = first
        """Number of the next event, or a smaller one."""
        self.has_ended = False
        self._entries = entries
        self._reading = asyncio.Lock()
        self._replies = replies
        self._arriving: dict[str, list[bytes]] = {}
        """Address of a step → all parts of the reply that it receives, for new readers."""
        self.changed = Alert()

    def join(self) -> _Queue:
        """Return the queue of a new reader, with the parts of replies that are not complete."""
        queue = _Queue()
        queue.put(b"".join(map(b"".join, self._arriving.values())))
        self.readers.append(queue)
        return queue

    async def read(self) -> None:
        """Read all new events."""
        async with self._reading:
            while not self.has_ended:
                batch, self.has_ended = await on_thread(partial(_batch, self._entries))
                self.listen()  # first the lines written before these events
                for event in batch:
                    self._give(event)
                    self.next = event.number + 1
                if batch or self.has_ended:
                    self.changed.give()
                if len(batch) < BATCH:
                    return

    def listen(self) -> None:
        """Read the new parts of replies."""
        new = [] if self._replies is None else self._replies.read()
        for part in new:
            piece = b"event: part\ndata: %s\n\n" % as_json(part)
            self._give(piece)
            if part["part"] == "start":
                self._arriving[part["address"]] = []
            if part["part"] in ("end", "restart"):
                self._arriving.pop(part["address"], None)
            elif part["address"] in self._arriving:
                self._arriving[part["address"]].append(piece)
        if new:
            self.changed.give()

    def _give(self, item: _Event | bytes) -> None:
        for queue in self.readers:
            queue.put(item)

    def close(self) -> None:
        if self._replies is not None:
            self._replies.close()


class _Source(NamedTuple):
    """The content of a stream."""

    key: str | None
    """The execution. None: all executions."""
    feed: Callable[[], _Feed]
    """Returns a feed of the newest events."""
    past: Callable[[int], Iterator[_Event | None]]
    """Returns the events from a number on."""
    show: Callable[[_Event], bytes]
    """Returns the part of an event that the reader sees. Empty: nothing."""


class EventStreams:
    """The open streams of a server.

    Args:
        engine: Contains the executions.
        changes: Those of its store.
    """

    def __init__(self, engine: Engine, changes: StoreChanges) -> None:
        self._engine = engine
        self._changes = changes
        self._feeds: dict[str | None, _Feed] = {}
        self._watching: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def readers(self) -> int:
        """Number of open streams."""
        return sum(len(feed.readers) for feed in self._feeds.values())

    async def response(self, call: ApiCall, last: str | None) -> EventSourceResponse:
        """Return the stream of the events of an execution, or of all executions.

        Args:
            call: The request.
            last: `Last-Event-ID`: the number of the last event that the reader has received.
        """
        since: int | None
        if "execution" in call.path:
            source = self._of_one(call.path["execution"])
            since, last = (_NONE, None) if call.query.replies else (call.query.from_seq, last)
        else:
            source, after = self._of_all(call), call.query.after
            since = None if after is None else after + 1
            if self._feeds.get(None) is None:
                await on_thread(self._engine.store.number_events)  # an error is an answer
        if last is not None and last.isdecimal() and len(last) < _LONGEST_NUMBER:
            since = int(last) + 1
        return event_source(self._while_valid(source, since, call.principal))

    def close(self) -> None:
        self._closed = True
        if self._watching is not None:
            self._watching.cancel()
        for feed in self._feeds.values():
            feed.changed.give()

    def _of_one(self, execution: str) -> _Source:
        engine = self._engine

        def feed() -> _Feed:
            first, newest = engine.executions.newest(execution)
            return _Feed(map(_of_entry, newest), first, engine.arriving_replies(execution))

        return _Source(
            execution,
            feed,
            lambda since: map(_of_entry, engine.executions.events(execution, from_seq=since)),
            lambda event: event.piece,
        )

    def _of_all(self, call: ApiCall) -> _Source:
        engine, shown = self._engine, shown_to(call)

        def feed() -> _Feed:
            last = engine.store.number_events()
            return _Feed(map(_of_event, engine.executions.feed_all(last)), last + 1)

        def show(event: _Event) -> bytes:
            assert event.whole is not None
            view = shown(event.whole)
            if view is None:
                return b""
            return (
                event.piece if view["entry"] is event.whole.entry else _encoded(event.number, view)
            )

        return _Source(
            None, feed, lambda since: map(_of_event, engine.executions.feed_all(since - 1)), show
        )

    async def _while_valid(
        self, source: _Source, since: int | None, reader: Principal
    ) -> AsyncIterator[bytes]:
        """Yield the pieces of a stream as long as the reader's credential is valid."""
        pieces = self._pieces(source, since)
        try:
            async for piece in pieces:
                if reader.proof is not None and reader.proof.is_old:
                    await on_thread(reader.check)
                yield piece
        except RequestRefused:
            return
        finally:
            await pieces.aclose()

    async def _pieces(self, source: _Source, since: int | None) -> AsyncGenerator[bytes]:
        """Yield the events from a number on, until the execution or the time of the stream ends.

        There is a piece, perhaps an empty one, every `CHECKED_EVERY` seconds.

        Args:
            source: Its content.
            since: None: from the next event on.
        """
        until = time.monotonic() + LONGEST_SECONDS
        feed, queue = await self._join(source)
        try:
            await feed.read()
            if since is None or (source.key is None and since > feed.next):  # of another store
                since = feed.next
                yield _skip(since)  # a reader that comes back before the next event misses none
            sent = since
            while not self._closed and time.monotonic() < until:
                pieces, size, following = list[bytes](), 0, feed.next
                async for item in _whole(source, since, queue.take(), following):
                    if isinstance(item, bytes):
                        piece = item
                    elif piece := source.show(item):
                        sent = item.number + 1
                    pieces.append(piece)
                    size += len(piece)
                    if size >= PIECE_BYTES:
                        yield b"".join(pieces)
                        pieces, size = [], 0
                since = max(since, following)
                if since - sent >= MOST_SKIPPED:
                    pieces.append(_skip(since))
                    sent = since
                yield b"".join(pieces)
                if not queue.items and since >= feed.next:
                    if feed.has_ended:
                        yield _END
                        return
                    await feed.changed.wait(min(until, time.monotonic() + CHECKED_EVERY))
        finally:
            feed.readers.remove(queue)
            if not feed.readers:
                feed.close()
                if self._feeds.get(source.key) is feed:
                    del self._feeds[source.key]

    async def _join(self, source: _Source) -> tuple[_Feed, _Queue]:
        feed = self._feeds.get(source.key)
        if feed is None or feed.has_ended:
            made = await on_thread(source.feed)
            feed = self._feeds.get(source.key)  # perhaps another reader was faster
            if feed is None or feed.has_ended:
                feed = self._feeds[source.key] = made
            else:
                made.close()
        queue = feed.join()
        if self._watching is None or self._watching.done():
            self._watching = asyncio.get_running_loop().create_task(self._watch())
        return feed, queue

    async def _watch(self) -> None:
        """Read the followed journals when a process has committed, else the arriving replies."""
        has_changed = True
        while self._feeds:
            number = self._changes.number
            for feed in list(self._feeds.values()):
                if has_changed:
                    await feed.read()
                else:
                    feed.listen()
            has_changed = await self._changes.after(number, time.monotonic() + LISTEN_SECONDS)


def _batch(entries: Iterator[_Event | None]) -> tuple[list[_Event], bool]:
    """Return the next events, and whether there will be no others."""
    events: list[_Event] = []
    for event in entries:
        if event is None:
            return events, False
        events.append(event)
        if len(events) >= BATCH:
            return events, False
    return events, True


async def _whole(
    source: _Source, since: int, items: list[_Event | bytes], end: int
) -> AsyncIterator[_Event | bytes]:
    """Yield the items of a reader, with the events before and between them that it has missed.

    Args:
        source: Has them.
        since: Number of the next event.
        items: The items.
        end: Number of the event that follows.
    """
    for item in (*items, None):
        if isinstance(item, bytes):
            yield item
            continue
        number = end if item is None else item.number
        past = source.past(since) if since < number else iter(())
        while since < number:
            batch, _ = await on_thread(partial(_batch, past))
            for event in batch:
                if event.number < number:
                    yield event
            since = min(number, batch[-1].number + 1) if batch else number
        if item is not None and number == since:
            yield item
            since += 1


def _of_entry(entry: dict[str, Any] | None) -> _Event | None:
    """Return an event of one execution."""
    return None if entry is None else _Event(entry["seq"], _encoded(entry["seq"], entry))


def _of_event(event: StoreEvent | None) -> _Event | None:
    """Return an event of all executions."""
    if event is None:
        return None
    view = view_of(event, event.entry)
    return _Event(event.number, _encoded(event.number, view), event)


def _encoded(number: int, data: Any) -> bytes:
    return b"id: %d\nevent: entry\ndata: %s\n\n" % (number, as_json(data))


def _skip(since: int) -> bytes:
    """Return the number with which a reader comes back that has received all before `since`."""
    return b"id: %d\n\n" % (since - 1)
