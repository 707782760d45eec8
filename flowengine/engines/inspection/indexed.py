"""Long executions at their last snapshot, or an earlier one, and the events since.

A state contains the current work of an execution: its open steps, and the items of its maps. Ended
steps are in the index that is stored beside the snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from itertools import islice

from flowengine.engines.executions import step_index
from flowengine.engines.executions.linked_flows import LinkedFlows, unpacked, walk_on
from flowengine.engines.executions.moments import Moment
from flowengine.engines.infos import StepInfo
from flowengine.engines.inspection.steps import ActivationLog
from flowengine.engines.snapshots import read_index
from flowengine.journal.reading import HistoryPort
from flowengine.journal.records import ExecutionRecord
from flowengine.kernel.commands import Observation
from flowengine.kernel.events import Event

LONG = 2_000
"""Events of an execution that takes noticeably longer to replay, or the records that they began:
one event may begin thousands of steps."""
_MOST_EVENTS = 50
"""Events of one step that are looked up one by one."""


def step_with_values(
    store: HistoryPort,
    flows: LinkedFlows,
    record: ExecutionRecord,
    address: str,
    also: Callable[[Moment, list[Observation]], None],
) -> StepInfo | None:
    """Return a step with its inputs and outputs, replayed from the snapshots before its events.

    Args:
        store: Contains the execution.
        flows: The flows of the store.
        record: The execution.
        address: Of the step.
        also: Receives the events about it, each with its observations.

    Returns:
        The step. None: it does not exist, or the whole journal must be replayed.
    """
    now = read_index(store, flows, record, values=False)
    if now is None:
        return None
    numbers = sorted({row.number for row in now.rows if row.address == address})
    if len(numbers) > _MOST_EVENTS:
        return None
    log, seen = ActivationLog(), list[Observation]()
    events: list[Event] = []
    moments: Iterator[Moment] = iter(())
    following = 0

    def add(count: int, wanted: Container[int]) -> None:
        for moment in islice(moments, count):
            own = [each for each in seen if each.address == address]
            seen.clear()
            if moment.number in wanted:
                also(moment, own)
                log.record(moment, own)

    for number in numbers:
        between = number + 1 - following
        more: list[Event] = []
        if events and 0 < between <= LONG:
            more = unpacked(record.id, store.events(record.id, following, between))
        if more and not any(event["type"] in step_index.REWRITES for event in more):
            events += more
        else:
            near = read_index(store, flows, record, values=False, until=number + 1)
            if near is None:
                return None
            events, following = near.tail, near.number
            state = near.graph, near.state, following, events
            moments = walk_on(flows, record.hash, *state, observe=seen)
        add(number + 1 - following, numbers)
        following = number + 1
    moments = walk_on(flows, record.hash, *now[:3], now.tail, observe=seen)
    add(len(now.tail), range(now.number, now.number + len(now.tail)))
    return log.step(address)
