"""What goes into a store, and what comes out of it."""

# Annotations are not postponed here: NamedTuple would compile each from its text, which makes
# importing this module, a part of every start, half as slow again.
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

Plain = Any
"""JSON-like data plus bytes, as in `flowengine.kernel.graph.compiled`."""

Status = Literal["running", "waiting", "stalled", "succeeded", "failed", "cancelled"]

ENDED = ("succeeded", "failed", "cancelled")
"""Statuses of executions that are over; only these can be pruned, and they take no messages."""


class Entry(NamedTuple):
    """One event of a journal."""

    seq: int
    """Place in the journal: 0, 1, 2, … without gaps."""
    at: int
    payload: bytes
    """The packed event."""


class Owner(NamedTuple):
    """A holder of leases: one engine object in one process."""

    id: str
    """New for each engine object."""
    pid: int
    started: int
    """When the process started, in the kernel's ticks, so that a reused pid is not taken for it."""
    host: str
    """Name of the machine, for people."""
    boot: str
    """Which boot and process namespace `pid` and `started` belong to."""


class NewExecution(NamedTuple):
    """An execution that starts with an append."""

    flow: str
    version: str | None
    """The flow's own `version`, for people."""
    hash: str
    """Hash of the compiled flow, which `put_flow` has stored."""
    created_at: int
    labels: Mapping[str, str] = {}
    started_by: str = ""
    parent: str | None = None
    """Execution whose step started this one."""
    forked_from: str | None = None
    """Execution and place that this one was forked from, as text for people."""
    owner: str | None = None
    """`Owner.id` that gets the first lease, with epoch 1; None: nobody holds it."""
    files_of: str | None = None
    """Execution whose artifacts this one refers to, too."""


class Head(NamedTuple):
    """What lists show of an execution. Given with an append only when it changes."""

    status: str
    at: int
    """When it became so."""
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
    """Place in the order in which the store got them; 0 before it has."""
    sender: str
    """Full id of the execution that sends it."""
    to: str
    """`all`: the one that has its key; otherwise the id of an execution."""
    at: int
    event: bytes
    """The packed event for whom it is for."""
    why: str | None = None
    """Why nobody could take it."""


class Claim(NamedTuple):
    """What an execution wants of a lock that executions share.

    Claims of one lock are granted in the order in which they came, to at most `permits` at once;
    who is granted one finds `granted` in the inbox. They end when they are released, or when the
    execution has ended - not when its process dies. An existing claim is unchanged.
    """

    lock: str
    unit: int
    """Who in the execution claims it."""
    permits: int = 1
    then: Literal["queue", "reject", "cancel", "give"] = "queue"
    """`queue`: wait for it. `reject`: if it is not free, the append is refused. `cancel`: send
    `cancel` to as many of the oldest that have claimed it as are too many, then wait; a claim that
    is there already asks nobody to end. `give`: give it back."""
    granted: bytes = b""
    cancel: bytes = b""


class Claimed(NamedTuple):
    """A claim."""

    execution: str
    unit: int
    at: int
    held: bool
    """Whether it is granted."""


class ListPart(NamedTuple):
    """Items of a list that a snapshot leaves out, as it only grows."""

    name: str
    first: int
    """The place of the first item in its list."""
    items: bytes
    """The packed items; empty: the list is no more."""


class Append(NamedTuple):
    """What one execution adds to its journal and index, all or nothing."""

    execution: str
    epoch: int
    """Of the lease. 1 for a new execution that has an owner, 0 for one without."""
    seq: int
    """Number of the first of `events`."""
    events: Sequence[tuple[int, bytes]] = ()
    """(`at`, packed event) of each."""
    new: NewExecution | None = None
    head: Head | None = None
    opened: Sequence[Mapping[str, Plain]] = ()
    """Records of waits that opened or changed, as `OpenWait.record` of the kernel.

    `kind` and `since` of a wait stay as they were first. One that was closed is a new wait under
    the same id, without votes: its execution went back (`retry`).
    """
    closed: Sequence[ClosedWait] = ()
    keys: Sequence[tuple[str, str]] = ()
    """(signal, key) pairs under which this execution can be found from now to its end."""
    taken: Sequence[int] = ()
    """Numbers of inbox messages that `events` hold."""
    sent: Sequence[Outgoing] = ()
    """What the execution sends to others; it is in the outbox from now on."""
    claims: Sequence[Claim] = ()
    """In the order in which they were made and released."""
    snapshot: tuple[int, bytes] | None = None
    """(number of events it includes, packed state); replaces the one before."""
    release: bool = False
    """Give the lease back in the same transaction."""
    moved: tuple[str, str] | None = None
    """(hash, version) of the flow that it runs from now on."""
    forms: Sequence[str] = ()
    """Hashes of flows that its journal needs in addition to the one that it runs; they are kept
    with it."""
    lists: Sequence[ListPart] = ()
    """Parts of the lists that `snapshot` leaves out. `first` is the number of items that are there
    already, or 0: then the part replaces all of them."""
    files: Sequence[tuple[str, str | None]] = ()
    """(digest, execution) of artifacts that it refers to from now on, if that execution does; None:
    if any does."""

    @property
    def at(self) -> int:
        """When it happened (ms): with its last event, or when its head changed."""
        if self.events:
            return self.events[-1][0]
        return 0 if self.head is None else self.head.at

    @property
    def is_one_event(self) -> bool:
        """Whether it is one event and touches nothing that lists show: a step in a chain."""
        return len(self.events) == 1 and not any(self[4:])


class ExecutionRecord(NamedTuple):
    """An execution as lists show it."""

    id: str
    flow: str
    version: str | None
    hash: str
    created_at: int
    labels: dict[str, str]
    started_by: str
    parent: str | None
    forked_from: str | None
    status: str
    changed_at: int
    """When it got its status."""
    due: int | None
    ended_at: int | None
    outputs: bytes | None
    error: bytes | None


