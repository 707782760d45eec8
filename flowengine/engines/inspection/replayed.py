"""Executions replayed from their journals, kept open to be continued with new events."""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING

from flowengine.engines.executions.replay import Moment, unpacked, walk
from flowengine.engines.inspection.steps import StepLog
from flowengine.garbage import CollectedLater

if TYPE_CHECKING:
    from flowengine.engines.executions.linked_flows import LinkedFlows
    from flowengine.engines.infos import StepInfo
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
        self.last: Moment | None = None
        """None: it has not begun."""
        self._flows = flows
        self._hash = hash
        self._log = StepLog()
        self._seen: list[Observation] = []
        self._walk: Iterator[Moment] = iter(())

    def add(self, events: list[Event]) -> None:
        """Continue with further events."""
        if not events:
            return
        if not self.journal:  # the walk continues with what is appended to the journal
            self._walk = walk(self._flows, self._hash, self.journal, self._seen)
        self.journal += events
        with CollectedLater():  # all that is made here stays referenced
            for moment in islice(self._walk, len(events)):
                self._log.take(moment, self._seen)
                self.last = moment

    def steps(self) -> list[StepInfo]:
        """Return every activation with its attempts, in order of beginning, to be changed."""
        return [
            {**step, "tries": [attempt.copy() for attempt in step["tries"]]}
            for step in self._log.steps.values()
        ]


class OpenHistories:
    """The executions that were shown last, so that only their new events are read.

    Args:
        most: Maximum number of events of all of them. Those not shown for longest are dropped.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = allocate_lock()
        self._found: dict[tuple[str, int], Replayed] = {}

    def has(self, record: ExecutionRecord) -> bool:
        """Return whether an execution is kept."""
        return (record.id, record.created_at) in self._found

    @contextmanager
    def opened(
        self, store: HistoryPort, flows: LinkedFlows, record: ExecutionRecord
    ) -> Iterator[Replayed]:
        """Return an execution after all its events. Nobody else changes it inside of the block.

        Args:
            store: Contains the journal.
            flows: The flows of the store.
            record: The execution.
        """
        key = record.id, record.created_at
        with self._lock:
            found = self._found.pop(key, None) or Replayed(flows, record.hash)
            found.add(unpacked(record.id, store.events(record.id, len(found.journal))))
            yield found
            self._found[key] = found
            while sum(len(one.journal) for one in self._found.values()) > self._most:
                del self._found[next(iter(self._found))]
