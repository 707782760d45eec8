"""An index of observed steps, stored beside snapshots, to show long executions without replay.

A change to the past of an execution ends its index. The execution is then shown by replaying its
journal, like those that an earlier version of this program began.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from flowengine.engines.executions.subjects import address_of
from flowengine.errors import InputError
from flowengine.journal.encoding import inflate, pack, pack_placed
from flowengine.journal.records import ListPart
from flowengine.kernel.commands import Observation, Run
from flowengine.util.named_tuples import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from flowengine.journal.encoding import TextPosition
    from flowengine.kernel import Graph
    from flowengine.kernel.events import Event
    from flowengine.kernel.state.records import State

NAME = ":observed"
"""Name under which its parts are stored. No state key has this name."""
REWRITES = frozenset({"retry", "upgraded"})
_INLINE = 1024
"""Bytes of the largest output that is copied. A larger one that is not the value of an event, such
as the list of a map, is computed again when it is shown."""
_OF_REMARK = 2
"""Length of the list of a remark."""
COPIED, GAVE, COMPUTED, REMARK = 0, 1, 2, 3
"""Where the output of an observation is: in its row, in the event, or nowhere. The last one is an
event with further information on a step or the execution, such as a decision."""
_ABSENT: Any = object()
MOST_NOTED = 100
"""Number of events and notes from which rows are made of them."""


class Row(NamedTuple):
    """An observation, or a remark, which has a number and an address only."""

    number: int
    """Of its event."""
    source: int
    """Of the output: `COPIED`, `GAVE`, `COMPUTED`, or `REMARK`."""
    at: int
    address: str
    """Empty: of the execution."""
    step: int = 0
    status: str = ""
    outcome: str | None = None
    attempt: int = 0
    output: Any = None
    error: Any = None

    @property
    def observation(self) -> Observation:
        """The observation, without an output that is elsewhere."""
        return Observation(*self[2:], None)


_row: Callable[[tuple[Any, ...]], Row] = partial(tuple.__new__, Row)  # long executions have many


class StepIndex:
    """The rows since the last snapshot.

    A row is the time of the next event, or belongs to this event: an attempt that begins, the
    success of an attempt with the value of the event, any other observation, or a remark. See
    `read_rows`.

    Args:
        kept: Whether to keep an index.
        whole: Whether to copy outputs of any size.

    Attributes:
        noted: Receives each event that is applied, and then what the kernel notes. Rows are made of
            several events at once, which costs half as much. None: no index is kept.
    """

    __slots__ = ("_count", "_last", "_rows", "_stored", "_whole", "noted")

    def __init__(self, *, kept: bool, whole: bool) -> None:
        self.noted: list[Any] | None = [] if kept else None
        self._rows: list[Any] = []
        self._whole = whole
        self._last = ""
        """Address of the attempt that began last."""
        self._count = 0
        self._stored = False

    def end(self) -> None:
        """Stop keeping an index."""
        self.noted = None

    def before(self, graph: Graph, state: State, event: Event) -> None:
        """Note an event that is about to be applied. A result without a log may just be added."""
        kind = event["type"]
        if self.noted is None:
            return
        if kind in REWRITES:
            self.end()
            return
        if kind in ("decided", "warning") or "evidence" in event or "log" in event:
            self.noted.append([address_of(graph, state, event), None])
        self.noted.append(event)

    def undo(self, event: Event) -> None:
        """Forget an event that could not be applied."""
        noted = self.noted or []
        for place in reversed(range(len(noted))):
            if noted[place] is event:
                del noted[place:]
        if noted and type(noted[-1]) is list:
            del noted[-1]

    def write(self, graph: Graph) -> None:
        """Make the rows of what was noted."""
        noted, rows = self.noted, self._rows
        if noted is None:
            return
        remark = following = value = None
        for each in noted:
            kind = type(each)
            if kind is dict:
                if remark is not None:
                    rows.append(remark)
                remark, following = following, None
                rows.append(each["at"])
                value = each.get("value", _ABSENT)
            elif kind is Run:
                rows += each.address, each.step, each.attempt
                self._last = each.address
            elif kind is list:  # the remark of the next event
                following = each
            elif each.output is value and each.status == "succeeded" and not each.error:
                if each.address == self._last and each.outcome == "ok":
                    rows.append(None)
                else:
                    rows += each.address, each.outcome, each.step, each.attempt
            elif each.status == "running" and each.attempt:
                rows += each.address, each.step, each.attempt
                self._last = each.address
            else:
                rows.append(self._whole_row(graph, each, value))
        if remark is not None:
            rows.append(remark)
        noted.clear()

    def part(
        self, graph: Graph, places: Callable[[], Mapping[str, TextPosition]]
    ) -> ListPart | None:
        """Return the new rows since the last snapshot, if any."""
        self.write(graph)
        rows = self._rows
        if self.noted is None:
            was_stored, self._stored = self._stored, False
            return ListPart(NAME, 0, b"") if was_stored else None
        if not rows:
            return None
        first, self._count = self._count, self._count + len(rows)
        self._rows, self._stored, self._last = [], True, ""
        packed = pack_placed(rows, places) if self._whole else pack(rows)
        return ListPart(NAME, first, zlib.compress(packed, 1))

    def _whole_row(self, graph: Graph, seen: Observation, value: Any) -> list[Any]:
        is_hidden = graph.nodes[seen.step].plumbing and seen.error is None
        kind, output = self._kept(is_hidden, seen.output, value)
        what = [seen.address, seen.step, seen.status, seen.outcome, seen.attempt]
        return [*what, kind, output, seen.error]

    def _kept(self, is_hidden: bool, output: Any, value: Any) -> tuple[int, Any]:
        """Return where the output of an observation is from now on, and what of it is copied."""
        if output is None or is_hidden:
            return COPIED, None
        if output is value:
            return GAVE, None
        if self._whole:
            return COPIED, output
        try:
            return (COPIED, output) if len(pack(output)) <= _INLINE else (COMPUTED, None)
        except InputError:
            return COMPUTED, None

    @property
    def is_stored(self) -> bool:
        """Whether an index is stored, or will be."""
        return self._stored or self.noted is not None

    @property
    def length(self) -> int | None:
        """Number of rows. None: no index is kept."""
        return None if self.noted is None else self._count

    def loaded(self, length: int | None) -> None:
        """Continue after a snapshot.

        Args:
            length: The number of rows according to the snapshot.
        """
        self._count = length or 0
        self._stored = length is not None
        if length is None:
            self.end()


def read_rows(items: Iterable[Any]) -> Iterator[Row]:
    """Yield the rows of an index, in order.

    Args:
        items: The rows as stored, not trusted.
    """
    rows = iter(items)
    number, at, address, step = -1, 0, "", 0
    for row in rows:
        kind = type(row)
        if kind is int:
            number, at = number + 1, row
        elif row is None:
            yield _row((number, GAVE, at, address, step, "succeeded", "ok", 0, None, None))
        elif kind is str:
            outcome: Any = next(rows)
            if type(outcome) is int:
                address, step, attempt = row, outcome, next(rows)
                what = (number, COPIED, at, row, step, "running", None, attempt, None, None)
            else:
                of, attempt = next(rows), next(rows)
                what = (number, GAVE, at, row, of, "succeeded", outcome, attempt, None, None)
            yield _row(what)
        elif len(row) == _OF_REMARK:
            yield Row(number, REMARK, at, row[0] or "")
        else:
            where, of, status, outcome, attempt, source, output, error = row
            yield Row(number, source, at, where, of, status, outcome, attempt, output, error)


def has_remarks(items: Iterable[Any]) -> bool:
    """Return whether there are remarks among the rows of an index."""
    return any(len(row) == _OF_REMARK for row in items if type(row) is list)


def parts_of(lists: Sequence[ListPart]) -> list[ListPart]:
    """Return the parts of the index among the parts of all lists."""
    return [part._replace(items=inflate(part.items)) for part in lists if part.name == NAME]
