"""Reading a whole journal again: for history, for going back, for forks.

A journal is a line, with one exception: a `retry` goes back. What follows it goes on from the state
before the event number `back`; what lies between stays in the journal as what was tried. Up to an
`upgraded` it is read with the form that the flow had before, from there on with the one after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from flowengine.engines.views import address_of, unit_of, why_of
from flowengine.journal.format import unpack
from flowengine.kernel import advance, new_state
from flowengine.kernel.machine import Machine

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flowengine.engines.programs import Programs
    from flowengine.journal.store import Store
    from flowengine.kernel import Graph
    from flowengine.kernel.commands import Observation
    from flowengine.kernel.events import Event
    from flowengine.kernel.state import Activation, State


class Moment(NamedTuple):
    """An event, and the execution right after it."""

    number: int
    event: Event
    address: str | None
    """Of what the event is about."""
    unit: int | None
    """The unit whose attempt or wait it is about."""
    state: State
    """Changed by the next step of the walk."""
    graph: Graph
    """The form of the flow that the state is in."""
    why: str | None = None
    """Why the timer was set that has fired."""


def read(store: Store, execution: str) -> list[Event]:
    """Return all events of an execution."""
    return [unpack(entry.payload) for entry in store.events(execution)]


def first_form(journal: Sequence[Event], hash: str) -> str:
    """Return the structural hash of the flow that an execution began with.

    Args:
        journal: All its events.
        hash: Of the flow that it runs now.
    """
    for event in journal:
        if event["type"] == "upgraded":
            return event["before"]
    return hash


def forms(journal: Sequence[Event]) -> list[str]:
    """Return the hashes of the flows that a journal needs besides the last one."""
    return list(dict.fromkeys(e["before"] for e in journal if e["type"] == "upgraded"))


def walk(
    programs: Programs,
    hash: str,
    journal: Sequence[Event],
    observe: list[Observation] | None = None,
) -> Iterator[Moment]:
    """Walk through a journal, event by event.

    Args:
        programs: The flows that it was written under.
        hash: Of the flow that the execution runs now.
        journal: All events from the first on; may grow while it is walked.
        observe: Gets what happened to each activation.

    Yields:
        Each event with the state after it.
    """
    state = new_state()
    graph = programs.by_hash(first_form(journal, hash)).graph
    for number, event in enumerate(journal):
        if event["type"] == "retry":
            graph, state = state_at(programs, hash, journal, event["back"])
        unit = unit_of(state, event)
        address = address_of(graph, state, event)
        why = why_of(state, event)
        graph = _apply(programs, graph, state, event, observe)
        yield Moment(number, event, address, unit, state, graph, why)


def state_at(
    programs: Programs, hash: str, journal: Sequence[Event], count: int
) -> tuple[Graph, State]:
    """Return the flow and the state after the first `count` events.

    Args:
        programs: The flows that the journal was written under.
        hash: Of the flow that the execution runs now.
        journal: All events.
        count: How many.
    """
    state = new_state()
    graph = programs.by_hash(first_form(journal, hash)).graph
    for event in line(journal, count - 1):
        graph = _apply(programs, graph, state, event, None)
    return graph, state


def _apply(
    programs: Programs,
    graph: Graph,
    state: State,
    event: Event,
    observe: list[Observation] | None,
) -> Graph:
    """Apply an event, and return the flow that follows it."""
    if event["type"] != "upgraded":
        advance(graph, state, event, observe)
        return graph
    from flowengine.kernel.upgrading import upgrade

    after = programs.by_hash(event["after"]).graph
    upgrade(graph, after, state, event, observe)
    return after


def line(journal: Sequence[Event], last: int) -> list[Any]:
    """Return the events that lead to number `last`, without what was gone back over.

    Args:
        journal: All events.
        last: Number of the last one wanted.

    Returns:
        The events; each `retry` says where it goes back to in this list.
    """
    found: list[Any] = []
    while last >= 0:
        event = journal[last]
        found.append(event)
        last = (event["back"] if event["type"] == "retry" else last) - 1
    found.reverse()
    return [
        {**event, "back": number} if event["type"] == "retry" else event
        for number, event in enumerate(found)
    ]


def unit_at(graph: Graph, state: State, address: str) -> int | None:
    """Return the unit at work at an address, or None."""
    machine = Machine(graph, state, None)
    for number, unit in state["units"].items():
        if machine.address(unit) == address:
            return number
    return None


def final_around(state: State, unit: int) -> Activation | None:
    """Return the activation of the `finally` that a unit is part of, or None."""
    while unit:
        act = state["acts"][state["units"][unit]["act"]]
        if "final" in act:
            return act
        unit = state["scopes"][act["scope"]]["unit"]
    return None
