"""The history of an execution up to its last snapshot, from the index of its steps."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from flowengine.engines.executions import step_index
from flowengine.engines.executions.growing_lists import GrowingLists
from flowengine.engines.executions.replay import unpacked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flowengine.engines.executions.growing_lists import Read
    from flowengine.engines.executions.step_index import Remark
    from flowengine.engines.host import Host
    from flowengine.journal.records import ExecutionRecord, JournalEntry
    from flowengine.kernel import Graph
    from flowengine.kernel.commands import Observation
    from flowengine.kernel.events import Event
    from flowengine.kernel.state.records import State


class Indexed(NamedTuple):
    """An execution at its last snapshot, and the events since."""

    graph: Graph
    state: State
    number: int
    """Number of the first event since."""
    records: list[Observation | Remark]
    """The observations, and events with further information, each with the address of its step."""
    tail: list[Event]


def read_index(host: Host, record: ExecutionRecord) -> Indexed | None:
    """Return an execution from the index of its steps. None: no index is stored."""
    linked = host.flows.by_hash(record.hash)
    if not linked.indexed:
        return None
    loaded = host.store.load(record.id)
    if loaded.snapshot is None:
        return None
    number, packed = loaded.snapshot
    lists = GrowingLists(_ReadOnce(partial(host.store.events, record.id)))
    state, length = lists.load(packed, loaded.lists)
    tail = unpacked(record.id, loaded.tail)
    if length is None or any(event["type"] in step_index.REWRITES for event in tail):
        return None

    def events(numbers: Sequence[int]) -> dict[int, Event]:
        entries = list(lists.events(numbers))
        seqs = [entry.seq for entry in entries]
        return dict(zip(seqs, unpacked(record.id, entries), strict=True))

    items = lists.items(step_index.parts_of(loaded.lists))
    records = list(step_index.records(items, events))
    if len(records) != length:
        raise ValueError(f"the index of steps has {len(records)} records in place of {length}")
    return Indexed(linked.graph, state, number, records, tail)


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
