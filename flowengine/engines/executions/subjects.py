"""The subject of an event: its unit, address and timer, and its counterpart in another state."""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Any

from flowengine.journal.encoding import inflate, pack_placed
from flowengine.journal.records import ListPart
from flowengine.kernel.commands import Observation
from flowengine.kernel.view import View
from flowengine.util.named_tuples import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from flowengine.journal.encoding import TextPosition
    from flowengine.kernel import Graph
    from flowengine.kernel.events import Event
    from flowengine.kernel.state.records import State, Wait

_SIGNS = re.compile(r"[\[@]")


def subject_of(state: State, event: Any) -> Any:
    """Return the subject of a decision, as it was shown. None: it is another event."""
    wait = state["waits"].get(event["wait"]) if event["type"] == "decided" else None
    return None if wait is None else wait["record"].get("subject")


def why_of(state: State, event: Any) -> str | None:
    """Return the reason of an event's timer, given the state before the event."""
    timer = state["timers"].get(event["timer"]) if event["type"] == "timer" else None
    return None if timer is None else str(timer["why"])


def unit_of(state: State, event: Any) -> int | None:
    """Return the unit that an event is about, given the state before the event."""
    number: Any = event.get("unit")
    if "wait" in event and event["wait"] in state["waits"]:
        number = _waiting(state["waits"][event["wait"]])
    elif "timer" in event and event["timer"] in state["timers"]:
        timer = state["timers"][event["timer"]]
        number = timer["ref"]
        if number in state["waits"]:
            number = _waiting(state["waits"][number])
    return number if number in state["units"] else None


def _waiting(wait: Wait) -> int:
    """Return the oldest unit that waits for an answer. 0: none."""
    return next(iter(wait.get("units", ())), wait["unit"])


def address_of(graph: Graph, state: State, event: Any) -> str | None:
    """Return the address of an event's subject, given the state before the event."""
    unit = unit_of(state, event)
    if unit is not None:
        return View(graph, state).address(state["units"][unit])
    if "wait" in event and event["wait"] in state["waits"]:
        return str(state["waits"][event["wait"]]["record"]["address"])
    return None


def wholes(address: str) -> list[str]:
    """Return the maps and loops that an address may be an item or a round of.

    Args:
        address: Address of an activation: `each[3]`, `poll@2`.
    """
    return [address[: sign.start()] for sign in _SIGNS.finditer(address)]


# Other states


class EventSubject(NamedTuple):
    """The subject of an event, in a form that can be found in another state."""

    kind: str
    """`unit`, `cut`, `wait` or `timer`. `late`: a subject that was already closed."""
    number: int
    key: tuple[Any, ...]
    address: str
    once: bool
    """Whether it is the success of a step with effect `once`."""


def about(graph: Graph, state: State, event: Any) -> EventSubject | None:
    """Return the subject of an event, given the state before. None: the execution as a whole."""
    m = View(graph, state)
    if "wait" in event:
        wait = state["waits"].get(event["wait"])
        if wait is None:
            return EventSubject("late", event["wait"], (), "", False)
        address = str(wait["record"]["address"])
        return EventSubject("wait", event["wait"], (wait["kind"], address), address, False)
    if "timer" in event:
        timer = state["timers"].get(event["timer"])
        if timer is None:
            return EventSubject("late", event["timer"], (), "", False)
        address = _address_of_timer(m, timer)
        key = (timer["why"], timer["arg"], address)
        return EventSubject("timer", event["timer"], key, address, False)
    number = event.get("unit")
    if event["type"] == "retry" or not number:
        return None
    if number in state["units"]:
        unit = state["units"][number]
        act = m.act_of(unit)
        address = m.address(unit)
        if unit["phase"] == "run" and event.get("attempt", unit["attempt"]) != unit["attempt"]:
            return EventSubject("late", number, (), "", False)
        once = m.node(act).effect == "once" and event["type"] == "succeeded"
        return EventSubject("unit", number, (address, act["line"]), address, once)
    if number in state["cuts"]:
        cut = state["cuts"][number]
        return EventSubject("cut", number, (cut["address"],), cut["address"], False)
    return EventSubject("late", number, (), "", False)


def _address_of_timer(m: View, timer: Any) -> str:
    state, ref = m.state, timer["ref"]
    if timer["why"] in ("timeout", "pause") and ref in state["units"]:
        return m.address(state["units"][ref])
    if timer["why"] == "deadline":
        return m.step_address(state["acts"][ref])
    if ref in state["waits"]:
        return str(state["waits"][ref]["record"]["address"])
    return state["scopes"][ref]["path"].rstrip("/") if ref in state["scopes"] else ""


def counterpart(graph: Graph, state: State, subject: EventSubject, event: Any) -> int | None:
    """Return the number of an event's subject in another state. None: it does not exist there."""
    key = "unit" if subject.kind == "cut" else subject.kind
    there = about(graph, state, event)
    if there is not None and (there.kind, there.key) == (subject.kind, subject.key):
        return subject.number
    tables: dict[str, Mapping[int, Any]] = {
        "unit": state["units"], "cut": state["cuts"], "wait": state["waits"],
        "timer": state["timers"],
    }  # fmt: skip
    for number in tables[subject.kind]:
        there = about(graph, state, {**event, key: number})
        if there is not None and (there.kind, there.key) == (subject.kind, subject.key):
            return number
    return None


# An index of observed steps, stored beside snapshots, to show long executions without replay.
#
# It is kept for executions with steps of generated flows, such as agents, because conversations
# get long and are viewed often. A change to the past of an execution ends its index. The execution
# is then shown by replaying its journal, like all others.

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
