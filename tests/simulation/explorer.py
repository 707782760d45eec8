"""Plays a flow in every possible order of events, or in many of them if there are too many.

    found = explore("flow.yaml", {"a": 1, "b": 2})
    assert found.complete, found
    for played in found.runs:
        assert played.outputs == {"sum": 3}

Each run is played from the start along a separate schedule. The choices at each moment are those
of `Simulator.possible`, so all orders of tasks, timers, decisions and signals are covered. The
number of schedules grows quickly: n concurrent tasks can end in n! orders. Up to `limit` schedules
are enumerated. If there are more, `limit` schedules are drawn at random, and `complete` is False.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from os import PathLike
from typing import Any, NamedTuple

from flowengine.engines.flows import LoadedFlow
from flowengine.kernel import Graph
from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.view import DECIDABLE
from tests.simulation.invariants import check_over
from tests.simulation.simulator import Happening, Outside, Simulator, graph_of

LIMIT = 1000
"""Default number of schedules."""
LONGEST = 2000
"""Maximum number of happenings, after which a run counts as endless."""


class Explored(NamedTuple):
    """The result of `explore`."""

    runs: list[Simulator]
    """One run for each schedule."""
    complete: bool
    """Whether these are all schedules."""

    def __str__(self) -> str:
        """Return a summary of the runs."""
        if self.complete:
            return f"all {len(self.runs)} schedules"
        return f"{len(self.runs)} schedules drawn at random of more"

    @property
    def stories(self) -> set[tuple[str, ...]]:
        """The different orders in which tasks began."""
        return {tuple(played.started) for played in self.runs}


class ScheduleFailed(AssertionError):
    """A check has failed under one schedule.

    Args:
        schedule: Names of the happenings, in order, up to the failure.
        reason: The failed check.
    """

    def __init__(self, schedule: list[str], reason: str) -> None:
        order = "; ".join(schedule) or "nothing but the start"
        super().__init__(f"{reason}\nafter: {order}\nplay it again: .follow({schedule!r})")
        self.schedule = schedule


def explore(
    flow: Graph | LoadedFlow | str | PathLike[str],
    script: Mapping[str, Any] | None = None,
    inputs: Mapping[str, Any] | None = None,
    *,
    outside: Sequence[Outside] = (),
    holds: Callable[[Simulator], None] | None = None,
    limit: int = LIMIT,
    patient: bool = False,
    seed: int = 0,
) -> Explored:
    """Play a flow under all schedules, up to a bound.

    The invariants are checked after every event and at the end of every run.

    Args:
        flow: A flow, the path of its file, or a graph.
        script: As in `Simulator`. A function is called in every run, and must return the same value
            for the same `Run`.
        inputs: All inputs of the flow, those with defaults too.
        outside: The possible actions of users and other systems: `deciding(...)`, `sending(...)`.
        holds: A check that is called after each happening, and raises `AssertionError`.
        limit: Maximum number of schedules.
        patient: Let time pass only when nothing else can happen. Otherwise timers race with tasks.
        seed: For drawing schedules if there are more than `limit`.

    Returns:
        The runs, in the order of the schedules, and whether they are all.

    Raises:
        ScheduleFailed: A check has failed. The error contains the schedule.
    """
    graph = flow if isinstance(flow, Graph) else graph_of(flow)

    def play(choose: Callable[[int], int]) -> Simulator:
        order = "first" if patient else "random"
        played = Simulator(graph, script, order=order, outside=outside)
        _play(played, dict(inputs or {}), choose, holds)
        return played

    chance = random.Random(seed)

    runs: list[Simulator] = []
    for chooser in choosers():
        if len(runs) == limit:
            return Explored([play(chance.randrange) for _ in range(limit)], complete=False)
        runs.append(play(chooser.choose))
    return Explored(runs, complete=True)


class Chooser:
    """Chooses along a prefix, then always the first, and records the number of choices.

    Args:
        prefix: Number of the choice at each turn.
    """

    def __init__(self, prefix: list[int]) -> None:
        self.taken = prefix
        self.of: list[int] = []

    def choose(self, ways: int) -> int:
        """Return the choice among a number of ways."""
        turn = len(self.of)
        self.of.append(ways)
        if turn == len(self.taken):
            self.taken.append(0)
        return self.taken[turn]

    def next_prefix(self) -> list[int] | None:
        """Return the prefix of the next schedule, or None after the last one."""
        for turn in reversed(range(len(self.of))):
            if self.taken[turn] + 1 < self.of[turn]:
                return [*self.taken[:turn], self.taken[turn] + 1]
        return None


def choosers() -> Iterator[Chooser]:
    """Yield a chooser for each schedule, which must be played before the next one is requested."""
    prefix: list[int] | None = []
    while prefix is not None:
        chooser = Chooser(prefix)
        yield chooser
        prefix = chooser.next_prefix()


def _play(
    played: Simulator,
    inputs: dict[str, Any],
    choose: Callable[[int], int],
    holds: Callable[[Simulator], None] | None,
) -> None:
    try:
        played.start(inputs)
        for _ in range(LONGEST):
            if holds is not None:
                holds(played)
            can = played.possible()
            if not can:
                check_over(played)
                return
            played.let(can[choose(len(can))])
        raise AssertionError(f"still not at rest after {LONGEST} happenings")
    except AssertionError as error:
        raise ScheduleFailed(played.schedule, str(error)) from error


# Actions of users and other systems on a simulated execution, for `Simulator(outside=...)`.


def deciding(at: str, *choices: str | Mapping[str, Any]) -> Outside:
    """Return the possible decisions on an approval or a question.

    Args:
        at: Id of the step, or an address.
        choices: Ids of choices, or the parts of a decision: `choice`, and perhaps `form`, `edits`,
            `comment`, `by`, `value`. Each is a possible decision.

    Returns:
        For `Simulator(outside=...)`.
    """
    decisions = [{"choice": c} if isinstance(c, str) else dict(c) for c in choices]

    def may(simulator: Simulator) -> list[Happening]:
        return [
            Happening(
                f"{wait['address']} is decided: {decision['choice']}",
                partial(simulator.decide, wait["address"], **decision),
            )
            for wait in simulator.waits()
            if wait["kind"] in DECIDABLE and at in _names(wait)
            for decision in decisions
        ]

    return may


def sending(signal: str, data: Plain = None, *, key: str | None = None, times: int = 1) -> Outside:
    """Return the action that sends a signal, at any moment.

    Args:
        signal: Its name.
        data: Its data.
        key: Its key.
        times: Maximum number of times that it is sent.

    Returns:
        For `Simulator(outside=...)`.
    """

    def may(simulator: Simulator) -> list[Happening]:
        sent = sum(e["type"] == "message" and e["signal"] == signal for e in simulator.journal)
        if sent >= times:
            return []
        id = f"{signal}-{sent}"
        return [Happening(f"{signal} is sent", lambda: simulator.send(signal, data, key, id))]

    return may


def anything(*, times: int = 2) -> Outside:
    """Return all possible actions of users and other systems, for any flow.

    Every approval is decided in each possible way, and every signal that the flow declares is sent
    at any moment, by its key.

    Args:
        times: Maximum number of times that each signal is sent.

    Returns:
        For `Simulator(outside=...)`.
    """

    def may(simulator: Simulator) -> list[Happening]:
        happenings: list[Happening] = []
        for wait in simulator.waits():
            if wait["kind"] == "approval":
                choices = [choice["id"] for choice in wait["choices"]]
                happenings += deciding(wait["address"], *choices)(simulator)
        for signal in simulator.graph.flow.get("signals", {}):
            key = simulator.state["keys"].get(signal)
            happenings += sending(signal, key=key, times=times)(simulator)
        return happenings

    return may


def _names(wait: Mapping[str, Plain]) -> tuple[str, str]:
    """Return the id of the step of a wait and its address."""
    return wait["step"], wait["address"]
