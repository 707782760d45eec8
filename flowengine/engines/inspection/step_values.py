"""The values of one step, replayed from the snapshots before the events about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from itertools import islice, pairwise

from flowengine.engines.executions.linked_flows import LinkedFlows, unpacked
from flowengine.engines.executions.moments import Moment
from flowengine.engines.executions.step_rows import notes_of
from flowengine.engines.inspection.steps import StepValues
from flowengine.engines.snapshots import read_snapshot, walk_since
from flowengine.journal.reading import HistoryPort
from flowengine.journal.records import ExecutionRecord, StepRow
from flowengine.kernel.commands import Observation
from flowengine.kernel.events import Event

LONG = 2_000
"""Events of an execution that takes noticeably longer to replay, or the records that they began:
one event may begin thousands of steps."""
_MOST_JUMPS = 50
"""Events that are looked up from the snapshots before them, if many are wanted."""


def find_values(
    store: HistoryPort,
    flows: LinkedFlows,
    record: ExecutionRecord,
    wanted: Mapping[int, AbstractSet[str]],
    values: StepValues,
    also: Callable[[Moment, list[Observation]], None] | None = None,
) -> None:
    """Find the values of steps at some events.

    Args:
        store: Contains the execution.
        flows: The flows of the store.
        record: The execution.
        wanted: Number of an event → addresses of steps. If there are many, what is between them is
            replayed, but for the longest parts.
        values: Receives the values.
        also: Receives the events, each with the observations of the steps.
    """
    seen, events = list[Observation](), list[Event]()
    moments: Iterator[Moment] = iter(())
    following = 0
    gaps = sorted((after - before for before, after in pairwise(sorted(wanted))), reverse=True)
    longest = max([LONG, *gaps[_MOST_JUMPS - 1 :][:1]])
    for number, addresses in sorted(wanted.items()):
        between = number + 1 - following
        if events and between <= longest:
            events += unpacked(record.id, store.events(record.id, following, between))
        else:
            near = read_snapshot(store, flows, record.id, number + 1)
            events, following = near.tail, near.number
            moments = walk_since(store, flows, record.id, near, seen)
        for moment in islice(moments, number + 1 - following):
            if moment.number == number:
                own = [each for each in seen if each.address in addresses]
                values.record(moment, own)
                if also is not None:
                    also(moment, own)
            seen.clear()
        following = number + 1


def events_of(rows: Iterable[StepRow]) -> set[int]:
    """Return the numbers of the events about rows."""
    named = ((row.since, row.began_by, row.ended_by, *notes_of(row)) for row in rows)
    return {number for of_row in named for number in of_row if number is not None}
