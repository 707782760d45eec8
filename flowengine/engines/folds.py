"""The steps of an execution as a tree: maps, loops, subflows and groups are folds around steps."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
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
    steps: int
    """Number of steps inside that contain no others."""
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


class Folds:
    """The tree of an execution's steps.

    Args:
        states: Address → state of each step, in order of beginning.
        read: Returns the step at an address as `show` does. Not to be changed.
    """

    def __init__(
        self, states: Mapping[str, State], read: Callable[[str], Mapping[str, Any]]
    ) -> None:
        self._states = states
        self._read = read
        self._folds: dict[str, list[str]] = {"": []}
        """Address → what is directly inside, in order of beginning."""
        self._placed: set[str] = set()
        self._urgent: dict[str, dict[str, int]] = defaultdict(dict)
        """Address of a fold → urgent statuses of steps inside that contain no others."""
        self._ordered: dict[str, list[str]] = {}
        """Address of a fold → what is directly inside, the most urgent first."""
        self._left = _MOST_ROWS
        self._place()
        for address, (_, status) in self._states.items():
            if status in _RANKS and address not in self._folds:
                for fold in ("", *around(address)[:-1]):
                    _add(self._urgent[fold], status, 1)

    @classmethod
    def of(cls, steps: Iterable[Mapping[str, Any]]) -> Folds:
        """Return the tree of steps as `show` returns them."""
        known = {step["address"]: step for step in steps}
        states = {address: (step["step"], step["status"]) for address, step in known.items()}
        return cls(states, known.__getitem__)

    def renamed(self, shown: Callable[[str], str]) -> Folds:
        """Return the tree with other addresses, which are as different as these."""
        known = {shown(address): address for address in self._states}
        states = {address: self._states[before] for address, before in known.items()}
        return Folds(states, lambda address: {**self._read(known[address]), "address": address})

    def _place(self) -> None:
        """Put each step into the fold around it, in order of beginning."""
        placed, folds = self._placed, self._folds
        for address in self._states:
            # Most are directly inside what has been placed. A key may contain these characters, but
            # no step has the address before them.
            parent = address[: max(0, *map(address.rfind, "/[@"))]
            inner = [address]
            if parent not in placed:
                parent, inner = "", around(address)
            for place in inner:
                if place not in placed:
                    placed.add(place)
                    folds.setdefault(parent, []).append(place)
                parent = place

    def _urgency(self, address: str) -> int:
        return min(map(_rank, (self.status(address), *self._urgent.get(address, ()))))

    def _children(self, address: str) -> list[str]:
        """Return what is directly inside a fold, the most urgent first."""
        if address in self._ordered:
            return self._ordered[address]
        inside, states = self._folds[address], self._states
        if address in self._urgent or any(
            states.get(child, _NOT_BEGUN)[1] in _RANKS for child in inside
        ):
            inside = sorted(inside, key=self._urgency)
        self._ordered[address] = inside
        return inside

    def level(self, address: str, start: int = 0) -> FoldLevel:
        """Return a page of the steps directly inside a fold.

        Args:
            address: Of the fold, or of a step in it. Empty or unknown: the whole execution.
            start: Number of the first row.
        """
        if address not in self._folds:
            address = ["", *around(address)][-2] if address in self._placed else ""
        total = len(self._folds[address])
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
        failed = [address for address, (_, status) in self._states.items() if status == "failed"]
        causes = [address for address in failed if not self._failed_inside(address)]
        return [self._read(address) for address in causes[:_MOST_FAILURES]], len(causes)

    def statuses(self) -> dict[str, dict[str, int]]:
        """Return how many activations of each step have each status, the most urgent first.

        Items and rounds count in place of their map or loop, except for a status that none of them
        has. A loop between two rounds is waiting.
        """
        activations = defaultdict[str, dict[str, int]](dict)
        wholes = defaultdict[str, dict[str, int]](dict)
        loops: dict[str, str] = {}
        """Address → step of the loops that have not ended."""
        for (id, status), count in Counter(self._states.values()).items():
            activations[id][status] = count
        ends = (address for address in self._states if address.endswith((COMPENSATION, CLEANUP)))
        for address in dict.fromkeys([*self._folds, *ends]):
            inside = self._folds.get(address, ())
            signs = {child[len(address)] for child in inside} if address else ()
            if address not in self._states:
                rounds = (child for child in reversed(inside) if child in self._states)
                if "@" in signs and (last := next(rounds, None)) is not None:
                    loops[address] = self._states[last][0]
                continue
            id, status = self._states[address]
            if address.endswith((COMPENSATION, CLEANUP)):
                _add(activations[id], status, -1)
            elif not _NOUNS.keys().isdisjoint(signs):
                _add(activations[id], status, -1)
                _add(wholes[id], status, 1)
        totals: dict[str, dict[str, int]] = {}
        for step in {**activations, **wholes}:
            counts = dict.fromkeys(wholes.get(step, ()), 1) | activations.get(step, {})
            if counts:
                totals[step] = dict(_sorted(counts))
        for loop, step in loops.items():
            known = {self.status(child) for child in self._folds[loop]}
            if _OPEN.isdisjoint(known | self._urgent.get(loop, {}).keys()):
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
        for inner in self._children(address):
            if only_urgent and self._urgency(inner) == _LAST:
                return
            if inner in self._folds:
                yield from self.steps_inside(inner, only_urgent=only_urgent)
            else:
                yield self._read(inner)

    def first(self, address: str) -> Mapping[str, Any]:
        """Return the step inside a fold that began first."""
        while address not in self._states:
            address = self._folds[address][0]
        return self._read(address)

    def __contains__(self, address: str) -> bool:
        """Return whether a step or a fold has an address."""
        return address in self._placed

    def status(self, address: str) -> str:
        """Return the status of a step. Empty: there is none, or a fold that has not ended."""
        return self._states.get(address, _NOT_BEGUN)[1]

    def _row(self, address: str, parent: str) -> FoldRow:
        inside = self._folds.get(address, [])
        counts = Counter(status for child in inside if (status := self.status(child)))
        deeper = {
            status: number
            for status, number in self._urgent.get(address, {}).items()
            if status not in counts
        }
        rows: list[FoldRow] = []
        shown = self._page(address, 0) if address in self._folds else []
        if len(shown) <= self._left:
            self._left -= len(shown)
            rows = [self._row(step, address) for step in shown]
        return FoldRow(
            address,
            address[len(parent) :].lstrip("/") if parent else address,
            self._read(address) if address in self._states else None,
            len(inside),
            self._size(address),
            _NOUNS.get(inside[0][len(address)] if inside else "", "step"),
            _sorted(counts),
            _sorted(deeper),
            rows,
        )

    def _size(self, address: str) -> int:
        """Return the number of steps inside a fold that contain no others."""
        inside = self._folds.get(address, ())
        return sum(self._size(child) if child in self._folds else 1 for child in inside)

    def _page(self, address: str, start: int) -> list[str]:
        """Return a page of the direct children of a fold, the failed and waiting ones first.

        The steps of an execution that fit into one view stay in order of their start.
        """
        is_short = not address and len(self._folds[address]) <= PAGE
        order = self._folds[address] if is_short else self._children(address)
        return order[start : start + PAGE]

    def _failed_inside(self, address: str) -> bool:
        if address not in self._folds:
            return False
        origin = (self._read(address).get("error") or {}).get("step", "")
        return self.status(origin) == "failed" and address in around(origin)[:-1]


def _add(counts: dict[str, int], status: str, by: int) -> None:
    counts[status] = counts.get(status, 0) + by
    if not counts[status]:
        del counts[status]


def _sorted(counts: Mapping[str, int]) -> Counts:
    return sorted(counts.items(), key=lambda pair: _rank(pair[0]))


def _rank(status: str) -> int:
    return _RANKS.get(status, _LAST)
