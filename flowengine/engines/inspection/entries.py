"""The entries of a journal from a number on, with what replay adds to them: addresses and reasons.

The replay begins at the last snapshot, unless an earlier entry is wanted.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from flowengine.engines.executions.growing_lists import GrowingLists
from flowengine.engines.executions.replay import (
    Moment,
    first_form,
    read,
    state_before_retry,
    unpacked,
    walk_on,
)
from flowengine.engines.executions.views import entry_view
from flowengine.engines.inspection.marks import DamagedMarks
from flowengine.engines.inspection.steps import OVER
from flowengine.journal.shapes import Sound, check_state
from flowengine.kernel import new_state

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flowengine.engines.host import Host
    from flowengine.engines.inspection.replayed import OpenHistories
    from flowengine.journal.records import ExecutionRecord
    from flowengine.kernel import Graph
    from flowengine.kernel.events import Event
    from flowengine.kernel.state.records import State

FOLLOW_SECONDS = 0.2
"""Seconds between two polls of a followed journal."""


class _Start(NamedTuple):
    """Where a replay begins."""

    hash: str
    """Of the flow that the execution runs now."""
    graph: Graph
    state: State
    number: int
    """Number of the next event."""
    events: list[Event]
    """Those from there on that have been read."""


def entries(
    host: Host, execution: str, since: int, histories: OpenHistories | None, *, follow: bool
) -> Iterator[dict[str, Any]]:
    """Yield the entries of a journal, starting at a number.

    Args:
        host: Provides the store.
        execution: Full id.
        since: Number of the first entry.
        histories: The executions that were shown last. None: they are not kept.
        follow: Wait for further entries until the execution has ended.

    Yields:
        See `entry_view`.
    """
    record = host.store.execution(execution)
    if histories is not None and not follow and _is_past(host, record, since, histories):
        with histories.opened(host.store, host.flows, record) as history:
            known = history.entries(since)
        try:
            yield from known
        except DamagedMarks:
            histories.damaged()
            raise
        return
    for entry in feed(host, execution, since):
        if entry is not None:
            yield entry
        elif not follow:
            return
        else:
            time.sleep(FOLLOW_SECONDS)


def _is_past(host: Host, record: ExecutionRecord, since: int, histories: OpenHistories) -> bool:
    """Return whether the last snapshot is too late, or less is read of what is kept."""
    if histories.has(host.store, record):
        return True
    snapshot = host.store.load(record.id).snapshot
    return snapshot is None or since < snapshot[0]


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
    start = _start(host, execution, None)
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
    return _moments(host, execution, _start(host, execution, since))


def _start(host: Host, execution: str, since: int | None) -> _Start:
    """Return where to begin: at the last snapshot, unless it is later than wanted.

    Args:
        host: Provides the store.
        execution: Full id.
        since: Number of the first event that is wanted. None: the snapshot is early enough.
    """
    store = host.store
    if since == 0:
        return _beginning(host, store.execution(execution).hash, read(store, execution))
    loaded = store.load(execution)
    hash, tail = loaded.record.hash, unpacked(execution, loaded.tail)
    if loaded.snapshot is None:
        return _beginning(host, hash, tail)
    number, packed = loaded.snapshot
    if since is not None and since < number:
        return _beginning(host, hash, read(store, execution))
    with Sound(f"what is stored of execution {execution}"):
        state, _ = GrowingLists(partial(store.events, execution)).load(packed, loaded.lists)
        check_state(state, new_state(), f"the snapshot of execution {execution}")
    return _Start(hash, host.flows.by_hash(hash).graph, state, number, tail)


def _beginning(host: Host, hash: str, journal: list[Event]) -> _Start:
    graph = host.flows.by_hash(first_form(journal, hash)).graph
    return _Start(hash, graph, new_state(), 0, journal)


def _moments(host: Host, execution: str, start: _Start) -> Iterator[Moment | None]:
    hash, graph, state, following, events = start
    store = host.store

    def before(number: int) -> tuple[Graph, State]:
        return state_before_retry(host.flows, hash, read(store, execution), number)

    walked = walk_on(host.flows, hash, graph, state, following, events, before)
    end = following + len(events)
    has_ended = state["status"] in OVER
    while True:
        if following < end:
            moment = next(walked)
            following, has_ended = moment.number + 1, moment.state["status"] in OVER
            yield moment
        elif has_ended:
            return
        elif more := unpacked(execution, store.events(execution, following)):
            events += more  # the walk continues with them
            end += len(more)
        else:
            yield None
