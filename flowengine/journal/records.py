"""Records passed to and returned by a store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

Plain = Any
"""JSON-like data plus bytes, as in `flowengine.kernel.graph.compiled`."""

OfFlows = Callable[[str], bool]
"""Whether the executions and waits of a flow count, where an id is found by its prefix."""

Status = Literal["running", "waiting", "stalled", "succeeded", "failed", "cancelled"]

OPEN = ("running", "waiting", "stalled")
"""Statuses of executions that have not ended."""
ENDED = ("succeeded", "failed", "cancelled")
"""Final statuses of executions. Only these can be pruned, and they accept no messages."""


class JournalEntry(NamedTuple):
    """One event of a journal."""

    seq: int
    """Position in the journal: 0, 1, 2, … without gaps."""
    at: int
    payload: bytes
    """The packed event."""


class Numbered(NamedTuple):
    """The place of an event among those of all executions."""

    number: int
    """Later commits have larger numbers. There can be gaps."""
    execution: str
    seq: int


class Owner(NamedTuple):
    """A lease holder: one engine object in one process."""

    id: str
    """Unique for each engine object."""
    pid: int
    started: int
    """When the process started, in the kernel's ticks, to distinguish it from a later process with
    the same pid."""
    host: str
    """Name of the machine, for display."""
    boot: str
    """Identifies the boot and process namespace that `pid` and `started` belong to."""


class NewExecution(NamedTuple):
    """An execution that starts with an append."""

    flow: str
    version: str | None
    """The flow's own `version`, for display."""
    hash: str
    """Hash of the compiled flow, stored by `put_flow`."""
    created_at: int
    labels: Mapping[str, str] = {}
    started_by: str = ""
    parent: str | None = None
    """Execution whose step started this one."""
    forked_from: str | None = None
    """Execution and step that this one was forked from, as text for display."""
    title: str = ""
    """Its subject, in one line."""
    key_inputs: Mapping[str, Plain] = {}
    """The inputs by which users distinguish executions of the flow."""
    owner: str | None = None
    """`Owner.id` of the holder of the first lease, with epoch 1. None: no holder."""
    files_of: str | None = None
    """Execution whose artifacts this one also refers to. Its own id: it replaces an ended execution
    with this id."""


class ExecutionHead(NamedTuple):
    """An execution's entry in lists. Part of an append only if it changes."""

    status: str
    at: int
    """When it changed to this status."""
    due: int | None = None
    """When the earliest open timer is due."""
    outputs: bytes | None = None
    error: bytes | None = None


class ClosedWait(NamedTuple):
    """A wait that ended."""

    number: int
    how: str
    """`decided`, `expired`, `occurred` or `withdrawn`."""
    at: int
    result: bytes = b""


class Outgoing(NamedTuple):
    """A message from one execution to others."""

    number: int
    """Position in the order of storage. 0: not stored yet."""
    sender: str
    """Full id of the sending execution."""
    to: str
    """`all`: the execution that has the key. Otherwise the id of an execution."""
    at: int
    event: bytes
    """The packed event for the receiver."""
    why: str | None = None
    """Why it is undeliverable."""


class LockOperation(NamedTuple):
    """An operation of an execution on a shared lock, or on a shared budget.

    Claims of a lock are granted in order, to at most `permits` units at once. The receiver of a
    grant finds `granted` in its inbox. A claim ends when it is released or its execution has ended,
    but not when its process dies. An existing claim is unchanged.
    """

    lock: str
    unit: int
    """The unit that claims it."""
    permits: int = 1
    then: Literal["queue", "reject", "cancel", "give"] = "queue"
    """The operation.

    - `queue`: wait for the lock.
    - `reject`: refuse the append if the lock is not free.
    - `cancel`: send `cancel` to the oldest claims in excess of the permits, then wait. An existing
      claim sends nothing.
    - `give`: release the lock.
    """
    granted: bytes = b""
    cancel: bytes = b""
    amounts: Mapping[str, Any] | None = None
    """Of a budget: the needs of a claim, see `accounts`, or the amounts used, for `give`. None: it
    is a lock."""


