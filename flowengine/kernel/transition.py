"""A transition: the context that all modules share while one event is applied.

Modules never call upwards. Work that belongs to a module above is put on the agenda, a
first-in-first-out list of entries (`state/entries.py`) that `advance` works off. So nothing
recurses, and the order of work is the order in which it was requested.
"""

from __future__ import annotations

from collections import deque
from heapq import heappush
from typing import TYPE_CHECKING, Any

from flowengine.kernel.commands import ClearTimer, Command, Observation, SetTimer
from flowengine.kernel.errors import StepFailure
from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.graph.linked import Graph
from flowengine.kernel.view import View

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flowengine.kernel.causes import Blame
    from flowengine.kernel.events import ErrorData
    from flowengine.kernel.state.entries import Entry
    from flowengine.kernel.state.phases import Why
    from flowengine.kernel.state.records import Activation, State, Unit


_NOTHING: dict[str, Any] = {}


class Transition(View):
    """The application of one event to an execution: its state, and the work still to do.

    Attributes:
        moved: Heap of the scopes in which a token has moved, innermost (negated) first.
        marked: The scopes that are on the heap.
        calm: Scopes looked at since, in which only a stuck join may still have to act.
        changed: State keys written since it was last looked who watches them.
        watchers: Heap of those that are to be looked at because of that, the oldest first.
        awake: Those that are on that heap.
        emitted: Number of messages that steps have sent since the event began.
        entered: Number of subflows that have begun since the event began.
        rounds: Unit → number of its rounds that have begun since the event began.
        freed_places: Map activations in which an item has given back its place.
        begun: Units whose attempts the event has begun; withdrawn by it, they never run.
        resumed: Units that the event lets on that were held back for a lock or a budget.
        event: What is applied. `reduced` has what functions of the user gave when it was first.
        reduced: What such functions have given so far.
        stood: How much later it is than at the event before (ms).
        blame: Gets what made each place fail, see `held_failures`; None costs nothing.
        idle_questions: Questions for whose answer perhaps nobody waits any more → the budget.
    """

    __slots__ = (
        "agenda",
        "awake",
        "begun",
        "blame",
        "calm",
        "changed",
        "commands",
        "emitted",
        "entered",
        "event",
        "freed_places",
        "idle_questions",
        "marked",
        "moved",
        "observe",
        "reduced",
        "resumed",
        "rounds",
        "stood",
        "watchers",
    )  # fmt: skip

    def __init__(
        self,
        graph: Graph,
        state: State,
        observe: list[Observation] | None,
        event: Any = _NOTHING,
        blame: Blame | None = None,
    ) -> None:
        self.graph = graph
        self.event = event
        self.reduced: list[dict[str, Plain]] = []
        self.state = state
        self.now = state["now"]
        self.observe = observe
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
        """Return the next number that events may name: see `State.last`."""
        self.state["last"] += 1
        return self.state["last"]

    def touch(self, scope: int) -> None:
        """Have a scope looked at when the agenda is empty."""
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
        """Tell who observes what happened to an activation, or to one item of it."""
        if self.observe is None:
            return
        address = self.step_address(act) if unit is None else self.address(unit)
        attempt = 0 if unit is None else unit.get("attempt", 0)
        if unit is not None and given is None:
            given = unit.get("input")
            if given is not None and self.node(act).environments:
                given = given["input"]
        if unit is not None and given is None:
            given = unit.get("args")
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
            )
        )


def has_items(act: Activation) -> bool:
    """Return whether an activation is that of a map which has begun: `over` is its items."""
    return "over" in act


def require(condition: bool, type: str, message: str, data: Plain = None) -> None:
    """Raise a failure of the step unless a condition holds.

    Args:
        condition: What must hold.
        type: The error's type.
        message: What is wrong.
        data: For handlers.

    Raises:
        StepFailure: The condition does not hold.
    """
    if not condition:
        raise StepFailure(type, message, data)
