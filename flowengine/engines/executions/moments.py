"""A moment of an execution, as a walk through its journal comes by."""

from __future__ import annotations

from typing import NamedTuple

from flowengine.kernel import Graph
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
