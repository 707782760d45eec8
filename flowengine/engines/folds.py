"""The steps of an execution as a tree: maps, loops, subflows and groups are folds around steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import nsmallest
from typing import Any, NamedTuple

from flowengine.kernel.notation.addresses import CLEANUP, COMPENSATION, around

PAGE = 100
"""Rows of a list of steps in one view."""
_MOST_ROWS = 500
"""Rows in all folds of one view. Further folds have separate views."""
_MOST_FAILURES = 500
"""Failed steps whose causes a view compares."""
URGENT = (
    *("failed", "uncertain", "refused", "rejected", "expired", "waiting", "retrying", "running"),
)
"""The statuses that come first, in this order."""
_RANKS = {status: rank for rank, status in enumerate(URGENT)}
_LAST = len(URGENT)
_OPEN = frozenset({"", "ready", "running", "waiting", "retrying", "uncertain"})
_NOUNS = {"[": "item", "@": "round"}

Counts = list[tuple[str, int]]


class FoldRow(NamedTuple):
    """One step, or a fold around others."""

    address: str
    label: str
    """The part of the address that the fold around it does not have."""
    step: Mapping[str, Any] | None
    """None: a fold that has not ended. Only its contents are known."""
    total: int
    """Number of rows directly inside."""
    noun: str
    """The kind of its children: `item`, `round` or `step`."""
    counts: Counts
    """Their statuses, the most urgent first."""
    deeper: Counts
    """Urgent statuses further inside that `counts` does not have."""
    rows: list[FoldRow]
    """The first of them. Empty: they have a separate view."""


class FoldLevel(NamedTuple):
    """The steps directly inside a fold, or of the whole execution."""

    address: str
    """Of the fold. Empty: the execution."""
    rows: list[FoldRow]
    total: int
    before: int | None
    """Where the page before starts."""
    after: int | None
    """Where the next page starts."""


State = tuple[str, str]
"""Step id and status of a step."""
_NOT_BEGUN: State = "", ""
"""Of a fold of which only the contents are known."""
_BITS = 40
_NUMBER = (1 << _BITS) - 1
"""An entry of a fold's order is the urgency of something inside it, and then its number in these
bits: one int, because large folds have many."""


class _Fold:
    """What is directly inside an address."""

    __slots__ = ("below", "inside", "order", "signs")

    def __init__(self) -> None:
        self.order: list[int] = []
        self.inside: dict[str, int] = {}
        """Their statuses. Empty: a fold that has not ended."""
        self.below: dict[str, int] = {}
        """The statuses of all steps inside that contain no others."""
        self.signs: dict[str, None] = {}
        """The separators before their names: `[`, `@` or `/`, that of the oldest first."""


class Folds:
    """The tree of an execution's steps.

    Args:
        states: Address and state of each step, in order of beginning.
        read: Returns the step at an address as `show` does. Not to be changed.
    """

    def __init__(
        self, states: Iterable[tuple[str, State]], read: Callable[[str], Mapping[str, Any]]
    ) -> None:
        self._states = dict(states)
        self._read = read
        self._folds = {"": _Fold()}
        self._addresses: list[str] = []
        """By number: of all steps, and of the folds around them."""
        self._numbers: dict[str, int] = {}
        self._begun: dict[str, int] = {}
        """Address → number in order of beginning, of the folds that began after their contents."""
        self._failed: set[str] = set()
        self._activations: dict[str, dict[str, int]] = {}
        """Step id → statuses of its activations that have no items or rounds."""
        self._wholes: dict[str, dict[str, int]] = {}
        """Step id → statuses of its activations that have."""
        self._loops: dict[str, str] = {}
        """Address → step id of the loops that have not ended."""
        self._left = _MOST_ROWS
        self._place(self._states)
        for fold in reversed(self._folds.values()):  # those inside come after those around them
            self._count_inside(fold)
            self._rank(fold)
        self._count_steps()

    @classmethod
    def of(cls, steps: Iterable[Mapping[str, Any]]) -> Folds:
        """Return the tree of steps as `show` returns them."""
        known = {step["address"]: step for step in steps}
        states = ((step["address"], (step["step"], step["status"])) for step in known.values())
        return cls(states, known.__getitem__)

    def renamed(self, shown: Callable[[str], str]) -> Folds:
        """Return the tree with other addresses, which are as different as these."""
        known = {shown(address): address for address in self._states}
        states = ((address, self._states[known[address]]) for address in known)
        return Folds(states, lambda address: {**self._read(known[address]), "address": address})

    def _place(self, addresses: Iterable[str]) -> None:
        """Put each step into the fold around it, in order of beginning."""
        folds, numbers, known = self._folds, self._numbers, self._addresses
        # Most steps are items or rounds with a number, in the same fold as the one before.
        beginning, length, add = None, 0, folds[""].order.append
        for address in addresses:
            number = len(known)
            if address in numbers:
                self._begun[address] = number
                known.append(address)
                continue
            if address[:length] != beginning or not address[length:-1].isdecimal():
                end = max(address.rfind("/"), address.rfind("["), address.rfind("@"))
                fold = folds.get(address[:end] if end > 0 else "")
                if fold is None and address[:end] in numbers:
                    fold = folds[address[:end]] = _Fold()
                if fold is None:  # nothing is placed there, or it is in the key of an item
                    self._place_around(address)
                    continue
                length = max(end, 0) + 1
                beginning = address[:length] if end > 0 else None
                fold.signs[address[max(end, 0)]] = None
                add = fold.order.append
            numbers[address] = number
            known.append(address)
            add(_LAST << _BITS | number)

    def _place_around(self, address: str) -> None:
        """Place an address, and the folds around it that are new."""
        parent = ""
        for place in around(address):
            if place not in self._numbers:
                self._numbers[place] = number = len(self._addresses)
                self._addresses.append(place)
                fold = self._folds.setdefault(parent, _Fold())
                fold.signs[place[len(parent)]] = None
                fold.order.append(_LAST << _BITS | number)
            parent = place

    def _count_steps(self) -> None:
        """Count the activations of each step. Most of a step are in the same state."""
        states, folds = self._states, self._folds
        for (id, status), count in Counter(states.values()).items():
            self._activations.setdefault(id, {})[status] = count
            if status == "failed":
                self._failed.update(address for address in states if self.status(address) == status)
        ends = (address for address in states if address.endswith((COMPENSATION, CLEANUP)))
        for address in dict.fromkeys([*folds, *ends]):
            if address in states:  # perhaps it counts in another way
                id, status = states[address]
                _add(self._activations[id], status, -1)
                self._count(address, 1)
            else:
                inside = map(self._at, reversed(folds[address].order))
                self._note_loop(next((child for child in inside if child in states), ""))

    def _count_inside(self, fold: _Fold) -> None:
        """Count the statuses inside a fold, in order of beginning, after the folds in it."""
        states, folds, inside, below = self._states, self._folds, fold.inside, fold.below
        children = [*map(self._at, fold.order)]
        if not self._begun.keys().isdisjoint(children):
            children.sort(key=self._order)
        for _, status in [states.get(child, _NOT_BEGUN) for child in children]:
            inside[status] = inside.get(status, 0) + 1
        if folds.keys().isdisjoint(children):
            below.update(inside)
            return
        for child in children:
            inner = folds.get(child)
            for status, count in (inner.below if inner else {self.status(child): 1}).items():
                _add(below, status, count)

    def _rank(self, fold: _Fold) -> None:
        """Order the children of a fold, after the folds inside it."""
        if _RANKS.keys().isdisjoint(fold.below) and _RANKS.keys().isdisjoint(fold.inside):
            return
        states, folds, order = self._states, self._folds, fold.order
        for place, entry in enumerate(order):
            child = self._at(entry)
            if child in folds or states[child][1] in _RANKS:
                order[place] = self._urgency(child) << _BITS | entry & _NUMBER
        order.sort()

    def _count(self, address: str, by: int) -> None:
        """Add an activation to those of its step, or remove it from them."""
        id, status = self._states[address]
        if not address.endswith((COMPENSATION, CLEANUP)):
            signs = self._folds[address].signs if address in self._folds else {}
            is_whole = not _NOUNS.keys().isdisjoint(signs)
            _add((self._wholes if is_whole else self._activations).setdefault(id, {}), status, by)
        if status == "failed":
            self._failed.add(address)
        self._note_loop(address)

    def _at(self, entry: int) -> str:
        return self._addresses[entry & _NUMBER]

    def _note_loop(self, address: str) -> None:
        """Note the loop of a round, if it has not ended."""
        loop, _, round = address.rpartition("@")
        if round.isdecimal() and loop not in self._states:
            self._loops[loop] = self._states[address][0]

    def _urgency(self, address: str) -> int:
        below = self._folds[address].below if address in self._folds else ()
        return min(map(_rank, (self.status(address), *below)))

    def level(self, address: str, start: int = 0) -> FoldLevel:
        """Return a page of the steps directly inside a fold.

        Args:
            address: Of the fold, or of a step in it. Empty or unknown: the whole execution.
            start: Number of the first row.
        """
        if address not in self._folds:
            address = ["", *around(address)][-2] if address in self._numbers else ""
        total = len(self._folds[address].order)
        start = start if 0 < start < total else 0
        self._left = _MOST_ROWS
        return FoldLevel(
            address,
            [self._row(step, address) for step in self._page(address, start)],
            total,
            max(0, start - PAGE) if start else None,
            start + PAGE if start + PAGE < total else None,
        )

    def failures(self) -> tuple[list[Mapping[str, Any]], int]:
        """Return the first steps that have failed, in order of beginning, and how many have.

        A fold whose error is that of a failed step inside it is left out.
        """
        failed = [address for address in self._failed if not self._failed_inside(address)]
        first = nsmallest(_MOST_FAILURES, failed, key=self._order)
        return [self._read(address) for address in first], len(failed)

    def _order(self, address: str) -> int:
        """Return the number of a step in order of beginning."""
        return self._begun.get(address, self._numbers[address])

    def statuses(self) -> dict[str, dict[str, int]]:
        """Return how many activations of each step have each status, the most urgent first.

        Items and rounds count in place of their map or loop, except for a status that none of them
        has. A loop between two rounds is waiting.
        """
        totals: dict[str, dict[str, int]] = {}
        for step in {**self._activations, **self._wholes}:
            counts = dict.fromkeys(self._wholes.get(step, ()), 1)
            counts |= self._activations.get(step, {})
            if counts:
                totals[step] = dict(_sorted(counts))
        for loop, step in self._loops.items():
            fold = self._folds[loop]
            if _OPEN.isdisjoint(fold.inside.keys() | fold.below.keys()):
                totals[step] = dict(_sorted({**totals.get(step, {}), "waiting": 1}))
        return totals

    def steps_inside(
        self, address: str, *, only_urgent: bool = False
    ) -> Iterator[Mapping[str, Any]]:
        """Yield the steps inside a fold that contain no others, the most urgent first.

        Args:
            address: Of the fold.
            only_urgent: Leave out those that have succeeded, or have another status that is not
                urgent. The cost depends on the others only.
        """
        fold = self._folds[address]
        for entry in fold.order:
            if only_urgent and entry >> _BITS == _LAST:
                return
            inner = self._at(entry)
            if inner in self._folds:
                yield from self.steps_inside(inner, only_urgent=only_urgent)
            elif not only_urgent or self.status(inner) in _RANKS:
                yield self._read(inner)

    def first(self, address: str) -> Mapping[str, Any]:
        """Return the step inside a fold that began first."""
        while address not in self._states:
            address = self._at(min(self._folds[address].order, key=_NUMBER.__and__))
        return self._read(address)

    def __contains__(self, address: str) -> bool:
        """Return whether a step or a fold has an address."""
        return address in self._numbers

    def status(self, address: str) -> str:
        """Return the status of a step. Empty: there is none, or a fold that has not ended."""
        return self._states.get(address, _NOT_BEGUN)[1]

    def _row(self, address: str, parent: str) -> FoldRow:
        fold = self._folds.get(address) or _Fold()
        counts = {status: number for status, number in fold.inside.items() if status}
        deeper = {
            status: number
            for status, number in fold.below.items()
            if status in _RANKS and status not in counts
        }
        return FoldRow(
            address,
            address[len(parent) :].lstrip("/") if parent else address,
            self._read(address) if address in self._states else None,
            len(fold.order),
            _NOUNS.get(next(iter(fold.signs), ""), "step"),
            _sorted(counts),
            _sorted(deeper),
            list(self._rows_inside(address)),
        )

    def _rows_inside(self, address: str) -> Iterator[FoldRow]:
        shown = self._page(address, 0) if address in self._folds else []
        if len(shown) > self._left:
            return
        self._left -= len(shown)
        for step in shown:
            yield self._row(step, address)

    def _page(self, address: str, start: int) -> list[str]:
        """Return a page of the direct children of a fold, the failed and waiting ones first.

        The steps of an execution that fit into one view stay in order of their start.
        """
        order = self._folds[address].order
        if not address and len(order) <= PAGE:
            order = sorted(order, key=_NUMBER.__and__)
        return [*map(self._at, order[start : start + PAGE])]

    def _failed_inside(self, address: str) -> bool:
        origin = (self._read(address).get("error") or {}).get("step", "")
        return origin in self._failed and address in around(origin)[:-1]


def _add(counts: dict[str, int], status: str, by: int) -> None:
    counts[status] = counts.get(status, 0) + by
    if not counts[status]:
        del counts[status]


def _sorted(counts: Mapping[str, int]) -> Counts:
    return sorted(counts.items(), key=lambda pair: _rank(pair[0]))


def _rank(status: str) -> int:
    return _RANKS.get(status, _LAST)
