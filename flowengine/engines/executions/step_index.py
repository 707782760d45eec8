"""An index of observed steps, stored beside snapshots, to show long executions without replay."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from flowengine.engines.executions.moments import Moment
from flowengine.engines.executions.subjects import address_of
from flowengine.errors import InputError
from flowengine.journal.encoding import TextPosition, pack, pack_placed
from flowengine.journal.records import ListPart
from flowengine.kernel import Graph
from flowengine.kernel.commands import Observation, Run
from flowengine.kernel.events import Event
from flowengine.kernel.state.records import State
from flowengine.kernel.view import View

NAME = ":observed"
"""Name under which its parts are stored. No state key has this name."""
REWRITES = frozenset({"retry", "upgraded"})
"""Events that change the current work of the execution."""
_REMARKED = REWRITES | {"decided", "warning"}
_INLINE = 1024
"""Bytes of the largest output that is copied. A larger one that is not the value of an event, such
as the list of a map, is computed again when it is shown."""
_OF_REMARK = 2
"""Length of the list of a remark."""
COPIED, GAVE, COMPUTED, REMARK, AT_WORK = 0, 1, 2, 3, 4
"""Where the output of an observation is: in its row, in the event, or nowhere. The others are an
event with further information on a step or the execution, such as a decision, and a step that the
execution is at work on after a retry or an upgrade."""
_ABSENT: Any = object()
MOST_NOTED = 100
"""Number of events and notes from which rows are made of them."""
LARGE = 16_384
"""Bytes of events from which rows are made of them at once, so that no values are kept for that."""


class StepIndex:
    """The rows since the last snapshot.

    A row is the time of the next event, or belongs to this event: an attempt that begins, the
    success of an attempt with the value of the event, any other observation, a remark, or a step
    at work. See `read_rows`.

    Args:
        kept: Whether to keep an index.
        whole: Whether to copy outputs of any size.

    Attributes:
        noted: Receives each applied event, and then the kernel's observations. Rows are made of
            several events at once, which costs half as much. None: no index is kept.
    """

    __slots__ = ("_count", "_last", "_remark", "_rows", "_whole", "noted")

    def __init__(self, *, kept: bool, whole: bool) -> None:
        self.noted: list[Any] | None = [] if kept else None
        self._rows: list[Any] = []
        self._whole = whole
        self._last = ""
        """Address of the attempt that began last."""
        self._count = 0
        self._remark: list[Any] | None = None

    def before(self, graph: Graph, state: State, event: Event) -> None:
        """Note an event that is about to be applied. A result without a log may just be added."""
        if self.noted is None:
            return
        self.write(graph)
        self.noted.append(event)
        if _is_remarked(event):
            self._note_remark(address_of(graph, state, event), event)

    def after(self, graph: Graph, state: State, event: Event) -> None:
        """Note an event that `before` has noted, and that has been applied."""
        if self.noted is None:
            return
        if self._remark is not None:
            self.noted.append(self._remark)
            self._remark = None
        if event["type"] in REWRITES:
            is_back = event["type"] == "retry"
            for address, step, status in at_work(graph, state):
                row = [address, step, status if is_back else "", None, 0, AT_WORK, None, None]
                self.noted.append(row)

    def record(self, moment: Moment, seen: list[Observation]) -> None:
        """Note an event that was replayed.

        Args:
            moment: The event.
            seen: The observations. Empty afterwards.
        """
        if self.noted is not None:
            self.noted.append(moment.event)
            if _is_remarked(moment.event):
                self._note_remark(moment.address, moment.event)
            self.noted += seen
            self.after(moment.graph, moment.state, moment.event)
            self.write(moment.graph)
        seen.clear()

    def _note_remark(self, address: str | None, event: Event) -> None:
        """Note an event with further information, which follows the observations of most events."""
        self._remark = [address, None]
        if event["type"] in REWRITES and self.noted is not None:
            self.noted.append(self._remark)
            self._remark = None

    def undo(self, event: Event) -> None:
        """Forget an event that could not be applied."""
        noted, self._remark = self.noted or [], None
        for place in reversed(range(len(noted))):
            if noted[place] is event:
                del noted[place:]

    def write(self, graph: Graph) -> None:
        """Make the rows of the noted events."""
        noted, rows, last = self.noted, self._rows, self._last
        if noted is None:
            return
        value = None
        for each in noted:
            kind = type(each)
            if kind is dict:
                rows.append(each["at"])
                value = each.get("value", _ABSENT)
            elif kind is str:
                rows += (None,) if each == last else (each, None)
            elif kind is Run:
                last = each[3]
                rows += last, each[2], each[1]
            elif kind is list:
                rows.append(each)
                last = ""  # its step may have another number
            elif (
                each.output is value
                and each.status == "succeeded"
                and each.outcome
                and not each.error
            ):
                if each.address == last and each.outcome == "ok":
                    rows.append(None)
                else:
                    rows += each.address, each.outcome, each.step, each.attempt
            elif each.status == "running" and each.attempt:
                last = each.address
                rows += last, each.step, each.attempt
            else:
                rows.append(self._whole_row(each, value))
        self._last = last
        noted.clear()

    def part(
        self, graph: Graph, places: Callable[[], Mapping[str, TextPosition]]
    ) -> ListPart | None:
        """Return the new rows since the last snapshot, if any."""
        self.write(graph)
        rows = self._rows
        if not rows:
            return None
        first, self._count = self._count, self._count + len(rows)
        self._rows, self._last = [], ""
        packed = pack_placed(rows, places) if self._whole else pack(rows)
        return ListPart(NAME, first, zlib.compress(packed, 1))

    def _whole_row(self, seen: Observation, value: Any) -> list[Any]:
        kind, output = self._kept(seen.output, value)
        what = [seen.address, seen.step, seen.status, seen.outcome, seen.attempt]
        return [*what, kind, output, seen.error]

    def _kept(self, output: Any, value: Any) -> tuple[int, Any]:
        """Return where the output of an observation is from now on, and what of it is copied."""
        if output is None:
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
    def length(self) -> int | None:
        """Number of rows. None: no index is kept."""
        return None if self.noted is None else self._count

    def loaded(self, length: int | None) -> None:
        """Continue after a snapshot.

        Args:
            length: The number of rows according to the snapshot.
        """
        self._count = length or 0
        if length is None:
            self.noted = None


def _is_remarked(event: Event) -> bool:
    return event["type"] in _REMARKED or "evidence" in event or "log" in event


def at_work(graph: Graph, state: State) -> Iterator[tuple[str, int, str]]:
    """Yield address, step and status of all that an execution is at work on."""
    view = View(graph, state)
    for act in state["acts"].values():
        if not act.get("left_early"):
            yield view.step_address(act), act["step"], "running"
    for unit in state["units"].values():
        status = "waiting" if unit["phase"] in ("wait", "asked", "lock") else "running"
        yield view.address(unit), state["acts"][unit["act"]]["step"], status