class UsedBudget(NamedTuple):
    """A budget that executions share."""

    name: str
    used: Mapping[str, int]
    """Meter → the amount used by calls that have ended."""
    reserved: Mapping[str, int]
    """Meter → the amount reserved by running calls."""
    limits: Mapping[str, int]
    """Meter → the limit in the newest claim."""


class Claimed(NamedTuple):
    """A claim."""

    execution: str
    unit: int
    at: int
    held: bool
    """Whether the lock is granted to it."""


class ListPart(NamedTuple):
    """Items of an append-only list that a snapshot leaves out."""

    name: str
    first: int
    """The index of the first item in its list."""
    items: bytes
    """The packed items. Empty: the list no longer exists."""


OVER = frozenset({"succeeded", "skipped", "failed", "cancelled", "refused", "rejected", "expired"})
"""The statuses of steps that have ended."""
GAVE, COMPUTED = b"", b"\xc1"
"""In place of an output: it is the value of the event that ended the attempt, or it is nowhere. The
second one is followed by its digest."""


class StepRow(NamedTuple):
    """An attempt of a step, or a step without one. The last row at an address shows the step."""

    number: int
    """In order of beginning, from 1. 0: of the execution itself, with events about it."""
    address: str
    step: str
    """Its id. At number 0: the hash of its first flow."""
    status: str
    """Of the step, as users see it. `interrupted`: of the attempt, when another one followed."""
    outcome: str | None
    attempt: int
    """Number of the attempt since the step began (anew). 0: its attempts are not counted."""
    started: int
    """When the step began (ms)."""
    since: int
    """Number of the event from which on the row exists."""
    began: int | None
    """When the attempt began (ms). None: it has not."""
    began_by: int | None
    """Number of the event with which it began."""
    ended: int | None
    """When the attempt ended, or the step without one (ms)."""
    ended_by: int | None
    """Number of the event that ended it."""
    until: int | None
    """Number of the event from which on another row is the last one at the address. None: there
    may be one nevertheless, if a retry of what is around it has begun it again."""
    output: bytes | None
    """Packed, or `GAVE`, or `COMPUTED`."""
    error: bytes | None
    """Packed. Perhaps a handler has replaced it, and the step has succeeded."""
    notes: bytes | None
    """Packed numbers of events about it: decisions, logs, evidence."""
    tokens: int | None
    """Used by the attempt, as it reported. None: it is not metered."""
    cost: int | None
    """In billionths of a dollar."""
    input: int | None
    """Digest of the attempt's input, which is nowhere (`digest_of`). None: it has none."""


class Append(NamedTuple):
    """The changes of one execution to its journal and index, written all or nothing."""

    execution: str
    epoch: int
    """Epoch of the lease. 1 for a new execution that has an owner, 0 for one without."""
    seq: int
    """Number of the first of `events`."""
    events: Sequence[tuple[int, bytes]] = ()
    """(`at`, packed event) of each."""
    steps: Sequence[StepRow] = ()
    """New and changed rows of its steps."""
    new: NewExecution | None = None
    head: ExecutionHead | None = None
    opened: Sequence[Mapping[str, Plain]] = ()
    """Records of waits that opened or changed, as `OpenWait.record` of the kernel.

    `kind` and `since` of a wait keep their first values. A wait that was closed opens again under
    the same id, without votes, after a `retry` of its execution.
    """
    closed: Sequence[ClosedWait] = ()
    keys: Sequence[tuple[str, str]] = ()
    """(signal, key) pairs under which this execution can be found from now to its end."""
    taken: Sequence[int] = ()
    """Numbers of inbox messages contained in `events`."""
    sent: Sequence[Outgoing] = ()
    """Messages to other executions, in the outbox from now on."""
    claims: Sequence[LockOperation] = ()
    """In the order in which they were made and released."""
    snapshot: tuple[int, bytes] | None = None
    """(number of events it includes, packed state)."""
    release: bool = False
    """Release the lease in the same transaction."""
    moved: tuple[str, str] | None = None
    """(hash, version) of the flow that it runs from now on."""
    forms: Sequence[str] = ()
    """Hashes of the flows that its journal needs in addition to its current one. They are kept with
    it."""
    lists: Sequence[ListPart] = ()
    """Parts of the lists that `snapshot` leaves out. `first` is the number of items already stored,
    or 0 if the part replaces all of them."""
    files: Sequence[tuple[str, str | None]] = ()
    """(digest, execution) of artifacts that it refers to from now on, if that execution refers to
    them. None: if any execution does."""

    @property
    def at(self) -> int:
        """When it happened (ms): the time of its last event, or of the change of its head."""
        if self.events:
            return self.events[-1][0]
        return 0 if self.head is None else self.head.at


