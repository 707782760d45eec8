"""Runs the flows of `examples/patterns` in every order in which their steps can end.

    plays = play(3)
    plays.always(holds)
    play(3, ("join: all", "join: 1")).refute(holds)

`always` requires all orders. If there are too many, a test passes `drawn=True` to use a random
sample. `refute` shows that a property can fail, which it does with another construct in the same
flow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from flowengine import FlowFileError
from flowengine.engines.executions.linked_flows import LinkedFlow
from flowengine.engines.flows import LANGUAGE
from flowengine.flow.compile import compile_text
from flowengine.kernel import Graph
from tests.simulation.explorer import explore
from tests.simulation.simulator import Happening, Outside, Simulator

FOLDER = Path(__file__).parents[2] / "examples" / "patterns"
FILES = sorted(FOLDER.glob("[0-9][0-9]-*.yaml"))
OVER = ("succeeded", "skipped", "failed", "cancelled")
LIMIT = 2000
"""Maximum number of orders per flow."""

FEW = 20
"""Number of orders for a flow that was changed to violate its property."""

Change = tuple[str, str]
"""A piece of a file, and its replacement."""


class Span(NamedTuple):
    """An activation of a step, or an item of it, from its start to its end.

    Times are numbers of events: 0 is the start, 1 the first end of a task or arrival of a message,
    and so on. All consequences of an event have its number.
    """

    address: str
    status: str
    output: Any
    begun: int
    ended: int
    first: int
    """Positions of its start and its end in the list of observations."""
    last: int

    def beside(self, other: Span) -> bool:
        """Return whether both were at work at the same time."""
        return self.first < other.last and other.first < self.last


class Story:
    """One run as seen from outside.

    Args:
        played: The run.
        marks: Number of observations after each event.
    """

    def __init__(self, played: Simulator, marks: Sequence[int]) -> None:
        self.status = played.status
        self.outputs = played.outputs or {}
        self.error = played.error
        self.schedule = played.schedule
        self.open = played.waits()
        self.happenings = len(marks) - 1
        told = [name.partition(" is decided: ") for name in played.schedule]
        self.decided = [(address, choice) for address, found, choice in told if found]
        self.spans = list(_spans(played, marks))

    def runs(self, *steps: str) -> list[Span]:
        """Return the activations of steps in order of their start, without items."""
        return [s for s in self.spans if _step(s.address) in steps and "[" not in _last(s.address)]

    def items(self, step: str) -> list[Span]:
        """Return the items of a mapped step, in order of their start."""
        return [s for s in self.spans if _step(s.address) == step and "[" in _last(s.address)]

    def one(self, step: str) -> Span:
        """Return the only activation of a step."""
        [found] = self.runs(step)
        return found

    def done(self, *steps: str) -> list[Span]:
        """Return the successful activations of steps and their items, in order of their ends."""
        found = [*self.runs(*steps), *(item for step in steps for item in self.items(step))]
        return sorted((s for s in found if s.status == "succeeded"), key=lambda s: s.last)

    def order(self, *steps: str) -> list[str]:
        """Return the IDs of these steps in the order of their start."""
        return [_step(span.address) for span in self.runs(*steps)]


def _spans(played: Simulator, marks: Sequence[int]) -> Iterator[Span]:
    seen: dict[str, list[int]] = {}
    for place, observed in enumerate(played.observations):
        seen.setdefault(observed.address, []).append(place)
    moments = list(_moments(marks))
    for address, places in seen.items():
        end = played.observations[places[-1]]
        over = end.status in OVER
        first, last = places[0], places[-1] if over else len(moments)
        for place in places:
            # A step that queues for a lock is observed twice, the second time when it acquires it.
            first = place if played.observations[place].status not in OVER else first
        ended = moments[last] if over else len(marks)
        yield Span(address, end.status, end.output, moments[first], ended, first, last)


def _moments(marks: Sequence[int]) -> Iterator[int]:
    before = 0
    for happening, count in enumerate(marks):
        yield from [happening] * (count - before)
        before = count


def _last(address: str) -> str:
    return address.rsplit("/", maxsplit=1)[-1]


def _step(address: str) -> str:
    return _last(address).split("[")[0].split("@")[0].split("#")[0]


Holds = Callable[[Story], None]


class Plays:
    """The runs of one flow.

    Args:
        stories: One for each order.
        complete: Whether these are all orders.
    """

    def __init__(self, stories: list[Story], complete: bool) -> None:
        self.stories = stories
        self.complete = complete

    def always(self, holds: Holds, *, drawn: bool = False) -> None:
        """Check that a property holds in every run.

        Args:
            holds: Raises AssertionError if the property is violated.
            drawn: There are too many orders, so these are a random sample.
        """
        assert self.complete is not drawn, f"{len(self.stories)} schedules are not what is said"
        for story in self.stories:
            try:
                holds(story)
            except (AssertionError, ValueError) as error:
                raise AssertionError(f"{error}\nafter {story.schedule}") from error

    def refute(self, holds: Holds) -> None:
        """Check that a property is violated in at least one run."""
        for story in self.stories:
            try:
                holds(story)
            except (AssertionError, ValueError):
                return
        pytest.fail("it holds all the same")

    def seen(self, look: Callable[[Story], Any]) -> set[Any]:
        """Return the set of results over all runs."""
        return {look(story) for story in self.stories}


def path_of(number: int) -> Path:
    """Return the file of a pattern."""
    [path] = FOLDER.glob(f"{number:02}-*.yaml")
    return path


def play(
    number: int,
    *changes: Change,
    inputs: Mapping[str, Any] | None = None,
    outside: Iterable[Outside] = (),
    limit: int | None = None,
    patient: bool = False,
) -> Plays:
    """Run the flow of a pattern in all orders, or in `limit` random ones.

    Args:
        number: Number of the pattern.
        changes: Replacements in the file.
        inputs: Inputs in addition to the defaults.
        outside: Possible actions of users and other systems.
        limit: Maximum number of orders. Default: `LIMIT`, or `FEW` with changes.
        patient: Let time pass only when nothing else can happen.

    Returns:
        The runs.
    """
    if limit is None:
        limit = FEW if changes else LIMIT
    text = path_of(number).read_text()
    for old, new in changes:
        assert old in text, f"{old!r} is not in the file"
        text = text.replace(old, new)
    graph = _graph(text)
    given: dict[str, Any] = {
        name: schema["default"] for name, schema in graph.flow.get("inputs", {}).items()
    }
    marks: dict[int, list[int]] = {}

    def mark(played: Simulator) -> None:
        marks.setdefault(id(played), []).append(len(played.observations))

    found = explore(
        graph, inputs={**given, **(inputs or {})}, outside=list(outside), holds=mark, limit=limit,
        patient=patient,
    )  # fmt: skip
    return Plays([Story(played, marks[id(played)]) for played in found.runs], found.complete)


@cache
def _graph(text: str) -> Graph:
    compiled = compile_text(text, folder=FOLDER)
    return LinkedFlow(compiled.flow, compiled.hash, LANGUAGE).graph


def refused(number: int, *changes: Change) -> list[str]:
    """Return the codes of the checker's errors for a changed flow."""
    text = path_of(number).read_text()
    for old, new in changes:
        assert old in text, f"{old!r} is not in the file"
        text = text.replace(old, new)
    with pytest.raises(FlowFileError) as caught:
        compile_text(text, folder=FOLDER)
    return [one.code for one in caught.value.diagnostics if one.code.startswith("E")]


def at_most(times: int, outside: Outside) -> Outside:
    """Limit an outside to that many decisions. Afterwards, only its first option is available."""

    def may(played: Simulator) -> list[Happening]:
        decided = sum(event["type"] == "decided" for event in played.journal)
        can = outside(played)
        return can if decided < times else can[:1]

    return may


def never_at_once(spans: Iterable[Span]) -> None:
    """Check that no two of these were at work at the same time."""
    for one, other in combinations(spans, 2):
        assert not one.beside(other), f"{one.address} ran beside {other.address}"
