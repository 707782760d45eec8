"""Long executions at their last snapshot, or an earlier one, and the events since.

A state has what an execution is doing: its open steps, and the items of its maps. The steps that
have ended are in the index that is stored beside the snapshot.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from flowengine.engines.executions import step_index
from flowengine.engines.executions.growing_lists import GrowingLists
from flowengine.engines.executions.linked_flows import first_form, unpacked, walk_on
from flowengine.engines.executions.step_index import (
    COMPUTED,
    GAVE,
    REMARK,
    has_remarks,
    read_rows,
)
from flowengine.engines.inspection.steps import ActivationLog
from flowengine.journal.shapes import check_state
from flowengine.kernel import new_state
from flowengine.kernel.commands import Observation
from flowengine.kernel.notation.times import format_time
from flowengine.kernel.view import View

if TYPE_CHECKING:
    from flowengine.engines.executions.execution import Execution
    from flowengine.engines.executions.growing_lists import Read
    from flowengine.engines.executions.linked_flows import LinkedFlows, Moment
    from flowengine.engines.executions.step_index import Row
    from flowengine.engines.host import Host
    from flowengine.engines.infos import StepInfo
    from flowengine.journal.reading import HistoryPort
    from flowengine.journal.records import ExecutionRecord, JournalEntry
    from flowengine.kernel import Graph
    from flowengine.kernel.events import Event
    from flowengine.kernel.state.records import Activation, State


LONG = 2_000
"""Events of an execution that takes noticeably longer to replay, or the records that they began:
one event may begin thousands of steps."""
_STATUSES = {
    **dict.fromkeys(("asked", "lock", "budget", "wait"), "waiting"),
    "pause": "retrying",
    "ask": "uncertain",
}
"""Phase of a unit → the status of its step, if it does not run."""


class Indexed(NamedTuple):
    """An execution at a snapshot, and the events since. None of these goes back."""

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

    @property
    def rows(self) -> Iterator[Row]:
        """What the index says."""
        return read_rows(self.items)


def read_index(
    store: HistoryPort,
    flows: LinkedFlows,
    record: ExecutionRecord,
    *,
    values: bool,
    until: int | None = None,
) -> Indexed | None:
    """Return an execution from the index of its steps. None: no index is stored.

    Args:
        store: Contains it.
        flows: The flows of the store.
        record: The execution, perhaps before it was upgraded.
        values: Whether to read the outputs of steps. If some are not stored, or the execution was
            upgraded, the result is None.
        until: Number of the first event to leave out. None: all are included.
    """
    if not flows.by_hash(record.hash).indexed:
        return None
    execution, loaded = record.id, store.load(record.id, until)
    if loaded.snapshot is None:
        return None
    linked = flows.by_hash(loaded.record.hash)
    number, packed = loaded.snapshot
    lists = GrowingLists(_ReadOnce(partial(store.events, execution)))
    state, length, _ = lists.load(packed, loaded.lists)
    check_state(state, new_state(), f"the snapshot of execution {execution}")
    tail = unpacked(execution, loaded.tail)
    if length is None:
        return None
    items = lists.items(step_index.parts_of(loaded.lists))[:length]
    if len(items) != length:
        raise ValueError(f"the index of steps has {len(items)} rows in place of {length}")
    remarks = []
    if has_remarks(items):
        remarks = [row.number for row in read_rows(items) if row.source == REMARK]
    wanted = set(remarks)
    if values or linked.tells:
        for row in read_rows(items):
            if row.source == COMPUTED:
                return None
            if row.source == GAVE:
                wanted.add(row.number)
    entries = list(lists.events(sorted(wanted)))
    seqs = [entry.seq for entry in entries]
    events = dict(zip(seqs, unpacked(execution, entries), strict=True))
    remarked = [events[number] for number in remarks]
    first = first_form(remarked, linked.hash)
    if values and first != linked.hash:
        return None
    return Indexed(linked.graph, state, number, items, tail, events, remarked, first)


_MOST_EVENTS = 50
"""Events of one step that are looked up one by one."""


def step_with_values(
    store: HistoryPort, flows: LinkedFlows, record: ExecutionRecord, address: str
) -> StepInfo | None:
    """Return a step with its inputs and outputs, replayed from the snapshots before its events.

    Args:
        store: Contains the execution.
        flows: The flows of the store.
        record: The execution.
        address: Of the step.

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

    def take(count: int, wanted: Container[int]) -> None:
        for moment in islice(moments, count):
            own = [each for each in seen if each.address == address]
            seen.clear()
            if moment.number in wanted:
                log.take(moment, own)

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
        take(number + 1 - following, numbers)
        following = number + 1
    moments = walk_on(flows, record.hash, *now[:3], now.tail, observe=seen)
    take(len(now.tail), range(now.number, now.number + len(now.tail)))
    return log.step(address)


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


# A long execution at a glance, without its past.


class Glance(NamedTuple):
    """What an execution is doing."""

    execution: Execution
    steps: list[StepInfo]
    """The open activations, items and rounds."""
    items: list[StepInfo]
    """The items that have ended of maps that have not, without times."""
    tail: list[Event]
    """The events since its last snapshot."""


def read_glance(host: Host, record: ExecutionRecord) -> Glance | None:
    """Return what an execution is doing. None: it is short enough to be replayed.

    Args:
        host: Provides the store.
        record: The execution.
    """
    loaded = host.store.load(record.id)
    if loaded.snapshot is None:
        return None
    execution = host.execution(record.id, host.flows.by_hash(loaded.record.hash), 0)
    execution.load(loaded)
    if max(execution.seq, execution.state["last"]) < LONG:
        return None
    view = View(execution.linked.graph, execution.state)
    acts = execution.state["acts"].values()
    return Glance(
        execution,
        [step for act in acts for step in _open_steps(view, act)],
        [item for act in acts for item in _ended_items(view, act)],
        unpacked(record.id, loaded.tail),
    )


def _open_steps(view: View, act: Activation) -> Iterator[StepInfo]:
    """Yield the open items or rounds of an activation, or the activation itself."""
    for number in act.get("units", ()):
        unit = view.state["units"][number]
        step = _step(view, act, view.address(unit))
        step["status"] = _STATUSES.get(unit["phase"], "running")
        step["attempts"] = unit.get("attempt", 0)
        if "at" in act and unit["item"] < 0 and not unit["round"]:
            step["started_at"] = format_time(act["at"])
        yield step


def _ended_items(view: View, act: Activation) -> Iterator[StepInfo]:
    if view.graph.nodes[act["step"]].plumbing:
        return
    address = view.step_address(act)
    for key, result in zip(act.get("keys", ()), act.get("results", ()), strict=False):
        if result is not None:
            item = _step(view, act, f"{address}[{key}]")
            item["status"], item["output"], item["error"] = result
            yield item


def _step(view: View, act: Activation, address: str) -> StepInfo:
    node = view.graph.nodes[act["step"]]
    step: Any = {
        "address": address,
        "step": node.id,
        "kind": node.kind,
        "status": "running",
        "outcome": None,
        "attempts": 0,
        "output": None,
        "error": None,
        "tries": [],
    }
    if node.plumbing:
        step["plumbing"] = True
    info: StepInfo = step
    return info
