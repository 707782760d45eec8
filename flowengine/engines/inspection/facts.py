"""The facts of an execution that a comparison aligns: inputs and ends of steps, and what arrived.

They are read from the rows of steps and from events. Events discarded by `retry` are left out. An
attempt that was interrupted, or restarted by an operator, adds no separate fact: only its input and
the final result count.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

from flowengine.engines.executions.step_rows import is_computed
from flowengine.engines.host import Host
from flowengine.engines.inspection.step_values import find_values
from flowengine.engines.inspection.steps import Steps, StepValues
from flowengine.engines.snapshots import read_snapshot, walk_since
from flowengine.journal.encoding import pack, packed_result, unpack
from flowengine.journal.records import GAVE, OVER, ExecutionRecord, StepRow
from flowengine.journal.shapes import unpack_event
from flowengine.journal.step_table import OWN
from flowengine.kernel.graph.compiled import SecretText
from flowengine.kernel.notation.addresses import around, wait_id

_ENDS = OVER | {"retrying"}
_WAIT_ID = re.compile(r"\b[0-9a-f]{16}\b")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")

Key = tuple[str, str, int]
"""The subject of a fact, which is the same in both executions: address, kind (`input`, `end`,
`signal paid`), and how many facts of this kind there are of this address, up to this one."""


class Fact(NamedTuple):
    """One recorded fact of an execution."""

    key: Key
    seq: int
    """Number of its event."""
    run: Run | None
    """None: it is about the execution."""


class Run(NamedTuple):
    """What happened at an address until the step ended there, or tried again."""

    number: int
    """Number of the run at the address, from 1."""
    began_by: int | None
    """Number of the event with which its attempt began. None: it had none."""
    begun: StepRow | None
    """The row of its last attempt."""
    row: StepRow
    """The last one."""
    has_ended: bool

    @property
    def input(self) -> int | None:
        """Digest of the input."""
        return None if self.begun is None else self.begun.input

    @property
    def ended_by(self) -> int | None:
        """Number of the event that ended it."""
        return self.row.ended_by if self.has_ended else None


class Facts:
    """The facts of one execution.

    Args:
        host: Provides the store.
        record: The execution.

    Attributes:
        line: Numbers of its events, in order, without those that retries have discarded.
        inputs: Of the execution, comparable.
        runs: Address and number → run.
        last: Address → its last run, in order of beginning.
        whole: Facts about the execution: the number of the event, and the content, comparable.
        own: Makes values comparable.
    """

    def __init__(self, host: Host, record: ExecutionRecord) -> None:
        self._host, self.record = host, record
        table, self._values = host.store.steps(record.id), StepValues()
        self._is_replayed = table is None or table.is_empty
        if table is None or self._is_replayed:
            steps = Steps.stored(host.store, host.flows, record, replay=True)
            table, self._values = steps.table, steps.values
        rows = table.rows(f"{OWN} AND id > :first")
        # Read after the rows, which an execution at work changes with its events.
        self._packed = [entry.payload for entry in host.store.events(record.id)]
        self._events: dict[int, Any] = {}
        self._retries: set[int] = set()
        others = [n for n, packed in enumerate(self._packed) if packed_result(packed) is None]
        self.line = self._line(others)
        old = (record.forked_from or "").partition(" ")[0]
        self.own = Comparable([record.id, *([old] if old else [])], self._last_number)
        alive = {*self.line}
        self.runs: dict[tuple[str, int], Run] = {}
        self.last: dict[str, Run] = {}
        self._read_runs(rows, alive)
        self.whole: dict[Key, tuple[int, dict[str, Any]]] = {}
        counts: dict[str, int] = {}
        for number in sorted(alive.intersection(others)):
            for what, content in _outside(self.event(number)):
                counts[what] = counts.get(what, 0) + 1
                self.whole["", what, counts[what]] = number, self.own.plain(content)
        self.inputs = self.own.plain(self.event(0)["inputs"]) if self._packed else {}

    def event(self, number: int) -> Any:
        """Return an event."""
        event = self._events.get(number)
        if event is None:
            where = f"entry {number} of execution {self.record.id}"
            event = self._events[number] = unpack_event(self._packed[number], where)
        return event

    def _last_number(self) -> int:
        """Return the last number that the execution has assigned, such as that of a wait."""
        near = read_snapshot(self._host.store, self._host.flows, self.record.id)
        last = near.state["last"]
        for moment in walk_since(self._host.store, self._host.flows, self.record.id, near):
            last = max(last, moment.state["last"])
        return last

    def _line(self, others: Iterable[int]) -> list[int]:
        line: list[int] = []
        known = 0
        for number in others:
            event = self.event(number)
            if event["type"] == "retry":
                self._retries.add(number)
            if event["type"] == "retry" and "back" in event:
                line += range(known, number)
                kept = (each[0] if isinstance(each, list) else each for each in event["kept"])
                line = [*line[: event["back"]], *(line[each] for each in kept), number]
                known = number + 1
        return [*line, *range(known, len(self._packed))]

    def _read_runs(self, rows: Iterable[StepRow], alive: set[int]) -> None:
        unfinished: dict[str, Run] = {}
        has_gaps = bool(self._retries)
        for row in rows:
            if has_gaps and row.since not in alive:
                continue
            address, began_by, number = row.address, row.began_by, 1
            begun = None if began_by is None else row
            if address in self.last:
                before = unfinished.pop(address, None)
                number = self.last[address].number + (before is None)
                if before is not None and before.began_by is not None:
                    began_by, begun = before.began_by, begun or before.begun
            has_ended = row.status in _ENDS and row.ended_by is not None
            if has_ended and has_gaps:  # a retry may also hold back the failure
                has_ended = row.ended_by in alive and row.until not in self._retries
            run = Run(number, began_by, begun, row, has_ended)
            self.runs[address, number] = self.last[address] = run
            if not has_ended:
                unfinished[address] = run

    def __len__(self) -> int:
        return self.count_before(len(self._packed))

    def count_before(self, seq: int) -> int:
        """Return the number of facts of the events before a number."""
        whole = sum(number < seq for number, _ in self.whole.values())
        rows = ((run.began_by, run.ended_by) for run in self.runs.values())
        return whole + sum(by is not None and by < seq for of_run in rows for by in of_run)

    def position(self, fact: Fact) -> int:
        """Return the number of facts before one."""
        return self.count_before(fact.seq) + self.of_event(fact.seq).index(fact)

    def of_run(self, run: Run) -> Iterator[Fact]:
        """Yield the facts of a run."""
        if run.began_by is not None:
            yield Fact((run.row.address, "input", run.number), run.began_by, run)
        if run.ended_by is not None:
            yield Fact((run.row.address, "end", run.number), run.ended_by, run)

    def of_last(self, address: str) -> list[Fact]:
        """Return the facts of the last run of a step."""
        return [*self.of_run(self.last[address])] if address in self.last else []

    def get(self, key: Key) -> Fact | None:
        """Return the fact about a subject. None: there is none."""
        address, what, number = key
        if not address:
            whole = self.whole.get(key)
            return None if whole is None else Fact(key, whole[0], None)
        run = self.runs.get((address, number))
        facts = () if run is None else self.of_run(run)
        return next((fact for fact in facts if fact.key[1] == what), None)

    def packed_output(self, row: StepRow) -> bytes | None:
        """Return bytes that are equal for equal outputs. Other ones may be equal, too."""
        output, by = row.output, row.ended_by
        if output != GAVE or by is None:
            return output
        return packed_result(self._packed[by]) or pack(self.event(by).get("value"))

    def read_values(self, facts: Iterable[Fact]) -> None:
        """Compute the values that are recorded nowhere."""
        wanted: dict[int, set[str]] = {}
        for (address, what, _), _, run in facts if not self._is_replayed else ():
            if run is not None and what == "input":
                by = None if run.begun is None else run.begun.began_by
            else:
                by = run.row.ended_by if run is not None and is_computed(run.row) else None
            if by is not None:
                wanted.setdefault(by, set()).add(address)
        find_values(self._host.store, self._host.flows, self.record, wanted, self._values)

    def content(self, fact: Fact) -> dict[str, Any]:
        """Return the content of a fact, without ids and times. Its values must have been read."""
        _, what, _ = fact.key
        if fact.run is None:
            return self.whole[fact.key][1]
        row = fact.run.row
        if what == "input":
            began = None if fact.run.begun is None else fact.run.begun.began
            given = self._values.inputs.get((row.address, began))
            return {"input": self.own.plain(given)}
        error: Any = None if row.error is None else unpack(row.error)
        if error is not None:
            error = {key: error.get(key) for key in ("type", "message", "data")}
        by = -1 if row.ended_by is None else row.ended_by
        if row.output is None or is_computed(row):
            output = self._values.outputs.get((row.address, by))
        else:
            output = self.event(by).get("value") if row.output == GAVE else unpack(row.output)
        found = {"status": row.status, "outcome": row.outcome, "output": output, "error": error}
        comparable: dict[str, Any] = self.own.plain(found)
        return comparable

    def of_event(self, seq: int) -> list[Fact]:
        """Return the facts of an event: the ends of inner steps before those around them."""
        facts = [Fact(key, seq, None) for key, (number, _) in self.whole.items() if number == seq]
        for run in self.runs.values():
            if seq in (run.began_by, run.row.ended_by):
                facts += (fact for fact in self.of_run(run) if fact.seq == seq)
        newest: dict[str, int] = {}
        for row in (fact.run.row for fact in facts if fact.run is not None):
            newest |= {
                place: max(newest.get(place, 0), row.number) for place in around(row.address)
            }

        def order(fact: Fact) -> tuple[int, bool, int, int]:
            address, what, _ = fact.key
            if fact.run is None:
                return 0, False, 0, 0
            if what == "input":
                return 2, False, fact.run.row.number, 0
            cancelled = fact.run.row.status == "cancelled"  # by a failure
            return 1, cancelled, newest[address], -len(address)

        return sorted(facts, key=order)

    @property
    def forked_at(self) -> int:
        """Number of the event with which a fork began. 0: it is not a fork."""
        for number, event in sorted(self._events.items(), reverse=True):
            before = self.event(number - 1) if number and event["type"] == "retry" else None
            if before is not None and before["type"] == "state":
                return number - 1
        return 0


class Comparable:
    """Makes values of two executions comparable by replacing their ids and times.

    Args:
        ids: Id of the execution, and of the one that was forked: the past has values with it.
        last: Returns the last number that the execution has assigned to a wait, or more.
    """

    def __init__(self, ids: list[str], last: Callable[[], int]) -> None:
        self._ids = ids
        self._word = re.compile(rf"(?<!\w)({'|'.join(map(re.escape, ids))})(?!\w)")
        self._last = last

    @cached_property
    def _waits(self) -> set[str]:
        """The ids of its waits, and others. A fork has different ids for the waits of its past."""
        return {wait_id(id, number) for number in range(self._last() + 1) for id in self._ids}

    def plain(self, value: Any) -> Any:
        """Return a value without ids and times of this execution, and with secrets masked."""
        if isinstance(value, str):
            text = value
            if any(id in text for id in self._ids):
                text = self._word.sub("(id)", text)
            if "Z" in text and ":" in text:  # most texts contain no time
                text = _TIME.sub("(time)", text)
            return _WAIT_ID.sub(lambda id: "(id)" if id[0] in self._waits else id[0], text)
        if isinstance(value, list):
            return [self.plain(item) for item in value]
        if isinstance(value, dict):
            return {key: self.plain(item) for key, item in value.items()}
        return "***" if isinstance(value, SecretText) else value


def _outside(event: Any) -> list[tuple[str, dict[str, Any]]]:
    """Return the external facts of an event that is not about a step."""
    kind = event["type"]
    if kind == "started":
        return [("inputs", {"inputs": event["inputs"]})]
    if kind == "message":
        return [(f"signal {event['signal']}", {"key": event["key"], "data": event["data"]})]
    if kind == "state" and event["values"]:
        return [("state that was written", {"state": event["values"]})]
    if kind == "cancel":
        return [("request to cancel", {"reason": event["reason"], "now": event["now"]})]
    return []
