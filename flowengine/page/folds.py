"""The steps of an execution as a tree: maps, loops, subflows and groups are folds around steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from flowengine.kernel.notation.addresses import around

PAGE = 100
"""Rows of a list of steps in one view."""
_MOST_ROWS = 500
"""Rows in all folds of one view. Further folds have separate views."""
URGENT = (
    *("failed", "uncertain", "refused", "rejected", "expired", "waiting", "retrying", "running"),
)
"""The statuses that come first, in this order."""
_NOUNS = {"[": "item", "@": "round"}

Counts = list[tuple[str, int]]


class Row(NamedTuple):
    """One step, or a fold around others."""

    address: str
    label: str
    """The part of the address that the fold around it does not have."""
    step: Mapping[str, Any] | None
    """None: a fold that has not ended, of which only the contents are known."""
    total: int
    """Number of rows directly inside."""
    noun: str
    """What they are: `item`, `round` or `step`."""
    counts: Counts
    """Their statuses, the most urgent first."""
    deeper: Counts
    """Urgent statuses further inside that `counts` does not have."""
    rows: list[Row]
    """The first of them. Empty: they have a separate view."""


class Level(NamedTuple):
    """The steps directly inside a fold, or of the whole execution."""

    address: str
    """Of the fold. Empty: the execution."""
    rows: list[Row]
    total: int
    before: int | None
    """Where the page before starts."""
    after: int | None
    """Where the next page starts."""


class Folds:
    """The tree of an execution's steps.

    Args:
        steps: As `show` returns them.
    """

    def __init__(self, steps: Iterable[Mapping[str, Any]]) -> None:
        self._steps: dict[str, Mapping[str, Any]] = {}
        self._inside: dict[str, dict[str, None]] = {"": {}}
        for step in steps:
            self._steps[step["address"]] = step
            parent = ""
            for address in around(step["address"]):
                self._inside.setdefault(parent, {})[address] = None
                parent = address
        self._below: dict[str, Counter[str]] = {}
        for address in sorted(self._inside, key=len, reverse=True):
            self._below[address] = self._count_below(address)
        self._left = _MOST_ROWS

    def level(self, address: str, start: int = 0) -> Level:
        """Return a page of the steps directly inside a fold.

        Args:
            address: Of the fold. Empty, or not that of a fold: the whole execution.
            start: Number of the first row.
        """
        address = address if address in self._inside else ""
        order = self._in_order(address)
        start = start if 0 < start < len(order) else 0
        self._left = _MOST_ROWS
        return Level(
            address,
            [self._row(one, address) for one in order[start : start + PAGE]],
            len(order),
            max(0, start - PAGE) if start else None,
            start + PAGE if start + PAGE < len(order) else None,
        )

    def steps_inside(self, address: str) -> Iterator[Mapping[str, Any]]:
        """Yield the steps inside a fold that contain no others, the most urgent first."""
        for one in self._in_order(address):
            if one in self._inside:
                yield from self.steps_inside(one)
            else:
                yield self._steps[one]

    def _row(self, address: str, parent: str) -> Row:
        inside = self._inside.get(address, {})
        counts = Counter(self._status(one) for one in inside)
        del counts[""]
        deeper = {
            status: number
            for status, number in self._below.get(address, Counter[str]()).items()
            if status in URGENT and status not in counts
        }
        first = next(iter(inside), "")
        return Row(
            address,
            address[len(parent) :].lstrip("/") if parent else address,
            self._steps.get(address),
            len(inside),
            _NOUNS.get(first[len(address) : len(address) + 1], "step"),
            _sorted(counts),
            _sorted(deeper),
            list(self._rows_inside(address)),
        )

    def _rows_inside(self, address: str) -> Iterator[Row]:
        shown = self._in_order(address)[:PAGE] if address in self._inside else []
        if len(shown) > self._left:
            return
        self._left -= len(shown)
        for one in shown:
            yield self._row(one, address)

    def _in_order(self, address: str) -> list[str]:
        """Return what is directly inside a fold, what failed or waits first.

        The steps of an execution that fit into one view stay in order of their start.
        """
        inside = list(self._inside[address])
        if not address and len(inside) <= PAGE:
            return inside
        return sorted(inside, key=self._urgency)

    def _urgency(self, address: str) -> int:
        statuses = {self._status(address), *self._below.get(address, ())}
        return min(map(_rank, statuses))

    def _status(self, address: str) -> str:
        """Return the status of a step. Empty: a fold that has not ended."""
        step = self._steps.get(address)
        return "" if step is None else step["status"]

    def _count_below(self, address: str) -> Counter[str]:
        """Return the statuses of the steps inside a fold that contain no others."""
        found = Counter[str]()
        for one in self._inside[address]:
            found.update(self._below.get(one) or [self._status(one)])
        return found


def _sorted(counts: Mapping[str, int]) -> Counts:
    return sorted(counts.items(), key=lambda pair: _rank(pair[0]))


def _rank(status: str) -> int:
    return URGENT.index(status) if status in URGENT else len(URGENT)
