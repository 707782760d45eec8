"""A transition: the context that all modules share while one event is applied.

Modules never call upwards. Work for a module above is appended to the agenda, a first-in-first-out
list of entries (`state/entries.py`) that `advance` processes. Therefore no calls recurse, and work
is done in the order in which it was requested.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from heapq import heappush
from typing import Any

from flowengine.kernel.commands import ClearTimer, Command, Observation, SetTimer
from flowengine.kernel.errors import StepFailure
from flowengine.kernel.events import ErrorData
from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.graph.linked import Graph
from flowengine.kernel.state.entries import Entry
from flowengine.kernel.state.phases import Why
from flowengine.kernel.state.records import Activation, State, Unit
from flowengine.kernel.view import View

_NOTHING: dict[str, Any] = {}


class Transition(View):
    """The application of one event to an execution: its state and the remaining work.

    Attributes:
        moved: Heap of the scopes in which a token has moved, innermost (negated) first.
        marked: The scopes that are on the heap.
        calm: Scopes that have been checked since then, in which only a stuck join may need work.
        changed: State keys written since their watchers were last queued.
        watchers: Heap of the watchers to be checked for that reason, oldest first.
        awake: The watchers that are on that heap.
        emitted: Number of messages that steps have sent since the event began.
        entered: Number of subflows that have begun since the event began.
        rounds: Unit → number of its rounds that have begun since the event began.
        freed_places: Map activations in which an item has freed its place.
        begun: Units whose attempts the event has begun. If it also withdraws them, they never run.
        resumed: Units that waited for a lock or a budget and that the event resumes.
        event: The event. `reduced` has the results of the user's functions from the first time.
        reduced: The results of such functions so far.
        stood: Time since the previous event (ms).
        blame: Receives the causes of each failure, see `held_failures`. None costs nothing.
        idle_questions: Questions that may have no waiting units any more → the budget.
    """

    def __init__(
        self,
        graph: Graph,
        state: State,
        observe: list[Any] | None,
        event: Any = _NOTHING,
        blame: Blame | None = None,
        brief: bool = False,
    ) -> None:
        self.graph = graph
        self.event = event
        self.reduced: list[dict[str, Plain]] = []
        self.state = state
        self.now = state["now"]
        self.observe = observe
        self.brief = brief
        self.blame = blame
        self.stood = 0
        self.commands: list[Command] = []
        self.agenda: deque[Entry] = deque()
        self.moved: list[int] = []
        self.marked: set[int] = set()
        self.calm: dict[int, bool] = {}
        self.emitted = 0
        self.entered = 0
        self.rounds: dict[int, int] = {}
        self.changed: set[str] = set()
        self.watchers: list[int] = []
        self.awake: set[int] = set()
        self.freed_places: dict[int, bool] = {}
        self.begun: set[int] = set()
        self.resumed: set[int] = set()
        self.idle_questions: dict[int, int] = {}

    def new_id(self) -> int:
        """Return the next number for a record that events can name. See `State.last`."""
        self.state["last"] += 1
        return self.state["last"]

    def touch(self, scope: int) -> None:
        """Check a scope when the agenda is empty."""
        if scope not in self.marked:
            self.marked.add(scope)
            heappush(self.moved, -scope)

    def set_timer(self, delay: int, why: Why, ref: int, arg: int = 0) -> int:
        """Set a timer `delay` milliseconds from now and return its number."""
        return self.set_timer_at(self.now + delay, why, ref, arg)

    def set_timer_at(self, due: int, why: Why, ref: int, arg: int = 0) -> int:
        """Set a timer for a point in time and return its number."""
        timer = self.new_id()
        self.state["timers"][timer] = {"due": due, "why": why, "ref": ref, "arg": arg}
        self.commands.append(SetTimer(timer, due, why))
        return timer

    def clear_timer(self, timer: int) -> None:
        """Withdraw a timer, if it is still set."""
        if self.state["timers"].pop(timer, None) is not None:
            self.commands.append(ClearTimer(timer))

    def note(
        self,
        act: Activation,
        status: str,
        *,
        unit: Unit | None = None,
        outcome: str | None = None,
        output: Plain = None,
        error: ErrorData | None = None,
        given: Plain = None,
        to: Iterable[int] = (),
        handler: int = -1,
    ) -> None:
        """Report a change of an activation, or of one item of it, to the observer."""
        if self.observe is None:
            return
        address = self.step_address(act) if unit is None else self.address(unit)
        attempt = 0 if unit is None else unit.get("attempt", 0)
        if unit is not None and given is None:
            given = unit.get("input")
            if given is not None and self.graph.nodes[act["step"]].environments:
                given = given["input"]
        if unit is not None and given is None:
            given = unit.get("args")
        items = None
        if unit is not None and unit["item"] >= 0 and has_items(act):
            items = act["succeeded"] + act["failed"], len(act["over"])
        self.observe.append(
            Observation(
                self.now,
                address,
                act["step"],
                status,
                outcome,
                attempt,
                output,
                error,
                given,
                tuple(to),
                handler,
                items,
            )
        )


def has_items(act: Activation) -> bool:
    """Return whether an activation is a map that has begun. `over` contains its items."""
    return "over" in act


def require(condition: bool, type: str, message: str, data: Plain = None) -> None:
    """Raise a failure of the step unless a condition holds.

    Args:
        condition: The condition.
        type: The error's type.
        message: The error's message.
        data: The error's data, for handlers.

    Raises:
        StepFailure: The condition does not hold.
    """
    if not condition:
        raise StepFailure(type, message, data)


# The causes of failures in an execution, recorded during replay.

KINDS = ("unit", "act", "scope")
"""The kinds of places whose failure can be held back."""

FailurePlace = tuple[str, int]
"""`unit`, `act` or `scope` with its number. Also `items`, the failed items of a map, and
`cleanup`."""


class Blame:
    """The causes of failures, recorded during replay.

    Attributes:
        number: Number of the event that is being applied.
    """

    def __init__(self) -> None:
        self.number = 0
        self._causes: dict[FailurePlace, list[FailurePlace]] = {}
        self._seen: dict[FailurePlace, tuple[int, str]] = {}

    def note(self, place: FailurePlace, *causes: FailurePlace) -> None:
        """Record the causes of a place's failure. Without causes, the error was raised there."""
        self._causes[place] = list(causes)

    def add(self, place: FailurePlace, cause: FailurePlace) -> None:
        """Add a cause to a place's failure."""
        self._causes.setdefault(place, []).append(cause)

    def causes(self, place: FailurePlace) -> list[FailurePlace]:
        """Return the recorded causes of a place's failure."""
        return self._causes.get(place, [])

    def see(self, place: FailurePlace, address: str) -> None:
        """Record that a place fails now, and its address.

        Later calls for the same place have no effect.
        """
        self._seen.setdefault(place, (self.number, address))

    def forget(self, place: FailurePlace) -> None:
        """Remove the record of a failure from which a place has recovered."""
        self._causes.pop(place, None)
        self._seen.pop(place, None)

    def seen(self, place: FailurePlace) -> tuple[int, str]:
        """Return the number of the event at which a place failed, and its address."""
        return self._seen.get(place, (self.number, ""))

    def raised(self, place: FailurePlace) -> list[FailurePlace]:
        """Return the places that raised the errors behind a place's failure."""
        found, seen, left = list[FailurePlace](), set[FailurePlace](), [place]
        while left:  # each of many subflows in one another adds one
            if (one := left.pop()) not in seen:
                seen.add(one)
                causes = self._causes.get(one)
                left += reversed(causes or ())
                found += () if causes else (one,)
        return found


def added(hold: Mapping[str, Any] | None, more: Mapping[str, Any]) -> dict[str, Any]:
    """Add failures to those held back. A failure that is in both is held back twice."""
    if hold is None:
        return dict(more)
    kinds = {kind: [*hold.get(kind, ()), *more.get(kind, ())] for kind in KINDS}
    return {**hold, **more, **{kind: numbers for kind, numbers in kinds.items() if numbers}}
