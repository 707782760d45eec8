"""Limits on concurrently open environments, and the queue for places.

A place is taken before an environment is opened, and released when it is closed. If no place is
free, the caller waits: first come, first served, unless the first one waits for a place that a
later one does not need. Several places can be requested together, all or none, so that two callers
that need two places each cannot deadlock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple


class Capacity(NamedTuple):
    """Maximum concurrently open environments. None: unlimited."""

    whole: int | None = None
    owner: int | None = None
    """Per owner and scope."""
    kinds: Mapping[str, int] = {}
    """Kind → maximum."""
    wait: float = 60.0
    """Seconds to wait for a place."""

    @property
    def unlimited(self) -> bool:
        """Whether the number of open environments is unlimited."""
        return self.whole is None and self.owner is None and not self.kinds


class PlaceClaim(NamedTuple):
    """The claim of one environment on places."""

    kind: str
    scope: str
    owner_id: str


class CapacityTurn:
    """A caller that has places or waits for them.

    Args:
        places: All places that it needs.
        granted: Called once, under the manager's lock, when they are granted.
    """

    def __init__(self, places: Sequence[PlaceClaim], granted: Callable[[], object]) -> None:
        self.places = tuple(places)
        self.granted = granted
        self.had = False


class Places:
    """Counts places. Every method is called under the manager's lock.

    Args:
        capacity: The limits.
    """

    def __init__(self, capacity: Capacity) -> None:
        self.capacity = capacity
        self._used: dict[tuple[str, ...], int] = {}
        self._waiting: list[CapacityTurn] = []

    def ask(self, turn: CapacityTurn) -> bool:
        """Take places, or wait for them.

        Args:
            turn: The caller.

        Returns:
            Whether they were granted immediately. Otherwise `turn.granted` is called later.
        """
        self._waiting.append(turn)
        self._serve(tell=False)
        return turn.had

    def possible(self, turn: CapacityTurn) -> bool:
        """Return whether the places could be granted if all places were free."""
        wanted = self._wanted(turn)
        return all(number <= self._most(counter) for counter, number in wanted.items())

    def give_up(self, turn: CapacityTurn) -> None:
        """Stop waiting, and release granted places."""
        if turn in self._waiting:
            self._waiting.remove(turn)
            self._serve()
        elif turn.had:
            for place in turn.places:
                self.give_back(place)

    def give_back(self, place: PlaceClaim) -> None:
        """Release one place, and serve waiting callers."""
        for counter in self.counters(place):
            self._used[counter] -= 1
            if not self._used[counter]:
                del self._used[counter]
        self._serve()

    def short(self) -> dict[tuple[str, ...], int]:
        """Return how many places are missing for all waiting callers, by counter."""
        wanted: dict[tuple[str, ...], int] = {}
        for turn in self._waiting:
            for counter, number in self._wanted(turn).items():
                wanted[counter] = wanted.get(counter, 0) + number
        lacking = {
            counter: self._used.get(counter, 0) + number - self._most(counter)
            for counter, number in wanted.items()
        }
        return {counter: number for counter, number in lacking.items() if number > 0}

    def counters(self, place: PlaceClaim) -> list[tuple[str, ...]]:
        """Return the counters of a place."""
        counters: list[tuple[str, ...]] = []
        if self.capacity.whole is not None:
            counters.append(("whole",))
        if self.capacity.owner is not None:
            counters.append(("owner", place.scope, place.owner_id))
        if place.kind in self.capacity.kinds:
            counters.append(("kind", place.kind))
        return counters

    @property
    def waiting(self) -> int:
        """Number of waiting callers."""
        return len(self._waiting)

    def _serve(self, *, tell: bool = True) -> None:
        kept: set[tuple[str, ...]] = set()
        for turn in list(self._waiting):
            lacking = self._lacking(turn)
            wanted = self._wanted(turn)
            if lacking or wanted.keys() & kept:
                kept.update(lacking)
                continue
            self._waiting.remove(turn)
            for counter, number in wanted.items():
                self._used[counter] = self._used.get(counter, 0) + number
            turn.had = True
            if tell:
                turn.granted()

    def _lacking(self, turn: CapacityTurn) -> list[tuple[str, ...]]:
        """Return the counters without enough free places."""
        return [
            counter
            for counter, number in self._wanted(turn).items()
            if self._used.get(counter, 0) + number > self._most(counter)
        ]

    def _wanted(self, turn: CapacityTurn) -> dict[tuple[str, ...], int]:
        wanted: dict[tuple[str, ...], int] = {}
        for place in turn.places:
            for counter in self.counters(place):
                wanted[counter] = wanted.get(counter, 0) + 1
        return wanted

    def _most(self, counter: tuple[str, ...]) -> int:
        match counter[0]:
            case "whole":
                return self.capacity.whole or 0
            case "owner":
                return self.capacity.owner or 0
        return self.capacity.kinds[counter[1]]
