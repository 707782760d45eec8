"""The port of the store: what an engine may ask of the place where executions live.

A store keeps, for each execution, an append-only list of events (the journal, which is the truth),
at most one snapshot (a shortcut for loading), and an index of what lists show: status, waits, keys.
It knows no kernel and no flow: events, snapshots, outputs and compiled flows are bytes to it.

Rules that every implementation keeps, and that `flowengine.testing.store_conformance` checks:

- `commit` is the one way to write a journal. It takes the appends of many executions and makes them
  one transaction; when it returns, all of them are as durable as `durability` promises.
- An execution has one writer: the holder of its lease. Each grant of a lease has a higher *epoch*,
  and an append with another epoch than the one in force is refused with `LeaseLost`, alone - the
  appends beside it are kept.
- A call that raises `StoreError` has changed nothing.
- Anybody may `send` a message to an execution or `decide` a wait; the holder of the lease finds it
  in the inbox and journals it. Both are on disk before they return.

Times are int milliseconds since 1970-01-01T00:00Z, given by the caller; those of leases are read
from any clock that all processes of the store share (see `flowengine.journal.leases`).
A store object may be used from several threads.
"""

# Annotations are not postponed here: NamedTuple would compile each from its text, which makes
# importing this module, a part of every start, half as slow again.
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from flowengine.errors import Conflict

if TYPE_CHECKING:
    from os import PathLike
    from pathlib import Path

Plain = Any
"""JSON-like data plus bytes, as in `flowengine.kernel.graph`."""

Durability = Literal["power", "process", "none"]
"""What a finished commit survives: a power cut, a killed process, nothing."""

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
    """Who holds leases: one engine object in one process."""

    id: str
    """Made anew for each engine object."""
    pid: int
    started: int
    """When the process started, in the kernel's ticks, so that a reused pid is not taken for it."""
    host: str
    """Name of the machine, for people."""
    boot: str
    """Which boot and process namespace `pid` and `started` belong to."""


class NewExecution(NamedTuple):
    """An execution that begins with an append."""

    flow: str
    version: str | None
    """The flow's own `version`, for people."""
    hash: str
    """Structural hash of the compiled flow, which `put_flow` has stored."""
    created_at: int
    labels: Mapping[str, str] = {}
    started_by: str = ""
    parent: str | None = None
    """Execution whose step started this one."""
    forked_from: str | None = None
    """Execution and place that this one was forked from, as text for people."""
    owner: str | None = None
    """`Owner.id` that gets the first lease, with epoch 1; None: nobody holds it."""


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
    """`all`: the one that has its key; else the id of an execution."""
    at: int
    event: bytes
    """The packed event for whom it is for."""
    why: str | None = None
    """Why nobody could take it."""


class Claim(NamedTuple):
    """What an execution wants of a lock that executions share.

    Claims of one lock are granted in the order in which they came, to at most `permits` at once;
    who is granted one finds `granted` in the inbox. They are over when they are given back, or when
    the execution has ended - not when its process dies. One that is there already stays as it is.
    """

    lock: str
    unit: int
    """Who in the execution claims it."""
    permits: int = 1
    then: Literal["queue", "reject", "cancel", "give"] = "queue"
    """`queue`: wait for it. `reject`: if it is not free, the append is refused. `cancel`: send
    `cancel` to as many of the oldest that have claimed it as are too many, then wait. `give`: give
    it back."""
    granted: bytes = b""
    cancel: bytes = b""


