"""Mutants against tests: in which order, until when, and what counts as caught."""

from __future__ import annotations

import signal
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, TextIO

import pytest

from scripts.mutate import forks
from scripts.mutate.changes import Place, mutant
from scripts.mutate.functions import Functions
from scripts.mutate.reached import Map


class Limits(NamedTuple):
    """Limits on the tests of one mutant."""

    budget: float
    """Seconds of CPU time after which no further test begins."""
    patience: float
    """Seconds of CPU time that a test may need beyond a few times its usual ones."""


class Result(NamedTuple):
    """The result of one mutant."""

    key: str
    path: str
    line: int
    function: str
    change: str
    caught: bool
    by: str = ""
    """The test that noticed the change."""
    how: str = ""
    """`failed`, `endless`, or how the process ended."""
    reached: int = 0
    """How many tests reach the change."""
    ran: int = 0
    """How many of them ran, if it survived."""
    cpu: float = 0.0


class Trial(NamedTuple):
    """Tests to run on a mutant, or the one that noticed it on the unchanged program."""

    place: Place
    tests: Sequence[str]
    """In the order in which they run on the mutant."""
    suspect: str = ""
    """The test that did not pass: it runs without the change."""
    how: str = ""
    """As in a result."""


class Trials:
    """Tries mutants in children of this process, several at a time."""

    def __init__(
        self, root: Path, items: Sequence[pytest.Item], found: Map, limits: Limits
    ) -> None:
        self.unreliable: set[str] = set()
        """Tests that failed with a change, and alone without it too."""
        self._root = root
        self._items = {item.nodeid: item for item in items}
        self._map = found
        self._limits = limits
        self._functions = Functions(root)
        self._waiting: deque[Trial] = deque()
        self._running: dict[int, Trial] = {}
        self._spent: defaultdict[str, float] = defaultdict(float)

    def run(self, drawn: Sequence[Place], hints: Mapping[str, str], jobs: int) -> Iterator[Result]:
        """Yield the result of each place, as they come.

        Args:
            drawn: The places.
            hints: By the key of a place, the test to run first.
            jobs: How many at a time.
        """
        for place in drawn:
            tests = self._map.tests(place)
            hint = hints.get(place.key)
            first = [hint] if hint in self._items else []
            trial = Trial(place, first + [one for one in tests if one not in first])
            if trial.tests:
                self._waiting.append(trial)
            else:
                yield self._result(trial, caught=False)
        with forks.Children() as children:
            while self._waiting or children:
                while self._waiting and len(children) < jobs:
                    trial = self._waiting.popleft()
                    self._running[children.start(partial(self._in_child, trial))] = trial
                result = self._ended(children.wait())
                if result is not None:
                    yield result

    def _in_child(self, trial: Trial, log: TextIO) -> None:
        if not trial.suspect:
            self._functions.replace(mutant(self._root, trial.place))
        tests = [trial.suspect] if trial.suspect else trial.tests
        items = [self._items[one] for one in tests if one not in self.unreliable]
        if items:
            forks.own_output(items[0].config)
        begun = forks.used()
        for item, after in pairwise([*items, None]):
            assert item is not None
            if forks.used() - begun > self._limits.budget:
                break
            log.write(f"{item.nodeid}\n")
            usual, more = self._map.runs[item.nodeid], self._limits.patience
            forks.limit(more + 4 * usual.cpu, 3 * more + 5 * usual.wall)
            if forks.run_test(item, after).failed:
                log.write("failed\n")
                return
        log.write("passed\n")

    def _ended(self, end: forks.End) -> Result | None:
        """Return the result after the end of a child, if its place is done."""
        trial = self._running.pop(end.child)
        if not end.log:
            raise RuntimeError(f"{trial.place}: {end.error}")
        *ran, last = end.log
        self._spent[trial.place.key] += end.cpu
        if trial.suspect:
            if last == "passed":
                return self._result(trial, caught=True)
            self.unreliable.add(trial.suspect)
            rest = trial.tests[trial.tests.index(trial.suspect) + 1 :]
            self._waiting.appendleft(Trial(trial.place, rest))
            return None
        if last == "passed":
            return self._result(trial, caught=False, ran=len(ran))
        suspect, how = (ran[-1], last) if last == "failed" else (last, _described(end.status))
        self._waiting.appendleft(trial._replace(suspect=suspect, how=how))
        return None

    def _result(self, trial: Trial, caught: bool, ran: int = 0) -> Result:
        key, path, line = trial.place.key, trial.place.path, trial.place.line
        cpu = round(self._spent[key], 2)
        return Result(
            key, path, line, trial.place.function, trial.place.change,
            caught, trial.suspect, trial.how, len(trial.tests), ran, cpu,
        )  # fmt: skip


def _described(status: int) -> str:
    """Describe how a child ended in the middle of a test."""
    return "endless" if status in {-signal.SIGPROF, -signal.SIGALRM} else f"ended with {status}"
