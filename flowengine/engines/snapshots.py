"""Stored executions at a snapshot, and the events since.

A state contains the current work of an execution: its open steps, and the items of its maps. Ended
steps are in the index that is stored beside the snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from flowengine.engines.executions.growing_lists import GrowingLists, Read
from flowengine.engines.executions.linked_flows import (
    LinkedFlows,
    first_form,
    line,
    read,
    replayed,
    state_before_retry,
    unpacked,
)
from flowengine.engines.executions.step_index import (
    _OF_REMARK,
    COMPUTED,
    COPIED,
    GAVE,
    NAME,
    REMARK,
)
from flowengine.journal.encoding import inflate
from flowengine.journal.reading import HistoryPort
from flowengine.journal.records import ExecutionRecord, JournalEntry, ListPart
from flowengine.journal.shapes import Sound, check_state
from flowengine.kernel import Graph, new_state
from flowengine.kernel.commands import Observation
from flowengine.kernel.events import Event
from flowengine.kernel.notation.addresses import steps_in
from flowengine.kernel.state.records import State
from flowengine.kernel.view import View


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
    items, end = near.lists.items(parts_of(near.parts)), near.number
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


def state_at(
    flows: LinkedFlows, hash: str, journal: Sequence[Event], count: int
) -> tuple[Graph, State]:
    """Return the flow and the state after the first `count` events.

    Args:
        flows: The flows under which the journal was written.
        hash: Hash of the flow that the execution runs now.
        journal: All events.
        count: Number of events.
    """
    graph = flows.by_hash(first_form(journal, hash)).graph
    return replayed(flows, graph, new_state(), line(journal, count - 1))


def unit_at(graph: Graph, state: State, address: str) -> int | None:
    """Return the active unit at an address, or None."""
    view, id = View(graph, state), steps_in(address)[-1]
    for number, unit in state["units"].items():
        act = view.act_of(unit)
        # An address takes longer than its last id, which all but compensations and cleanups have.
        if ("address" in act or view.node(act).id == id) and view.address(unit) == address:
            return number
    return None


def is_held_at(graph: Graph, state: State, address: str) -> bool:
    """Return whether a unit or step at an address is held until it is released."""
    view = View(graph, state)
    units = [view.address(unit) for unit in state["units"].values() if "then" in unit]
    acts = [view.step_address(other) for other in state["acts"].values() if "then" in other]
    return address in units or address in acts


class Row(NamedTuple):
    """An observation, a remark, which has a number and an address only, or a step at work."""

    number: int
    """Of its event."""
    source: int
    """Of the output: `COPIED`, `GAVE`, `COMPUTED`. Otherwise `REMARK` or `AT_WORK`."""
    at: int
    address: str
    """Empty: of the execution."""
    step: int = 0
    status: str = ""
    outcome: str | None = None
    attempt: int = 0
    output: Any = None
    error: Any = None

    @property
    def observation(self) -> Observation:
        """The observation, without an output that is elsewhere."""
        return Observation(*self[2:], None)


_row: Callable[[tuple[Any, ...]], Row] = partial(tuple.__new__, Row)  # long executions have many


def read_rows(items: Iterable[Any], until: int | None = None) -> Iterator[Row]:
    """Yield the rows of an index, in order.

    Args:
        items: The rows as stored, not trusted.
        until: Number of the first event to leave out. None: all are included.
    """
    rows = iter(items)
    number, at, address, step = -1, 0, "", 0
    steps: dict[str, int] = {}
    of_row: tuple[Any, ...]
    for row in rows:
        kind = type(row)
        if kind is int:
            number, at = number + 1, row
            if number == until:
                return
        elif row is None:
            yield _row((number, GAVE, at, address, step, "succeeded", "ok", 0, None, None))
        elif kind is str:
            what: Any = next(rows)
            if type(what) is int:
                address, step, attempt = row, what, next(rows)
                steps[address] = step
                of_row = (number, COPIED, at, row, step, "running", None, attempt, None, None)
            elif what is None:
                of_row = (number, GAVE, at, row, steps[row], "succeeded", "ok", 0, None, None)
            else:
                of, attempt = next(rows), next(rows)
                of_row = (number, GAVE, at, row, of, "succeeded", what, attempt, None, None)
            yield _row(of_row)
        elif len(row) == _OF_REMARK:
            yield Row(number, REMARK, at, row[0] or "")
        else:
            where, of, status, outcome, attempt, source, output, error = row
            steps[where] = of
            yield Row(number, source, at, where, of, status, outcome, attempt, output, error)


def has_remarks(items: Sequence[Any]) -> bool:
    """Return whether there are remarks among the rows of an index."""
    return list in map(type, items) and any(len(r) == _OF_REMARK for r in items if type(r) is list)


def parts_of(lists: Sequence[ListPart]) -> list[ListPart]:
    """Return the parts of the index among the parts of all lists."""
    return [part._replace(items=inflate(part.items)) for part in lists if part.name == NAME]
