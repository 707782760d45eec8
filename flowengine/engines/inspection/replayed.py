"""Executions replayed from their journals, kept open to be continued with new events."""

from __future__ import annotations

from _thread import allocate_lock
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

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
from flowengine.engines.inspection import marks
from flowengine.engines.inspection.marks import DamagedMarks, DamageGuard, MarkedStep, StateMark
from flowengine.engines.inspection.steps import ActivationLog, stop_with, wait_with_what_is_inside
from flowengine.engines.interventions.retrying import fork_point
from flowengine.errors import FlowEngineError, StoreError
from flowengine.journal.encoding import pack
from flowengine.journal.shapes import check_state
from flowengine.kernel import new_state
from flowengine.kernel.notation.addresses import around
from flowengine.util.garbage import CollectedLater

if TYPE_CHECKING:
    from flowengine.engines.executions.growing_lists import Read
    from flowengine.engines.executions.linked_flows import LinkedFlows
    from flowengine.engines.infos import AttemptInfo, StepInfo
    from flowengine.engines.inspection.marks import ExecutionMarks, Marks
    from flowengine.journal.reading import HistoryPort
    from flowengine.journal.records import ExecutionRecord
    from flowengine.kernel import Graph
    from flowengine.kernel.commands import Observation
    from flowengine.kernel.events import Event
    from flowengine.kernel.state.records import State


class Recording(NamedTuple):
    """Where an execution is recorded while it is replayed."""

    marks: Marks
    record: ExecutionRecord
    read: Read
    """Reads its events."""


