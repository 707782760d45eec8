"""An index of observed steps, stored beside snapshots, to show long executions without replay.

It is kept for executions with steps of generated flows, such as agents, because conversations get
long and are viewed often. A change to the past of an execution ends its index. The execution is
then shown by replaying its journal, like all others.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

from flowengine.engines.executions.subjects import address_of
from flowengine.journal.encoding import inflate, pack_placed
from flowengine.journal.records import ListPart
from flowengine.kernel.commands import Observation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from flowengine.journal.encoding import TextPosition
    from flowengine.kernel import Graph
    from flowengine.kernel.events import Event
    from flowengine.kernel.state.records import State

NAME = ":steps"
"""Name under which its parts are stored. No state key has this name."""
REWRITES = frozenset({"retry", "upgraded"})
_SEEN, _GAVE, _REMARK = 0, 1, 2
"""Kinds of records: an observation, an observation whose output is the value of an event, and an
event with further information."""
_NUMBER = {_GAVE: 7, _REMARK: 1}
"""Position of the event number in a record, by kind of record."""
Remark = tuple[str | None, "Event"]
"""An event with further information on a step or the execution, and the address of the step."""


class StepIndex:
    """The observations since the last snapshot.

    Attributes:
        seen: The kernel's observations while an event is applied. None: no index is kept.
    """

    __slots__ = ("_count", "_records", "_remark", "_stored", "seen")

    def __init__(self, *, kept: bool) -> None:
        self.seen: list[Observation] | None = [] if kept else None
        self._records: list[list[Any]] = []
        self._remark: list[Any] | None = None
        self._count = 0
        self._stored = False

    def end(self) -> None:
        """Stop keeping an index."""
        self.seen = None
        self._records = []

    def before(self, graph: Graph, state: State, number: int, event: Event) -> None:
        """Process an event that is about to be applied."""
        kind = event["type"]
        if kind in REWRITES:
            self.end()
        elif kind in ("decided", "warning") or "evidence" in event or "log" in event:
            self._remark = [_REMARK, number, address_of(graph, state, event)]

    def after(self, graph: Graph, number: int, event: Mapping[str, Any]) -> None:
        """Record the observations of an applied event."""
        assert self.seen is not None
        value = event.get("value")
        for observation in self.seen:
            kind, output = _SEEN, observation.output
            if graph.node(observation.step).plumbing and observation.error is None:
                output = None
            elif output is not None and output is value:
                kind, output = _GAVE, number
            fields = [
                observation.at,
                observation.address,
                observation.step,
                observation.status,
                observation.outcome,
                observation.attempt,
            ]
            self._records.append([kind, *fields, output, observation.error])
        self.seen.clear()
        if self._remark is not None:
            self._records.append(self._remark)
            self._remark = None

    def part(self, places: Callable[[], Mapping[str, TextPosition]]) -> ListPart | None:
        """Return the new records since the last snapshot, if any."""
        if self.seen is None:
            was_stored, self._stored = self._stored, False
            return ListPart(NAME, 0, b"") if was_stored else None
        if not self._records:
            return None
        first, records = self._count, self._records
        self._count, self._records = first + len(records), []
        self._stored = True
        return ListPart(NAME, first, zlib.compress(pack_placed(records, places), 1))

    @property
    def length(self) -> int | None:
        """Number of records. None: no index is kept."""
        return None if self.seen is None else self._count

    def loaded(self, length: int | None) -> None:
        """Continue after a snapshot.

        Args:
            length: The number of records according to the snapshot.
        """
        self._count = length or 0
        self._stored = length is not None
        if length is None:
            self.end()


def records(
    items: Sequence[list[Any]], events: Callable[[Sequence[int]], Mapping[int, Event]]
) -> Iterator[Observation | Remark]:
    """Yield the records of an index.

    Args:
        items: The items of the index.
        events: Returns events by their numbers, which are in order.
    """
    by_number = events(sorted({item[_NUMBER[item[0]]] for item in items if item[0] in _NUMBER}))
    for item in items:
        if item[0] == _REMARK:
            _, number, address = item
            yield address, by_number[number]
            continue
        kind, at, address, step, status, outcome, attempt, output, error = item
        if kind == _GAVE:
            event: Any = by_number[output]
            assert event["type"] == "succeeded", event["type"]
            output = event["value"]
        yield Observation(at, address, step, status, outcome, attempt, output, error, None)


def parts_of(lists: Sequence[ListPart]) -> list[ListPart]:
    """Return the parts of the index among the parts of all lists."""
    return [part._replace(items=inflate(part.items)) for part in lists if part.name == NAME]
