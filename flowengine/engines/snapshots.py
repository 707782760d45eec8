"""Stored executions at a snapshot, and the events since.

A state contains the current work of an execution: its open steps, and the items of its maps. Ended
steps have rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from flowengine.engines.executions.growing_lists import GrowingLists
from flowengine.engines.executions.linked_flows import (
    LinkedFlows,
    first_form,
    line,
    read,
    replayed,
    state_before_retry,
    unpacked,
    walk_on,
)
from flowengine.engines.executions.moments import Moment
from flowengine.journal.reading import HistoryPort
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
    hash, lists = loaded.record.hash, GrowingLists(partial(store.events, execution))
    if loaded.snapshot is None:
        tail = unpacked(execution, loaded.tail)
        form = first_form(tail, "") or _first_form_after(store, execution, until) or hash
        return AtSnapshot(hash, flows.by_hash(form).graph, new_state(), 0, tail)
    number, packed = loaded.snapshot
    with Sound(f"the stored data of execution {execution}"):
        state, _, form = lists.load(packed, loaded.lists)
        check_state(state, new_state(), f"the snapshot of execution {execution}")
        graph = flows.by_hash(form).graph
    return AtSnapshot(hash, graph, state, number, unpacked(execution, loaded.tail))


def _first_form_after(store: HistoryPort, execution: str, until: int | None) -> str:
    """Return the hash of the flow before the first upgrade from an event on. Empty: there is none.

    Args:
        store: Contains the execution.
        execution: Full id.
        until: Number of the event. There is no upgrade before it. None: after the last one.
    """
    table = None if until is None else store.steps(execution)
    if table is None or table.is_empty:
        later = () if until is None else store.events(execution, until)
        return first_form(unpacked(execution, later), "")
    return "".join(row.step for row in table.rows("id = :first"))


def walk_since(
    store: HistoryPort,
    flows: LinkedFlows,
    execution: str,
    start: AtSnapshot,
    observe: list[Observation] | None = None,
) -> Iterator[Moment]:
    """Walk through the events since a snapshot, which may be retries.

    Args:
        store: Contains the execution.
        flows: The flows of the store.
        execution: Full id.
        start: The snapshot. Its state is changed in place, and its events may grow.
        observe: Receives the observations of each activation.
    """
    before = partial(state_at_retry, store, flows, execution)
    at = start.hash, start.graph, start.state, start.number, start.tail
    return walk_on(flows, *at, before, observe)


def state_at_retry(
    store: HistoryPort, flows: LinkedFlows, execution: str, number: int
) -> tuple[Graph, State]:
    """Return the flow and the state from which the `retry` with this number continues."""
    near = read_snapshot(store, flows, execution, number + 1)
    if near.number == number:  # a retry has a snapshot from before it
        return near.graph, near.state
    return state_before_retry(flows, near.hash, read(store, execution), number)


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
