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
    """What they are: `item`, `round` or `step`."""
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
        """What separates it from their names: `[`, `@` or `/`, that of the oldest first."""


class Folds:
    """The tree of an execution's steps.

    A step that has changed is put into it again. That costs as much in a large tree as in a small
    one, and so does a page of it.

    Args:
        steps: As `show` returns them.
    """

    def __init__(self, steps: Iterable[Mapping[str, Any]] = ()) -> None:
        self._states: dict[str, tuple[int, str, str]] = {}
        """Number in order of beginning, step id and status of each step."""
        self._steps: dict[str, Mapping[str, Any]] = {}
        """The steps that were put."""
        self._read: Callable[[str], Mapping[str, Any]] = self._steps.__getitem__
        """Returns one that was loaded."""
        self._folds = {"": _Fold()}
        self._parents: dict[str, str] = {}
        """Address → the fold that it is in."""
        self._entries: dict[str, _Entry] = {}
        """Address → its entry in the order of that fold."""
        self._moved: dict[str, None] = {}
        """The addresses whose urgency may have changed."""
        self._failed: dict[str, int] = {}
        """Failed step → its number, in order of beginning."""
        self._activations: dict[str, dict[str, int]] = {}
        """Step id → statuses of its activations that have no items or rounds."""
        self._wholes: dict[str, dict[str, int]] = {}
        """Step id → statuses of its activations that have."""
        self._loops: dict[str, str] = {}
        """Address → step id of the loops that have not ended."""
        self._left = _MOST_ROWS
        for step in steps:
            self.put(step)

    def load(
        self,
        states: Iterable[tuple[str, str, str]],
        steps: Mapping[str, Mapping[str, Any]],
        read: Callable[[str], Mapping[str, Any]],
    ) -> None:
        """Put many steps into an empty tree, which is ten times as fast as one by one.

        Args:
            states: Address, step id and status of each, in order of beginning.
            steps: Address → step as `show` returns it, for those with another status.
            read: Returns the step at any other address as `show` does, until one is put there.
        """
        self._steps, self._read = {**steps}, read
        found: dict[str, tuple[int, str, str]] = {}
        folds, parents = self._folds, self._parents
        for address, id, status in states:
            if address in steps:
                status = steps[address]["status"]  # noqa: PLW2901 - the one to show
            found[address] = len(found), id, status
            if address in parents:
                continue
            end = max(address.rfind("/"), address.rfind("["), address.rfind("@"))
            parent = address[:end] if end > 0 else ""
            fold = folds.get(parent)
            if fold is None:  # a new fold, or the key of an item that contains such a sign
                self._add(address)
                continue
            parents[address] = parent
            fold.signs[address[end] if parent else address[0]] = None
            fold.order.append((_LAST, len(fold.order), address))
        self._states = found
        for fold in reversed(folds.values()):  # those inside come after those around them
            self._rank(fold)
        for address, (number, id, status) in found.items():
            _add_to(folds[parents[address]].inside, status, 1)
            if address in folds:
                self._count(address, id, status, 1)
            elif not address.endswith((COMPENSATION, CLEANUP)):
                _add_to(self._activations.setdefault(id, {}), status, 1)
            if status == "failed":
                self._failed[address] = number
            if "@" in address:
                self._note_round(address, id)
        self._moved.clear()

    def _rank(self, fold: _Fold) -> None:
        """Put what is in a fold in order, after the folds in it, and count what is below it."""
        states, folds, entries = self._states, self._folds, self._entries
        order: list[_Entry] = []
        below: dict[str, int] = {}
        fold.inside, fold.below = {}, below
        for _, number, address in fold.order:
            state, inner = states.get(address), folds.get(address)
            status = "" if state is None else state[2]
            rank = _RANKS.get(status, _LAST)
            if state is None:
                _add_to(fold.inside, "", 1)
            if inner is None:
                below[status] = below.get(status, 0) + 1
            else:
                for each, count in inner.below.items():
                    below[each] = below.get(each, 0) + count
                rank = min([rank, *map(_rank, inner.below)])
            entries[address] = entry = rank, number, address
            order.append(entry)
        fold.order = sorted(order)

    def put(self, step: Mapping[str, Any]) -> None:
        """Add a step, or replace it.

        Args:
            step: As `show` returns it. Not to be changed afterwards.
        """
        address, id, status = step["address"], step["step"], step["status"]
        before = self.status(address) if address in self._parents else None
        if before is None:
            self._add(address)
        known = self._states.get(address)
        number = len(self._states) if known is None else known[0]
        if known is not None:
            self._count(address, *known[1:], -1)
        self._steps[address] = step
        self._states[address] = number, id, status
        self._count(address, id, status, 1)
        self._loops.pop(address, None)
        self._note_round(address, id)
        if status == before:
            return
        if status == "failed":
            self._failed[address] = number
        else:
            self._failed.pop(address, None)
        self._moved[address] = None
        fold = self._folds[self._parents[address]]
        _shift(fold.inside, before or "", status)
        if address not in self._folds:
            self._shift_around(address, before, status)

    def _note_round(self, address: str, id: str) -> None:
        """Note the loop of a round, if it has not ended."""
        loop, _, number = address.rpartition("@")
        if number.isdecimal() and loop not in self._states:
            self._loops[loop] = id

    def level(self, address: str, start: int = 0) -> FoldLevel:
        """Return a page of the steps directly inside a fold.

        Args:
            address: Of the fold, or of a step in it. Empty or unknown: the whole execution.
            start: Number of the first row.
        """
        if address not in self._folds:
            address = self._parents.get(address, "")
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
        return [self._step(address) for address in first], len(failed)

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
        fold = self._settled(address)
        for rank, _, inner in fold.order:
            if only_urgent and rank == _LAST:
                return
            if inner in self._folds:
                yield from self.steps_inside(inner, only_urgent=only_urgent)
            elif not only_urgent or self.status(inner) in _RANKS:
                yield self._step(inner)

    def first(self, address: str) -> Mapping[str, Any]:
        """Return the step inside a fold that began first."""
        while address not in self._states:
            address = min(self._folds[address].order, key=lambda ranked: ranked[1])[2]
        return self._step(address)

    def __contains__(self, address: str) -> bool:
        """Return whether a step or a fold has an address."""
        return address in self._parents

    def status(self, address: str) -> str:
        """Return the status of a step. Empty: there is none, or a fold that has not ended."""
        state = self._states.get(address)
        return "" if state is None else state[2]

    def _step(self, address: str) -> Mapping[str, Any]:
        return self._steps.get(address) or self._read(address)

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
            self._step(address) if address in self._states else None,
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
        """Return a page of what is directly inside a fold, what failed or waits first.

        The steps of an execution that fit into one view stay in order of their start.
        """
        order = self._settled(address).order
        if not address and len(order) <= PAGE:
            order = sorted(order, key=lambda ranked: ranked[1])
        return [inner for *_, inner in order[start : start + PAGE]]

    def _failed_inside(self, address: str) -> bool:
        origin = (self._step(address).get("error") or {}).get("step", "")
        return origin in self._failed and address in around(origin)[:-1]

    def _settled(self, address: str) -> _Fold:
        """Return a fold after everything has moved to its place."""
        for moved in self._moved:
            entry = self._entries[moved]
            rank = self._urgency(moved)
            if rank != entry[0]:
                order = self._folds[self._parents[moved]].order
                del order[bisect_left(order, entry)]
                self._entries[moved] = entry = rank, entry[1], moved
                insort(order, entry)
        self._moved.clear()
        return self._folds[address]

    def _urgency(self, address: str) -> int:
        rank = _rank(self.status(address))
        fold = self._folds.get(address)
        return rank if fold is None else min([rank, *map(_rank, fold.below)])

    def _add(self, address: str) -> None:
        """Add an address and the folds around it that are new. It has no status yet."""
        parent = ""
        for place in around(address):
            if place not in self._parents:
                fold = self._folds.get(parent) or self._opened(parent)
                self._parents[place] = parent
                self._entries[place] = entry = _LAST, len(fold.order), place
                insort(fold.order, entry)
                fold.inside[""] = fold.inside.get("", 0) + 1
                sign = place[len(parent) : len(parent) + 1]
                if sign not in fold.signs:
                    self._count_again(parent, fold, sign)
            parent = place

    def _count_again(self, address: str, fold: _Fold, sign: str) -> None:
        """Count a fold with a further sign, which may make it a map or a loop."""
        state = self._states.get(address)
        if state is not None:
            self._count(address, *state[1:], -1)
        fold.signs[sign] = None
        if state is not None:
            self._count(address, *state[1:], 1)

    def _opened(self, address: str) -> _Fold:
        """Return a new fold at the address of a step that contained no others before."""
        if address in self._states:
            self._shift_around(address, self.status(address), None)
            self._moved[address] = None
        fold = self._folds[address] = _Fold()
        return fold

    def _shift_around(self, address: str, before: str | None, after: str | None) -> None:
        """Count another status of a step that contains no others in all folds around it."""
        while address:
            address = self._parents[address]
            _shift(self._folds[address].below, before, after)
            if address:
                self._moved[address] = None

    def _count(self, address: str, id: str, status: str, number: int) -> None:
        """Count a step once more, or once less, among the activations of its step id."""
        if address.endswith((COMPENSATION, CLEANUP)):
            return
        fold = self._folds.get(address)
        is_whole = fold is not None and not _NOUNS.keys().isdisjoint(fold.signs)
        counts = (self._wholes if is_whole else self._activations).setdefault(id, {})
        _add_to(counts, status, number)


def _shift(counts: dict[str, int], before: str | None, after: str | None) -> None:
    """Count something with another status. None: it is new, or gone."""
    if before is not None:
        _add_to(counts, before, -1)
    if after is not None:
        _add_to(counts, after, 1)


def _add_to(counts: dict[str, int], status: str, number: int) -> None:
    counts[status] = counts.get(status, 0) + number
    if not counts[status]:
        del counts[status]


def _sorted(counts: Mapping[str, int]) -> Counts:
    return sorted(counts.items(), key=lambda pair: _rank(pair[0]))


def _rank(status: str) -> int:
    return _RANKS.get(status, _LAST)
