"""An execution in memory: its state, its uncommitted changes and its pending commands.

This module uses no event loop and no clock. Events are applied one after the other. Their changes
are collected into one `Append`, and the resulting commands wait here until it is on disk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from typing import Any, NamedTuple

from flowengine.engines.attempts.printed import Printed
from flowengine.engines.attempts.serialization import StoredValue
from flowengine.engines.executions.calls import uncertain_call
from flowengine.engines.executions.growing_lists import FLOW, STORED, GrowingLists, Read
from flowengine.engines.executions.linked_flows import LinkedFlow, LinkedFlows, unpacked, walk
from flowengine.engines.executions.outer_attempts import OuterAttempt
from flowengine.engines.executions.parts import (
    HANDING,
    HandedFile,
    Timers,
    bounded,
    claim_of,
    claims_in,
    handed,
    outgoing,
)
from flowengine.engines.executions.reducers import Reductions
from flowengine.engines.executions.step_rows import REWRITES, StepRows
from flowengine.engines.executions.subjects import address_of, why_of
from flowengine.errors import InputError
from flowengine.journal.encoding import pack, pack_result, unpack
from flowengine.journal.records import (
    ENDED,
    Append,
    ClosedWait,
    ExecutionHead,
    ListPart,
    Loaded,
    NewExecution,
    Outgoing,
)
from flowengine.journal.records import LockOperation as StoredClaim
from flowengine.journal.shapes import (
    EXPLAINED,
    Sound,
    check_state,
    check_wait,
    damage,
    unpack_event,
)
from flowengine.journal.step_table import StepTable
from flowengine.kernel import Graph, advance, new_state, pending
from flowengine.kernel.commands import (
    Claim,
    ClearTimer,
    CloseWait,
    Command,
    End,
    GiveBack,
    Notify,
    Observation,
    OpenWait,
    Run,
    Send,
    SetTimer,
    Stop,
)
from flowengine.kernel.events import Event, Upgraded
from flowengine.kernel.notation.traces import trace_of
from flowengine.kernel.state.records import State
from flowengine.sdk.steps.context import ExecutionContext

RESULTS = frozenset({"succeeded", "failed", "lost", "asked", "measured", "unoffered", "used"})
"""Types of events about attempts."""
RESULT_KEYS = ["type", "at", "unit", "attempt", "value"]
SMALLEST_TAIL = 32_768
"""Bytes of events below which no snapshot is taken. Replaying them takes a few milliseconds."""
BYTES_PER_ID = 64
"""Bytes counted for each number that the kernel assigned. A single event may begin ten thousand
items, and replaying it takes as long as reading as many events."""


class Told(NamedTuple):
    """The notifications for subscribers after the commit."""

    entries: list[tuple[int, Event, str | None, str | None]]
    """(number, event, address, reason of its timer) of each event."""
    steps: list[Observation]
    waits: list[tuple[dict[str, Any], str | None]]
    """(record, how it was closed) of each wait that opened, changed or closed."""


class Preview(NamedTuple):
    """A preview that is still missing, because the process that opened the question died."""

    wait: int
    unit: int
    step: int


class DriveChild(NamedTuple):
    """Drive an execution in the background in the process of the one that has started it."""

    id: str


class Execution:
    """An execution that is being driven.

    Attributes:
        id: Full id.
        context: The context that its steps can access.
        linked: Its flow, linked.
        state: The kernel's state, changed by `apply` only.
        epoch: Epoch of the lease under which it is written.
        seq: Number of events that are on disk.
        queue: Events to be applied by the next `take`.
        commands: Commands that result from applied events, to be carried out in order once these
            events are on disk.
        work: Unit → the task that runs its attempt, `-wait` → the task about a question, id → the
            task that drives a started execution.
        printed: Unit → the output of its attempt.
        kept: Unit → the result of its attempt, until the event with the result is applied.
        waits: Number → record of each open wait.
        timers: The timers that are set.
        told: Notifications since the last commit, for subscribers. None without subscribers.
        stays_until: How long to stay while it waits for a lock of another execution (ms). 0: no
            longer.
        error: Why it cannot continue in this process.
        put_off_until: When processes may continue it besides those that want it. 0: at once.
        put_off: Whether none of its attempts has begun: its last process was stopped in an orderly
            way.
        stored: Bytes of its events so far. `limits.stored` of its flow bounds them.
        halted: Whether its state cannot be stored, so that it has ended. No snapshot is taken.
        is_bounded: Whether a result that exceeds this limit may be refused.
        offers: The offers of its process. Attempts that need more wait for a worker. None: the
            driver decides about them, as in Temporal.
        wanted: Whether to leave it to a worker whose offers one of its steps needs, when its
            running attempts have ended. None: its process does not do so.
        reductions: The reducers in Python that its events need, if they are not waited for.
        recovered: Number of events once the interruption by the death of its last process is on
            disk. None: its last process did not die.
        around: The context of the caller that started or continued it, in which its steps run.
        outer: The attempt that started it, if the budgets and rules around that apply.
        depth: How many executions enclose it in this process.
    """

    def __init__(
        self,
        id: str,
        linked: LinkedFlow,
        context: ExecutionContext,
        epoch: int,
        flows: LinkedFlows,
        read: Read,
        stored_rows: StepTable | None = None,
    ) -> None:
        self._flows = flows
        self._lists = GrowingLists(read)
        self._read = read
        self._stored_rows = stored_rows
        self._step_rows = None if stored_rows is None else StepRows(stored_rows)
        self.around = copy_context()
        self.id = id
        self.linked = linked
        self.context = context
        self.epoch = epoch
        self.state: State = new_state()
        self.seq, self.queued = 0, False
        self.reductions: Reductions | None = None
        self.queue: list[Event] = []
        self.commands: deque[Command | Preview | DriveChild] = deque()
        self.work: dict[int | str, Any] = {}
        self.printed: dict[int, Printed] = {}
        self.kept: dict[int, StoredValue] = {}
        self.waits: dict[int, dict[str, Any]] = {}
        self.timers = Timers()
        self.told: Told | None = None
        self.stays_until: int | None = None
        self.error: Exception | None = None
        self.put_off, self.put_off_until, self.depth = False, 0, 0
        self.wanted: bool | None = None
        self.stored, self.halted = 0, False
        self.is_bounded = True
        self.offers: frozenset[str] | None = None
        self.recovered: int | None = None
        self.outer: OuterAttempt | None = None
        self._batch: list[Event] = []
        self._left: list[Command | Preview | DriveChild] = []
        self._events: list[tuple[int, bytes]] = []
        self._opened: dict[int, dict[str, Any]] = {}
        self._closed: list[ClosedWait] = []
        self._taken: list[int] = []
        self._sent: list[Outgoing] = []
        self._claims: list[StoredClaim] = []
        self._messages: set[int] = set()
        self._new: NewExecution | None = None
        self._head: tuple[str, int | None] = ("", None)
        self._tail = self._ids = self._snapshot = 0
        self._rewritten = False
        self._held: tuple[tuple[int, bytes], Sequence[ListPart]] | None = None
        """The snapshot of a state from which it continues, and its lists."""
        self._loaded = False
        self._moved: tuple[str, str] | None = None
        self._forms: list[str] = []
        self._files: list[HandedFile] = []

    def begin(self, new: NewExecution) -> None:
        """Initialize a new execution, which the next `take` creates."""
        self._new = new

    def begin_with(self, new: NewExecution, past: Sequence[Event], forms: list[str]) -> None:
        """Initialize a new execution with a past.

        Args:
            new: Its entry in lists.
            past: Its first events.
            forms: Hashes of the other flows that the past refers to.
        """
        self._new = new
        self._forms = forms
        self._events = [(event["at"], pack(event)) for event in past]
        self.stored = sum(len(packed) for _, packed in self._events)
        for number, (_, packed) in enumerate(self._events if self.linked.grows else ()):
            self._lists.add_event(number, packed)
        self._replay(past)
        self.put_back(self.state)
        self._loaded = True
        self._enter_workdir()

    def load(self, loaded: Loaded) -> None:
        """Replace the content of this object by the stored execution.

        Attempts that run in this process continue: `work` is kept.
        """
        with Sound(f"the stored data of execution {self.id}"):
            self._load(loaded)
        self._loaded = True

    def _load(self, loaded: Loaded) -> None:
        self.linked = self._flows.by_hash(loaded.record.hash)
        self._forget()
        if loaded.snapshot is not None:
            self.seq, packed = loaded.snapshot
            self.state, self.stored, _ = self._lists.load(packed, loaded.lists)
            check_state(self.state, new_state(), f"the snapshot of execution {self.id}")
            self._snapshot = len(packed)
        self._ids = self.state["last"] + self.state["inner"]
        self.stored += sum(len(entry.payload) for entry in loaded.tail)
        graph = self.linked.graph
        for entry in loaded.tail:
            event = unpack_event(entry.payload, f"entry {entry.seq} of execution {self.id}")
            self.halted = event["type"] == "halted"
            if loaded.snapshot is None and event["type"] in REWRITES:  # the snapshot is damaged
                self._replay(unpacked(self.id, loaded.tail))
                break
            advance(graph, self.state, event)
            self._tail += len(entry.payload)
            if self.linked.grows:
                self._lists.add_event(entry.seq, entry.payload)
        for wait in self.state["waits"].values():
            check_wait(wait["record"], f"a wait of execution {self.id}")
        self.seq += len(loaded.tail)
        if self._stored_rows is not None:
            self._step_rows = StepRows(self._stored_rows, is_new=False)
        self._head = (loaded.record.status, loaded.record.due)
        self.put_off = self.state["status"] == "running" != loaded.record.status
        self._index()
        self._opened.clear()
        self._enter_workdir()

    def _forget(self) -> None:
        """Return to the state before its first event."""
        self.state, self.seq, self.stored, self.halted = new_state(), 0, 0, False
        self._snapshot, self._tail, self._ids, self._held = 0, 0, 0, None
        self._lists.forget()
        self._step_rows = None if self._stored_rows is None else StepRows(self._stored_rows)
        self.queue.clear()
        self._events.clear()
        self._taken.clear()
        self._sent.clear()
        self._claims.clear()
        self._messages.clear()
        self._moved, self._forms = None, []
        self._index()

    def _replay(self, events: Sequence[Event]) -> None:
        """Compute the state from all events, which may go back to an earlier state."""
        seen: list[Observation] = []
        for moment in walk(self._flows, self.linked.hash, events, seen):
            if self._step_rows is not None:
                self._step_rows.record(moment, seen)
            seen.clear()
            self.state = moment.state

    def _enter_workdir(self) -> None:
        """Restore the identity, the working directory and the objects of the execution's start."""
        data = self.state["execution"]
        if not data:
            return
        self.context = self.context._replace(identity=data["identity"], workdir=data["workdir"])
        if self.context.trace is not None:
            self.context = self.context._replace(trace=trace_of(self.id, data["labels"]))
        if "environments" in data:
            self.context = self.context._replace(environments=data["environments"])
        if "resources" in data:
            self.take_resources(self.context.resources)

    def take_resources(self, resources: Mapping[str, Any]) -> None:
        """Pass the caller's objects to its steps, and note which of the original ones are missing.

        Args:
            resources: The objects by name.
        """
        names = self.state["execution"].get("resources", ())
        missing = tuple(name for name in names if name not in resources)
        self.context = self.context._replace(resources=resources, missing=missing)

    def put_back(self, state: State) -> None:
        """Continue from an earlier state of this execution.

        The next `take` writes it as a snapshot and publishes its open waits. The snapshot does
        not include the queue, so that the events after a snapshot never go back.
        """
        self.state = state
        self._rewritten, self.halted = True, False
        self._held = self._take_snapshot(self.seq + len(self._events))
        self._index()
        self._claims = list(claims_in(self.id, self.linked.graph, state))

    def rewrite(self) -> None:
        """Have the next `take` write a snapshot."""
        self._rewritten = True

    def _index(self) -> None:
        """Index the waits and timers of the state, without repeating its commands."""
        self.commands.clear()
        self.waits.clear()
        self.timers.clear_all()
        self._opened.clear()
        self._closed.clear()
        for command in pending(self.state):
            self._note(command)

    def load_again(self, loaded: Loaded) -> list[Event]:
        """Return to the stored state, after a commit was refused.

        Timers fire again, and messages are still in the inbox. Committed commands that have not
        begun remain to be carried out.

        Returns:
            Results of attempts. They are facts, and are to be applied again.
        """
        results = [event for event in self._batch if event["type"] in RESULTS]
        for event in results:
            event.pop("reduced", None)  # type: ignore[typeddict-item] # of another state
        self.load(loaded)
        self.commands.extend(self._left)
        return results

    def put_back_events(self, load: Callable[[str], Loaded]) -> None:
        """Return to the stored state, or before the start, to apply the same events again.

        Args:
            load: Returns what the store has of an execution.
        """
        batch, taken, messages = self._batch, [*self._taken], {*self._messages}
        for event in batch:
            event.pop("reduced", None)  # type: ignore[typeddict-item] # they are called again
        if self._new is None:
            self.load(load(self.id))
        else:
            self._forget()
        self.commands.extend(self._left)
        self.queue, self._taken, self._messages, self._files = batch, taken, messages, []

    def apply(self, event: Event) -> None:
        """Apply an event. Its time never precedes that of the last event."""
        state, news = self.state, self.told
        event["at"] = max(event["at"], state["now"])
        event, packed = self._pack(event)
        graph = self.linked.graph
        if news is not None:
            number = self.seq + len(self._events)
            address, why = address_of(graph, state, event), why_of(state, event)
            news.entries.append((number, event, address, why))
        observe, rows = None if news is None else news.steps, self._step_rows
        after = None
        if event["type"] == "upgraded":
            if rows is not None:
                rows = self._written(rows, self.seq)  # of steps of the flow before
            after = self._go_on_under(event)
        try:
            commands = self._advance(graph, event, observe, after)
        except BaseException as error:
            if rows is not None:
                rows.undo(event)
            # An object that is not loaded has computed the state event by event.
            if not (self._loaded and isinstance(error, Exception)) or isinstance(error, EXPLAINED):
                raise
            raise damage(f"the stored data of execution {self.id}", error) from error
        if event["type"] in HANDING:
            self._files += handed(event)
            if event["type"] == "started":
                self._enter_workdir()
        if "reduced" in event:  # the results of the user's reducers are part of the event
            packed = pack(event)
        self._tail += len(packed)
        self.stored += len(packed)
        if self.linked.grows:
            self._lists.add_event(self.seq + len(self._events), packed)
        self._events.append((event["at"], packed))
        if len(commands) != 1 or type(commands[0]) is not Run or self.linked.needing:
            self._note_all(commands)
        else:  # most events of most flows
            self.commands.append(commands[0])

    def _note_all(self, commands: list[Command]) -> None:
        """Note the commands of an event. If one cannot be stored, the execution fails.

        An attempt with unmet needs begins to wait with the event from which it follows. If the
        process died between two commits, it would count as interrupted, although it cannot have
        begun.
        """
        fault: InputError | None = None
        left: list[Run] = []
        offers = self.offers if self.linked.needing else None
        for command in commands:
            if type(command) is Run:
                if offers is None or offers.issuperset(self.linked.graph.node(command.step).needs):
                    self.commands.append(command)
                else:
                    left.append(command)
                continue
            try:
                if type(command) is OpenWait:
                    pack(command.record)  # a store does not know whose record it is
                self._note(command)
            except InputError as error:
                fault = error
        if fault is not None:
            self._halt(fault)
            return
        for run in left:
            at, unit = self.state["now"], run.unit
            self.apply({"type": "unoffered", "at": at, "unit": unit, "attempt": run.attempt})

    def _halt(self, fault: InputError) -> None:
        """Let it fail because something that it has come to cannot be stored."""
        if self.halted:
            raise fault
        self.halted = True
        message = f"the execution cannot continue: {fault.message}"
        self.commands = deque(each for each in self.commands if type(each) is not End)
        self.apply(
            {
                "type": "halted",
                "at": self.state["now"],
                "error": {"type": "ValidationError", "message": message, "retryable": False},
            }
        )

    def _advance(
        self, graph: Graph, event: Event, observe: list[Observation] | None, after: Graph | None
    ) -> list[Command]:
        """Apply an event, and note it for the rows of steps."""
        rows, state = self._step_rows, self.state
        if rows is None:
            return advance(graph, state, event, observe, after=after)
        noted, is_plain = rows.noted, event["type"] == "succeeded" and "log" not in event
        if is_plain:  # most events of most flows
            noted.append(event)
        else:
            rows.before(graph, state, event)
        known = len(noted)
        commands = advance(graph, state, event, noted, None, after, observe is None)
        if observe is not None:
            observe += noted[known:]
        if not is_plain:
            rows.after(after or graph, state, event)
        return commands

    def _pack(self, event: Event) -> tuple[Event, bytes]:
        """Return the event to journal, smaller if it exceeds `limits.stored`, and its bytes.

        The packed form of a result is used again.
        """
        packed: bytes | None = None
        if event["type"] == "succeeded" and (kept := self.kept.pop(event["unit"], None)):
            whole = kept.packed
            if whole is not None and kept.value is event["value"] and [*event] == RESULT_KEYS:
                packed = pack_result(event["at"], event["unit"], event["attempt"], whole)
        if packed is None:
            try:
                packed = pack(event)
            except InputError as error:
                event = _not_storable(event, error)
                packed = pack(event)
        most: int = self.linked.graph.limits["stored"]
        if self.stored + len(packed) > most and event["type"] in RESULTS and self.is_bounded:
            event = bounded(event, len(packed), self.stored, most)
            packed = pack(event)
        return event, packed

    def _go_on_under(self, event: Upgraded) -> Graph:
        """Continue with another form of the flow. The next `take` writes a snapshot."""
        before, self.linked = self.linked, self._flows.by_hash(event["after"])
        self.context = self.context._replace(version=event["version"])
        self._moved = event["after"], event["version"]
        self._forms.append(before.hash)
        self._rewritten = True
        return self.linked.graph

    def apply_queue(self, subscribers: Sequence[object] = ()) -> None:
        """Apply the events of the queue, in order.

        Args:
            subscribers: If there are any, their notifications are collected until the commit.
        """
        self.told = Told([], [], []) if subscribers else None
        self._batch, self.queue = self.queue, []
        self._left = list(self.commands)
        for event in self._batch:
            if event["type"] == "timer" and not self.timers.clear(event["timer"]):
                continue  # cleared by an earlier event
            self.apply(event)

    def apply_first(self, *, again: bool) -> None:
        """Apply the first event of the queue. If this raises, it is still there.

        Args:
            again: Whether this has raised before for the event.
        """
        event = self.queue[0]
        if event["type"] == "timer" and not again and not self.timers.clear(event["timer"]):
            del self.queue[0]
            return
        before = pack(self.state)
        try:
            self.apply(event)
        except BaseException:
            self.state = unpack(before)
            raise
        del self.queue[0]

    def take(self, *, release: bool) -> Append:
        """Return all changes since the last commit, to be committed.

        A snapshot is due when the events since the last one have outgrown it.

        Args:
            release: Also release the lease.
        """
        events, seq, known = self._events, self.seq, self._head
        self._events = []
        self.seq = seq + len(events)
        snapshot, lists = self._held or (None, ())
        try:
            unchanged = not release and known[0] == "running" == self.state["status"]
            head = None if unchanged else self._changed_head(release)
            ids = self.state["last"] + self.state["inner"]  # number of records so far
            tail = self._tail + BYTES_PER_ID * (ids - self._ids)
            # One that has ended is small, and is shown without the events before.
            grown = tail >= SMALLEST_TAIL and (tail >= 2 * self._snapshot or self.ended)
            anew = self._rewritten and (snapshot is None or self._moved is not None)
            if (anew or grown) and not self.halted:
                try:
                    snapshot, more = self._take_snapshot(self.seq)
                    lists = [*lists, *more]
                except InputError:
                    if not self.ended:  # it is not needed then
                        raise
                    self.halted = True
        except InputError as fault:
            self._events, self.seq, self._head = events, seq, known
            self._halt(fault)
            return self.take(release=release)
        steps = () if self._step_rows is None else self._written(self._step_rows, seq).take()
        listed = self._opened or self._closed or self._taken or self._sent or self._claims
        if not (head or snapshot or release or listed or self._files):
            return Append(self.id, self.epoch, seq, events, steps)  # most steps of most flows
        whole = self._new is not None or self._rewritten
        append = Append(
            self.id,
            self.epoch,
            seq,
            events,
            steps,
            self._new,
            head,
            list(self._opened.values()),
            self._closed,
            list(self.state["keys"].items()) if whole else (),
            self._taken,
            self._sent,
            self._claims,
            snapshot,
            release,
            self._moved,
            self._forms,
            lists,
            self._files,
        )
        self._files = []
        self._new, self._opened, self._closed = None, {}, []
        self._taken, self._sent, self._claims = [], [], []
        self._moved, self._forms = None, []
        self._rewritten, self._held = False, None
        return append

    def _written(self, rows: StepRows, number: int) -> StepRows:
        """Make rows of the events since the last commit.

        Args:
            rows: Makes them.
            number: Number of the first event.
        """
        if rows.restore() and number:  # it came from a store without rows
            noted, seen = rows.noted, list[Observation]()
            rows = self._step_rows = StepRows(self._stored_rows)
            journal = unpacked(self.id, self._read(0, number))
            for moment in walk(self._flows, self.linked.hash, journal, seen):
                rows.record(moment, seen)
            rows.noted = noted
        rows.write(self.linked.graph, number)
        return rows

    def _take_snapshot(self, number: int) -> tuple[tuple[int, bytes], Sequence[ListPart]]:
        """Return a snapshot, and the new parts of its lists.

        Args:
            number: Number of the events that it includes.
        """
        also = {STORED: self.stored, FLOW: self.linked.hash}
        state: Mapping[str, Any] = {**self.state, **also}
        lists: Sequence[ListPart] = ()
        if self.linked.grows:
            state, lists = self._lists.split(self.linked.graph, state)
        packed = pack(state)
        self._snapshot, self._tail = len(packed), 0
        self._ids = self.state["last"] + self.state["inner"]
        return (number, packed), lists

    def takes(self, message: int) -> bool:
        """Note that the next commit takes a message of the inbox. False if already taken."""
        if message in self._messages:
            return False
        self._messages.add(message)
        self._taken.append(message)
        return True

    @property
    def leases(self) -> list[tuple[str, int]]:
        """The leases to release with it: its id, and its epoch.

        The epoch is 0 if the execution is not created yet.
        """
        return [(self.id, 0 if self._new is not None else self.epoch)]

    @property
    def stored_status(self) -> str:
        """Its status in lists."""
        return self._head[0]

    @property
    def claims(self) -> bool:
        """Whether the next commit claims or releases locks."""
        return bool(self._claims)

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self.state["status"] in ENDED

    def look_ahead(self) -> None:
        """Preload the flows that it is in. Steps of other flows may already be over.

        While an approval is open, later steps are not preloaded, because this process may exit
        first.
        """
        asked = any(record["kind"] == "approval" for record in self.waits.values())
        if not asked and not self.ended:
            bodies = {scope["body"] for scope in self.state["scopes"].values()}
            labels = self.state["execution"].get("labels", {})
            self.linked.look_ahead(labels, bodies if self.seq else None)

    @property
    def can_go_back(self) -> bool:
        """Whether events can be put back. The past of a new fork is not in the store yet."""
        return self._new is None or not self._loaded

    def _note(self, command: Command) -> None:
        """Update the index of waits and timers, and keep other commands for later."""
        if isinstance(command, SetTimer):
            self.timers.set(command)
        elif isinstance(command, ClearTimer):
            self.timers.clear(command.timer)
        elif isinstance(command, OpenWait):
            opened, number = command.record, command.record["id"]
            if opened["kind"] == "question" and opened.get("ran") == "maybe":
                opened |= uncertain_call(self.linked.compiled, self.state, opened)
            self.waits[number] = self._opened[number] = opened
            if self.told is not None:
                self.told.waits.append((opened, None))
        elif isinstance(command, CloseWait):
            record = self.waits.pop(command.wait, None)
            if self.told is not None and record is not None:
                self.told.waits.append((record, command.how))
            if record is not None and record["kind"] == "approval":
                self.look_ahead()
            result = pack(command.result)
            self._closed.append(ClosedWait(command.wait, command.how, self.state["now"], result))
        elif isinstance(command, Stop):
            self._stop(command)
        elif isinstance(command, Send | Notify):
            self._send(command)
        elif isinstance(command, Claim | GiveBack):
            self._claims.append(claim_of(self.id, command, self.state["now"]))
        else:
            self.commands.append(command)

    def _send(self, send: Send | Notify) -> None:
        """Add a message or a notification to the commit. It is delivered afterwards."""
        if isinstance(send, Notify):
            record = self.waits.get(send.wait)
            if send.flows and (record is not None or not send.wait):  # not closed already
                flow, hash = self.context.flow, self.linked.hash
                self._sent += outgoing(self.id, flow, hash, self.state, record, send)
            self.commands.append(send)
            return
        at = self.state["now"]
        event = {
            "type": "message", "at": at, "signal": send.signal, "key": send.key, "data": send.data,
            "id": send.id, "by": f"execution:{self.id}",
        }  # fmt: skip
        if send.step is not None:
            event["step"] = send.step
        self._sent.append(Outgoing(0, self.id, send.to, at, pack(event)))
        self.commands.append(send)

    def _stop(self, stop: Stop) -> None:
        """Withdraw an attempt, or drop its command if it has not begun."""
        for i, command in enumerate(self.commands):
            if isinstance(command, Run) and command.unit == stop.unit:
                del self.commands[i]
                return
        self.commands.append(stop)

    def _changed_head(self, release: bool) -> ExecutionHead | None:
        """Return the entry for lists, if it changed. The due time is set only on release."""
        state = self.state
        status: str = state["status"]
        head: tuple[str, int | None]
        if status == "running" and self.put_off:
            # No process died, so it waits, and the next process is due.
            status, head = "waiting", ("waiting", state["now"])
        elif status == "running":
            head = (status, self.timers.next() if release else None)
        else:
            head = (status, self.timers.next())
        if self.put_off_until and head[1] is not None:
            head = (head[0], max(head[1], self.put_off_until))
        if head == self._head:
            return None
        self._head = head
        if status not in ENDED:
            return ExecutionHead(status, state["now"], head[1])
        outputs, error = state["outputs"], state["error"]
        return ExecutionHead(
            status,
            state["now"],
            None,
            None if outputs is None else pack(outputs),
            None if error is None else pack(error),
        )


def _not_storable(event: Event, error: InputError) -> Event:
    """Return the event to journal in place of a result that is not plain data.

    Raises:
        InputError: The event is not the result of an attempt.
    """
    if event["type"] != "succeeded":
        raise error
    return {
        "type": "failed",
        "at": event["at"],
        "unit": event["unit"],
        "attempt": event["attempt"],
        "error": {"type": "ValidationError", "message": f"result: {error.message}"},
    }
