"""What an execution did up to its last snapshot, from the index of its steps."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from flowengine.engines.executions import step_index
from flowengine.engines.executions.growing_lists import GrowingLists
from flowengine.engines.executions.replay import unpacked
from flowengine.engines.executions.step_index import Gave, Remark
from flowengine.journal.encoding import unpack_snapshot
from flowengine.kernel.commands import Observation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flowengine.engines.host import Host
    from flowengine.journal.records import ExecutionRecord, Loaded
    from flowengine.kernel import Graph
    from flowengine.kernel.events import Event
    from flowengine.kernel.state.records import State


class Indexed(NamedTuple):
    """An execution at its last snapshot, and the events since."""

    graph: Graph
    state: State
    number: int
    """Of the first event since."""
    records: list[Observation | tuple[str | None, Event]]
    """What was observed; and events that say more, each with the address that it is about."""
    tail: list[Event]


def read_index(host: Host, record: ExecutionRecord) -> Indexed | None:
    """Return an execution by the index of its steps; None: none is kept, or there is none yet."""
    linked = host.flows.by_hash(record.hash)
    if not linked.indexed:
        return None
    loaded = host.store.load(record.id)
    if loaded.snapshot is None:
        return None
    number, packed = loaded.snapshot
    state: State = unpack_snapshot(packed)
    lists = GrowingLists(partial(host.store.events, record.id))
    length = lists.join(state, loaded.lists)
    tail = unpacked(record.id, loaded.tail)
    if length is None or any(event["type"] in step_index.REWRITES for event in tail):
        return None
    found = list(_records(lists, record.id, loaded))
    if len(found) != length:
        raise ValueError(f"the index of steps has {len(found)} records in place of {length}")
    return Indexed(linked.graph, state, number, found, tail)


def _records(
    lists: GrowingLists, execution: str, loaded: Loaded
) -> Iterator[Observation | tuple[str | None, Event]]:
    found = [*step_index.records(lists.items, loaded.lists)]
    numbers = {one.event for one in found if isinstance(one, Remark)}
    numbers |= {
        one.output.event
        for one in found
        if isinstance(one, Observation) and isinstance(one.output, Gave)
    }
    entries = lists.events(sorted(numbers))
    events = {entry.seq: unpacked(execution, [entry])[0] for entry in entries}
    for one in found:
        if isinstance(one, Remark):
            yield one.address, events[one.event]
        elif isinstance(one.output, Gave):
            event = events[one.output.event]
            assert event["type"] == "succeeded", event["type"]
            yield one._replace(output=event["value"])
        else:
            yield one
