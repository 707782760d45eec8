"""The port of the store: what an engine may ask of the place where executions live.

A store keeps, for each execution, an append-only list of events (the journal, which is the truth),
at most one snapshot (a shortcut for loading) with the lists that it leaves out, and an index of
what people see in lists: status, waits, keys.
It knows no kernel and no flow: events, snapshots, outputs and compiled flows are bytes to it.

Rules that every implementation keeps, and that `flowengine.testing.store_conformance` checks:

- `commit` is the one way to write a journal. It takes the appends of many executions and makes them
  one transaction; when it returns, all of them are as durable as `durability` promises.
- An execution has one writer: the holder of its lease. Each grant of a lease has a higher *epoch*,
  and an append with another epoch than the one in force is refused with `LeaseLost`, alone - the
  other appends are kept.
- A call that raises `StoreError` has changed nothing.
- Anybody may `send` a message to an execution or `decide` a wait; the holder of the lease finds it
  in the inbox and journals it. Both are on disk before they return.

Times are int milliseconds since 1970-01-01T00:00Z, given by the caller; those of leases are read
from any clock that all processes of the store share (see `flowengine.journal.lease_holders`).
A store object may be used from several threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from flowengine.journal.records import ENDED

if TYPE_CHECKING:
    from os import PathLike
    from pathlib import Path

    from flowengine.errors import Conflict
    from flowengine.journal.records import (
        Append,
        Artifact,
        Beginning,
        Claimed,
        Entry,
        ExecutionFilter,
        ExecutionPage,
        ExecutionRecord,
        FlowGrant,
        Loaded,
        Message,
        Outgoing,
        Owner,
        Pruned,
        Sent,
        Standing,
        Start,
        Vote,
        Wait,
        WaitFilter,
        WaitPage,
    )

Durability = Literal["power", "process", "none"]
"""What a finished commit survives: a power cut, a killed process, nothing."""


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
        """Keep a compiled flow under its hash (`form_hash`); nothing happens if it is there."""

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
            key: Identifies the file and everything else that the result depends on.
            hash: Hash of the compiled flow.
            sources: (path, digest) of each file that was read.
            extra: Anything else that the caller wants returned, such as warnings.
        """

    def find_source(self, key: str) -> tuple[str, list[tuple[str, str]], bytes] | None:
        """Return (hash, sources, extra) as remembered, or None."""

    def put_starts(self, flow: str, hash: str, signals: Sequence[str]) -> None:
        """Register the signals that start executions of a flow, replacing those registered before.

        Args:
            flow: Its id.
            hash: Hash of the compiled flow, which is kept from then on.
            signals: Names of signals; empty: it no longer starts on any.
        """

    def starts(self, signal: str) -> list[Start]:
        """Return the flows that messages of a signal start, by the flow's id."""

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

    def execution(self, id: str) -> ExecutionRecord:
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

        One row, however many leases it has. An owner whose leases were taken meanwhile learns that
        at its next `commit`, not here.
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

        A second message with the same signal, key and id is not stored, whoever got the first. If
        two would start an execution at the same time, one does, and the other goes to it.

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
            NotFound: No open execution has the key, and none is to be started.
            Conflict: The one to be started cannot be, as in `commit`.
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
        """Record an answer if none conflicts with it, and notify the execution, in one transaction.

        The first settling vote wins. A vote settles if it does not approve, or if with it the
        record's `need` (default 1) approvals are there, those that the record lists as `votes`
        included. Each person has one vote. An accepted vote is in the inbox of the execution. With
        it the grant that it comes from is used once, and the one that it gives is kept.

        Args:
            wait: Full id of the wait.
            vote: The answer; permission and data have been checked before.

        Returns:
            The result. The caller compares a vote that was not accepted with the decision that
            counts.

        Raises:
            NotFound: There is no such wait.
        """

    def wait(self, id: str) -> Wait:
        """Return one wait with its votes, by its full id.

        Raises:
            NotFound: There is none.
        """

    # -- grants for all executions of a flow: given and used by votes

    def grants(self, flow: str | None = None, tool: str | None = None) -> list[FlowGrant]:
        """Return grants, oldest first; those that cannot be used any more, too.

        Args:
            flow: Only for executions of this flow.
            tool: Only for calls of this tool.
        """

    def revoke(self, grant: str, by: str) -> FlowGrant:
        """End a grant: from when this returns no vote can use it.

        Args:
            grant: Its full id.
            by: Who ends it.

        Returns:
            The grant afterwards.

        Raises:
            NotFound: There is no such grant.
            Conflict: It was revoked before; `standing` is the grant.
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
        """Return the id of the only execution whose id has this prefix.

        Raises:
            NotFound: None does.
            UsageError: Several do.
        """

    def find_wait(self, beginning: str) -> str:
        """Return the id of the only wait, open or closed, whose id has this prefix.

        Raises:
            NotFound: None does.
            UsageError: Several do.
        """

    def short_execution(self, id: str) -> str:
        """Return the shortest beginning (8 characters or more) that is only this execution's."""

    def short_wait(self, id: str) -> str:
        """Return the shortest beginning (4 digits or more) that is only this wait's."""

    # -- artifacts

    def put_artifact(self, execution: str, content: bytes | PathLike[str], name: str) -> Artifact:
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

    def artifact(self, sha256: str, execution: str | None = None) -> Path:
        """Return where the bytes of an artifact are. They must not be changed there.

        Args:
            sha256: Its digest.
            execution: Full id of the one that wants to read it, and has to refer to it; None: the
                engine itself does.

        Raises:
            NotFound: There is no such artifact, or the execution does not refer to it.
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
        """Close it. What was committed stays; leases are not released."""
