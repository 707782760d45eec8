"""Stored executions at a snapshot, and the events since.

A state contains the current work of an execution: its open steps, and the items of its maps. Ended
steps are in the index that is stored beside the snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from flowengine.engines.executions import step_index
from flowengine.engines.executions.growing_lists import GrowingLists, Read
from flowengine.engines.executions.linked_flows import (
    LinkedFlows,
    first_form,
    read,
    state_before_retry,
    unpacked,
)
from flowengine.engines.executions.step_index import (
    COMPUTED,
    GAVE,
    REMARK,
    Row,
    has_remarks,
    read_rows,
)
from flowengine.journal.reading import HistoryPort
from flowengine.journal.records import ExecutionRecord, JournalEntry, ListPart
from flowengine.journal.shapes import Sound, check_state
from flowengine.kernel import Graph, new_state
from flowengine.kernel.events import Event
from flowengine.kernel.state.records import State


class AtSnapshot(NamedTuple):
    """An execution at its last snapshot, or at its beginning, and the events since."""

    hash: str
    """Of the flow that the execution runs now."""
    graph: Graph
    state: State
    number: int
    """Number of the first event since. 0: no snapshot exists."""
    tail: list[Event]
    lists: GrowingLists
    parts: Sequence[ListPart]
    """All stored parts of its lists."""
    rows: int | None
    """Length of the index of its steps. None: there is none."""


def read_snapshot(
    store: HistoryPort, flows: LinkedFlows, execution: str, until: int | None = None
) -> AtSnapshot:
    """Return an execution at a snapshot.

    Args:
        store: Contains it.
        flows: The flows of the store.
        execution: Full id.
        until: Number of the first event to leave out. None: all are included.
    """
    loaded = store.load(execution, until)
    hash, lists = loaded.record.hash, GrowingLists(_ReadOnce(partial(store.events, execution)))
    if loaded.snapshot is None:
        journal = unpacked(execution, loaded.tail) if until is None else read(store, execution)
        graph = flows.by_hash(first_form(journal, hash)).graph
        return AtSnapshot(hash, graph, new_state(), 0, journal[:until], lists, [], None)
    number, packed = loaded.snapshot
    with Sound(f"the stored data of execution {execution}"):
        state, rows, _ = lists.load(packed, loaded.lists)
        check_state(state, new_state(), f"the snapshot of execution {execution}")
    tail, graph = unpacked(execution, loaded.tail), flows.by_hash(hash).graph
    return AtSnapshot(hash, graph, state, number, tail, lists, loaded.lists, rows)


def state_at_retry(
    store: HistoryPort, flows: LinkedFlows, execution: str, number: int
) -> tuple[Graph, State]:
    """Return the flow and the state from which the `retry` with this number continues."""
    near = read_snapshot(store, flows, execution, number + 1)
    if near.number == number:  # a retry has a snapshot from before it
        return near.graph, near.state
    return state_before_retry(flows, near.hash, read(store, execution), number)


class Indexed(NamedTuple):
    """An execution at a snapshot with an index of its steps. No event since goes back."""

    graph: Graph
    state: State
    number: int
    """Number of the first event since."""
    items: list[Any]
    """The rows of the index, see `read_rows`."""
    tail: list[Event]
    events: dict[int, Event]
    """Those before that have been read: remarks, and the ones with outputs, if they are needed."""
    remarked: list[Event]
    """The events before that have further information, such as warnings."""
    first_form: str
    """Hash of the flow of the first rows."""
    end: int
    """Number of the first event without rows: of the tail, or after it."""

    @property
    def rows(self) -> Iterator[Row]:
        return read_rows(self.items, self.end)


def read_index(
    store: HistoryPort,
    flows: LinkedFlows,
    record: ExecutionRecord,
    *,
    values: bool,
    until: int | None = None,
    ahead: bool = False,
) -> Indexed | None:
    """Return an execution from the index of its steps. None: no index is stored.

    Args:
        store: Contains it.
        flows: The flows of the store.
        record: The execution, perhaps before it was upgraded.
        values: Whether to read the outputs of steps. If some are not stored, or the execution was
            upgraded, the result is None.
        until: Number of the first event to leave out. None: all are included.
        ahead: Whether to read the rows of the tail, too, if a later snapshot has them.
    """
    if not flows.by_hash(record.hash).indexed:
        return None
    near = read_snapshot(store, flows, record.id, until)
    if near.rows is None:
        return None
    items, end = near.lists.items(step_index.parts_of(near.parts)), near.number
    if len(items) < near.rows:
        raise ValueError(f"the index of steps has {len(items)} rows in place of {near.rows}")
    if ahead and len(items) > near.rows:
        end += len(near.tail)
    else:
        del items[near.rows :]
    remarks = []
    if has_remarks(items):
        remarks = [row.number for row in read_rows(items, end) if row.source == REMARK]
    wanted = set(remarks)
    if values or flows.by_hash(near.hash).tells:
        for row in read_rows(items, end):
            if row.source == COMPUTED:
                return None
            if row.source == GAVE:
                wanted.add(row.number)
    entries = list(near.lists.events(sorted(wanted)))
    seqs = [entry.seq for entry in entries]
    events = dict(zip(seqs, unpacked(record.id, entries), strict=True))
    remarked = [events[number] for number in remarks]
    first = first_form(remarked, near.hash)
    if values and first != near.hash:
        return None
    at = near.graph, near.state, near.number, items, near.tail
    return Indexed(*at, events, remarked, first, end)


class _ReadOnce:
    """Reads events of an execution, and caches them.

    The texts of a conversation, the outputs of its steps and its messages are in the same events.

    Args:
        read: Reads them from the store.
    """

    def __init__(self, read: Read) -> None:
        self._read = read
        self._entries: dict[int, JournalEntry] = {}

    def __call__(self, since: int, limit: int) -> list[JournalEntry]:
        """Return at most this many events, starting at a number."""
        wanted = range(since, since + limit)
        known = self._entries
        if missing := [number for number in wanted if number not in known]:
            first, last = missing[0], missing[-1]
            known.update((entry.seq, entry) for entry in self._read(first, last + 1 - first))
        return [known[number] for number in wanted if number in known]
