"""Replay of whole journals, for history, retries and forks.

A journal is linear, except that a `retry` goes back. Of the earlier events, those before `back` and
those listed in `kept` remain valid. The others stay in the journal as a record of the failed try.
Events up to an `upgraded` are read with the previous form of the flow, later ones with the new
form.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from flowengine.engines.executions.subjects import address_of, subject_of, unit_of, why_of
from flowengine.journal.shapes import Sound, unpack_event
from flowengine.kernel import advance, new_state
from flowengine.kernel.causes import added
from flowengine.kernel.view import View

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from flowengine.engines.executions.linked_flows import LinkedFlows
    from flowengine.journal.ports.history import HistoryPort
    from flowengine.journal.records import JournalEntry
    from flowengine.kernel import Graph
    from flowengine.kernel.commands import Observation
    from flowengine.kernel.events import Event
    from flowengine.kernel.graph.compiled import Plain
    from flowengine.kernel.state.records import State


class Moment(NamedTuple):
    """An event, and the execution right after it."""

    number: int
    event: Event
    address: str | None
    """Address of the event's subject."""
    unit: int | None
    """The unit whose attempt or wait the event is about."""
    state: State
    """The next step of the walk changes it."""
    graph: Graph
    """The form of the flow that the state is in."""
    why: str | None = None
    """Why the timer was set that has fired."""
    subject: Plain = None
    """The subject of the decision, before its edits."""


def read(store: HistoryPort, execution: str) -> list[Event]:
    """Return all events of an execution."""
    return unpacked(execution, store.events(execution))


def unpacked(execution: str, entries: Iterable[JournalEntry]) -> list[Event]:
    """Return entries of the journal of an execution as events."""
    return [
        unpack_event(entry.payload, f"entry {entry.seq} of execution {execution}")
        for entry in entries
    ]


def first_form(journal: Sequence[Event], hash: str) -> str:
    """Return the structural hash of the flow that an execution began with.

    Args:
        journal: All its events.
        hash: Hash of the flow that it runs now.
    """
    for event in journal:
        if event["type"] == "upgraded":
            return event["before"]
    return hash


def forms(journal: Sequence[Event]) -> list[str]:
    """Return the hashes of the flows that a journal refers to, except the last one."""
    return list(dict.fromkeys(e["before"] for e in journal if e["type"] == "upgraded"))


def walk(
    flows: LinkedFlows,
    hash: str,
    journal: Sequence[Event],
    observe: list[Observation] | None = None,
) -> Iterator[Moment]:
    """Walk through a journal, event by event.

    Args:
        flows: The flows under which it was written.
        hash: Hash of the flow that the execution runs now.
        journal: All events from the first on. It may grow during the walk.
        observe: Receives the observations of each activation.

    Yields:
        Each event with the state after it.
    """
    graph = flows.by_hash(first_form(journal, hash)).graph
    before = partial(state_before_retry, flows, hash, journal)
    yield from walk_on(flows, hash, graph, new_state(), 0, journal, before, observe)


def walk_on(
    flows: LinkedFlows,
    hash: str,
    graph: Graph,
    state: State,
    number: int,
    events: Sequence[Event],
    before: Callable[[int], tuple[Graph, State]] | None = None,
    observe: list[Observation] | None = None,
) -> Iterator[Moment]:
    """Walk through the events after a state, like `walk`.

    Args:
        flows: The flows under which they were written.
        hash: Hash of the flow of the execution, for errors.
        graph: The flow in that state.
        state: Changed in place.
        number: Number of the first event.
        events: The events from there on. They may grow during the walk.
        before: Returns the flow and the state from which the `retry` with a number continues.
            None: no event changes the past.
        observe: Receives the observations of each activation.
    """
    for at, event in enumerate(events, number):
        if before is not None and event["type"] == "retry" and "back" in event:
            graph, state = before(at)
        with Sound(f"entry {at} of a journal of flow {hash}"):
            moment = _moment(flows, graph, state, at, event, observe)
        graph = moment.graph
        yield moment


