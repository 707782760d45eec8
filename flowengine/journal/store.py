"""The interface of stores, with one port for each guarantee."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, Protocol, TypeVar

from flowengine.journal.reading import HistoryPort
from flowengine.journal.records import (
    ENDED,
    Artifact,
    Beginning,
    Claimed,
    Deployed,
    Due,
    ExecutionFilter,
    ExecutionRecord,
    ExecutionRecordPage,
    FlowGrant,
    InboxMessage,
    ListedWait,
    OfFlows,
    Outgoing,
    Owner,
    Pruned,
    Scheduled,
    SendResult,
    SignalStart,
    StoredWaitPage,
    UsedBudget,
    Vote,
    WaitFilter,
)
from flowengine.journal.writing import JournalPort

# Content-addressed files.


class ArtifactPort(Protocol):
    """Keeps files for executions."""

    def put_artifact(self, execution: str, content: bytes | PathLike[str], name: str) -> Artifact:
        """Keep a file for as long as an execution is kept.

        It is on disk when this returns, so events may refer to it from then on.

        Args:
            execution: Full id of the execution that refers to it.
            content: The bytes, or the path of a file to copy.
            name: Its display name. Directories and control characters in it are dropped.

        Returns:
            Its cleaned name, size and digest.

        Raises:
            NotFound: The execution does not exist.
        """

    def hold_artifact(self, content: bytes | PathLike[str], name: str) -> Artifact:
        """Keep a file for a week, or longer if an execution refers to it within that time.

        Args:
            content: As for `put_artifact`.
            name: As for `put_artifact`.

        Returns:
            Its cleaned name, size and digest.
        """

    def open_artifact(self, sha256: str, execution: str | None = None) -> BinaryIO:
        """Open an artifact for reading.

        Args:
            sha256: Its digest.
            execution: Full id of the reading execution, which must refer to it. None: the engine
                itself.

        Raises:
            NotFound: The artifact does not exist, or the execution does not refer to it.
        """

    def fetch_artifact(self, sha256: str, execution: str | None = None) -> Path:
        """Return the path of an artifact on this machine, for programs that need a file.

        A store that keeps its artifacts elsewhere copies it first. The file must not be changed
        there.

        Args:
            sha256: Its digest.
            execution: As for `open_artifact`.

        Raises:
            NotFound: As for `open_artifact`.
        """


# The directory of executions and waits, with their status.
#
# The cost of a page does not depend on the length of its list.

_PAGE = 200
"""Executions to read at once."""
_Item_co = TypeVar("_Item_co", covariant=True)


class DirectoryPort(Protocol):
    """Lists executions and waits, and finds them by their ids."""

    def execution(self, id: str) -> ExecutionRecord:
        """Return an execution's entry in lists, by its full id.

        Raises:
            NotFound: The execution does not exist.
        """

    def holder(self, execution: str, now: int) -> Owner | None:
        """Return the living owner that holds an execution, or None.

        Args:
            execution: Full id.
            now: As for `acquire`.

        Raises:
            NotFound: The execution does not exist.
        """

    def deaths(self, execution: str, now: int) -> int:
        """Return how many holders of an execution have died in a row, without releasing it.

        The count begins again when a holder releases it, and with `JournalPort.calm`.

        Args:
            execution: Full id.
            now: As for `acquire`.

        Raises:
            NotFound: The execution does not exist.
        """

    def due(self, at: int, now: int, execution: str | None = None) -> list[Due]:
        """Return the executions that can continue and that no living owner holds, oldest first.

        The cost depends on their number, not on the number of executions.

        Args:
            at: Timers that are due at this time or earlier count.
            now: As for `acquire`.
            execution: Only this one, by its full id.
        """

    def next_due(self, after: int) -> int | None:
        """Return when the earliest timer or schedule after a time is due, or None."""

    def counts(self, flows: Sequence[str] | None = None) -> dict[str, int]:
        """Return how many executions have each status of `OPEN` and `ENDED`.

        The cost does not depend on the number of executions.

        Args:
            flows: Only those of these flows. None: all.
        """

    def executions(
        self, filter: ExecutionFilter = ..., after: str | None = None, limit: int = 50
    ) -> ExecutionRecordPage:
        """Return a page of executions, newest first, without `outputs` and `error` (None).

        Raises:
            StoreError: It is searched for text, and SQLite was built without FTS5.
        """

    def wait(self, id: str) -> ListedWait:
        """Return one wait with its votes, by its full id.

        Raises:
            NotFound: The wait does not exist.
        """

    def waits(
        self, filter: WaitFilter = ..., after: str | None = None, limit: int = 50
    ) -> StoredWaitPage:
        """Return a page of waits without votes and results, oldest first.

        With the state `closed`, the newest come first.
        """

    def find_execution(self, beginning: str, flows: OfFlows | None = None) -> str:
        """Return the id of the only execution whose id has this prefix.

        Args:
            beginning: The prefix.
            flows: Whether executions of a flow count. Default: all do.

        Raises:
            NotFound: No id has this prefix.
            UsageError: Several ids have this prefix.
        """

    def find_wait(self, beginning: str, flows: OfFlows | None = None) -> str:
        """Return the id of the only wait, open or closed, whose id has this prefix.

        Args:
            beginning: The prefix.
            flows: Whether waits of a flow count. Default: all do.

        Raises:
            NotFound: No id has this prefix.
            UsageError: Several ids have this prefix.
        """

    def short_execution(self, id: str) -> str:
        """Return the shortest unique prefix of an execution's id, or all of one made of words."""

    def short_wait(self, id: str) -> str:
        """Return the shortest unique prefix (4 digits or more) of a wait's id."""

    def prune(
        self, before: int, statuses: Sequence[str] = ENDED, ids: Sequence[str] = ()
    ) -> Pruned:
        """Remove executions that have ended, with all data that only they refer to.

        Budgets that executions share are removed if their period has ended and nothing claims them.

        Args:
            before: Executions and periods that ended at this time or earlier.
            statuses: Only executions with one of these statuses.
            ids: Also these executions, if they have ended.

        Returns:
            How much was removed.

        Raises:
            UsageError: A status is that of an open execution.
        """


