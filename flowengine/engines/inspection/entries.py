"""The entries of a journal from a number on, with what replay adds to them: addresses and reasons.

The replay begins at the last snapshot, unless an earlier entry is wanted.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from flowengine.engines.executions.linked_flows import unpacked
from flowengine.engines.executions.moments import Moment
from flowengine.engines.executions.views import entry_view
from flowengine.engines.host import Host
from flowengine.engines.infos import EventFilter, StoreEvent
from flowengine.engines.results import ENDED
from flowengine.engines.snapshots import AtSnapshot, read_snapshot, walk_since
from flowengine.errors import FlowEngineError
from flowengine.journal.records import ExecutionRecord, Numbered

FOLLOW_SECONDS = 0.2
"""Seconds between two polls of a followed journal."""


def entries(host: Host, execution: str, since: int, *, follow: bool) -> Iterator[dict[str, Any]]:
    """Yield the entries of a journal, starting at a number.

    Args:
        host: Provides the store.
        execution: Full id.
        since: Number of the first entry.
        follow: Wait for further entries until the execution has ended.

    Yields:
        See `entry_view`.
    """
    for entry in feed(host, execution, since):
        if entry is not None:
            yield entry
        elif not follow:
            return
        else:
            time.sleep(FOLLOW_SECONDS)


def feed(host: Host, execution: str, since: int) -> Iterator[dict[str, Any] | None]:
    """Yield the entries of a journal, and None when none is new, until it has ended.

    Args:
        host: Provides the store.
        execution: Full id.
        since: Number of the first entry.

    Yields:
        See `entry_view`. None: look again later.
    """
    for moment in moments(host, execution, since):
        if moment is None:
            yield None
        elif moment.number >= since:
            yield entry_of(moment)


def newest(host: Host, execution: str) -> tuple[int, Iterator[dict[str, Any] | None]]:
    """Return the entries since the last snapshot, and the number of the first of them.

    Args:
        host: Provides the store.
        execution: Full id.

    Returns:
        The entries as of `feed`.
    """
    start = read_snapshot(host.store, host.flows, execution)
    found = _moments(host, execution, start)
    return start.number, (None if stored is None else entry_of(stored) for stored in found)


def entry_of(moment: Moment) -> dict[str, Any]:
    """Return the entry of a journal, see `entry_view`."""
    return entry_view(moment.number, moment.event, moment.address, moment.why)


def moments(host: Host, execution: str, since: int = 0) -> Iterator[Moment | None]:
    """Yield each event of an execution with the state after it, until it has ended.

    Args:
        host: Provides the store.
        execution: Full id.
        since: Number of the first event that is wanted. Earlier ones may be yielded, too.

    Yields:
        None: none is new, look again later.
    """
    start = read_snapshot(host.store, host.flows, execution)
    if since < start.number:
        start = read_snapshot(host.store, host.flows, execution, since)
    return _moments(host, execution, start)


def _moments(host: Host, execution: str, start: AtSnapshot) -> Iterator[Moment | None]:
    store, state, following, events = host.store, start.state, start.number, start.tail
    walked = walk_since(store, host.flows, execution, start)
    end = following + len(events)
    has_ended = state["status"] in ENDED
    while True:
        if following < end:
            moment = next(walked)
            following, has_ended = moment.number + 1, moment.state["status"] in ENDED
            yield moment
        elif more := unpacked(execution, store.events(execution, following, _BATCH)):
            events += more  # the walk continues with them
            end += len(more)
        elif has_ended:
            return
        else:
            yield None


# The events of all executions of a store, in the order of their commits.
#
# The store numbers them from the first reader on. Each event is shown as in the journal of its
# execution, which needs a replay: the executions that had events last are kept in memory.

_BATCH = 200
"""Numbers that are read at once."""
_KEPT_EVENTS = 50_000
"""Maximum number of events of the executions that are kept in memory."""
UNREADABLE = "unreadable"
"""Type of the entry of an event that cannot be read, because its journal is damaged."""


def all_events(
    host: Host, after: int | None, wanted: EventFilter, *, follow: bool
) -> Iterator[StoreEvent]:
    """Yield the events of all executions. See `Engine.executions.all_events`."""
    for event in feed_all(host, after):
        if event is None:
            if not follow:
                return
            time.sleep(FOLLOW_SECONDS)
        elif wanted.fits(event):
            yield event


def feed_all(host: Host, after: int | None) -> Iterator[StoreEvent | None]:
    """Yield the events of all executions, and None when none is new. It never ends.

    Args:
        host: Provides the store.
        after: Number of the last event to leave out. None: all so far.
    """
    last = host.store.number_events()
    after = last if after is None else after
    open_ = _Open(host)
    while True:
        batch = host.store.numbered(after, _BATCH)
        for numbered in batch:
            event = open_.event(numbered)
            if event is not None:
                yield event
            after = numbered.number
        if not batch:
            yield None


class _Followed:
    """One execution, replayed as far as its events were shown."""

    def __init__(self, host: Host, execution: str, since: int) -> None:
        self.record: ExecutionRecord = host.store.execution(execution)
        self.next = 0
        self._moments = moments(host, execution, since)

    def moment(self, seq: int) -> Moment | None:
        """Return an event that is not shown yet. None: its journal has ended before."""
        for moment in self._moments:
            if moment is None:
                return None
            self.next = moment.number + 1
            if moment.number == seq:
                return moment
        return None


class _Open:
    """The executions that had events last.

    Args:
        host: Provides the store.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._open: OrderedDict[str, _Followed] = OrderedDict()

    def event(self, numbered: Numbered) -> StoreEvent | None:
        """Return a numbered event. None: its execution was deleted."""
        try:
            followed, moment = self._moment(numbered)
        except FlowEngineError as error:
            self._open.pop(numbered.execution, None)
            return self._unreadable(numbered, error)
        if moment is None:
            return None
        record = followed.record
        status = moment.state["status"]
        entry = entry_of(moment)
        return StoreEvent(
            numbered.number, record.id, record.flow, status, record.labels, record.created_at, entry
        )

    def _moment(self, numbered: Numbered) -> tuple[_Followed, Moment | None]:
        followed = self._open.pop(numbered.execution, None)
        moment = None
        if followed is not None and followed.next <= numbered.seq:
            moment = followed.moment(numbered.seq)
        if followed is None or moment is None:  # also one that had ended, and was retried
            followed = _Followed(self._host, numbered.execution, numbered.seq)
            moment = followed.moment(numbered.seq)
        if moment is not None and moment.state["status"] not in ENDED:
            self._open[numbered.execution] = followed
            self._forget()
        return followed, moment

    def _forget(self) -> None:
        """Forget executions without events for longest."""
        kept = sum(followed.next for followed in self._open.values())
        while kept > _KEPT_EVENTS and len(self._open) > 1:
            kept -= self._open.popitem(last=False)[1].next

    def _unreadable(self, numbered: Numbered, error: FlowEngineError) -> StoreEvent | None:
        """Return an event of a damaged journal, which stops no other one."""
        try:
            record = self._host.store.execution(numbered.execution)
        except FlowEngineError:
            return None
        entry: dict[str, Any] = {"seq": numbered.seq, "type": UNREADABLE, "message": error.message}
        return StoreEvent(
            numbered.number, record.id, record.flow, record.status, record.labels,
            record.created_at, entry,
        )  # fmt: skip
