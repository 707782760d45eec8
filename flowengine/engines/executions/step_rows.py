"""The rows of the steps of an execution: what the kernel observes, folded into one row an attempt.

A store in a directory writes them in the commit. Elsewhere they are made by a replay when a view
needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from flowengine.engines.executions.call_endings import shown_status
from flowengine.engines.executions.moments import Moment
from flowengine.engines.executions.subjects import address_of
from flowengine.errors import InputError
from flowengine.journal.encoding import checksum, pack, unpack
from flowengine.journal.records import COMPUTED, GAVE, OVER, StepRow
from flowengine.journal.step_table import CHANGING, CURRENT, FIRST_INSIDE, StepTable
from flowengine.kernel import Graph
from flowengine.kernel.commands import Observation, Run
from flowengine.kernel.events import Event
from flowengine.kernel.notation.addresses import wholes
from flowengine.kernel.state.records import State
from flowengine.kernel.view import View, used

REWRITES = frozenset({"retry", "upgraded"})
"""Events that change the current work of the execution."""
_INLINE = 1024
"""Bytes of the largest output that is copied. A larger one that is not the value of an event, such
as the list of a map, is computed again when it is shown."""
_ARRIVALS = frozenset({"message", "state", "cancel"})
_OF_WHOLE = REWRITES | {"warning"} | _ARRIVALS
"""Events about the execution as a whole."""
_MOST_ARRIVALS = 200
"""Of the execution that are noted. There may be many."""
_NOTED = _OF_WHOLE | {"decided"}
WHOLE = StepRow(0, "", "", "", None, 0, 0, 0, *(None,) * 11)
"""The row of an execution to which nothing of that has happened."""
_ENDS = frozenset({"succeeded", "skipped", "failed", "cancelled"})
"""Statuses with which the kernel ends a step."""
_WHOLES = frozenset({"loop", "map", "exchange"})
"""Keys of steps that have items or rounds."""
_FORGOTTEN = OVER - {"failed"}
_UNDONE = OVER - {"succeeded", "skipped"}
"""Statuses that a retry may withdraw. A round that has made calls has succeeded, and is at work."""
_BETWEEN = frozenset({"retrying", "uncertain"})
_ABSENT: Any = object()
_row: Callable[[tuple[Any, ...]], StepRow] = partial(tuple.__new__, StepRow)  # there are many


class StepRows:
    """The changes of rows since the last commit.

    Args:
        stored: The stored rows. None: there are none, and none will be stored.
        is_new: Whether none is stored yet.

    Attributes:
        noted: Receives each applied event, and then the kernel's observations, of which `take`
            makes rows.
    """

    def __init__(self, stored: StepTable | None, *, is_new: bool = True) -> None:
        self.noted: list[Any] = []
        self._stored = stored
        self._rows: dict[str, StepRow] = {}
        """Address → row, of what has not ended or has failed. After a retry, of all."""
        self._keeps = False
        """Whether it was retried."""
        self._is_new = is_new
        self._last = 0 if is_new else -1
        """Number of the newest row. Negative: the stored rows are not read yet."""
        self._next = 0
        """Number of the next event."""
        self._changed: dict[int, StepRow] = {}
        self._gone: dict[str, StepRow] = {}
        """Those that ended with the current event."""
        self._begun: dict[str, int] = {}
        """When the first item or round of a map or loop that has not ended began."""
        self._remark: str | None = None

    def before(self, graph: Graph, state: State, event: Event) -> None:
        """Note an event that is about to be applied. A result without a log may just be added."""
        self.noted.append(event)
        self._note_remark(event, address_of(graph, state, event) if _is_noted(event) else None)

    def after(self, graph: Graph, state: State, event: Event) -> None:
        """Note an event that `before` has noted, and that has been applied."""
        if self._remark is not None:
            self.noted.append([self._remark])
            self._remark = None
        if event["type"] == "retry":
            self.noted += map(list, at_work(graph, state))

    def record(self, moment: Moment, seen: list[Observation]) -> None:
        """Note an event that was replayed.

        Args:
            moment: The event.
            seen: The observations. Empty afterwards.
        """
        self.noted.append(moment.event)
        self._note_remark(moment.event, moment.address)
        self.noted += seen
        seen.clear()
        self.after(moment.graph, moment.state, moment.event)
        self.write(moment.graph, moment.number)

    def _note_remark(self, event: Event, address: str | None) -> None:
        """Note an event with further information, which follows the observations of most events."""
        if not _is_noted(event):
            return
        if event["type"] in REWRITES:
            self.noted.append([address or ""])
        else:
            self._remark = address or ""

    def undo(self, event: Event) -> None:
        """Forget an event that could not be applied."""
        self._remark = None
        for place in reversed(range(len(self.noted))):
            if self.noted[place] is event:
                del self.noted[place:]

    def take(self) -> list[StepRow]:
        """Return the new and changed rows since the last call."""
        changed = [*self._changed.values()]
        self._changed.clear()
        return changed

    def write(self, graph: Graph, number: int) -> None:
        """Make rows of the noted events.

        Args:
            graph: The flow.
            number: Number of the first one.
        """
        event: Any = None
        number = max(number, self._next) - 1  # a past may be uncommitted, too
        for each in self.noted:
            kind = type(each)
            if kind is dict:
                event = each
                number += 1
                self._gone.clear()
            elif kind is Run:
                step = graph.nodes[each[2]].id
                self._begin(number, event["at"], each[3], step, each[1], each[5])
            elif kind is str:
                row = self._rows[each]
                if row[11] is not None:  # it ends between two attempts
                    row = self._add(row, number, *row[1:4], row[5], row[6], None)
                gave = None if event["value"] is None else GAVE
                ended = (event["at"], number, None, gave, None, row[15], None, None, row[18])
                self._put(_row((*row[:3], "succeeded", "ok", *row[5:10], *ended)))
            elif kind is Observation:
                self._fold(graph, number, event, each)
            elif len(each) == 1:
                self._remark_on(number, event, each[0])
            else:
                address, phase = each  # continued by a retry, it had ended with the failure before
                status = "waiting" if phase in ("wait", "asked", "lock") else "running"
                known = self._rows.get(address)
                if known is not None and known.status in _UNDONE:
                    begun = known.step, status, known.attempt, known.started
                    self._add(known, number, address, *begun, None)
        self.noted.clear()
        self._next = number + 1

    def restore(self) -> bool:
        """Read the rows that may change, once. Return whether there are none at all."""
        if self._last >= 0:
            return False
        assert self._stored is not None
        stored = self._stored.rows(CHANGING)
        self._last = max((row.number for row in stored), default=0)
        self._keeps = any(not row.number and row.status == "retried" for row in stored)
        if self._keeps:
            stored = [*stored, *self._stored.rows(CURRENT)]
        for row in stored:
            if row.until is None and (
                self._keeps or row.status not in OVER or row.status == "failed"
            ):
                self._rows[row.address] = row
        return not stored

    def _put(self, row: StepRow) -> None:
        """Add or change a row."""
        self._changed[row[0]] = row
        if row[3] in _FORGOTTEN and not self._keeps:
            self._rows.pop(row[1], None)
            self._gone[row[1]] = row
        else:
            self._rows[row[1]] = row

    def _begin(
        self, number: int, at: int, address: str, step: str, attempt: int, given: Any
    ) -> None:
        """Begin an attempt.

        Args:
            number: Number of the event.
            at: Time.
            address: Of the step.
            step: Its id.
            attempt: 0: the attempts of the step are not counted.
            given: Its input.
        """
        known, count = self._rows.get(address), 1 if attempt else 0
        digest = None if given is None else digest_of(given)
        if known is None or known.status in OVER:
            started = self._starts(address, at)
            self._add(known, number, address, step, "running", count, started, at, digest)
        elif known.began is None or (
            # An earlier process left its beginning to this one.
            known.ended_by is None and attempt and known.attempt == attempt
        ):
            count = count if known.began is None else attempt
            known = known._replace(status="running", attempt=count, began=at, began_by=number)
            self._put(known._replace(input=digest))
        else:
            if known.ended_by is None:
                known = known._replace(status="interrupted", ended=at, ended_by=number)
            count = known.attempt + 1 if attempt else 0
            self._add(known, number, address, step, "running", count, known.started, at, digest)

    def _add(
        self, before: StepRow | None, number: int, address: str, step: str, status: str,
        attempt: int, started: int, began: int | None, digest: int | None = None,
    ) -> StepRow:  # fmt: skip
        """Add a row, in place of the last one at the address."""
        if before is not None:
            self._changed[before.number] = before._replace(until=number)
        self._last += 1
        by = None if began is None else number
        fields = (self._last, address, step, status, None, attempt, started, number, began, by)
        row = _row((*fields, None, None, None, None, None, None, None, None, digest))
        self._put(row)
        return row

    def _fold(self, graph: Graph, number: int, event: Any, seen: Observation) -> None:
        """Record an observation."""
        address, status, at = seen.address, seen.status, seen.at
        spec = graph.flow["steps"][seen.step]
        if status == "running":
            self._begin(number, at, address, spec["id"], seen.attempt, seen.input)
            return
        known, is_end = self._rows.get(address), status in _ENDS
        if known is None or known.status in OVER:
            if is_end and (known is not None or address in self._gone):
                return  # a failed step is withdrawn with its scope, or its last round has ended
            started = self._starts(address, at)
            if self._stored is not None and not self._is_new and not _WHOLES.isdisjoint(spec):
                [(begun,)] = self._stored.read(FIRST_INSIDE, address=address)
                started = min(started, begun or at)
            known = self._add(known, number, address, spec["id"], status, 0, started, None)
        elif is_end and known.ended_by is not None:  # it ends between two attempts
            more = spec["id"], status, known.attempt, known.started
            known = self._add(known, number, address, *more, None)
        if is_end:
            status = shown_status(seen, spec)
        if seen.attempt and not known.attempt:
            known = known._replace(attempt=1)
        if is_end or (status in _BETWEEN and known.began is not None and known.ended_by is None):
            reported = seen.output if seen.error is None else seen.error.get("data")
            amounts = used(graph.nodes[seen.step], reported)
            known = known._replace(
                tokens=amounts.get("tokens"),
                cost=amounts.get("cost_usd"),
                outcome=seen.outcome,
                ended=at,
                ended_by=number,
                output=_kept(seen.output, event.get("value", _ABSENT)),
                error=None if seen.error is None else pack(seen.error),
            )
        self._put(known._replace(status=status))

    def _starts(self, address: str, at: int) -> int:
        """Return when a step has begun: a map or loop with its first item or round."""
        if "[" in address or "@" in address:
            for whole in wholes(address):
                self._begun.setdefault(whole, at)
        return self._begun.pop(address, at)

    def _remark_on(self, number: int, event: Any, address: str) -> None:
        """Note the number of an event at the row that it is about."""
        row = self._gone.get(address) or self._rows.get(address)
        if event["type"] in _OF_WHOLE or (row is None and event["type"] == "decided"):
            row = self._rows.get("", WHOLE)
            if event["type"] in _ARRIVALS and len(notes_of(row)) >= _MOST_ARRIVALS:
                return
            if event["type"] == "upgraded" and not row.step:
                row = row._replace(step=event["before"])
            elif event["type"] == "retry":
                row = row._replace(status="retried")
        if row is not None and row.began_by == number and event["type"] == "cut":
            # The next attempt began with the event, which is about the attempt before.
            every = reversed(self._changed.values())
            before = (each for each in every if (each.address, each.until) == (address, number))
            row = next(before, row)
            self._changed[row.number] = row._replace(notes=pack([*notes_of(row), number]))
        elif row is not None:
            self._put(row._replace(notes=pack([*notes_of(row), number])))
        if event["type"] == "retry":
            self._go_back(number, event, address)

    def _go_back(self, number: int, event: Any, address: str) -> None:
        """Note a retry: steps may begin anew from now on."""
        if not self._keeps:
            stored = () if self._stored is None else self._stored.rows(CURRENT)
            known = (row for row in (*stored, *self._changed.values()) if row.until is None)
            self._rows = {row.address: row for row in known if row.number} | self._rows
        self._keeps = True
        row = self._rows.get(address)
        if "ended" in event and row is not None and row.began is not None and row.ended_by is None:
            # It still ran in the execution that was forked.
            ended, error = event["ended"]["at"], pack(event["ended"]["error"])
            self._put(row._replace(status="retrying", ended=ended, ended_by=number, error=error))


def _is_noted(event: Event) -> bool:
    return event["type"] in _NOTED or "evidence" in event or "log" in event


def _kept(output: Any, value: Any) -> bytes | None:
    """Return what is stored of an output.

    Args:
        output: The output.
        value: That of the event.
    """
    if output is None:
        return None
    if output is value:
        return GAVE
    try:
        packed = pack(output)
    except InputError:
        return COMPUTED
    return packed if len(packed) <= _INLINE else COMPUTED + pack(digest_of(output))


def is_computed(row: StepRow) -> bool:
    """Return whether an output is in no row and in no event."""
    return row.output is not None and row.output[:1] == COMPUTED


def digest_of(value: Any) -> int | None:
    """Return a number that differs for values that differ, except once in billions. None: any."""
    try:
        packed = pack(value)
    except InputError:
        return None
    return len(packed) << 32 | checksum(packed)


def notes_of(row: StepRow) -> list[int]:
    """Return the numbers of the events about a row: decisions, logs, evidence."""
    numbers: list[int] = [] if row.notes is None else unpack(row.notes)
    return numbers


def at_work(graph: Graph, state: State) -> Iterator[tuple[str, str]]:
    """Yield the address of all that an execution is at work on, and the phase of a unit, or ''."""
    view = View(graph, state)
    for act in state["acts"].values():
        if not act.get("left_early"):
            yield view.step_address(act), ""
    for unit in state["units"].values():
        yield view.address(unit), unit["phase"]
