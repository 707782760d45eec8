"""Executions as their steps show them, kept open to be continued with new events."""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

from flowengine.engines.executions.linked_flows import (
    LinkedFlows,
    first_form,
    replayed,
    unpacked,
    walk_on,
)
from flowengine.engines.executions.moments import Moment
from flowengine.engines.folds import Folds
from flowengine.engines.infos import AttemptInfo, StepInfo
from flowengine.engines.inspection.steps import ActivationLog, stop_with, wait_with_what_is_inside
from flowengine.engines.snapshots import read_index, state_at_retry
from flowengine.journal.reading import HistoryPort
from flowengine.journal.records import ExecutionRecord
from flowengine.kernel import new_state
from flowengine.kernel.commands import Observation
from flowengine.kernel.events import Event
from flowengine.util.garbage import CollectedLater

Values = Literal["none", "outputs", "all"]
Watch = Callable[[Moment, list[Observation]], None]
"""Sees an event, with the observations that it has led to."""


class Replayed:
    """An execution after the events of its journal that have been read so far.

    Most of it is from the index of its steps. Without an index, all events are replayed.

    Args:
        store: Contains it.
        flows: The flows of the store.
        record: The execution.
        values: Whether its steps have their outputs, or also their inputs. The index has no inputs.
    """

    def __init__(
        self, store: HistoryPort, flows: LinkedFlows, record: ExecutionRecord, values: Values
    ) -> None:
        self.values = values
        self.length = 0
        """Number of events that have been read."""
        self.warnings: list[Event] = []
        self.last: Moment | None = None
        """None: it has not begun."""
        self.is_watched = False
        """Whether the watcher of the last reading has seen all events."""
        self.lock = allocate_lock()
        """Held by who uses it, if it is kept."""
        self._store = store
        self._flows = flows
        self._record = record
        self._log = ActivationLog()
        self._folds: Folds | None = None
        self._open: dict[str, StepInfo] = {}
        """The steps that had not ended when the tree was shown last, as it shows them."""
        self._changed: dict[str, None] = {}
        """Addresses of the steps that began or ended since. Empty: the tree is not built yet."""

    @property
    def size(self) -> int:
        """Number of its steps, which determines the memory."""
        return len(self._log.steps)

    def read(self, until: int | None = None, watch: Watch | None = None) -> None:
        """Read the events that are new.

        Args:
            until: Number of the first event to leave out, if nothing was read. None: none is.
            watch: Called for each event, if all are replayed.
        """
        self.is_watched = False
        with CollectedLater():  # all that is made here stays referenced
            if self.last is not None:
                self._add(self._events(self.length))
            elif self.values == "all" or not self._restore(until):
                self._add(self._events(0), until, watch)
                self.is_watched = watch is not None

    def _events(self, since: int) -> list[Event]:
        return unpacked(self._record.id, self._store.events(self._record.id, since))

    def _restore(self, until: int | None) -> bool:
        """Begin with the index of the steps, if there is one, and the events since."""
        store, flows, values = self._store, self._flows, self.values == "outputs"
        found = read_index(store, flows, self._record, values=values, until=until, ahead=not values)
        if found is None:
            return False
        self._log.load(flows, found.first_form, found.rows, found.events)
        self.length = found.number
        self.warnings = [event for event in found.remarked if event["type"] == "warning"]
        before: Any = {"type": "", "at": found.state["now"]}
        self.last = Moment(found.number - 1, before, None, None, found.state, found.graph)
        if found.end == found.number:
            self._add(found.tail)
        else:  # the rows show the steps
            *earlier, last = found.tail
            graph, state = replayed(flows, found.graph, found.state, earlier)
            at = graph, state, found.end - 1, [last]
            (self.last,) = walk_on(flows, self._record.hash, *at)
            self.length = found.end
        return True

    def _add(
        self, events: list[Event], until: int | None = None, watch: Watch | None = None
    ) -> None:
        """Continue with further events."""
        flows, record, last, seen = self._flows, self._record, self.last, list[Observation]()
        if last is None:
            graph, state = flows.by_hash(first_form(events, record.hash)).graph, new_state()
        else:
            graph, state = last.graph, last.state
        before = partial(state_at_retry, self._store, flows, record.id)
        at = record.hash, graph, state, self.length, events[:until], before, seen
        for moment in walk_on(flows, *at):
            if watch is not None:
                watch(moment, seen)
            if self._folds is not None:
                self._changed.update((observed.address, None) for observed in seen)
            self._log.record(moment, seen)
            self.length, self.last = moment.number + 1, moment
            if moment.event["type"] == "warning":
                self.warnings.append(moment.event)

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

    def folds(self, status: str) -> Folds:
        """Return the tree of the activations.

        Args:
            status: Of the execution.
        """
        log, changed = self._log, {**self._changed, **self._open, **self._log.open}
        self._open = is_open = {address: _listed(log.read(address)) for address in log.open}
        wait_with_what_is_inside(is_open.values())
        stop_with(is_open.values(), status)
        states = (
            (address, (state[0], is_open[address]["status"]) if address in is_open else state)
            for address, state in log.states(None if self._folds is None else changed)
        )
        if self._folds is None:
            with CollectedLater():
                self._folds = Folds(states, self._show)
        else:
            self._folds.update(states)
        self._changed.clear()
        return self._folds

    def _show(self, address: str) -> StepInfo:
        return self._open.get(address) or _listed(self._log.read(address))


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
        most: Maximum number of steps of all of them. Those not shown for longest are dropped.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = allocate_lock()
        """Held for moments only: to read a long journal takes seconds."""
        self._found: dict[tuple[str, int], Replayed] = {}

    @contextmanager
    def opened(
        self,
        store: HistoryPort,
        flows: LinkedFlows,
        record: ExecutionRecord,
        values: Values,
        watch: Watch | None = None,
    ) -> Iterator[Replayed]:
        """Return an execution after all its events. It does not change inside the block.

        Args:
            store: Contains the journal.
            flows: The flows of the store.
            record: The execution.
            values: Which values its steps must have.
            watch: As for `Replayed.read`.
        """
        key = record.id, record.created_at
        with self._lock:
            replayed = self._found.pop(key, None)
            if replayed is None or values not in ("none", replayed.values):
                replayed = Replayed(store, flows, record, values)
            self._found[key] = replayed
        try:
            with replayed.lock:
                replayed.read(watch=watch)
                yield replayed
        except BaseException:
            with self._lock:
                if self._found.get(key) is replayed:
                    del self._found[key]
            raise
        with self._lock:
            while sum(kept.size for kept in self._found.values()) > self._most:
                del self._found[next(iter(self._found))]