class Replayed:
    """An execution after the events of its journal that have been read so far.

    Args:
        flows: The flows under which the journal was written.
        hash: Hash of the flow that the execution runs now.
        recording: Where it is recorded. None: it is not.
    """

    def __init__(self, flows: LinkedFlows, hash: str, recording: Recording | None = None) -> None:
        self.first = 0
        """Number of the first event in memory. Those before it were recorded."""
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
        self._form = ""
        """Hash of the flow after the last event."""
        self._first_form = ""
        self._log = ActivationLog()
        self._folds = Folds()
        self._folded: str | None = ""
        """Status of the execution when the tree was changed last. None: unknown."""
        self._point: tuple[int, str | None] | None = None
        """The length of the journal, and the fork point with these events."""
        self._past: Replayed | None = None
        """As it was before the event that `before` was given last."""
        self._seen: list[Observation] = []
        self._walk: Iterator[Moment] = iter(())
        self._recording = recording
        self._marks: ExecutionMarks | None = None
        self._source: RecordedSteps | None = None
        """Its recorded steps. None: it was replayed from its beginning."""
        self._marked = 0
        """Number of the last mark."""
        self._unmarked: dict[str, None] = {}
        """The addresses that have changed since."""

    @property
    def is_restored(self) -> bool:
        """Whether its beginning was recorded and has not been replayed."""
        return self._source is not None

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
            self._form = self._first_form = first_form(events, self._hash)
        self.journal += events
        with CollectedLater():  # all that is made here stays referenced
            for moment in islice(self._walk, len(events)):
                self._log.take(moment, self._seen)
                self.subjects.append((moment.address, moment.why))
                self.last = moment
                if moment.event["type"] == "warning":
                    self.warnings.append(moment.event)
                elif moment.event["type"] == "upgraded":
                    self._form = moment.event["after"]
                if self._recording is not None and moment.number + 1 >= self._marked + marks.EVERY:
                    self._mark(is_last=moment.number + 1 + marks.EVERY > self.length)

    @property
    def size(self) -> int:
        """Number of its events or of its steps, whichever is larger: it determines the memory."""
        past = 0 if self._past is None else self._past.size
        return max(len(self.journal), len(self._log.steps)) + past

    def restore(self, after: int = 0, until: int | None = None) -> None:
        """Continue from the last mark, if there is one, before the first events are added.

        Args:
            after: It is after at least so many events.
            until: It is after at most so many events. None: any number. The execution is then
                recorded further.
        """
        assert self._recording is not None
        kept, record, read = self._recording
        found = kept.of(record)
        mark = None if found is None else found.last(after, until)
        if found is None or mark is None:
            return
        entries = read(mark.number - 1, 1)
        events = unpacked(record.id, entries)
        if not events or marks.name_of(pack(events[0])) != mark.event:
            kept.forget(record)  # another journal, as from a backup of the store
            return
        if until is None:
            found.cut(mark.number)
            found.shown()
        with DamageGuard():
            self._go_on(found, mark, events[0])

    def _go_on(self, found: ExecutionMarks, mark: StateMark, event: Event) -> None:
        assert self._recording is not None
        kept, state = mark.state, mark.state["state"]
        check_state(state, new_state(), "the recorded state of an execution")
        graph = self._flows.by_hash(kept["form"]).graph
        source = RecordedSteps(found, mark, self._recording.read)
        [(address, why)] = source.subjects(mark.number - 1)
        self._form, self._first_form, self.warnings = (
            kept["form"], kept["first_form"], kept["warnings"]
        )  # fmt: skip
        self._marks, self._source = found, source
        self._log, self._folds, self._folded = source.log, source.folds, None
        self.first = self._marked = mark.number
        self.last = Moment(mark.number - 1, event, address, None, state, graph, why)
        self._walk = walk_on(
            *(self._flows, self._hash, graph, state, mark.number, self.journal),
            self._before_retry,
            self._seen,
        )

    def _before_retry(self, number: int) -> tuple[Graph, State]:
        return state_before_retry(self._flows, self._hash, self.events(0, number + 1), number)

    def _mark(self, *, is_last: bool) -> None:
        """Record it as it is now. If it cannot be recorded, it is shown nevertheless.

        Args:
            is_last: Whether no mark follows for now, so that this one has the state.
        """
        assert self._recording is not None
        assert self.last is not None
        kept, record, _ = self._recording
        number = self.first + len(self.subjects)
        summary = self._summary()
        try:
            if self._marks is None:
                self._marks = kept.of(record) or kept.begin(record)
            added = self._marks.add(
                self._marked,
                number,
                marks.name_of(pack(self.last.event)),
                self.subjects[self._marked - self.first :],
                self._steps_to_mark(),
                summary if is_last or self._marks.has_room(number) else None,
            )
            if is_last:
                self._marks.thin_out()
        except FlowEngineError:
            added = False
        if added:
            self._marked = number
            self._unmarked.clear()
        else:
            self._recording = None

    def _steps_to_mark(self) -> Iterator[MarkedStep]:
        """Yield the steps and folds that have changed since the last mark."""
        steps, earlier = self._log.steps, self._log.earlier
        addresses = {place: None for address in self._unmarked for place in around(address)}
        for address in {"": None, **addresses}:
            step = steps.get(address)
            whole = None if step is None else [*_without_copies(step), earlier.get(address, 0)]
            yield MarkedStep(address, *self._folds.recorded(address), whole)

    def _summary(self) -> dict[str, Any]:
        """Return everything that `_go_on` needs besides the steps, with the tree up to date."""
        assert self.last is not None
        self.folds(self._folded or "")
        return {
            "state": self.last.state,
            "form": self._form,
            "first_form": self._first_form,
            "warnings": self.warnings,
            "log": self._log.summary(),
            "folds": self._folds.summary(),
        }

    def before(self, number: int) -> Replayed:
        """Return the execution as it was before an event, to be used before the next call.

        A later event than in the last call costs as much as the events between them, and an earlier
        one as those since the mark before it.

        Args:
            number: Number of the event. If there is none yet, the execution itself is returned.
        """
        if number >= self.length:
            return self
        past = self._past
        if past is not None and past.length > number:
            past = None
        if past is None or number - past.length > marks.EVERY:
            past = self._restored(0 if past is None else past.length, number) or past
        if past is None:
            past = Replayed(self._flows, self._first_form)
        self._past = past
        past.add(self.events(past.length, number))
        return past

    def _restored(self, after: int, until: int) -> Replayed | None:
        """Return the execution at the last mark between two events. None: there is none."""
        if self._recording is None or self._marks is None:
            return None
        replayed = Replayed(self._flows, self._hash, self._recording)
        replayed.restore(after, until)
        replayed._recording = None
        return replayed if replayed.length else None

    def events(self, since: int, until: int) -> list[Event]:
        """Return a part of its journal."""
        known = self.journal[max(since - self.first, 0) : max(until - self.first, 0)]
        missing = min(until, self.first) - since
        if missing <= 0 or self._source is None:
            return known
        return self._source.events(since, missing) + known

    def entries(self, since: int) -> Iterator[dict[str, Any]]:
        """Yield the entries of its journal as it is now, starting at a number.

        They may be taken while it changes.
        """
        first, journal, subjects, source = self.first, self.journal, self.subjects, self._source
        length = len(subjects)
        if source is not None:
            while since < first:
                with DamageGuard():
                    known = source.subjects(since)
                    events = source.events(since, len(known))
                    steps = [
                        entry_view(number, event, *subject)
                        for number, (event, subject) in enumerate(
                            zip(events, known, strict=True), since
                        )
                    ]
                yield from steps
                since += len(steps)
        for number in range(max(since - first, 0), length):  # both lists only grow
            yield entry_view(first + number, journal[number], *subjects[number])

    def steps(self, only: str | None = None) -> list[StepInfo]:
        """Return every activation with its attempts, in order of beginning, to be changed.

        Args:
            only: Leave out ended steps, except for the activation with this address.
        """
        steps = self._log.steps
        if only is None:
            return [_copied(steps[address]) for address in self._addresses()]
        addresses = {**self._log.open, **({only: None} if only in steps else {})}
        return [_copied(steps[address]) for address in addresses]

    def _addresses(self) -> list[str]:
        """Return the addresses of all steps, in order of beginning."""
        steps = self._log.steps
        if self._source is None:
            return [*steps]
        self._source.read_all()
        self._source.read_steps()
        return sorted(steps, key=self.folds(self._folded or "").number)

    def fork_point(self) -> str | None:
        """Return its `fork_point`, which is determined anew if it has new events."""
        length = self.length
        if self._point is None or self._point[0] != length:
            known = None if self._marks is None else self._marks.point(length)
            if known is None:
                known = (fork_point(self._flows, self._hash, self.events(0, length)),)
                if self._marks is not None:
                    with suppress(FlowEngineError):
                        self._marks.add_point(length, known[0])
            self._point = length, known[0]
        return self._point[1]

    def folds(self, status: str) -> Folds:
        """Return the tree of the activations, which changes with them.

        Args:
            status: Of the execution.
        """
        log, tree = self._log, self._folds
        is_new = status != self._folded
        if log.changed or is_new:
            steps = [_listed(log.steps[address]) for address in {**log.changed, **log.open}]
            wait_with_what_is_inside(steps)
            stop_with(steps, status)
            for step in steps:
                address = step["address"]
                if is_new or address in log.changed or tree.status(address) != step["status"]:
                    tree.put(step)
                    if self._recording is not None:
                        self._unmarked[address] = None
            log.changed.clear()
            self._folded = status
        return tree