class Loaded(NamedTuple):
    """All that is needed to go on with an execution."""

    record: ExecutionRecord
    snapshot: tuple[int, bytes] | None
    """(number of events it includes, packed state)."""
    tail: list[Entry]
    """The events after the snapshot, or all of them."""
    lists: Sequence[ListPart] = ()
    """The lists that belong to the snapshot: all their parts, in order."""


class Message(NamedTuple):
    """Something sent to an execution that its journal does not hold yet."""

    number: int
    """Place in the order in which the store got messages, over all executions."""
    execution: str
    at: int
    event: bytes
    """The packed event to journal: a signal, a decision, a request to cancel."""


class Sent(NamedTuple):
    """What became of `send` and `send_keyed`."""

    number: int
    execution: str
    first: bool
    """False if a message of this id was there before; then nothing was stored."""
    began: bool = False
    """Whether it started the execution."""
    event: bytes = b""
    """What is stored: the packed event of the message that was first."""


class Beginning(NamedTuple):
    """An execution that a message starts if no open one takes it."""

    id: str
    new: NewExecution
    """Nobody holds it: `owner` is None."""
    keys: Sequence[tuple[str, str]]
    """As `Append.keys`; that of the message is among them."""
    event: bytes
    """Its first event, packed: it is in the inbox in the place of the message."""
    claims: Sequence[Claim] = ()
    """As `Append.claims`."""


class Start(NamedTuple):
    """A flow whose executions are started by messages of a signal."""

    flow: str
    hash: str
    """Hash of the compiled flow, which `put_flow` has stored."""


class NewGrant(NamedTuple):
    """A grant that comes with a vote: a yes to calls of later executions of the flow, too."""

    tool: str
    version: str
    """Of what is called; see `kernel.waiting.call_questions`."""
    body: bytes
    """Packed: for which calls it holds."""
    uses: int | None = None
    """How many questions it may answer; None: any number."""
    until: int | None = None
    """It answers none from then on."""


class FlowGrant(NamedTuple):
    """A grant for all executions of a flow."""

    id: str
    """That of the wait with whose decision it was given."""
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
    """One person's answer to a wait."""

    by: str
    at: int
    approves: bool
    """Whether the choice counts as `approve`; anything else closes the wait at once."""
    event: bytes
    """The packed `decided` event."""
    gives: NewGrant | None = None
    """The grant that is kept if the vote settles the wait with a yes."""
    uses: str | None = None
    """Id of the grant that the vote comes from: it is accepted only if that can be used, once."""


class Wait(NamedTuple):
    """A wait as lists show it."""

    id: str
    execution: str
    flow: str
    number: int
    record: dict[str, Plain]
    """As the kernel gave it last."""
    decision: bytes | None
    """The `decided` event that settled it, perhaps not yet journaled."""
    votes: list[bytes]
    """All `decided` events recorded for it, oldest first; empty in lists."""
    how: str | None
    """How it was closed, once the journal says so: see `ClosedWait.how`."""
    closed_at: int | None
    result: bytes | None

    @property
    def open(self) -> bool:
        """Whether it can still be answered."""
        return self.how is None and self.decision is None

    @property
    def journaled(self) -> dict[str, Plain]:
        """Who has voted, as in its record → their vote.

        After a fork, or when its execution went back, `votes` holds none of these.
        """
        return {vote["by"]: vote for vote in self.record.get("votes") or ()}


class Standing(NamedTuple):
    """What holds after `decide`."""

    accepted: bool
    """Whether this vote was recorded. If not, `event` or the closed `wait` shows why, or the grant
    that it comes from cannot be used any more."""
    settled: bool
    """Whether the wait is settled now, by this vote or before it."""
    event: bytes | None
    """The recorded decision that counts: this one, the one that settled the wait, or an earlier one
    by the same person; None if the wait was closed without a decision, or if only its record shows
    that earlier one."""
    wait: Wait
    """The wait after the call, with all votes."""


class ExecutionFilter(NamedTuple):
    """Which executions; None means any. All that is given must hold."""

    flow: str | None = None
    status: str | None = None
    labels: Mapping[str, str] = {}
    since: int | None = None
    """Created at this time or later."""
    due: int | None = None
    """With an open timer due at this time or earlier."""
    forked_from: str | None = None
    """Forks of the execution with this full id."""


class WaitFilter(NamedTuple):
    """Which waits; None means any. All that is given must hold."""

    state: Literal["pending", "closed", "all"] = "pending"
    """`pending`: not closed, and no settling decision recorded."""
    kinds: Sequence[str] = ()
    """Kinds of waits, such as `approval` and `question`; empty: all."""
    flow: str | None = None
    execution: str | None = None
    batch: str | None = None
    assignees: Sequence[str] | None = None
    """Waits that one of these may answer, and those that anyone may."""
    since: int | None = None
    """Opened at this time or later."""
    before: int | None = None
    """Opened at this time or earlier."""


class ExecutionPage(NamedTuple):
    """One page of a list of executions, newest first."""

    items: list[ExecutionRecord]
    next: str | None
    """Give it as `after` to get the next page; None: this was the last."""


class WaitPage(NamedTuple):
    """One page of a list of waits, oldest first."""

    items: list[Wait]
    next: str | None
    """Give it as `after` to get the next page; None: this was the last."""


class Artifact(NamedTuple):
    """A file that is kept next to the journal, by its content."""

    name: str
    size: int
    sha256: str


class Pruned(NamedTuple):
    """What `prune` removed."""

    executions: int
    artifacts: int
    bytes: int
    """Of the artifacts."""