def every_execution(directory: DirectoryPort, wanted: ExecutionFilter) -> Iterator[ExecutionRecord]:
    """Yield all executions that a filter matches, newest first, page by page."""
    return every_item(lambda after: directory.executions(wanted, after, _PAGE))


class ListPage(Protocol[_Item_co]):
    """One page of any list."""

    @property
    def items(self) -> Sequence[_Item_co]:
        """The entries of the page."""

    @property
    def next(self) -> str | None:
        """The `after` of the next page. None: this is the last page."""


def every_item(read: Callable[[str | None], ListPage[_Item_co]]) -> Iterator[_Item_co]:
    """Yield all entries of a list, page by page.

    Args:
        read: Returns the page after another one, given its `next`. None: the first page.
    """
    after = None
    while True:
        page = read(after)
        yield from page.items
        after = page.next
        if after is None:
            return


# Compiled flows, the compilation results of files, deployed flows and what starts them.


class FlowPort(Protocol):
    """Keeps compiled flows by their hash."""

    def put_flow(self, hash: str, compiled: bytes) -> None:
        """Keep a compiled flow under its hash (`form_hash`), in place of the one kept there.

        The same hash is the same flow, so this changes nothing unless the kept one is damaged.
        """

    def get_flow(self, hash: str) -> bytes:
        """Return a compiled flow.

        Raises:
            NotFound: No flow has this hash.
        """

    def remember_source(
        self, key: str, hash: str, sources: Sequence[tuple[str, str]], extra: bytes = b""
    ) -> None:
        """Remember the result of compiling a file, so that it need not be compiled again.

        Args:
            key: Identifies the file and everything else that the result depends on.
            hash: Hash of a compiled flow, or the kind of the result.
            sources: (path, digest) of each file that was read.
            extra: Further data to return, such as warnings.
        """

    def find_source(self, key: str) -> tuple[str, list[tuple[str, str]], bytes] | None:
        """Return (hash, sources, extra) as remembered, or None."""

    def deploy(
        self,
        deployed: Deployed,
        signals: Sequence[str] = (),
        schedules: Sequence[tuple[str, int, int | None]] = (),
    ) -> None:
        """Record a deployed version of a flow, which becomes the current one.

        Args:
            deployed: The version. It replaces an earlier one with the same flow and version. Its
                compiled flow is kept from then on. If its time is not later than those of the
                flow's other versions, a later one is recorded.
            signals: Signals that start executions of the flow, instead of earlier ones.
            schedules: `Scheduled.schedule`, `time` and `due` of each schedule, instead of earlier
                ones. A schedule that was recorded before keeps its times.
        """

    def undeploy(self, flow: str, version: str | None = None) -> None:
        """Remove a deployed version of a flow that is not the current one, or the whole flow.

        Args:
            flow: Its id.
            version: The version. None: all versions, and the signals and schedules.
        """

    def deployed(self, flow: str | None = None) -> list[Deployed]:
        """Return deployed versions, ordered by flow, the current version of each first.

        Args:
            flow: Only those of this flow.
        """

    def starts(self, signal: str) -> list[SignalStart]:
        """Return the flows that messages of a signal start, ordered by the flow's id."""

    def schedules(self, until: int | None = None) -> list[Scheduled]:
        """Return the schedules of deployed flows, ordered by flow.

        Args:
            until: Only those that are due at this time or earlier, earliest first.
        """

    def move_schedule(self, scheduled: Scheduled, time: int, due: int | None) -> bool:
        """Set the times of a schedule, unless it has changed or was removed since.

        Args:
            scheduled: The schedule as read.
            time: Its next time.
            due: When to start the execution of that time. None: the schedule is paused.

        Returns:
            Whether it was changed here. Of several callers with the same record, one changes it.
        """