class RecordedSteps:
    """The steps of an execution at a mark, read when they are needed.

    Args:
        marks: Of the execution.
        mark: The mark.
        read: Reads events of the execution.
    """

    def __init__(self, marks: ExecutionMarks, mark: StateMark, read: Read) -> None:
        self._marks = marks
        self._number = mark.number
        self._read_events = read
        self._known: set[str] = set()
        """The addresses that are in the tree, whether anything is recorded of them or not."""
        self._orders: dict[str, list[tuple[int, int, str]]] | None = None
        """Fold → its order. None: not everything is in the tree."""
        self._steps_known: set[str] = set()
        """The same of the addresses whose steps are in the log."""
        self._has_steps = False
        summary = mark.state
        self.log = ActivationLog(self._read_step)
        self.log.restore(summary["log"])
        self.folds = Folds(source=self)
        self.folds.restore(summary["folds"])
        if not marks.tree(mark.number, ""):
            raise ValueError("its steps are missing")

    def read(self, address: str) -> None:
        """See `flowengine.engines.folds.TreeSource`."""
        if self._orders is None and address not in self._known:
            self._take(self._marks.tree(self._number, address))
            self._known.add(address)

    def read_all(self) -> None:
        """See `flowengine.engines.folds.TreeSource`."""
        if self._orders is None:
            found = self._marks.tree(self._number)
            self._take(found)
            orders = defaultdict[str, list[tuple[int, int, str]]](list)
            for address, fold, rank, place, *_ in found:
                if fold is not None:
                    orders[fold].append((rank, place, address))
            self._orders = {fold: sorted(order) for fold, order in orders.items()}

    def order(self, fold: str) -> list[tuple[int, int, str]]:
        """See `flowengine.engines.folds.TreeSource`."""
        if self._orders is None:
            return self._marks.order(fold, self._number)
        return self._orders.pop(fold, [])

    def read_steps(self) -> None:
        """Put everything into the log that is not in it."""
        if not self._has_steps:
            self._take_steps(self._marks.steps(self._number))
            self._has_steps = True

    def _read_step(self, address: str) -> None:
        if not self._has_steps and address not in self._steps_known:
            self._take_steps(self._marks.steps(self._number, address))
            self._steps_known.add(address)

    def subjects(self, since: int) -> list[Any]:
        """Return the subjects of the events from a number on, at least one."""
        first, steps = self._marks.subjects(since)
        return steps[since - first :]

    def events(self, since: int, count: int) -> list[Event]:
        """Return events of the execution."""
        return unpacked(self._marks.name, self._read_events(since, count))

    def _take(self, found: Iterable[MarkedStep]) -> None:
        with DamageGuard():
            for address, fold, rank, place, body, _ in found:
                if address not in self._known:
                    self.folds.take(address, fold, rank, place, body)

    def _take_steps(self, found: Iterable[tuple[str, Any]]) -> None:
        with DamageGuard():
            for address, whole in found:
                if whole is not None and address not in self._steps_known:
                    step, copies, earlier = whole
                    for key in copies:
                        step["tries"][-1][key] = step[key]
                    self.log.steps[address], self.log.earlier[address] = step, earlier