def _moment(
    flows: LinkedFlows,
    graph: Graph,
    state: State,
    number: int,
    event: Event,
    observe: list[Observation] | None,
) -> Moment:
    unit = unit_of(state, event)
    address = address_of(graph, state, event)
    why = why_of(state, event)
    subject = subject_of(state, event)
    graph = apply(flows, graph, state, event, observe)
    return Moment(number, event, address, unit, state, graph, why, subject)


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
    return replayed(flows, first_form(journal, hash), line(journal, count - 1))


def state_before_retry(
    flows: LinkedFlows, hash: str, journal: Sequence[Event], number: int
) -> tuple[Graph, State]:
    """Return the flow and the state from which the `retry` with this number continues."""
    return replayed(flows, first_form(journal, hash), line(journal, number)[:-1])


def replayed(flows: LinkedFlows, hash: str, events: Sequence[Event]) -> tuple[Graph, State]:
    """Return the flow and the state after a linear sequence of events.

    Args:
        flows: The flows under which they were written.
        hash: Hash of the flow at their start.
        events: As `line` returns them.
    """
    state, graph = new_state(), flows.by_hash(hash).graph
    for event in events:
        graph = apply(flows, graph, state, event)
    return graph, state


def apply(
    flows: LinkedFlows,
    graph: Graph,
    state: State,
    event: Event,
    observe: list[Observation] | None = None,
) -> Graph:
    """Apply an event, and return the resulting flow."""
    after = flows.by_hash(event["after"]).graph if event["type"] == "upgraded" else None
    advance(graph, state, event, observe, after=after)
    return after or graph


def line(journal: Sequence[Event], last: int) -> list[Any]:
    """Return the events that lead to number `last`, without those discarded by retries.

    Args:
        journal: All events.
        last: Number of the last event to return.

    Returns:
        The events, to be applied one after the other. No `retry` goes back any more.
    """
    events: list[Any] = []
    for event in journal[: last + 1]:
        if event["type"] != "retry" or "back" not in event:
            events.append(event)
        else:
            events = [*events[: event["back"]], *_kept(events, event), _straight(event)]
    return events


def _kept(events: Sequence[Any], event: Any) -> Iterator[Any]:
    """Yield the events that a `retry` applies again, the first one with its failures held back."""
    hold = event["hold"]
    for kept in event["kept"]:
        number, *others = kept if isinstance(kept, list) else (kept,)
        again = with_holds(events[number], hold)
        hold = None
        if others and again["type"] == "retry":
            again["late"] = others
        elif others:
            again[_subject(again)] = others[0]
        yield again


def with_holds(event: Any, hold: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return an event with further failures to hold back when it is applied again."""
    return dict(event) if hold is None else {**event, "holds": added(event.get("holds"), hold)}


def _subject(event: Mapping[str, Any]) -> str:
    """Return the key with which an event identifies its subject."""
    return next(key for key in ("timer", "wait", "unit") if key in event)


def _straight(event: Any) -> dict[str, Any]:
    """Return a `retry` without going back: it continues from the preceding events."""
    dropped = ("back", "kept")
    return {key: value for key, value in event.items() if key not in dropped}


def unit_at(graph: Graph, state: State, address: str) -> int | None:
    """Return the active unit at an address, or None."""
    view = View(graph, state)
    for number, unit in state["units"].items():
        if view.address(unit) == address:
            return number
    return None


def running(graph: Graph, state: State) -> dict[int, tuple[str, int]]:
    """Return the units with a running attempt: number → address and attempt."""
    view, units = View(graph, state), state["units"].items()
    return {n: (view.address(unit), unit["attempt"]) for n, unit in units if unit["phase"] == "run"}


def is_held_at(graph: Graph, state: State, address: str) -> bool:
    """Return whether a unit or step at an address is held until it is released."""
    view = View(graph, state)
    units = [view.address(unit) for unit in state["units"].values() if "then" in unit]
    acts = [view.step_address(other) for other in state["acts"].values() if "then" in other]
    return address in units or address in acts