# Input to executions from outside: their start, messages, and decisions on their waits.


class InboxPort(Protocol):
    """Accepts input to executions, regardless of the process that drives them."""

    def begin(self, beginning: Beginning, files: Sequence[tuple[bytes, str]] = ()) -> None:
        """Create an execution with its first event in the inbox, unless its id exists.

        If this process dies, the execution exists with all of this, or it does not exist and has
        claimed no lock.

        Args:
            beginning: The execution, without a lease holder.
            files: Files that it keeps from the start: bytes and the name of each.

        Raises:
            Conflict: It cannot start, as for `commit`.
        """

    def send(self, execution: str, event: bytes, at: int, message_id: str) -> SendResult:
        """Put a message into the inbox of an open execution.

        Args:
            execution: Full id.
            event: The packed event to journal.
            at: When it was sent.
            message_id: Makes it idempotent: a second message with the same id to this execution is
                not stored.

        Returns:
            Its number, and whether it was the first with this id.

        Raises:
            NotFound: The execution does not exist.
            Conflict: It has ended. `standing` is its record.
        """

    def inbox(self, execution: str) -> list[InboxMessage]:
        """Return the messages to one execution that no append has taken, oldest first."""

    def arrived(self, after: int) -> list[InboxMessage]:
        """Return all untaken messages with a number above `after`, of all executions."""

    def changes(self) -> int:
        """Return a number that differs from the last one if another process has committed.

        Costs microseconds. Commits of this process can change it. Compare only values
        that were read in the same thread.
        """

    def decide(self, wait: str, vote: Vote) -> tuple[bool, ListedWait]:
        """Record an answer if none conflicts with it, and notify the execution, in one transaction.

        The first settling vote wins. A vote settles if it does not approve, or if it completes the
        number of approvals in the record's `need` (default 1). Votes listed in the record as
        `votes` count too. Each user has one vote. An accepted vote is in the inbox of the
        execution. The grant that it comes from is used once, and the grant that it contains is
        kept.

        Args:
            wait: Full id of the wait.
            vote: The answer. Permission and data were checked before.

        Returns:
            Whether the vote was recorded, and the wait after the call, with all votes. A vote is
            not recorded if the wait is closed, if it has one of the same user, or if its grant is
            not usable any more.

        Raises:
            NotFound: The wait does not exist.
        """


# Data that executions share: messages to each other, locks, and grants for whole flows.