def _without_copies(step: Any) -> tuple[dict[str, Any], list[str]]:
    """Return a step without those values of its last attempt that are its own, and their keys."""
    *others, last = step["tries"] or [{}]
    same = [key for key in ("input", "output") if key in step and last.get(key, step) is step[key]]
    if not same:
        return step, same
    return {**step, "tries": [*others, {**last, **dict.fromkeys(same)}]}, same


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
        marks: Where long ones are recorded. None: they are only in memory.
    """

    def __init__(self, most: int, marks: Marks | None = None) -> None:
        self._most = most
        self._marks = marks
        self._lock = allocate_lock()
        """Held for moments only: to read a long journal takes seconds."""
        self._found: dict[tuple[str, int], Replayed] = {}

    def has(self, store: HistoryPort, record: ExecutionRecord) -> bool:
        """Return whether an execution is kept, so that only its new events are read."""
        replayed = self._found.get((record.id, record.created_at))
        if replayed is not None and replayed.is_read:
            return True
        known = None if self._marks is None else self._marks.of(record)
        if known is None:
            return False
        loaded = store.load(record.id)
        length = (0 if loaded.snapshot is None else loaded.snapshot[0]) + len(loaded.tail)
        return length - known.length() <= marks.NEW

    def _new(self, store: HistoryPort, flows: LinkedFlows, record: ExecutionRecord) -> Replayed:
        if self._marks is None:
            return Replayed(flows, record.hash)
        read = partial(store.events, record.id)
        return Replayed(flows, record.hash, Recording(self._marks, record, read))

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
            replayed = self._found.pop(key, None) or self._new(store, flows, record)
            self._found[key] = replayed
        try:
            with replayed.lock:
                if not replayed.is_read and self._marks is not None:
                    try:
                        replayed.restore()
                    except DamagedMarks:
                        self.damaged()
                replayed.add(unpacked(record.id, store.events(record.id, replayed.length)))
                replayed.is_read = True
                yield replayed
        except BaseException as error:
            with self._lock:
                if self._found.get(key) is replayed:
                    del self._found[key]
            if replayed.is_restored and _is_damage(error):
                self.damaged()
                if not isinstance(error, FlowEngineError):
                    with DamageGuard():
                        raise
            raise
        with self._lock:
            while sum(kept.size for kept in self._found.values()) > self._most:
                del self._found[next(iter(self._found))]
            trimmed = set() if self._marks is None else self._marks.trim()
            if trimmed:
                self._found = {
                    key: value for key, value in self._found.items() if key[0] not in trimmed
                }

    def damaged(self) -> None:
        """Record all executions anew, because the data of one is damaged."""
        assert self._marks is not None
        self._marks.renew()
        with self._lock:
            self._found = {
                key: value for key, value in self._found.items() if not value.is_restored
            }


def _is_damage(error: BaseException) -> bool:
    """Return whether an error may come from recorded data."""
    is_other = isinstance(error, Exception) and not isinstance(error, (FlowEngineError, OSError))
    return is_other or isinstance(error, StoreError)
