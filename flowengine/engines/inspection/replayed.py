"""Executions replayed from their journals, kept open to be continued with new events."""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING

from flowengine.engines.executions.replay import Moment, first_form, unpacked, walk
from flowengine.engines.folds import Folds
from flowengine.engines.inspection.steps import StepLog, stop_with, wait_with_what_is_inside
from flowengine.engines.interventions.retrying import fork_point
from flowengine.garbage import CollectedLater

if TYPE_CHECKING:
    from flowengine.engines.executions.linked_flows import LinkedFlows
    from flowengine.engines.infos import AttemptInfo, StepInfo
    from flowengine.journal.ports.history import HistoryPort
    from flowengine.journal.records import ExecutionRecord
    from flowengine.kernel.commands import Observation
    from flowengine.kernel.events import Event


class Replayed:
    """An execution after the events of its journal that have been read so far.

    Args:
        flows: The flows under which the journal was written.
        hash: Hash of the flow that the execution runs now.
    """

    def __init__(self, flows: LinkedFlows, hash: str) -> None:
        self.journal: list[Event] = []
        self.subjects: list[tuple[str | None, str | None]] = []
        """Address and reason of the timer of each event, as `entry_view` shows them."""
        self.last: Moment | None = None
        """None: it has not begun."""
        self.lock = allocate_lock()
        """Held by who uses it, if it is kept."""
        self.is_read = False
        """Whether its journal has been read once."""
        self._flows = flows
        self._hash = hash
        self._log = StepLog()
        self._folds = Folds()
        self._folded = ""
        """Status of the execution when the tree was changed last."""
        self._point: tuple[int, str | None] | None = None
        """The length of the journal, and the fork point with these events."""
        self._past: Replayed | None = None
        """As it was before the event that `before` was given last."""
        self._seen: list[Observation] = []
        self._walk: Iterator[Moment] = iter(())

    def add(self, events: list[Event]) -> None:
        """Continue with further events."""
        if not events:
            return
        if not self.journal:  # the walk continues with events that are appended to the journal
            self._walk = walk(self._flows, self._hash, self.journal, self._seen)
        self.journal += events
        with CollectedLater():  # all that is made here stays referenced
            for moment in islice(self._walk, len(events)):
                self._log.take(moment, self._seen)
                self.subjects.append((moment.address, moment.why))
                self.last = moment

    @property
    def size(self) -> int:
        """Number of its events or of its steps, whichever is larger: it determines the memory."""
        past = 0 if self._past is None else self._past.size
        return max(len(self.journal), len(self._log.steps)) + past

    def before(self, number: int) -> Replayed:
        """Return the execution as it was before an event, to be used before the next call.

        A later event than in the last call costs as much as the events between them.

        Args:
            number: Number of the event. If there is none yet, the execution itself is returned.
        """
        if number >= len(self.journal):
            return self
        past = self._past
        if past is None or len(past.journal) > number:
            past = self._past = Replayed(self._flows, first_form(self.journal, self._hash))
        past.add(self.journal[len(past.journal) : number])
        return past

    def steps(self, only: str | None = None) -> list[StepInfo]:
        """Return every activation with its attempts, in order of beginning, to be changed.

        Args:
            only: Leave out ended steps, except for the activation with this address.
        """
        steps = self._log.steps
        if only is None:
            return [*map(_copied, steps.values())]
        addresses = {**self._log.open, **({only: None} if only in steps else {})}
        return [_copied(steps[address]) for address in addresses]

    def fork_point(self) -> str | None:
        """Return its `fork_point`, which is determined anew if it has new events."""
        length = len(self.journal)
        if self._point is None or self._point[0] != length:
            self._point = length, fork_point(self._flows, self._hash, self.journal)
        return self._point[1]

    def folds(self, status: str) -> Folds:
        """Return the tree of the activations, which changes with them.

        Args:
            status: Of the execution.
        """
        log = self._log
        if log.changed or status != self._folded:
            steps = [_listed(log.steps[address]) for address in {**log.changed, **log.open}]
            wait_with_what_is_inside(steps)
            stop_with(steps, status)
            for step in steps:
                self._folds.put(step)
            log.changed.clear()
            self._folded = status
        return self._folds


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
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = allocate_lock()
        """Held for moments only: to read a long journal takes seconds."""
        self._found: dict[tuple[str, int], Replayed] = {}

    def has(self, record: ExecutionRecord) -> bool:
        """Return whether an execution is kept, so that only its new events are read."""
        found = self._found.get((record.id, record.created_at))
        return found is not None and found.is_read

    @contextmanager
    def opened(
        self, store: HistoryPort, flows: LinkedFlows, record: ExecutionRecord
    ) -> Iterator[Replayed]:
        """Return an execution after all its events. It does not change inside the block.

        Args:
            store: Contains the journal.
            flows: The flows of the store.
            record: The execution.
        """
        key = record.id, record.created_at
        with self._lock:
            found = self._found.pop(key, None) or Replayed(flows, record.hash)
            self._found[key] = found
        try:
            with found.lock:
                found.add(unpacked(record.id, store.events(record.id, len(found.journal))))
                found.is_read = True
                yield found
        except BaseException:
            with self._lock:
                if self._found.get(key) is found:
                    del self._found[key]
            raise
        with self._lock:
            while sum(one.size for one in self._found.values()) > self._most:
                del self._found[next(iter(self._found))]
