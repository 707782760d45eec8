"""Executions replayed from their journals, kept open to be continued with new events."""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

from flowengine.engines.executions.linked_flows import (
    Moment,
    first_form,
    state_before_retry,
    unpacked,
    walk,
    walk_on,
)
from flowengine.engines.executions.views import entry_view
from flowengine.engines.folds import Folds
from flowengine.engines.inspection import marks as marks_module
from flowengine.engines.inspection.indexed import LONG, read_index
from flowengine.engines.inspection.steps import ActivationLog, stop_with, wait_with_what_is_inside
from flowengine.engines.interventions.retrying import fork_point
from flowengine.errors import FlowEngineError
from flowengine.util.garbage import CollectedLater

if TYPE_CHECKING:
    from flowengine.engines.executions.linked_flows import LinkedFlows
    from flowengine.engines.infos import AttemptInfo, StepInfo
    from flowengine.engines.inspection.indexed import Indexed
    from flowengine.engines.inspection.marks import Marks
    from flowengine.journal.reading import HistoryPort
    from flowengine.journal.records import ExecutionRecord
    from flowengine.kernel import Graph
    from flowengine.kernel.commands import Observation
    from flowengine.kernel.events import Event
    from flowengine.kernel.state.records import State


class Replayed:
    """An execution after the events of its journal that have been read so far.

    Args:
        flows: The flows under which the journal was written.
        hash: Hash of the flow that the execution runs now.
        store: Where to read earlier events and an index of the steps. None: nowhere.
        record: Of the execution. Required with a store.
        marks: Where its fork point is recorded. None: nowhere.
    """

    def __init__(
        self,
        flows: LinkedFlows,
        hash: str,
        store: HistoryPort | None = None,
        record: ExecutionRecord | None = None,
        marks: Marks | None = None,
    ) -> None:
        self.first = 0
        """Number of the first event in memory. The steps before are from the index."""
        self.journal: list[Event] = []
        self.subjects: list[tuple[str | None, str | None]] = []
        """Address and reason of the timer of each event, as `entry_view` shows them."""
        self.warnings: list[Event] = []
        self.last: Moment | None = None
        """None: it has not begun."""
        self.lock = allocate_lock()
        """Held by who uses it, if it is kept."""
        self.is_read = False
        """Whether its journal has been read once."""
        self._flows = flows
        self._hash = hash
        self._first_form = ""
        self._log = ActivationLog()
        self._folds: Folds | None = None
        self._folded = ""
        """Status of the execution when the tree was changed last."""
        self._point: tuple[int, str | None] | None = None
        """The length of the journal, and the fork point with these events."""
        self._past: Replayed | None = None
        """As it was before the event that `before` was given last."""
        self._seen: list[Observation] = []
        self._walk: Iterator[Moment] = iter(())
        self._store = store
        self._record = record
        self._marks = marks

    @property
    def length(self) -> int:
        """Number of events that have been read."""
        return self.first + len(self.journal)

    def add(self, events: list[Event]) -> None:
        """Continue with further events."""
        if not events:
            return
        if self.last is None:  # the walk continues with events that are appended to the journal
            self._walk = walk(self._flows, self._hash, self.journal, self._seen)
            self._first_form = first_form(events, self._hash)
        self.journal += events
        with CollectedLater():  # all that is made here stays referenced
            for moment in islice(self._walk, len(events)):
                self._log.take(moment, self._seen)
                self.subjects.append((moment.address, moment.why))
                self.last = moment
                if moment.event["type"] == "warning":
                    self.warnings.append(moment.event)

    @property
    def size(self) -> int:
        """Number of its events or of its steps, whichever is larger: it determines the memory."""
        past = 0 if self._past is None else self._past.size
        return max(len(self.journal), len(self._log.steps)) + past

    def restore(self, until: int | None = None) -> bool:
        """Begin with the index of the steps, if there is one, and the events since.

        Args:
            until: Number of the first event to leave out. None: all are included.

        Returns:
            Whether there is an index.
        """
        with CollectedLater():
            found = self._indexed(until)
            if found is not None:
                self._log.load(self._flows, found.first_form, found.rows, found.events)
        if found is None:
            self.first = 0
            return False
        self.first, self._first_form = found.number, found.first_form
        self.warnings = [event for event in found.remarked if event["type"] == "warning"]
        before: Any = {"type": "", "at": found.state["now"]}
        self.last = Moment(found.number - 1, before, None, None, found.state, found.graph)
        self._walk = walk_on(
            *(self._flows, self._hash, found.graph, found.state, found.number, self.journal),
            self._before_retry,
            self._seen,
        )
        self.add(found.tail)
        return True

    def _indexed(self, until: int | None) -> Indexed | None:
        assert self._store is not None
        assert self._record is not None
        return read_index(self._store, self._flows, self._record, values=False, until=until)

    def reach(self, number: int) -> bool:
        """Prepare `before` without reading the rest, if an index allows that.

        Args:
            number: Number of the event.

        Returns:
            False: all events must be read, or have been read.
        """
        if self.is_read or self._store is None or self._record is None:
            return False
        loaded = self._store.load(self._record.id)
        length = len(loaded.tail) + (0 if loaded.snapshot is None else loaded.snapshot[0])
        if loaded.snapshot is None or number >= length:
            return False
        if not self._has_past(number):
            past = Replayed(self._flows, self._hash, self._store, self._record)
            if not past.restore(number):
                return False
            self._past = past
        self.first = length
        return True

    def _has_past(self, number: int) -> bool:
        """Return whether the events between the last past and another one are few."""
        past = self._past
        return past is not None and past.length <= number <= past.length + LONG

    def _before_retry(self, number: int) -> tuple[Graph, State]:
        near = self._indexed(number + 1)
        if near is not None and near.number == number:
            return near.graph, near.state
        return state_before_retry(self._flows, self._hash, self.events(0, number + 1), number)

    def before(self, number: int) -> Replayed:
        """Return the execution as it was before an event, to be used before the next call.

        A later event than in the last call costs as much as the events between them, and an earlier
        one as those since the mark before it.

        Args:
            number: Number of the event. If there is none yet, the execution itself is returned.
        """
        if number >= self.length and (self.journal or not self.first):
            return self
        past = self._past
        if past is None or not self._has_past(number):
            past = Replayed(self._flows, self._first_form, self._store, self._record)
            if self.first:
                past.restore(min(number, self.length))
        self._past = past
        past.add(self.events(past.length, number))
        return past

    def events(self, since: int, until: int) -> list[Event]:
        """Return a part of its journal."""
        known = self.journal[max(since - self.first, 0) : max(until - self.first, 0)]
        missing = min(until, self.first) - since
        if missing <= 0 or self._store is None or self._record is None:
            return known
        earlier = self._store.events(self._record.id, since, missing)
        return unpacked(self._record.id, earlier) + known

    def entries(self, since: int) -> Iterator[dict[str, Any]]:
        """Yield the entries of its journal as it is now, starting at a number in memory.

        They may be taken while it changes.
        """
        first, journal, subjects = self.first, self.journal, self.subjects
        for number in range(since - first, len(subjects)):  # both lists only grow
            yield entry_view(first + number, journal[number], *subjects[number])

    def steps(self, only: str | None = None) -> list[StepInfo]:
        """Return every activation with its attempts, in order of beginning, to be changed.

        Args:
            only: Leave out ended steps, except for the activation with this address.
        """
        log = self._log
        addresses: Iterable[str] = log.steps
        if only is not None:
            addresses = {**log.open, **({only: None} if only in log.steps else {})}
        return [_copied(log.read(address)) for address in addresses]

    def fork_point(self) -> str | None:
        """Return its `fork_point`, which is determined anew if it has new events."""
        length = self.length
        if self._point is None or self._point[0] != length:
            known = self._recorded_point(length)
            if known is None:
                known = (fork_point(self._flows, self._hash, self.events(0, length)),)
                self._record_point(length, *known)
            self._point = length, known[0]
        return self._point[1]

    def _recorded_point(self, length: int) -> tuple[str | None] | None:
        if self._marks is not None and self._record is not None:
            with suppress(FlowEngineError):  # it is determined again
                kept = self._marks.of(self._record)
                return None if kept is None else kept.point(length)
        return None

    def _record_point(self, length: int, point: str | None) -> None:
        if self._marks is not None and self._record is not None and length >= marks_module.EVERY:
            with suppress(FlowEngineError):  # it is shown nevertheless
                kept = self._marks.of(self._record) or self._marks.begin(self._record)
                kept.add_point(length, point)

    def folds(self, status: str) -> Folds:
        """Return the tree of the activations, which changes with them.

        Args:
            status: Of the execution.
        """
        log, tree = self._log, self._folds
        is_new = status != self._folded
        if tree is not None and not log.changed and not is_new:
            return tree
        addresses = log.open if tree is None else {**log.changed, **log.open}
        steps = {address: _listed(log.read(address)) for address in addresses}
        wait_with_what_is_inside(steps.values())
        stop_with(steps.values(), status)
        if tree is None:
            tree = self._folds = Folds()
            with CollectedLater():
                tree.load(log.states(), steps, lambda address: _listed(log.read(address)))
        else:
            for address, step in steps.items():
                if is_new or address in log.changed or tree.status(address) != step["status"]:
                    tree.put(step)
        log.changed.clear()
        self._folded = status
        return tree