EVENTS_ALONE = Append("", 0, 0)[5:]
"""The rest of an `Append` of events that change nothing in lists, as of a step in a chain."""


class ExecutionRecord(NamedTuple):
    """An execution as shown in lists: its id, and the fields of `NewExecution` up to `owner`."""

    id: str
    flow: str
    version: str | None
    hash: str
    created_at: int
    labels: dict[str, str]
    started_by: str
    parent: str | None
    forked_from: str | None
    title: str
    key_inputs: dict[str, Plain]
    status: str
    changed_at: int
    """When it changed to its status."""
    due: int | None
    ended_at: int | None
    failure: str | None = None
    """The message of its error, in one line."""
    outputs: bytes | None = None
    error: bytes | None = None


def new_of(record: ExecutionRecord) -> NewExecution:
    """Return the entry with which an execution was created, without its holder."""
    return NewExecution(*record[1:11])


class Due(NamedTuple):
    """An execution that can continue, and that no living process holds."""

    execution: str
    """Full id."""
    flow: str
    since: int
    """Since when it can continue (ms)."""
    why: Literal["timer", "message", "left", "needs"]
    """A timer is due, a message or decision has arrived, its process has left it `running`, or a
    step needs what this process offers."""
    deaths: int = 0
    """How many of its holders have died in a row. See `DirectoryPort.deaths`."""


class Loaded(NamedTuple):
    """The data needed to continue an execution."""

    record: ExecutionRecord
    snapshot: tuple[int, bytes] | None
    """(number of events it includes, packed state)."""
    tail: list[JournalEntry]
    """The events after the snapshot, or all of them."""
    lists: Sequence[ListPart] = ()
    """The lists of the snapshot: all their parts, in order."""


class InboxMessage(NamedTuple):
    """A message to an execution that is not journaled yet."""

    number: int
    """Position in the order of storage, over all executions."""
    execution: str
    at: int
    event: bytes
    """The packed event to journal: a signal, a decision, a request to cancel."""


class SendResult(NamedTuple):
    """The result of `send` and `send_keyed`."""

    number: int
    execution: str
    first: bool
    """False if a message with this id existed already. Nothing was stored then."""
    began: bool = False
    """Whether it started the execution."""
    event: bytes = b""
    """The packed event of the stored message, which was the first."""


class Beginning(NamedTuple):
    """An execution that a message starts if no open one receives it."""

    id: str
    new: NewExecution
    """Without a lease holder: `owner` is None."""
    keys: Sequence[tuple[str, str]]
    """As `Append.keys`, including the key of the message."""
    event: bytes
    """Its first event, packed, which is stored in the inbox instead of the message."""
    claims: Sequence[LockOperation] = ()
    """As `Append.claims`."""

    def append(self, at: int, files: Sequence[tuple[str, str | None]] = ()) -> Append:
        """Return the append that creates it. Its first event then goes into its inbox.

        Args:
            at: When it is created (ms).
            files: As `Append.files`.
        """
        head = ExecutionHead("running", at)
        return Append(
            self.id,
            epoch=0,
            seq=0,
            new=self.new,
            head=head,
            keys=self.keys,
            files=files,
            claims=self.claims,
        )


class SignalStart(NamedTuple):
    """A flow whose executions are started by messages of a signal."""

    flow: str
    hash: str
    """Hash of the compiled flow, stored by `put_flow`."""


class Deployed(NamedTuple):
    """A deployed version of a flow."""

    flow: str
    """The id of the flow."""
    version: str
    """Empty: the flow declares none."""
    hash: str
    """Hash of the compiled flow, stored by `put_flow`."""
    at: int
    """When it was deployed (ms)."""


class Scheduled(NamedTuple):
    """A schedule by which executions of a deployed flow start, and its next time."""

    flow: str
    hash: str
    """Hash of the compiled flow."""
    schedule: str
    """Its name, which is unique within the flow."""
    time: int
    """The next time (ms)."""
    due: int | None
    """When to start the execution of that time (ms). None: the schedule is paused."""


