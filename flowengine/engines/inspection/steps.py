"""The steps of an execution, as its rows and the events that these name show them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from flowengine import registry
from flowengine.engines import step_queries
from flowengine.engines.executions.call_endings import failure_told
from flowengine.engines.executions.growing_lists import runs_of
from flowengine.engines.executions.linked_flows import (
    LinkedFlows,
    first_form,
    read,
    unpacked,
    walk,
)
from flowengine.engines.executions.moments import Moment
from flowengine.engines.executions.step_rows import (
    WHOLE,
    StepRows,
    at_work,
    is_computed,
    notes_of,
)
from flowengine.engines.infos import AttemptInfo, LogInfo, StepInfo, StepOrder
from flowengine.engines.people.waits import decision_view
from flowengine.engines.snapshots import read_snapshot, walk_since
from flowengine.errors import NotFound
from flowengine.journal.encoding import unpack
from flowengine.journal.reading import HistoryPort
from flowengine.journal.records import GAVE, OVER, ExecutionRecord, StepRow
from flowengine.journal.step_table import StepTable
from flowengine.kernel.commands import Observation
from flowengine.kernel.events import Event, Log
from flowengine.kernel.notation.times import format_duration, format_time, parse_time
from flowengine.kernel.view import DOLLAR

_SIGNS = re.compile(r"[/\[@]")
"""The ends of the addresses of steps around one."""
_STOPPED = {"interrupted": "interrupted", "quarantined": "interrupted", "waiting": "waiting"}
"""Status of an execution without a process → that of its steps that were running."""
_OF_PHASES = {
    "": "running", "run": "running", "scope": "running", "pause": "retrying", "ask": "uncertain",
}  # fmt: skip
"""Phase of a unit → the status of its step. Any other: it waits."""
_AT_ONCE = 100
"""Rows that are read at once."""


class StepValues:
    """The values of steps that their rows do not have, from the observations of a replay."""

    def __init__(self) -> None:
        self.inputs: dict[tuple[str, int | None], Any] = {}
        """Address and beginning of an attempt, or None for the last one → its input."""
        self.outputs: dict[tuple[str, int], Any] = {}
        """Address and number of an event → the output of the attempt that ended with it."""
        self.subjects: dict[str, Any] = {}
        """Address → the subject of its approval."""

    def record(self, moment: Moment, seen: Iterable[Observation]) -> None:
        """Record the values of an event.

        Args:
            moment: The event.
            seen: Its observations.
        """
        for each in seen:
            if each.input is not None:
                self.inputs[each.address, None] = each.input
                if each.status == "running":
                    self.inputs[each.address, each.at] = each.input
            if each.output is not None:
                self.outputs.setdefault((each.address, moment.number), each.output)
        if moment.subject is not None and moment.address is not None:
            self.subjects[moment.address] = moment.subject


class Steps:
    """The steps of an execution after some of its events.

    Args:
        table: Their rows, and perhaps others.
        last: The last event. None: there is none.
        fetch: Reads events: from a number on, and how many.
        events: Those that have been read, by number.
        count: Number of events.
        is_past: Whether the execution continued after them.

    Attributes:
        table: Their rows.
        values: The values that were found by a replay.
    """

    def __init__(
        self,
        table: StepTable,
        last: Moment | None,
        fetch: Callable[[int, int], list[Event]],
        events: dict[int, Event],
        count: int,
        *,
        is_past: bool,
    ) -> None:
        self.last, self.events, self.count = last, events, count
        self.values = StepValues()
        self.table, self._fetch, self._is_past = table, fetch, is_past
        self._specs: dict[str, Any] = {}
        self._rows: dict[int, StepRow] = {}
        self._statuses: dict[str, str] | None = None

    @cached_property
    def _index(self) -> Sequence[tuple[int, str, str, str, bool]]:
        return step_queries.states(self.table, self.count)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """Address → number of its last row."""
        return {address: number for number, address, *_ in self._index}

    @cached_property
    def _earlier(self) -> Mapping[str, list[int]]:
        """Address → numbers of the rows before that."""
        earlier = defaultdict[str, list[int]](list)
        for number, address, *_ in self._index if len(self._numbers) < len(self._index) else ():
            if self._numbers[address] != number:
                earlier[address].append(number)
        return earlier

    @cached_property
    def states(self) -> dict[str, tuple[str, str]]:
        """Address → step id and status, in order of beginning."""
        states = {address: (step, status) for _, address, step, status, _ in self._index}
        self._read_rows(number for number, *_, is_over in self._index if not is_over)
        for row in self._rows.values():
            if self._numbers.get(row.address) == row.number:
                states[row.address] = row.step, row.status
        return states

    @classmethod
    def stored(
        cls,
        store: HistoryPort,
        flows: LinkedFlows,
        record: ExecutionRecord,
        until: int | None = None,
        *,
        replay: bool = False,
    ) -> Steps:
        """Return the steps of a stored execution.

        Args:
            store: Contains it.
            flows: The flows of the store.
            record: The execution.
            until: Number of the first event to leave out. None: all are included.
            replay: Whether to replay all events, so that the steps have all values.
        """
        table = None if replay or until == 0 else store.steps(record.id)
        if table is None or table.is_empty:
            journal = read(store, record.id)
            form = record.hash if until is None else first_form(journal[until:], record.hash)
            return cls.replayed(flows, form, journal[:until])
        near = read_snapshot(store, flows, record.id, until)
        begin: Any = {"type": "", "at": near.state["now"]}
        last = Moment(near.number - 1, begin, None, None, near.state, near.graph)
        events = dict[int, Event]()
        for last in walk_since(store, flows, record.id, near):
            events[last.number] = last.event
        return cls(
            table,
            last,
            lambda since, count: unpacked(record.id, store.events(record.id, since, count)),
            events,
            last.number + 1,
            is_past=until is not None,
        )

    @classmethod
    def replayed(cls, flows: LinkedFlows, hash: str, journal: Sequence[Event]) -> Steps:
        """Return the steps of a journal, with all values.

        Args:
            flows: The flows under which it was written.
            hash: Hash of the flow that the execution runs now.
            journal: All events.
        """
        rows, values, seen = StepRows(None), StepValues(), list[Observation]()
        last = None
        for last in walk(flows, hash, journal, seen):
            values.record(last, seen)
            rows.record(last, seen)
        events = dict(enumerate(journal))
        table = step_queries.steps_in_memory(rows.take())
        steps = cls(table, last, lambda since, count: [], events, len(events), is_past=False)
        steps.values = values
        return steps

    def rows(self, address: str) -> list[StepRow]:
        """Return the rows of a step, in order of beginning. The last one shows it."""
        numbers = [*self._earlier.get(address, ()), self._numbers[address]]
        for number in numbers:
            if number not in self._rows:  # those of the next steps are shown, too
                self._read_rows(range(number, number + _AT_ONCE))
                if number not in self._rows:
                    raise NotFound("the execution was deleted while its steps were read")
        return [self._rows[number] for number in numbers]

    def read_all(self) -> None:
        """Read all rows, and the events that they name."""
        self._see(step_queries.rows_before(self.table, self.count))
        self.read(number for row in self._rows.values() for number in _events_shown(row))

    def _read_rows(self, numbers: Iterable[int]) -> None:
        for first, count in runs_of({*numbers} - self._rows.keys()):
            self._see(step_queries.rows_from(self.table, first, count))

    def _see(self, rows: Iterable[StepRow]) -> None:
        """Take rows as they were, which may have got results since."""
        for row in rows:
            if row.since < self.count:
                self._rows[row.number] = self._then(row)

    def _then(self, row: StepRow) -> StepRow:
        """Return a row as it was after the events."""
        if row.ended_by is not None and row.ended_by >= self.count:
            status = self._status(row.address, "running")
            row = row._replace(
                status=status, outcome=None, ended=None, ended_by=None, output=None, error=None
            )
        elif self._is_past and row.status not in OVER and row.until is None:
            row = row._replace(status=self._status(row.address, row.status))
        if row.began_by is not None and row.began_by >= self.count:
            row = row._replace(began=None, began_by=None)
        return row

    def _status(self, address: str, default: str) -> str:
        """Return the status of something that the execution is at work on."""
        if self._statuses is None:
            assert self.last is not None
            phases = at_work(self.last.graph, self.last.state)
            self._statuses = {at: _OF_PHASES.get(phase, "waiting") for at, phase in phases}
        return self._statuses.get(address, default)

    def open(self) -> list[StepInfo]:
        """Return what has not ended, without values."""
        return [
            self.info(address) for address, (_, status) in self.states.items() if status not in OVER
        ]

    def warnings(self) -> list[Any]:
        """Return the warnings that are shown, and not only kept in the journal."""
        self._read_rows([0])
        about = notes_of(self._rows.get(0, WHOLE))
        self.read(about)
        events: list[Any] = [self.events[number] for number in about if number in self.events]
        return [each for each in events if each["type"] == "warning" and concerns_others(each)]

    def ordered(self, by: StepOrder | None) -> Iterable[str]:
        """Return the addresses of all steps in an order. None: that of beginning."""
        if by is None:
            return self.states
        states, numbers = self.states, self._numbers
        rows = step_queries.ordered(self.table, by, self.count)
        return [at for number, at in rows if at in states and numbers[at] == number]

    def amounts(self, address: str) -> StepInfo:
        """Return what the last attempt of a step used."""
        row, found = self.rows(address)[-1], StepInfo()
        if row.tokens is not None:
            found["tokens"] = row.tokens
        if row.cost is not None:
            found["cost_usd"] = row.cost / DOLLAR
        return found

    def read_events(self, addresses: Iterable[str]) -> None:
        """Read the events that the rows of some steps name."""
        rows = (row for address in addresses for row in self.rows(address))
        self.read(number for row in rows for number in _events_shown(row))

    def read(self, numbers: Iterable[int]) -> None:
        """Read events."""
        wanted = {number for number in numbers if number < self.count} - self.events.keys()
        for since, count in runs_of(wanted):
            self.events.update(enumerate(self._fetch(since, count), since))

    def notes(self, row: StepRow) -> list[Any]:
        """Return the events that a row names, as far as the execution had come."""
        return [self.events[number] for number in notes_of(row) if number in self.events]

    def info(self, address: str) -> StepInfo:
        """Return an activation, to be changed."""
        rows = self.rows(address)
        row, tries = rows[-1], list[AttemptInfo]()
        for each in rows:
            if each.began is not None:
                tries.append(self._attempt(each, len(tries) + 1))
        is_over = row.status in OVER
        spec = self._spec(row.step)
        output = self.output(row) if is_over else None
        info: StepInfo = {
            "address": address,
            "step": row.step,
            "kind": self.kind(row.step),
            "status": row.status,
            "outcome": row.outcome if is_over else None,
            "attempts": row.attempt,
            "started_at": format_time(row.started),
            "output": output,
            "error": None if row.status == "succeeded" or not is_over else _error(row),
            "tries": tries,
        }
        if (address, None) in self.values.inputs:
            info["input"] = self.values.inputs[address, None]
        if address in self.values.subjects:
            info["subject"] = self.values.subjects[address]
        if is_over and output is not None and "teller" in spec:
            told = failure_told(output, spec) or registry.summary(
                spec["teller"], spec.get("kind", ""), output
            )
            if told is not None:
                info["summary"] = told
        if is_over and row.ended is not None:
            info["ended_at"] = format_time(row.ended)
        ends = [place for place, each in enumerate(rows[:-1], 1) if each.status in OVER]
        this_time = rows[ends[-1] if ends else 0 :]  # it has begun anew since
        for event in (event for each in this_time for event in self.notes(each)):
            if event["type"] == "decided":
                if "decision" in info:
                    info.setdefault("earlier_decisions", []).append(info["decision"])
                info["decision"] = decision_view(event)
        return info

    def _attempt(self, row: StepRow, number: int) -> AttemptInfo:
        began = row.began or 0
        attempt: AttemptInfo = {
            "attempt": number,
            "status": "running",
            "started_at": format_time(began),
            "input": self.values.inputs.get((row.address, began)),
        }
        if row.ended is not None:
            attempt["ended_at"] = format_time(row.ended)
            attempt["status"] = _status_of_attempt(row)
            if row.error is not None:
                attempt["error"] = _error(row)
            elif attempt["status"] != "interrupted":
                attempt["output"] = self.output(row)
            for event in self.notes(row):
                if "evidence" in event:
                    attempt["evidence"] = event["evidence"]
                if "log" in event:
                    attempt["log"] = _log_info(event["log"])
        return attempt

    def output(self, row: StepRow) -> Any:
        """Return the output of an attempt, from events that have been read."""
        if row.output is None or row.ended_by is None:
            return None
        if (row.address, row.ended_by) in self.values.outputs:
            return self.values.outputs[row.address, row.ended_by]
        if row.output == GAVE:
            event: Any = self.events.get(row.ended_by, {})
            return event.get("value")
        return None if is_computed(row) else unpack(row.output)

    def computed(self) -> Mapping[int, set[str]]:
        """Return where missing outputs were computed: number of an event → addresses."""
        wanted = defaultdict[int, set[str]](set)
        for row in self._rows.values():
            event = -1 if row.ended_by is None else row.ended_by
            if is_computed(row) and (row.address, event) not in self.values.outputs:
                wanted[event].add(row.address)
        return wanted

    def kind(self, step: str) -> str:
        """Return the kind of a step."""
        kind: str = self._spec(step).get("kind", "group")
        return kind

    def _spec(self, step: str) -> Mapping[str, Any]:
        """Return a compiled step, from the flow that the execution runs now."""
        assert self.last is not None
        if not self._specs:
            self._specs = {spec["id"]: spec for spec in self.last.graph.flow["steps"]}
        found: Mapping[str, Any] = self._specs.get(step, {})
        return found


def _events_shown(row: StepRow) -> list[int]:
    """Return the numbers of the events with what is shown of a row."""
    gave = [row.ended_by] if row.output == GAVE and row.ended_by is not None else []
    return [*notes_of(row), *gave]


def concerns_others(warning: Mapping[str, Any]) -> bool:
    """Return whether a warning is shown, and not only kept in the journal.

    A refused decision is kept for an audit: the user who tried to decide received it.

    Args:
        warning: The event, or a view of it.
    """
    return bool(warning["about"] != "decision")


def _error(row: StepRow) -> Any:
    return None if row.error is None else unpack(row.error)


def _status_of_attempt(row: StepRow) -> str:
    if row.error is not None:
        return "failed"
    if row.status not in OVER:
        return "interrupted"
    return "succeeded" if row.status == "failed" else row.status


def wait_with_what_is_inside(steps: Iterable[StepInfo]) -> None:
    """Mark steps as waiting if something in them waits and nothing in them runs."""
    inside: dict[str, set[str]] = defaultdict(set)
    open_steps = [step for step in steps if "ended_at" not in step]
    for step in sorted(open_steps, key=lambda candidate: len(candidate["address"]), reverse=True):
        address = step["address"]
        if step["status"] == "running" and inside[address] == {"waiting"}:
            step["status"] = "waiting"
        for sign in re.finditer(r"[/[@]", address):
            inside[address[: sign.start()]].add(step["status"])


def stop_with(steps: Iterable[StepInfo], status: str) -> None:
    """Give running steps another status if no process drives their execution.

    Args:
        steps: They are changed.
        status: Of the execution.
    """
    stopped = _STOPPED.get(status)
    if stopped is None:
        return
    for step in steps:
        for each in (step, *step["tries"]):
            if each["status"] == "running":
                each["status"] = stopped


def _log_info(log: Log) -> LogInfo:
    lines: list[Any] = log["lines"]
    return {
        "lines": [
            {"at": format_time(at), "level": level, "text": text} for at, level, text in lines
        ],
        "left_out": log.get("left_out", 0),
    }


def add_times(steps: Iterable[StepInfo]) -> StepInfo:
    """Add how long attempts ran to steps with all their attempts. Return it for all of them.

    An attempt that was withdrawn may end after the step for which it ran.
    """
    all_steps: StepInfo = {"address": "", "tries": []}
    known = {"": all_steps, **{step["address"]: step for step in steps}}
    around = {
        address: {"", *(address[: sign.start()] for sign in _SIGNS.finditer(address))} - {address}
        for address in known
    }
    wholes = {whole for those in around.values() for whole in those}
    spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for address, step in known.items():
        for each in step["tries"] if address not in wholes else ():
            if "ended_at" in each and each["status"] != "interrupted":  # its end is unknown
                span = parse_time(each["started_at"]), parse_time(each["ended_at"])
                for whole in (*around[address], address):
                    spans[whole].append(span)
    for address in known.keys() & spans.keys():
        step, took, end = known[address], 0, 0
        last = (
            parse_time(step["ended_at"])
            if "ended_at" in step
            else max(stop for _, stop in spans[address])
        )
        for start, stop in sorted(spans[address]):
            took += max(0, min(stop, last) - max(start, end))
            end = max(end, stop)
        step["took"] = format_duration(took)
    return all_steps


def listed(step: StepInfo) -> StepInfo:
    """Return what lists and timelines show of an activation."""
    shown: StepInfo = {
        "address": step["address"],
        "step": step["step"],
        "kind": step["kind"],
        "status": step["status"],
        "attempts": step["attempts"],
        "started_at": step["started_at"],
        "error": step["error"],
        "tries": [_timed(attempt) for attempt in step["tries"]],
    }
    if "ended_at" in step:
        shown["ended_at"] = step["ended_at"]
    return shown


def _timed(attempt: AttemptInfo) -> AttemptInfo:
    timed: AttemptInfo = {
        "attempt": attempt["attempt"],
        "status": attempt["status"],
        "started_at": attempt["started_at"],
    }
    if "ended_at" in attempt:
        timed["ended_at"] = attempt["ended_at"]
    return timed