class Claimed(NamedTuple):
    """A claim as it stands."""

    execution: str
    unit: int
    at: int
    held: bool
    """Whether it is granted."""


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
    """In the order in which they were made and given back."""
    snapshot: tuple[int, bytes] | None = None
    """(number of events it includes, packed state); replaces the one before."""
    release: bool = False
    """Give the lease back in the same transaction."""
    moved: tuple[str, str] | None = None
    """(structural hash, version) of the flow that it runs from now on."""
    forms: Sequence[str] = ()
    """Hashes of flows that its journal needs besides the one that it runs; they are kept with
    it."""

    @property
    def is_one_event(self) -> bool:
        """Whether it is one event and touches nothing that lists show: a step in a chain."""
        return len(self.events) == 1 and not (
            self.new
            or self.head
            or self.opened
            or self.closed
            or self.keys
            or self.taken
            or self.sent
            or self.claims
            or self.snapshot
            or self.release
            or self.moved
            or self.forms
        )


class Execution(NamedTuple):
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

    record: Execution
    snapshot: tuple[int, bytes] | None
    """(number of events it includes, packed state)."""
    tail: list[Entry]
    """The events after the snapshot, or all of them."""


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
    """Whether it began the execution."""


class Beginning(NamedTuple):
    """An execution that a message begins where no open one takes it."""

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
    """A flow whose executions messages of a signal begin."""

    flow: str
    hash: str
    """Structural hash of the compiled flow, which `put_flow` has stored."""


class Vote(NamedTuple):
    """One person's answer to a wait."""

    by: str
    at: int
    approves: bool
    """Whether the choice counts as `approve`; anything else closes the wait at once."""
    event: bytes
    """The packed `decided` event."""


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


class Standing(NamedTuple):
    """What holds after `decide`."""

    accepted: bool
    """Whether this vote was recorded. If not, `event` or the closed `wait` stands against it."""
    settled: bool
    """Whether the wait is settled now, by this vote or before it."""
    event: bytes | None
    """The recorded decision that stands: this one, the one that settled the wait, or an earlier one
    by the same person; None if the wait was closed without a decision."""
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

    items: list[Execution]
    next: str | None
    """Give it as `after` to get the next page; None: this was the last."""


class WaitPage(NamedTuple):
    """One page of a list of waits, oldest first."""

    items: list[Wait]
    next: str | None
    """Give it as `after` to get the next page; None: this was the last."""


class Artifact(NamedTuple):
    """A file that is kept beside the journal, by its content."""

    name: str
    size: int
    sha256: str


class Pruned(NamedTuple):
    """What `prune` removed."""

    executions: int
    artifacts: int
    bytes: int
    """Of the artifacts."""


