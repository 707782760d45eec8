"""The steps of an execution as a tree: maps, loops, subflows and groups are folds around steps."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest
from typing import Any, NamedTuple, Protocol

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


class _Fold:
    """What is directly inside an address."""

    __slots__ = ("below", "inside", "order", "signs")

    def __init__(self) -> None:
        self.order: list[tuple[int, int, str]] = []
        """Urgency, number and address of each, in order."""
        self.inside = Counter[str]()
        """Their statuses. Empty: a fold that has not ended."""
        self.below = Counter[str]()
        """The statuses of all steps inside that contain no others."""
        self.signs: dict[str, None] = {}
        """What separates it from their names: `[`, `@` or `/`, that of the oldest first."""


class TreeSource(Protocol):
    """The recorded form of a tree, to be read when it is needed."""

    def read(self, address: str) -> None:
        """Put an address into the tree with `Folds.take`, if it is recorded."""

    def read_all(self) -> None:
        """The same for all addresses that are not in it, at once."""

    def order(self, fold: str) -> list[tuple[int, int, str]]:
        """Return rank, number and address of everything directly inside a fold, in order.

        It is called once for each fold.
        """


class _RecordedFold(_Fold):
    """A fold whose order is read when it is needed."""

    __slots__ = ("_address", "_order", "_source")

    def __init__(self, source: TreeSource, address: str) -> None:
        self._source = source
        self._address = address
        self._order: list[tuple[int, int, str]] | None = None

    @property
    def order(self) -> list[tuple[int, int, str]]:  # type: ignore[override]
        if self._order is None:
            self._order = self._source.order(self._address)
        return self._order


class LazyDict(dict[str, Any]):
    """A dictionary whose items are read when they are needed first.

    Args:
        read: Puts the item with a key into the dictionary, if it is recorded.
    """

    __slots__ = ("_read",)

    def __init__(self, read: Callable[[str], None]) -> None:
        super().__init__()
        self._read = read

    def __missing__(self, key: str) -> Any:
        self._read(key)
        if dict.__contains__(self, key):
            return dict.__getitem__(self, key)
        raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        if not dict.__contains__(self, key):
            self._read(str(key))
        return dict.__contains__(self, key)

    def get(self, key: str, default: Any = None) -> Any:
        return dict.__getitem__(self, key) if key in self else default


class _Place(NamedTuple):
    """Where an address is in the fold around it."""

    fold: str
    rank: int
    number: int


class Folds:
    """The tree of an execution's steps.

    A step that has changed is put into it again. That costs as much in a large tree as in a small
    one, and so does a page of it.

    Args:
        steps: As `show` returns them.
        source: Its recorded form, see `summary`. None: it is new.
    """

    def __init__(
        self, steps: Iterable[Mapping[str, Any]] = (), source: TreeSource | None = None
    ) -> None:
        self._source = source
        self._steps: dict[str, Mapping[str, Any]] = _dictionary(source)
        self._folds: dict[str, _Fold] = _dictionary(source)
        self._places: dict[str, _Place] = _dictionary(source)
        if source is None:
            self._folds[""] = _Fold()
        self._moved: dict[str, None] = {}
        """The addresses whose urgency may have changed."""
        self._failed: dict[str, int] = {}
        """Failed step → its number, in order of beginning."""
        self._numbers: dict[str, int] = _dictionary(source)
        self._next = 0
        """Number of the next step."""
        self._activations: dict[str, Counter[str]] = {}
        """Step id → statuses of its activations that have no items or rounds."""
        self._wholes: dict[str, Counter[str]] = {}
        """Step id → statuses of its activations that have."""
        self._loops: dict[str, str] = {}
        """Address → step id of the loops that have not ended."""
        self._left = _MOST_ROWS
        for step in steps:
            self.put(step)

    def put(self, step: Mapping[str, Any]) -> None:
        """Add a step, or replace it.

        Args:
            step: As `show` returns it. Not to be changed afterwards.
        """
        address, status = step["address"], step["status"]
        before = self.status(address) if address in self._places else None
        if before is None:
            self._add(address)
        self._count(address, -1)
        if address not in self._steps:
            self._numbers[address] = self._next
            self._next += 1
        self._steps[address] = step
        self._count(address, 1)
        self._loops.pop(address, None)
        loop, _, number = address.rpartition("@")
        if number.isdecimal() and loop not in self._steps:
            self._loops[loop] = step["step"]
        if status == before:
            return
        if status == "failed":
            self._failed[address] = self._numbers[address]
        else:
            self._failed.pop(address, None)
        self._moved[address] = None
        fold = self._folds[self._places[address].fold]
        _shift(fold.inside, before or "", status)
        if address not in self._folds:
            self._shift_around(address, before, status)

    def level(self, address: str, start: int = 0) -> FoldLevel:
        """Return a page of the steps directly inside a fold.

        Args:
            address: Of the fold, or of a step in it. Empty or unknown: the whole execution.
            start: Number of the first row.
        """
        if address not in self._folds:
            address = self._places[address].fold if address in self._places else ""
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
        return [self._steps[address] for address in first], len(failed)

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
        is_long = not only_urgent and self._folds[address].below.total() > PAGE
        if self._source is not None and is_long:
            self._source.read_all()
        fold = self._settled(address)
        for rank, _, inner in fold.order:
            if only_urgent and rank == _LAST:
                return
            if inner in self._folds:
                yield from self.steps_inside(inner, only_urgent=only_urgent)
            elif not only_urgent or self.status(inner) in _RANKS:
                yield self._steps[inner]

    def first(self, address: str) -> Mapping[str, Any]:
        """Return the step inside a fold that began first."""
        while address not in self._steps:
            address = min(self._folds[address].order, key=lambda ranked: ranked[1])[2]
        return self._steps[address]

    def __contains__(self, address: str) -> bool:
        """Return whether a step or a fold has an address."""
        return address in self._places

    def number(self, address: str) -> int:
        """Return the number of a step, in order of beginning."""
        return self._numbers[address]

    def status(self, address: str) -> str:
        """Return the status of a step. Empty: there is none, or a fold that has not ended."""
        step = self._steps.get(address)
        return "" if step is None else step["status"]

    def summary(self) -> dict[str, Any]:
        """Return the plain data from which `restore` continues the tree."""
        self._settled("")
        return {
            "next": self._next,
            "failed": self._failed.copy(),
            "activations": {step: dict(counts) for step, counts in self._activations.items()},
            "wholes": {step: dict(counts) for step, counts in self._wholes.items()},
            "loops": self._loops.copy(),
        }

    def restore(self, summary: Mapping[str, Any]) -> None:
        """Continue a tree that was recorded, by its `summary`."""
        self._next = summary["next"]
        self._failed, self._loops = dict(summary["failed"]), dict(summary.get("loops", {}))
        for counts, name in ((self._activations, "activations"), (self._wholes, "wholes")):
            counts |= {step: Counter(recorded) for step, recorded in summary[name].items()}

    def recorded(self, address: str) -> tuple[str | None, int, int, list[Any]]:
        """Return the arguments of `take` that put an address into the tree again.

        Args:
            address: Empty: the whole execution.

        Returns:
            The fold around it, its rank and its number there, and the rest as plain data.
        """
        fold = self._folds.get(address)
        inside = None if fold is None else [*map(dict, (fold.inside, fold.below)), [*fold.signs]]
        place = self._places[address] if address else (None, _LAST, 0)
        return *place, [self._steps.get(address), self._numbers.get(address), inside]

    def take(
        self, address: str, fold: str | None, rank: int, place: int, rest: Sequence[Any]
    ) -> None:
        """Put an address into the tree as it was `recorded`."""
        assert self._source is not None
        step, number, inside = rest
        if fold is not None:
            self._places[address] = _Place(fold, rank, place)
        if step is not None:
            self._steps[address] = step
        if number is not None:
            self._numbers[address] = number
        if inside is not None:
            found = self._folds[address] = _RecordedFold(self._source, address)
            found.inside, found.below = Counter(inside[0]), Counter(inside[1])
            found.signs = dict.fromkeys(inside[2])

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
            self._steps.get(address),
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
        origin = (self._steps[address].get("error") or {}).get("step", "")
        return origin in self._failed and address in around(origin)[:-1]

    def _settled(self, address: str) -> _Fold:
        """Return a fold after everything has moved to its place."""
        for moved in self._moved:
            place = self._places[moved]
            rank = self._urgency(moved)
            if rank != place.rank:
                order = self._folds[place.fold].order
                del order[bisect_left(order, (place.rank, place.number))]
                insort(order, (rank, place.number, moved))
                self._places[moved] = place._replace(rank=rank)
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
            if place not in self._places:
                fold = self._folds.get(parent) or self._opened(parent)
                self._places[place] = _Place(parent, _LAST, len(fold.order))
                insort(fold.order, (_LAST, len(fold.order), place))
                fold.inside[""] += 1
                sign = place[len(parent) : len(parent) + 1]
                if sign not in fold.signs:
                    self._count(parent, -1)
                    fold.signs[sign] = None
                    self._count(parent, 1)
            parent = place

    def _opened(self, address: str) -> _Fold:
        """Return a new fold at the address of a step that contained no others before."""
        if address in self._steps:
            self._shift_around(address, self.status(address), None)
            self._moved[address] = None
        fold = self._folds[address] = _Fold()
        return fold

    def _shift_around(self, address: str, before: str | None, after: str | None) -> None:
        """Count another status of a step that contains no others in all folds around it."""
        while address:
            address = self._places[address].fold
            _shift(self._folds[address].below, before, after)
            if address:
                self._moved[address] = None

    def _count(self, address: str, number: int) -> None:
        """Count a step once more, or once less, among the activations of its step id."""
        step = self._steps.get(address)
        if step is None or address.endswith((COMPENSATION, CLEANUP)):
            return
        fold = self._folds.get(address)
        is_whole = fold is not None and not _NOUNS.keys().isdisjoint(fold.signs)
        among = self._wholes if is_whole else self._activations
        _add_to(among.setdefault(step["step"], Counter()), step["status"], number)


def _dictionary(source: TreeSource | None) -> Any:
    return {} if source is None else LazyDict(source.read)


def _shift(counts: Counter[str], before: str | None, after: str | None) -> None:
    """Count something with another status. None: it is new, or gone."""
    if before is not None:
        _add_to(counts, before, -1)
    if after is not None:
        _add_to(counts, after, 1)


def _add_to(counts: Counter[str], status: str, number: int) -> None:
    counts[status] += number
    if not counts[status]:
        del counts[status]


def _sorted(counts: Mapping[str, int]) -> Counts:
    return sorted(counts.items(), key=lambda pair: _rank(pair[0]))


def _rank(status: str) -> int:
    return _RANKS.get(status, _LAST)