class NewGrant(NamedTuple):
    """A grant contained in a vote: an approval that also covers calls of later executions."""

    tool: str
    version: str
    """Version of the call's definition. See `kernel.waiting.call_questions`."""
    body: bytes
    """The calls that it covers, packed."""
    uses: int | None = None
    """Maximum number of questions that it answers. None: unlimited."""
    until: int | None = None
    """When it expires."""


class FlowGrant(NamedTuple):
    """A grant for all executions of a flow."""

    id: str
    """Id of the wait whose decision created it."""
    flow: str
    tool: str
    version: str
    by: str
    at: int
    body: bytes
    uses: int | None
    until: int | None
    used: int = 0
    revoked_by: str | None = None


class Vote(NamedTuple):
    """One user's answer to a wait."""

    by: str
    at: int
    approves: bool
    """Whether the choice counts as `approve`. Any other choice closes the wait at once."""
    event: bytes
    """The packed `decided` event."""
    gives: NewGrant | None = None
    """The grant to keep if the vote settles the wait with an approval."""
    uses: str | None = None
    """Id of the grant that the vote comes from. The vote is accepted only if the grant is usable,
    and uses it once."""


class ListedWait(NamedTuple):
    """A wait as shown in lists."""

    id: str
    execution: str
    flow: str
    number: int
    record: dict[str, Plain]
    """The latest record of the kernel."""
    decision: bytes | None
    """The `decided` event that settled it, perhaps not yet journaled."""
    votes: list[bytes]
    """All `decided` events recorded for it, oldest first. Empty in lists."""
    how: str | None
    """How it was closed, once journaled: see `ClosedWait.how`."""
    closed_at: int | None
    result: bytes | None

    @property
    def open(self) -> bool:
        """Whether it can still be answered."""
        return self.how is None and self.decision is None

    @property
    def journaled(self) -> dict[str, Plain]:
        """User → vote, for the votes in its record.

        After a fork or a retry of its execution, `votes` contains none of these.
        """
        return {vote["by"]: vote for vote in self.record.get("votes") or ()}


class ExecutionFilter(NamedTuple):
    """A filter for executions. None matches any value. All conditions must hold."""

    flow: str | None = None
    status: str | None = None
    labels: Mapping[str, str] = {}
    since: int | None = None
    """Created at this time or later."""
    due: int | None = None
    """With an open timer due at this time or earlier."""
    forked_from: str | None = None
    """Forks of the execution with this full id."""
    search: str | None = None
    """Each word of this text begins a word of its title, key inputs, failure, flow or labels, or
    the text begins its id."""


class WaitFilter(NamedTuple):
    """A filter for waits. None matches any value. All conditions must hold."""

    state: Literal["pending", "closed", "all"] = "pending"
    """`pending`: not closed, and no settling decision recorded."""
    kinds: Sequence[str] = ()
    """Kinds of waits, such as `approval` and `question`. Empty: all."""
    flow: str | None = None
    execution: str | None = None
    batch: str | None = None
    assignees: Sequence[str] | None = None
    """Waits that one of these assignees, or any user, may answer."""
    since: int | None = None
    """Opened at this time or later."""
    before: int | None = None
    """Opened at this time or earlier."""
    in_turn: bool = False
    """Those that are due first come first. Pending waits only."""


class ExecutionRecordPage(NamedTuple):
    """One page of a list of executions, newest first."""

    items: list[ExecutionRecord]
    next: str | None
    """Pass it as `after` to get the next page. None: this was the last page."""


class StoredWaitPage(NamedTuple):
    """One page of a list of waits, oldest first. Closed ones only: newest first."""

    items: list[ListedWait]
    next: str | None
    """Pass it as `after` to get the next page. None: this was the last page."""


class Artifact(NamedTuple):
    """A content-addressed file kept next to the journal."""

    name: str
    size: int
    sha256: str


class Pruned(NamedTuple):
    """The result of `prune`."""

    executions: int
    artifacts: int
    bytes: int
    """Bytes of the artifacts."""
    budgets: int = 0
    """Past periods of budgets that executions share."""