class MessagePort(Protocol):
    """Passes messages between executions, and stores their locks and grants."""

    def send_keyed(
        self,
        signal: str,
        key: str,
        event: bytes,
        at: int,
        message_id: str,
        begin: Beginning | None = None,
    ) -> SendResult:
        """Put a signal into the inbox of the oldest open execution that has this key.

        A second message with the same signal, key and id is not stored, regardless of the receiver
        of the first. If two messages would start an execution at the same time, one does, and the
        other goes to that execution.

        Args:
            signal: Name of the signal.
            key: The key, as set by `Append.keys` or an open wait.
            event: The packed event to journal.
            at: When it was sent.
            message_id: Makes it idempotent.
            begin: The execution to create if no open one has the key.

        Returns:
            Its number and execution, and whether it was the first with this id.

        Raises:
            NotFound: No open execution has the key, and none is to be started.
            Conflict: The execution to start is refused, as in `commit`.
        """

    def find_key(self, signal: str, key: str) -> str:
        """Return the id of the execution that `send_keyed` would choose.

        Raises:
            NotFound: No open execution has the key.
        """

    def outbox(self) -> list[Outgoing]:
        """Return the messages of executions that are not settled yet, oldest first."""

    def acknowledge(self, number: int, refused: str | None) -> None:
        """Remove a message from the outbox after its delivery, or mark it as undeliverable.

        Args:
            number: Number of the message.
            refused: Why it is undeliverable. It then stays with its sender.
        """

    def undelivered(self, execution: str) -> list[Outgoing]:
        """Return the undeliverable messages of an execution, oldest first."""

    def claims(self, lock: str) -> list[Claimed]:
        """Return the holders of a lock and the executions waiting for it, in claim order."""

    def budgets(self) -> list[UsedBudget]:
        """Return the budgets that executions share, by name."""

    def grants(self, flow: str | None = None, tool: str | None = None) -> list[FlowGrant]:
        """Return grants, oldest first, including those that are no longer usable.

        Args:
            flow: Only for executions of this flow.
            tool: Only for calls of this tool.
        """

    def revoke(self, grant: str, by: str) -> FlowGrant:
        """Revoke a grant. Once this returns, no vote can use it.

        Args:
            grant: Its full id.
            by: The user who revokes it.

        Returns:
            The grant afterwards.

        Raises:
            NotFound: The grant does not exist.
            Conflict: It was revoked before. `standing` is the grant.
        """


# The interface of stores, with one port for each guarantee.
#
# | port | guarantee |
# |---|---|
# | `FlowPort` | compiled flows |
# | `DirectoryPort` | the existing executions and waits, with their status |
# | `InboxPort` | input from outside: starts, messages, decisions |
# | `MessagePort` | messages between executions, their locks and grants |
# | `ArtifactPort` | content-addressed files |
# | `HistoryPort` | read access to journals |
# | `JournalPort` | write access to journals: under a lease, and only for drivers |
#
# A store keeps, for each execution, an append-only list of events (the journal, which is
# authoritative), at most one snapshot (to speed up loading) with the lists that it leaves out, and
# an index of the data shown in lists: status, waits, keys. It does not depend on the kernel or on
# flows: events, snapshots, outputs and compiled flows are bytes to it.
#
# Rules for every implementation, which `tests.testing.store_conformance` checks:
#
# - `commit` is the only way to write a journal. It writes the appends of many executions in one
#   transaction. When it returns, all of them are as durable as `durability` declares.
# - An execution has one writer: the holder of its lease. Each grant of a lease has a higher
#   *epoch*. An append with another epoch than the current one is refused with `LeaseLost`, while
#   the other appends are written.
# - A call that raises `StoreError` has changed nothing.
# - Any process may `send` a message to an execution or `decide` a wait. The holder of the lease
#   finds it in the inbox and journals it. Both are on disk before they return.
#
# Times are int milliseconds since 1970-01-01T00:00Z, given by the caller. Times of leases are read
# from any clock that all processes of the store share (see `flowengine.journal.lease_holders`). A
# store object may be used from several threads.

Durability = Literal["power", "process", "none"]
"""The failure that a finished commit survives: a power cut, a killed process, or none."""


class Store(FlowPort, DirectoryPort, HistoryPort, InboxPort, MessagePort, ArtifactPort, Protocol):
    """The methods of a store for all code except drivers of executions.

    All methods are synchronous and raise `StoreError` if the store fails.
    """

    @property
    def durability(self) -> Durability:
        """The failure that a finished commit survives, as read back from the store."""

    @property
    def location(self) -> str:
        """Its location, for messages and for `show`."""

    @property
    def folder(self) -> str | None:
        """Its directory on this machine, to which what processes write beside it belongs."""

    def close(self) -> None:
        """Close it. Committed data remains, and leases are not released."""


