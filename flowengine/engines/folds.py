"""The steps of an execution as a tree: maps, loops, subflows and groups are folds around steps."""

from __future__ import annotations

from bisect import bisect_left, insort
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


_Entry = tuple[int, int, str]
"""Urgency, number and address of something inside a fold."""


class _Fold:
    """What is directly inside an address."""

    __slots__ = ("below", "inside", "order", "signs")

    def __init__(self) -> None:
        self.order: list[_Entry] = []
        self.inside: dict[str, int] = {}
        """Their statuses. Empty: a fold that has not ended."""
        self.below: dict[str, int] = {}
        """The statuses of all steps inside that contain no others."""
        self.signs: dict[str, None] = {}
        """The separators before their names: `[`, `@` or `/`, that of the oldest first."""


class Folds:
    """The tree of an execution's steps.

    Args:
        states: Address, step id and status of each step, in order of beginning.
        read: Returns the step at an address as `show` does. Not to be changed.
    """

    def __init__(
        self, states: Iterable[tuple[str, str, str]], read: Callable[[str], Mapping[str, Any]]
    ) -> None:
        self._states: dict[str, tuple[int, str, str]] = {}
        """Number in order of beginning, step id and status of each step."""
        self._read = read
        self._folds = {"": _Fold()}
        self._places: dict[str, tuple[str, int]] = {}
        """Address → the fold that it is in, and its number there."""
        self._failed: dict[str, int] = {}
        """Failed step → its number, in order of beginning."""
        self._activations: dict[str, dict[str, int]] = {}
        """Step id → statuses of its activations that have no items or rounds."""
        self._wholes: dict[str, dict[str, int]] = {}
        """Step id → statuses of its activations that have."""
        self._loops: dict[str, str] = {}
        """Address → step id of the loops that have not ended."""
        self._left = _MOST_ROWS
        self._place(states)
        for fold in reversed(self._folds.values()):  # those inside come after those around them
            self._rank(fold)
        for address in self._states:
            self._count(address, 1)

    @classmethod
    def of(cls, steps: Iterable[Mapping[str, Any]]) -> Folds:
        """Return the tree of steps as `show` returns them."""
        known = {step["address"]: step for step in steps}
        states = ((step["address"], step["step"], step["status"]) for step in known.values())
        return cls(states, known.__getitem__)

    def _place(self, states: Iterable[tuple[str, str, str]]) -> None:
        """Put each step into the fold around it, in order of beginning."""
        found, folds, places = self._states, self._folds, self._places
        for address, id, status in states:
            found[address] = len(found), id, status
            if address in places:
                continue
            end = max(address.rfind("/"), address.rfind("["), address.rfind("@"))
            parent = address[:end] if end > 0 else ""
            fold = folds.get(parent)
            if fold is None:  # a new fold, or the key of an item that contains such a sign
                self._place_around(address)
                continue
            places[address] = parent, len(fold.order)
            fold.signs[address[end] if parent else address[0]] = None
            fold.order.append((_LAST, len(fold.order), address))

    def _place_around(self, address: str) -> None:
        """Place an address, and the folds around it that are new."""
        parent = ""
        for place in around(address):
            if place not in self._places:
                fold = self._folds.setdefault(parent, _Fold())
                self._places[place] = parent, len(fold.order)
                fold.signs[place[len(parent)]] = None
                fold.order.append((_LAST, len(fold.order), place))
            parent = place

    def _rank(self, fold: _Fold) -> None:
        """Order the children of a fold, after the folds inside it, and count its descendants."""
        states, folds, below = self._states, self._folds, fold.below
        order: list[_Entry] = []
        for _, number, address in fold.order:
            state, inner = states.get(address), folds.get(address)
            status = "" if state is None else state[2]
            rank = _RANKS.get(status, _LAST)
            if state is None:
                fold.inside[""] = fold.inside.get("", 0) + 1
            if inner is None:
                below[status] = below.get(status, 0) + 1
            else:
                for each, count in inner.below.items():
                    below[each] = below.get(each, 0) + count
                rank = min([rank, *map(_rank, inner.below)])
            order.append((rank, number, address))
        fold.order = sorted(order)

    def _count(self, address: str, by: int) -> None:
        """Add a step to the counts around it and of its activations, or take it out of them."""
        number, id, status = self._states[address]
        _add(self._folds[self._places[address][0]].inside, status, by)
        fold = self._folds.get(address)
        if not address.endswith((COMPENSATION, CLEANUP)):
            is_whole = fold is not None and not _NOUNS.keys().isdisjoint(fold.signs)
            _add((self._wholes if is_whole else self._activations).setdefault(id, {}), status, by)
        if status == "failed":
            self._failed[address] = number
        loop, _, round = address.rpartition("@")
        if round.isdecimal() and loop not in self._states:
            self._loops[loop] = id

    def update(self, states: Iterable[tuple[str, str, str]]) -> None:
        """Add steps, or change their statuses. The cost depends on these steps only.

        Args:
            states: Address, step id and status of each, in order of beginning.
        """
        for address, id, status in states:
            number, *before = self._states.get(address, (len(self._states),))
            if before == [id, status]:
                continue
            places = around(address)
            ranks = {place: self._urgency(place) for place in places if place in self._places}
            changed = places[max(len(ranks) - 1, 0) :]
            if ranks:  # the first one is known: perhaps it was no fold yet, or no map
                self._weigh(changed[0], -1)
            self._place([(address, id, status)])
            self._states[address] = number, id, status
            self._loops.pop(address, None)
            if status != "failed":
                self._failed.pop(address, None)
            for place in changed:
                self._weigh(place, 1)
            for place in places:
                fold, at = self._places[place]
                rank, now = ranks.get(place, _LAST), self._urgency(place)
                if now != rank:
                    order = self._folds[fold].order
                    del order[bisect_left(order, (rank, at, place))]
                    insort(order, (now, at, place))

    def _weigh(self, address: str, by: int) -> None:
        """Add an address to the counts of the folds around it, or remove it from them."""
        if address in self._states:
            self._count(address, by)
        else:
            _add(self._folds[self._places[address][0]].inside, "", by)
        if address not in self._folds:
            for place in ("", *around(address)[:-1]):
                _add(self._folds[place].below, self.status(address), by)

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
            address, _ = self._places.get(address, ("", 0))
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
        first = nsmallest(_MOST_FAILURES, failed, key=self._failed.__getitem__)
        return [self._read(address) for address in first], len(failed)

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
        for rank, _, inner in fold.order:
            if only_urgent and rank == _LAST:
                return
            if inner in self._folds:
                yield from self.steps_inside(inner, only_urgent=only_urgent)
            elif not only_urgent or self.status(inner) in _RANKS:
                yield self._read(inner)

    def first(self, address: str) -> Mapping[str, Any]:
        """Return the step inside a fold that began first."""
        while address not in self._states:
            address = min(self._folds[address].order, key=lambda ranked: ranked[1])[2]
        return self._read(address)

    def __contains__(self, address: str) -> bool:
        """Return whether a step or a fold has an address."""
        return address in self._places

    def status(self, address: str) -> str:
        """Return the status of a step. Empty: there is none, or a fold that has not ended."""
        state = self._states.get(address)
        return "" if state is None else state[2]

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
            order = sorted(order, key=lambda ranked: ranked[1])
        return [inner for *_, inner in order[start : start + PAGE]]

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