class Store(Protocol):
    """The port. All methods are synchronous and raise `StoreError` when the store cannot do it."""

    @property
    def durability(self) -> Durability:
        """What a finished commit survives, as read back from the store."""

    @property
    def location(self) -> str:
        """Where it is, for messages and for `show`."""

    # -- flows

    def put_flow(self, hash: str, compiled: bytes) -> None:
        """Keep a compiled flow under its structural hash; nothing happens if it is there."""

    def get_flow(self, hash: str) -> bytes:
        """Return a compiled flow.

        Raises:
            NotFound: No flow has this hash.
        """

    def remember_source(
        self, key: str, hash: str, sources: Sequence[tuple[str, str]], extra: bytes = b""
    ) -> None:
        """Remember what a flow file compiled to, so that it need not be compiled again.

        Args:
            key: Names the file and all else that the result depends on.
            hash: Structural hash of the compiled flow.
            sources: (path, digest) of each file that was read.
            extra: Anything else the caller wants back, such as warnings.
        """

    def find_source(self, key: str) -> tuple[str, list[tuple[str, str]], bytes] | None:
        """Return (hash, sources, extra) as remembered, or None."""

    def put_starts(self, flow: str, hash: str, signals: Sequence[str]) -> None:
        """Let messages of signals begin executions of a flow, in place of what it said before.

        Args:
            flow: Its id.
            hash: Structural hash of the compiled flow, which is kept from then on.
            signals: Names of signals; empty: it begins on none any more.
        """

    def starts(self, signal: str) -> list[Start]:
        """Return the flows that messages of a signal begin, by the flow's id."""

    # -- journals

    def commit(self, appends: Sequence[Append]) -> list[Conflict | None]:
        """Write what some executions did, in one transaction.

        Args:
            appends: At most one for each execution.

        Returns:
            For each append None, or why it alone was left out: `LeaseLost` (its epoch is not the
            one in force), or `Conflict` - a new execution whose id is taken (`standing` is its
            record), a claim to be rejected (`standing` is the record of who holds it), a wait that
            expired though a decision had been recorded (`standing` is that `Wait`; load the
            execution again and take its inbox first).
        """

    def execution(self, id: str) -> Execution:
        """Return what lists show of one execution, by its full id.

        Raises:
            NotFound: There is none.
        """

    def load(self, id: str) -> Loaded:
        """Return the newest snapshot of an execution and the events after it.

        Raises:
            NotFound: There is none.
        """

    def events(self, id: str, since: int = 0, limit: int | None = None) -> list[Entry]:
        """Return a part of a journal.

        Args:
            id: Full id of the execution.
            since: Number of the first event wanted.
            limit: At most so many; None: all.

        Returns:
            The events in order; empty if there are none (yet).

        Raises:
            NotFound: There is no such execution.
        """

    # -- leases

    def renew(self, owner: Owner, until: int) -> None:
        """Say that an owner lives, so that its leases hold until then. Call it before `acquire`.

        One row however many leases it has. An owner whose leases were taken meanwhile is not told
        here but at its next `commit`.
        """

    def acquire(self, execution: str, owner: str, now: int) -> int:
        """Take the lease of an execution that is free, or whose holder is dead or overdue.

        Args:
            execution: Full id.
            owner: `Owner.id` that `renew` has made known.
            now: Time of the clock that `until` was given in.

        Returns:
            The epoch for `Append`. If the same owner held it, its earlier epoch is void.

        Raises:
            Conflict: A living owner holds it; `standing` is that `Owner`.
            NotFound: There is no such execution.
        """

    def holder(self, execution: str, now: int) -> Owner | None:
        """Return the living owner that holds an execution, or None.

        Args:
            execution: Full id.
            now: As for `acquire`.

        Raises:
            NotFound: There is no such execution.
        """

    def release(self, leases: Sequence[tuple[str, int]]) -> None:
        """Give leases back, as (execution, epoch); those that were lost are passed over."""

    def retire(self, owner: str) -> None:
        """Give back all leases of an owner and forget it."""

    # -- locks that executions share

    def claims(self, lock: str) -> list[Claimed]:
        """Return who holds a lock and who waits for it, in the order in which they claimed it."""

    # -- inbox

    def send(self, execution: str, event: bytes, at: int, message_id: str) -> Sent:
        """Put a message into the inbox of an open execution.

        Args:
            execution: Full id.
            event: The packed event to journal.
            at: When.
            message_id: A second message of the same id to this execution is not stored.

        Returns:
            Its number, and whether it was the first with this id.

        Raises:
            NotFound: There is no such execution.
            Conflict: It has ended; `standing` is its record.
        """

    def send_keyed(
        self,
        signal: str,
        key: str,
        event: bytes,
        at: int,
        message_id: str,
        begin: Beginning | None = None,
    ) -> Sent:
        """Put a signal into the inbox of the oldest open execution that has this key.

        A second message with the same signal, key and id is not stored, whoever got the first. Of
        two that would begin an execution at once one does; the other goes to it.

        Args:
            signal: Name of the signal.
            key: The key that `Append.keys` or an open wait gave.
            event: The packed event to journal.
            at: When.
            message_id: Makes it idempotent.
            begin: The execution to create if no open one has the key.

        Returns:
            Its number and execution, and whether it was the first with this id.

        Raises:
            NotFound: No open execution has the key, and none is to be begun.
            Conflict: The one to be begun cannot be, as in `commit`.
        """

    def find_key(self, signal: str, key: str) -> str:
        """Return the id of the execution that `send_keyed` would choose.

        Raises:
            NotFound: No open execution has the key.
        """

    def outbox(self) -> list[Outgoing]:
        """Return what executions have sent that nobody has settled yet, oldest first."""

    def settle(self, number: int, refused: str | None) -> None:
        """Take a message out of the outbox, since it is where it belongs or nobody can take it.

        Args:
            number: Of the message.
            refused: Why nobody could take it; then it stays with its sender.
        """

    def undelivered(self, execution: str) -> list[Outgoing]:
        """Return what an execution has sent that nobody could take, oldest first."""

    def inbox(self, execution: str) -> list[Message]:
        """Return the messages to one execution that no append has taken, oldest first."""

    def arrived(self, after: int) -> list[Message]:
        """Return all untaken messages with a number above `after`, of all executions."""

    def changes(self) -> int:
        """Return a number that differs from the last one if another process has committed.

        Costs microseconds. Own commits may or may not change it. Compare only values that were got
        in the same thread.
        """

    # -- waits

    def decide(self, wait: str, vote: Vote) -> Standing:
        """Record an answer if none stands against it, and tell the execution, in one transaction.

        The first settling vote wins. A vote settles if it does not approve, or if with it the
        record's `need` (default 1) approvals are there. Each person has one vote. An accepted vote
        is in the inbox of the execution.

        Args:
            wait: Full id of the wait.
            vote: The answer; who may give it and whether its data fit was checked before.

        Returns:
            What stands now. Whether a vote that was not accepted says the same as what stands is
            for the caller to judge.

        Raises:
            NotFound: There is no such wait.
        """

    def wait(self, id: str) -> Wait:
        """Return one wait with its votes, by its full id.

        Raises:
            NotFound: There is none.
        """

    # -- lists; a page costs the same however long the list is

    def executions(
        self, filter: ExecutionFilter = ..., after: str | None = None, limit: int = 50
    ) -> ExecutionPage:
        """Return a page of executions, newest first; `outputs` and `error` are left out (None)."""

    def waits(
        self, filter: WaitFilter = ..., after: str | None = None, limit: int = 50
    ) -> WaitPage:
        """Return a page of waits, oldest first, without votes and results."""

    def find_execution(self, beginning: str) -> str:
        """Return the id of the one execution whose id begins so.

        Raises:
            NotFound: None does.
            UsageError: Several do.
        """

    def find_wait(self, beginning: str) -> str:
        """Return the id of the one wait, open or closed, whose id begins so.

        Raises:
            NotFound: None does.
            UsageError: Several do.
        """

    def short_execution(self, id: str) -> str:
        """Return the shortest beginning (8 characters or more) that is only this execution's."""

    def short_wait(self, id: str) -> str:
        """Return the shortest beginning (4 digits or more) that is only this wait's."""

    # -- artifacts

    def put_artifact(self, execution: str, content: "bytes | PathLike[str]", name: str) -> Artifact:
        """Keep a file for as long as an execution is kept.

        It is on disk when this returns, so an event may refer to it from then on.

        Args:
            execution: Full id of the execution that refers to it.
            content: The bytes, or the path of a file to copy.
            name: What people call it; any folders and control characters in it are dropped.

        Returns:
            Its cleaned name, size and digest.

        Raises:
            NotFound: There is no such execution.
        """

    def artifact(self, sha256: str) -> "Path":
        """Return where the bytes of an artifact are. They must not be changed there.

        Raises:
            NotFound: There is no such artifact.
        """

    # -- care

    def prune(self, before: int, statuses: Sequence[str] = ENDED) -> Pruned:
        """Remove executions that have ended, with all that only they refer to.

        Args:
            before: Only those that ended at this time or earlier.
            statuses: Only those with one of these statuses.

        Returns:
            How much was removed.

        Raises:
            UsageError: A status in which an execution is still open.
        """

    def close(self) -> None:
        """Close it. What was committed stays; leases are not given back."""