class JournalStore(Store, JournalPort, Protocol):
    """A store whose journals are written by the processes that share it: a directory, or memory."""


# Moving executions from one store to another, with all that is known of them.
#
# While an execution is copied, its old store keeps driving it, and its new store holds it back. It
# changes hands when the old store gives it up, which it refuses if anything happened since the
# copy. So at any moment at most one of the two stores drives it, whichever process dies.


class MovedWorkspace(NamedTuple):
    """The files of an environment that its execution has used, in an archive."""

    scope: str
    owner_id: str
    spec: str
    """Id of the environment's spec."""
    generation: int
    was_open: bool
    size: int
    """Bytes of the archive."""
    digest: str
    """SHA-256 of the archive."""


class ExecutionCopy(NamedTuple):
    """An execution as plain data."""

    data: Mapping[str, Any]
    """As returned by `MemoryStore.copy`, with all events, and `claims`: its claims on shared locks,
    as lists. Those of locks that it holds must not be made to wait."""
    flows: Mapping[str, bytes]
    """Hash → the compiled flows that it runs or has run."""
    files: Sequence[str]
    """Digests of the files that it refers to."""
    mark: Sequence[int]
    """Changes whenever anything happens to the execution, or others wait for its locks."""
    workspaces: Sequence[MovedWorkspace] = ()
    """Files of its environments, from `WorkspacesPort.pack`."""
    source: str = ""
    """Location of the store from which it is moved."""


class MovingPort(Protocol):
    """A store that executions can be moved from and to."""

    def copy_execution(self, id: str) -> ExecutionCopy:
        """Return an open execution that waits.

        Args:
            id: Full id.

        Raises:
            NotFound: It does not exist.
            Conflict: It has ended, or is running.
            UsageError: It cannot be moved.
        """

    def hold_copy(self, copy: ExecutionCopy) -> None:
        """Store a copy that is not driven yet, in place of an earlier one that is not driven.

        It has the shared locks of the execution from now on.

        Raises:
            Conflict: The store has an execution with this id that is driven, or a lock is not free.
            UsageError: The store does not support something that the execution needs.
        """

    def give_up(self, id: str, mark: Sequence[int]) -> bool:
        """Remove an execution that is as it was when it was copied, and return whether it was.

        Args:
            id: Full id.
            mark: `ExecutionCopy.mark`.
        """

    def drive_copy(self, id: str) -> bool:
        """Let a held copy be driven.

        Args:
            id: Full id.

        Returns:
            Whether there was one.
        """

    def held_copies(self, source: str) -> list[str]:
        """Return the ids of held copies, whose moves may have been interrupted.

        Args:
            source: Location of the store from which they are moved.
        """

    def drop_copy(self, id: str) -> None:
        """Remove a held copy, if there is one.

        Args:
            id: Full id of an execution that its old store will not give up, because it has ended.
        """


class WorkspacesPort(Protocol):
    """The files of environments of the executions in a store."""

    def pack(self, id: str, mark: Sequence[int]) -> Sequence[MovedWorkspace] | None:
        """Keep archives of the files of an execution's environments.

        Args:
            id: Full id of an execution that waits.
            mark: `ExecutionCopy.mark`.

        Returns:
            Which there are. None: something has happened since the mark.

        Raises:
            Conflict: An environment is still open.
            UsageError: They cannot be moved.
            StoreError: They cannot be read.
        """

    def fetch(self, workspace: MovedWorkspace) -> Path:
        """Return the path of an archive on this machine.

        Raises:
            StoreError: It is missing or damaged.
        """

    def put(
        self,
        id: str,
        workspaces: Sequence[MovedWorkspace],
        fetch: Callable[[MovedWorkspace], Path],
    ) -> None:
        """Keep files for a held copy, in place of earlier ones.

        Args:
            id: Full id.
            workspaces: They.
            fetch: Returns the path of an archive.

        Raises:
            StoreError: They are damaged, or cannot be written.
        """

    def remove(self, id: str) -> None:
        """Remove the files of an execution that is no longer in the store.

        If a process dies before, they are removed with those of other dead processes.
        """

    def close(self) -> None:
        """Remove temporary files."""
