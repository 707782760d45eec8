"""The ways to play a case: the kernel in many orders, the player, the engine, and its crashes.

Each play is compared with the same expectations (`flowengine.testing.expectations`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from flowengine import FlowFileError
from flowengine.engines.flows import LoadedFlow
from flowengine.flow.cases import as_data
from flowengine.flow.compile import compile_text
from flowengine.flow.models.cases import Answer, Case, CaseDecision
from flowengine.kernel import ENDED
from flowengine.kernel.commands import Run
from flowengine.kernel.notation.times import parse_duration, parse_time
from flowengine.kernel.view import DECIDABLE
from flowengine.testing.expectations import Problem, problems
from flowengine.testing.player import Player, _error_of
from flowengine.testing.scripts import CaseFailed, Scripts, given_to
from tests.cases.form import Calls, Played
from tests.cases.matching import Tag, differences
from tests.language.stage import checked
from tests.simulation.explorer import choosers
from tests.simulation.invariants import check_over
from tests.simulation.simulator import Fails, Happening, Simulator, graph_of

ORDERS = 12
"""Orders of a case in the kernel, half of them random if there are more."""
SHUFFLES = 2
"""Orders in the player, of what happens at one moment."""
LATE = 100
"""Milliseconds by which a call may begin late, because those in an engine take a moment."""


class Outside(Scripts):
    """What happens outside of an execution. A call without an answer returns its argument `value`.

    Args:
        case: The case.
        flow: Its flow.
        passed: Returns the milliseconds since the beginning.

    Attributes:
        calls: Address and time of the calls, in the order in which they began.
    """

    def __init__(self, case: Case, flow: Any, passed: Callable[[], int]) -> None:
        super().__init__(case, flow)
        self.calls: list[tuple[str, int]] = []
        self._passed = passed

    def began(self, address: str) -> None:
        """Record a call."""
        self.calls.append((address, self._passed()))

    def answer(self, run: Run, rehearsal: Any = None) -> Answer:
        """Return the scripted result of a call, or its argument."""
        self.began(run.address)
        if rehearsal is not None or any(name in self._case.tools for name in self.names_of(run)):
            return super().answer(run, rehearsal)
        given: Any = given_to(run)
        value = given.get("value") if isinstance(given, dict) else None
        return Answer(return_=value)


def compared(
    played: Played, found: Any, calls: Sequence[tuple[str, int]], *, exact: bool = True
) -> None:
    """Compare a play with what the case expects.

    Args:
        played: The case.
        found: The execution, as a `Player` shows it.
        calls: Addresses and times of its calls in order.
        exact: Whether calls and steps have their order. After a crash, calls are repeated.

    Raises:
        Differs: It is different.
    """
    case = played.case
    if not exact and case.expect.path is not None:
        case = case.with_changes(expect=case.expect.with_changes(path=None))
    faults = list(problems(case, found))
    if played.calls is not None and not faults:
        faults += _other_calls(played.calls, calls, exact=exact)
    if faults:
        raise Differs(faults)


class Differs(Exception):
    """A play that is not as expected."""

    def __init__(self, faults: list[Problem]) -> None:
        super().__init__("\n".join(fault.message for fault in faults))
        self.faults = faults


def _other_calls(
    wanted: Calls, calls: Sequence[tuple[str, int]], *, exact: bool
) -> Iterator[Problem]:
    problem = Problem(f"calls: expected {wanted}\nfound {list(calls)}", ("calls",))
    if not exact:
        if {address for one in wanted for address, _ in one} != {address for address, _ in calls}:
            yield problem
        return
    left = list(calls)
    for group in wanted:
        begun, left = sorted(left[: len(group)]), left[len(group) :]
        if [address for address, _ in group] != [address for address, _ in begun] or any(
            time is not None and not 0 <= at - parse_duration(time) <= LATE
            for (_, time), (_, at) in zip(group, begun, strict=True)
        ):
            yield problem
            return
    if left:
        yield problem


def in_check(played: Played, folder: Path) -> None:
    """Check a flow only: it is refused with these words, or has warnings that begin so."""
    text = (folder / "flow.yaml").read_text()
    try:
        compiled = compile_text(text, folder=folder)
    except FlowFileError as error:
        if played.refused is None:
            raise
        faults = list(differences(Tag("part", played.refused), str(error), "it"))
    else:
        words = played.warns.value if isinstance(played.warns, Tag) else played.warns
        texts = [f"{one.code} {one.message}" for one in compiled.diagnostics]
        found = [next(filter(text.startswith, words), text) for text in texts]
        faults = [f"it is not refused, but has the warnings {found}"]
        if played.refused is None:
            faults = list(differences(played.warns, found, "warnings"))
    if faults:
        raise Differs([Problem(fault) for fault in faults])


# In the kernel


class Rehearsed(Simulator):
    """One execution in the kernel, with all that happens outside in a case.

    Args:
        graph: The linked flow.
        played: The case.
        choose: Chooses among a number of ways.
    """

    def __init__(self, graph: Any, played: Played, choose: Callable[[int], int]) -> None:
        super().__init__(graph)
        case = played.case
        self.case = case
        self.races = played.races
        self.scripts = Outside(case, graph.flow, lambda: self.now - self.began)
        self.began = self.clock = parse_time(case.at)
        self._choose = choose
        self._answers: dict[tuple[int, int], tuple[int, Answer]] = {}
        self._asked: dict[int, tuple[int, CaseDecision]] = {}
        self._agenda: list[tuple[int, str, Callable[[], None]]] = [
            (self._after(one.at), f"signal {n}", partial(self._signal, n))
            for n, one in enumerate(case.signals)
        ]
        if case.cancel is not None:
            self._agenda.append((self._after(case.cancel.at), "cancel", self._cancel))
        self.problem: CaseFailed | None = None

    @property
    def now(self) -> int:
        """The virtual time, which also passes between events."""
        return max(self.state["now"], self.clock)

    def _after(self, duration: str) -> int:
        return self.began + parse_duration(duration)

    def possible(self) -> list[Happening]:
        """Return what may happen next: what is due, or in races everything."""
        if self.status in ENDED:
            return []
        ways = self._ways()
        free = self.races and not any(isinstance(way[0], float) for way in ways)
        due = [one for at, one in ways if free or at <= self.now]
        timers = self.state["timers"].values()
        later = [int(at) for at, _ in ways if at != float("inf") and at > self.now]
        fires = min((timer["due"] for timer in timers), default=None)
        until = self.case.until
        stays = until is None and not later and not self._time_passes()
        if fires is not None and (stays or (until is not None and fires > self._after(until))):
            fires = None
        if due and not self.races:
            return due
        if later and not free and (fires is None or min(later) <= fires):
            return [*due, Happening("time passes", partial(self._wait, min(later)))]
        return [*due, Happening("time passes", self.pass_time)] if fires is not None else due

    def _time_passes(self) -> bool:
        if self.case.expected_status == "waiting":
            return any(
                timer["why"] in ("retry", "pause") for timer in self.state["timers"].values()
            )
        return any(timer["why"] != "remind" for timer in self.state["timers"].values())

    def _wait(self, until: int) -> None:
        self.clock = until

    def _ways(self) -> list[tuple[float, Happening]]:
        """Return what may happen, each with the time from which on it can."""
        ways: list[tuple[float, Happening]] = [
            (0, Happening(f"{lock} is granted to {unit}", partial(self._grant, lock, unit)))
            for lock, unit in self.locks.untold()
        ]
        for run in list(self.running.values()):
            key = (run.unit, run.attempt)
            if key not in self._answers:
                answer = self.scripts.answer(run)
                self._answers[key] = (self.now + parse_duration(answer.after), answer)
            at, answer = self._answers[key]
            if not answer.never:
                way = Happening(f"{run.address} ends", partial(self._answered, run, answer))
                ways.append((at, way))
        for wait in self.waits():
            number = wait["id"]
            if number not in self._asked and wait["kind"] in DECIDABLE:
                decided = self.scripts.decision(wait)
                while decided is not None and decided.refused:
                    self.scripts.made(wait)
                    decided = self.scripts.decision(wait)
                if decided is not None:
                    at = wait["since"] + parse_duration(decided.after)
                    self._asked[number] = (at, decided)
            if number in self._asked:
                at, decided = self._asked[number]
                way = Happening(f"{wait['address']} is decided", partial(self._given_to, wait))
                ways.append((at, way))
        ways += [(at, Happening(name, do)) for at, name, do in self._agenda[:1]]
        return ways

    def _answered(self, run: Run, answer: Answer) -> None:
        if answer.crash:
            self.crash()
            return
        error = _error_of(answer)
        failure = None if error is None else Fails(error["type"], error["message"])
        if failure is not None and error is not None:
            failure.error.update(error)
        self._end(run, as_data(answer.return_) if failure is None else failure)

    def _given_to(self, wait: dict[str, Any]) -> None:
        _, decided = self._asked.pop(wait["id"])
        self.scripts.made(wait)
        choices = [choice["id"] for choice in wait.get("choices") or ()]
        more = {
            name: as_data(value)
            for name, value in (
                ("form", decided.form), ("edits", decided.edit),
                ("comment", decided.comment), ("by", decided.by),
            )
            if value is not None
        }  # fmt: skip
        if decided.has("value"):
            more["value"] = as_data(decided.value)
        self.decide(wait["address"], decided.choice or choices[0], **more)

    def _signal(self, number: int) -> None:
        del self._agenda[0]
        one = self.case.signals[number]
        self.send(one.name, as_data(one.data), as_data(one.key), f"m{number}")

    def _cancel(self) -> None:
        del self._agenda[0]
        asked: Any = self.case.cancel
        self.apply(
            {"type": "cancel", "at": self.now, "reason": asked.reason,
             "by": asked.by or self.case.by, "now": asked.now}
        )  # fmt: skip

    # As a `Player` shows it

    @property
    def execution(self) -> Any:
        """The state and the open waits."""
        waits = {wait["id"]: wait for wait in self.waits()}
        return SimpleNamespace(state=self.state, waits=waits)

    @property
    def flow(self) -> Any:
        """The compiled flow."""
        return SimpleNamespace(compiled=self.graph.flow)

    def at_work(self) -> list[str]:
        """Return the addresses of running calls."""
        return [run.address for run in self.running.values()]

    def play(self, inputs: dict[str, Any]) -> None:
        """Play the case to its end."""
        self.start(inputs, self.began)
        for _ in range(100_000):
            can = self.possible()
            if not can:
                break
            self.let(can[self._choose(len(can))])
        checked(self)
        check_over(self)


def in_simulator(played: Played, flow: LoadedFlow, folder: Path) -> None:
    """Play a case in the kernel, in all orders, or in some if there are too many."""
    graph = graph_of(flow)
    declared: Any = flow.compiled.get("inputs", {})
    inputs = {name: schema["default"] for name, schema in declared.items() if "default" in schema}
    inputs |= as_data(played.case.inputs)

    def play(choose: Callable[[int], int]) -> None:
        rehearsed = Rehearsed(graph, played, choose)
        try:
            rehearsed.play(inputs)
            compared(played, rehearsed, rehearsed.scripts.calls)
        except (Differs, CaseFailed, AssertionError) as error:
            error.add_note(f"in the kernel, after: {'; '.join(rehearsed.schedule)}")
            raise

    ways = choosers()
    for way in islice(ways, ORDERS // 2):
        play(way.choose)
    if next(ways, None) is not None:
        for seed in range(ORDERS // 2):
            play(random.Random(seed).randrange)


# In the player, as `flowengine test` does


class Shuffled(Player):
    """A player in which what is due at one moment happens in any order."""

    def __init__(self, flow: LoadedFlow, case: Case, folder: str, seed: int) -> None:
        super().__init__(flow, case, {}, folder)
        self.scripts = Outside(case, flow.compiled, lambda: self.clock.now() - self.began)
        self._draws = random.Random(seed) if seed else None

    def _later(self, delay: int, do: Callable[[], None]) -> None:
        super()._later(delay, do)
        if self._draws is None:
            return
        [entry] = [one for one in self._agenda if one[1] == self._number]
        self._agenda.remove(entry)
        place = self._draws.randrange(2**40) * 2**20 + self._number
        self._agenda.append((entry[0], place, entry[2]))
        self._agenda.sort()


def in_player(played: Played, flow: LoadedFlow, folder: Path) -> None:
    """Play a case as `flowengine test` does, in several orders of what is due at one moment."""
    for seed in range(1 if played.case.operator else SHUFFLES):
        player = Shuffled(flow, played.case, str(folder), seed)
        with closing(player.host):
            player.begin()
            player.play()
            try:
                calls = cast("Outside", player.scripts).calls
                compared(played, player, calls)
            except Differs as error:
                error.add_note(f"in the player, order {seed}")
                raise