def _copied(step: StepInfo) -> StepInfo:
    return {**step, "tries": [attempt.copy() for attempt in step["tries"]]}


def _listed(step: StepInfo) -> StepInfo:
    """Return what lists and timelines show of an activation."""
    listed: StepInfo = {
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
        listed["ended_at"] = step["ended_at"]
    return listed


def _timed(attempt: AttemptInfo) -> AttemptInfo:
    timed: AttemptInfo = {
        "attempt": attempt["attempt"],
        "status": attempt["status"],
        "started_at": attempt["started_at"],
    }
    if "ended_at" in attempt:
        timed["ended_at"] = attempt["ended_at"]
    return timed


class OpenHistories:
    """The executions that were shown last, so that only their new events are read.

    Args:
        most: Maximum number of events or steps of all of them. Those not shown for longest are
            dropped.
        marks: Where their fork points are recorded. None: nowhere.
    """

    def __init__(self, most: int, marks: Marks | None = None) -> None:
        self._marks = marks
        self._most = most
        self._lock = allocate_lock()
        """Held for moments only: to read a long journal takes seconds."""
        self._found: dict[tuple[str, int], Replayed] = {}

    def has(self, record: ExecutionRecord) -> bool:
        """Return whether an execution is kept, so that only its new events are read."""
        replayed = self._found.get((record.id, record.created_at))
        return replayed is not None and replayed.is_read

    def first(self, record: ExecutionRecord) -> int | None:
        """Return the number of the first event that is kept. None: the execution is not."""
        replayed = self._found.get((record.id, record.created_at))
        return None if replayed is None or not replayed.is_read else replayed.first

    @contextmanager
    def opened(
        self,
        store: HistoryPort,
        flows: LinkedFlows,
        record: ExecutionRecord,
        *,
        values: bool,
        until: int | None = None,
    ) -> Iterator[Replayed]:
        """Return an execution after all its events. It does not change inside the block.

        Args:
            store: Contains the journal.
            flows: The flows of the store.
            record: The execution.
            values: Whether its steps must have their inputs and outputs.
            until: Number of an event, if only `before` is called with it.
        """
        key = record.id, record.created_at
        with self._lock:
            replayed = self._found.pop(key, None)
            if replayed is None or (values and replayed.first):
                replayed = Replayed(flows, record.hash, store, record, self._marks)
            self._found[key] = replayed
        try:
            with replayed.lock:
                if values or until is None or not replayed.reach(until):
                    if not replayed.is_read and not values:
                        replayed.restore()
                    replayed.add(unpacked(record.id, store.events(record.id, replayed.length)))
                    replayed.is_read = True
                yield replayed
        except BaseException:
            with self._lock:
                if self._found.get(key) is replayed:
                    del self._found[key]
            raise
        with self._lock:
            while sum(kept.size for kept in self._found.values()) > self._most:
                del self._found[next(iter(self._found))]
