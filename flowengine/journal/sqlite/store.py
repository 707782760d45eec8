"""The store in one SQLite file, with artifacts in a directory next to it."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

from flowengine.errors import Conflict, NotFound, StoreError
from flowengine.journal.artifacts import ArtifactFolder, not_referred
from flowengine.journal.encoding import checksum, deflated, pack, packed_again, unpack
from flowengine.journal.lease_holders import IsDead, is_dead
from flowengine.journal.records import (
    ENDED,
    EVENTS_ALONE,
    OPEN,
    Append,
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
    JournalEntry,
    ListedWait,
    Loaded,
    Numbered,
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
from flowengine.journal.refusals import ended, no_execution, no_wait
from flowengine.journal.shapes import DAMAGE_HINT, Sound
from flowengine.journal.short_ids import (
    EXECUTION,
    SHORT_EXECUTION,
    SHORT_WAIT,
    WAIT,
    shortest,
    the_one_of,
)
from flowengine.journal.sqlite import claims, moving, pages, pruning, queries, schema, search
from flowengine.journal.sqlite.appends import create_waiting, find_number, write
from flowengine.journal.sqlite.claims import end_claims_of_ended, list_budgets
from flowengine.journal.sqlite.database import ERRORS, StoreDatabase
from flowengine.journal.sqlite.rows import (
    JournalTexts,
    event_id,
    event_row,
    read_events,
    read_execution,
    read_holder,
    read_lists,
    read_wait,
)
from flowengine.journal.step_table import StepTable, write_steps
from flowengine.journal.store import Durability, ExecutionCopy

_MOST_WITH_PREFIX = 10_000
"""Ids with a prefix that are looked at if not all flows count."""
NO_EXECUTION_FILTER = ExecutionFilter()
NO_WAIT_FILTER = WaitFilter()


class SqliteStore:
    """The store in one SQLite file. See `flowengine.journal.store` for the methods.

    Args:
        path: The file. It and its directory are created if missing. Artifacts are in `artifacts`
            next to it.
        durability: The failure that a finished commit survives.
        patience: Seconds to wait for another writing process before giving up.
        is_dead: Returns whether a lease holder is certainly dead.

    Raises:
        StoreError: It cannot be opened: no permission, damaged, of a later version, …
    """

    def __init__(
        self,
        path: str | PathLike[str],
        durability: Durability = "power",
        *,
        patience: float = 10.0,
        is_dead: IsDead = is_dead,
    ) -> None:
        self._database = StoreDatabase(os.fspath(path), durability, patience)
        self._is_dead = is_dead
        self._numbers: dict[str, int] = {}
        """Numbers of executions whose lease was acquired or created here. The epoch verifies
        them."""

    @property
    def durability(self) -> Durability:
        return self._database.durability()

    @property
    def location(self) -> str:
        return self._database.path

    @property
    def folder(self) -> str:
        return os.path.dirname(os.path.abspath(self.location))

    # -- flows

    def put_flow(self, hash: str, compiled: bytes) -> None:
        with self._database.preparing() as connection:
            connection.execute(queries.PUT_FLOW, (hash, deflated(compiled)))

    def get_flow(self, hash: str) -> bytes:
        with self._database.reading() as connection:
            row = connection.execute(queries.GET_FLOW, (hash,)).fetchone()
        if row is None:
            raise NotFound(f"there is no flow {hash} in {self.location}")
        return packed_again(row[0])

    def remember_source(
        self, key: str, hash: str, sources: Sequence[tuple[str, str]], extra: bytes = b""
    ) -> None:
        files = pack([list(source) for source in sources])
        with self._database.preparing() as connection:
            connection.execute(queries.REMEMBER_SOURCE, (key, hash, files, extra))

    def find_source(self, key: str) -> tuple[str, list[tuple[str, str]], bytes] | None:
        with self._database.reading() as connection:
            row = connection.execute(queries.FIND_SOURCE, (key,)).fetchone()
        if row is None:
            return None
        hash, files, extra = row
        with Sound(f"what flow {hash} was made of"):
            return hash, [(str(path), str(digest)) for path, digest in unpack(files)], extra

    def deploy(
        self,
        deployed: Deployed,
        signals: Sequence[str] = (),
        schedules: Sequence[tuple[str, int, int | None]] = (),
    ) -> None:
        flow, hash = deployed.flow, deployed.hash
        with self._database.writing() as connection:
            connection.execute(queries.DEPLOY, deployed._asdict())
            connection.execute(queries.DROP_STARTS, (flow,))
            rows = [(signal, flow, hash) for signal in dict.fromkeys(signals)]
            connection.executemany(queries.PUT_START, rows)
            kept = json.dumps([schedule for schedule, _, _ in schedules])
            connection.execute(queries.DROP_SCHEDULES, (flow, kept))
            times = [(flow, schedule, hash, *when) for schedule, *when in schedules]
            connection.executemany(queries.PUT_SCHEDULE, times)

    def undeploy(self, flow: str, version: str | None = None) -> None:
        with self._database.writing() as connection:
            connection.execute(queries.UNDEPLOY, {"flow": flow, "version": version})
            if version is None:
                connection.execute(queries.DROP_STARTS, (flow,))
                connection.execute(queries.DROP_SCHEDULES, (flow, "[]"))

    def deployed(self, flow: str | None = None) -> list[Deployed]:
        with self._database.reading() as connection:
            return [Deployed(*row) for row in connection.execute(queries.DEPLOYED, {"flow": flow})]

    def starts(self, signal: str) -> list[SignalStart]:
        with self._database.reading() as connection:
            return [SignalStart(*row) for row in connection.execute(queries.STARTS, (signal,))]

    def schedules(self, until: int | None = None) -> list[Scheduled]:
        every = until is None
        query, values = (queries.ALL_SCHEDULES, ()) if every else (queries.SCHEDULES, (until,))
        with self._database.reading() as connection:
            return [Scheduled(*row) for row in connection.execute(query, values)]

    def move_schedule(self, scheduled: Scheduled, time: int, due: int | None) -> bool:
        before = scheduled.flow, scheduled.schedule, scheduled.time, scheduled.due, scheduled.hash
        with self._database.writing() as connection:
            moved = connection.execute(queries.MOVE_SCHEDULE, (time, due, *before))
            return moved.rowcount == 1

    # -- journals

    def commit(self, appends: Sequence[Append]) -> list[Conflict | None]:
        with self._database.writing() as connection:
            written = [self._write(connection, append) for append in appends]
        for append, (number, refusal) in zip(appends, written, strict=True):
            if append.release:
                self._numbers.pop(append.execution, None)
            elif refusal is None:
                self._numbers[append.execution] = number
        return [refusal for _, refusal in written]

    def _write(self, connection: sqlite3.Connection, append: Append) -> tuple[int, Conflict | None]:
        """Write one of several appends, like `write`, in one statement if possible."""
        number = self._numbers.get(append.execution)
        if number is not None and len(append.events) == 1 and append[5:] == EVENTS_ALONE:
            row = event_row(number, append.seq, append.events[0])
            written = connection.execute(queries.APPEND_FENCED, (*row, number, append.epoch))
            if written.rowcount == 1:
                write_steps(connection, number, append.steps)
                return number, None
            del self._numbers[append.execution]
        return write(connection, append, number)

    def execution(self, id: str) -> ExecutionRecord:
        with self._database.reading() as connection:
            return read_execution(_find_execution(connection, id)[1:])

    def load(self, id: str, until: int | None = None) -> Loaded:
        with self._database.reading() as connection:
            row = _find_execution(connection, id)
            number = row[0]
            snapshot, lists = None, None
            fewer = 2**62 if until is None else until
            kept = connection.execute(queries.SNAPSHOT, (number, fewer)).fetchone()
            # The journal is authoritative: without a sound snapshot all of it is read.
            if kept is not None and checksum(kept[2], kept[0]) == kept[1]:
                lists = read_lists(connection.execute(queries.LISTS, (number,)))
                snapshot = None if lists is None else (kept[0], kept[2])
            first = snapshot[0] if snapshot else 0
            limit = None if until is None else max(until - first, 0)
            tail = _read_journal(connection, number, id, first, limit)
        return Loaded(read_execution(row[1:]), snapshot, tail, lists or [])

    def events(self, id: str, since: int = 0, limit: int | None = None) -> list[JournalEntry]:
        with self._database.reading() as connection:
            number = find_number(connection, id)
            return _read_journal(connection, number, id, max(since, 0), limit)

    def steps(self, id: str) -> StepTable:
        return StepTable(self._database.reading, id)

    def number_events(self) -> int:
        if not self._is_numbered():
            with self._database.writing() as connection:
                for statement in schema.NUMBERING:
                    connection.execute(statement)
        with self._database.reading() as connection:
            last: int
            (last,) = connection.execute(queries.LAST_NUMBER).fetchone()
        return last

    def numbered(self, after: int, limit: int) -> list[Numbered]:
        if not self._is_numbered():
            return []
        with self._database.reading() as connection:
            rows = connection.execute(queries.NUMBERED, (after, limit))
            return [Numbered(*row) for row in rows]

    def _is_numbered(self) -> bool:
        with self._database.reading() as connection:
            return connection.execute(queries.IS_NUMBERED).fetchone() is not None

    # -- leases

    def renew(self, owner: Owner, until: int) -> None:
        with self._database.preparing() as connection:
            connection.execute(queries.RENEW, (*owner, until))

    def holder(self, execution: str, now: int) -> Owner | None:
        with self._database.reading() as connection:
            return self._living_holder(connection, find_number(connection, execution), now)

    def _living_holder(self, connection: sqlite3.Connection, number: int, now: int) -> Owner | None:
        row = connection.execute(queries.HOLDER, (number,)).fetchone()
        if row is None:
            raise StoreError("the lease of an execution is missing", hint=DAMAGE_HINT)
        holder = read_holder(row)
        return holder if holder and row[6] > now and not self._is_dead(holder) else None

    def acquire(self, execution: str, owner: str, now: int) -> int:
        with self._database.preparing() as connection:
            number = find_number(connection, execution)
            holder = self._living_holder(connection, number, now)
            if holder and holder.id != owner:
                raise Conflict(
                    f"execution {execution} is held by process {holder.pid} on {holder.host}",
                    standing=holder,
                    hint="wait for that process to finish with it, or stop it",
                )
            epoch: int
            (epoch,) = connection.execute(
                queries.ACQUIRE, {"owner": owner, "execution": number}
            ).fetchone()
        self._numbers[execution] = number
        return epoch

    def deaths(self, execution: str, now: int) -> int:
        with self._database.reading() as connection:
            number = find_number(connection, execution)
            row = connection.execute(queries.HOLDER, (number,)).fetchone()
            dead = row[1] is not None and self._living_holder(connection, number, now) is None
        deaths: int = row[7]
        return deaths + dead

    def calm(self, execution: str, epoch: int) -> None:
        with self._database.preparing() as connection:
            connection.execute(queries.CALM, (find_number(connection, execution), epoch))

    def due(self, at: int, now: int, execution: str | None = None) -> list[Due]:
        query = queries.DUE if execution is None else queries.IS_DUE
        with self._database.reading() as connection:
            rows = connection.execute(query, {"at": at, "id": execution}).fetchall()
            holders = {row[5] for row in rows if row[5] is not None}
            owners = connection.execute(queries.OWNERS).fetchall() if holders else ()
        living = {
            owner.id
            for *parts, until in owners
            if (owner := Owner(*parts)).id in holders and until > now and not self._is_dead(owner)
        }
        return [Due(*row[:5]) for row in rows if row[5] not in living]

    def next_due(self, after: int) -> int | None:
        with self._database.reading() as connection:
            number: int | None
            (number,) = connection.execute(queries.NEXT_DUE, {"after": after}).fetchone()
        return number

    def counts(self, flows: Sequence[str] | None = None) -> dict[str, int]:
        given = {"flows": None if flows is None else json.dumps([*flows])}
        with self._database.reading() as connection:
            found = dict(connection.execute(queries.COUNTS, given).fetchall())
        return {status: found.get(status, 0) for status in (*OPEN, *ENDED)}

    def release(self, leases: Sequence[tuple[str, int]]) -> None:
        with self._database.preparing() as connection:
            for execution, epoch in leases:
                row = connection.execute(queries.NUMBER, (execution,)).fetchone()
                if row is not None:
                    connection.execute(queries.RELEASE, (row[0], epoch))
                    end_claims_of_ended(connection, row[0])
                self._numbers.pop(execution, None)

    def retire(self, owner: str) -> None:
        with self._database.preparing() as connection:
            ended = connection.execute(queries.ENDED_BY, (owner,)).fetchall()
            connection.execute(queries.RELEASE_ALL, (owner,))
            connection.execute(queries.FORGET_OWNER, (owner,))
            for (number,) in ended:
                end_claims_of_ended(connection, number)
        self._numbers.clear()

    # -- locks shared between executions

    def claims(self, lock: str) -> list[Claimed]:
        with self._database.reading() as connection:
            rows = connection.execute(queries.CLAIMS, (lock,))
            return [Claimed(id, unit, at, bool(held)) for id, unit, at, held in rows]

    def budgets(self) -> list[UsedBudget]:
        with self._database.reading() as connection:
            return list_budgets(connection)

    # -- inbox

    def begin(self, beginning: Beginning, files: Sequence[tuple[bytes, str]] = ()) -> None:
        # Files are kept before the event that refers to them.
        kept = [(self.hold_artifact(content, name).sha256, None) for content, name in files]
        id, at = beginning.id, beginning.new.created_at
        with self._database.writing() as connection:
            if connection.execute(queries.NUMBER, (id,)).fetchone() is None:
                begun = create_waiting(connection, beginning, at, kept)
                _store_message(connection, begun, f"id {id}", "started", at, beginning.event)

    def send(self, execution: str, event: bytes, at: int, message_id: str) -> SendResult:
        address = f"id {execution}"
        with self._database.writing() as connection:
            row = _find_execution(connection, execution)
            before = _sent_before(connection, address, message_id)
            if before is not None:
                return before
            record = read_execution(row[1:])
            if record.status in ENDED:
                raise ended(record)
            number = _store_message(connection, row[0], address, message_id, at, event)
        return SendResult(number, execution, first=True, event=event)

    def send_keyed(
        self,
        signal: str,
        key: str,
        event: bytes,
        at: int,
        message_id: str,
        begin: Beginning | None = None,
    ) -> SendResult:
        address = f"key {signal} {key}"
        with self._database.writing() as connection:
            before = _sent_before(connection, address, message_id)
            if before is not None:
                return before
            row = connection.execute(queries.FIND_KEY, (signal, key)).fetchone()
            if row is None and begin is None:
                raise _nobody_takes(signal, key)
            if row is None and begin is not None:
                started = create_waiting(connection, begin, at)
                number = _store_message(connection, started, address, message_id, at, begin.event)
                return SendResult(number, begin.id, first=True, began=True, event=begin.event)
            number = _store_message(connection, row[0], address, message_id, at, event)
        return SendResult(number, row[1], first=True, event=event)

    def find_key(self, signal: str, key: str) -> str:
        with self._database.reading() as connection:
            row = connection.execute(queries.FIND_KEY, (signal, key)).fetchone()
        if row is None:
            raise _nobody_takes(signal, key)
        execution: str = row[1]
        return execution

    def outbox(self) -> list[Outgoing]:
        with self._database.reading() as connection:
            return [Outgoing(*row) for row in connection.execute(queries.OUTBOX)]

    def acknowledge(self, number: int, refused: str | None) -> None:
        with self._database.writing() as connection:
            if refused is None:
                connection.execute(queries.DELIVERED, (number,))
            else:
                connection.execute(queries.REFUSED, (refused, number))

    def undelivered(self, execution: str) -> list[Outgoing]:
        with self._database.reading() as connection:
            return [Outgoing(*row) for row in connection.execute(queries.UNDELIVERED, (execution,))]

    def inbox(self, execution: str) -> list[InboxMessage]:
        with self._database.reading() as connection:
            number = find_number(connection, execution)
            rows = connection.execute(queries.INBOX, (number,)).fetchall()
        return [InboxMessage(number, execution, at, event) for number, at, event in rows]

    def arrived(self, after: int) -> list[InboxMessage]:
        with self._database.reading() as connection:
            return [InboxMessage(*row) for row in connection.execute(queries.ARRIVED, (after,))]

    def changes(self) -> int:
        connection = self._database.connection()
        try:
            version: int
            with connection.using:
                (version,) = connection.execute(queries.CHANGES).fetchone()
        except ERRORS as error:
            raise self._database.explain(error) from error
        return version

    # -- waits

    def decide(self, wait: str, vote: Vote) -> tuple[bool, ListedWait]:
        with self._database.writing() as connection:
            row = _find_wait(connection, wait)
            number = row[10]
            votes, record = _read_votes(connection, row)
            voters = {*record.journaled, *(by for by, _, _ in votes)}
            if not record.open or vote.by in voters:
                return False, record
            if vote.uses is not None and not claims.use(connection, vote.uses, vote.at):
                return False, record
            event = deflated(vote.event)
            row = (number, vote.by, vote.at, vote.approves, event)
            given = connection.execute(queries.VOTE, row).lastrowid
            approvals = {vote.by, *record.journaled, *(by for by, approves, _ in votes if approves)}
            settled = not vote.approves or len(approvals) >= record.record.get("need", 1)
            if settled:
                connection.execute(queries.SETTLE, (given, number))
                claims.give(connection, wait, record.flow, vote)
                connection.execute(queries.CLOSE_WAIT_FOR, (wait,))
            execution = find_number(connection, record.execution)
            address, message_id = f"wait {wait}", vote.by
            _store_message(connection, execution, address, message_id, vote.at, vote.event)
        decision = vote.event if settled else None
        return True, record._replace(decision=decision, votes=[*record.votes, vote.event])

    def wait(self, id: str) -> ListedWait:
        with self._database.reading() as connection:
            return _read_votes(connection, _find_wait(connection, id))[1]

    # -- grants

    def grants(self, flow: str | None = None, tool: str | None = None) -> list[FlowGrant]:
        with self._database.reading() as connection:
            return claims.list_grants(connection, flow, tool)

    def revoke(self, grant: str, by: str) -> FlowGrant:
        with self._database.writing() as connection:
            return claims.revoke(connection, grant, by)

    # -- lists

    def executions(
        self,
        filter: ExecutionFilter = NO_EXECUTION_FILTER,
        after: str | None = None,
        limit: int = 50,
    ) -> ExecutionRecordPage:
        if filter.search is not None:
            search.index_all(self._database)
        with self._database.reading() as connection:
            return pages.executions(connection, filter, after, limit)

    def waits(
        self, filter: WaitFilter = NO_WAIT_FILTER, after: str | None = None, limit: int = 50
    ) -> StoredWaitPage:
        with self._database.reading() as connection:
            return pages.waits(connection, filter, after, limit)

    def find_execution(self, beginning: str, flows: OfFlows | None = None) -> str:
        return self._find_beginning(EXECUTION, beginning, flows)

    def find_wait(self, beginning: str, flows: OfFlows | None = None) -> str:
        return self._find_beginning(WAIT, beginning, flows)

    def _find_beginning(self, noun: str, beginning: str, flows: OfFlows | None) -> str:
        """Return the only id with this prefix."""
        most = 6 if flows is None else _MOST_WITH_PREFIX

        def ids(noun: str) -> list[str]:
            table = "executions" if noun == EXECUTION else "waits"
            query = queries.BEGINNING_SO.format(table=table)
            with self._database.reading() as connection:
                limits = (beginning, beginning + "\U0010ffff", most)
                rows = connection.execute(query, limits).fetchall()
            return [id for id, flow in rows if flows is None or flows(flow)]

        return the_one_of(noun, beginning, ids, self.folder)

    def short_execution(self, id: str) -> str:
        return self._shorten("executions", id, SHORT_EXECUTION)

    def short_wait(self, id: str) -> str:
        return self._shorten("waits", id, SHORT_WAIT)

    def _shorten(self, table: str, id: str, least: int) -> str:
        with self._database.reading() as connection:
            rows = connection.execute(queries.NEXT_TO.format(table=table), (id, id)).fetchall()
        return shortest(id, [other for (other,) in rows if other is not None], least)

    # -- artifacts

    @property
    def _artifacts(self) -> ArtifactFolder:
        folder = os.path.join(self.folder, "artifacts")
        return ArtifactFolder(folder, synced=self.durability == "power")

    def put_artifact(self, execution: str, content: bytes | PathLike[str], name: str) -> Artifact:
        with self._artifacts.incoming(content, name) as (artifact, keep):
            with self._database.preparing() as connection:
                number = find_number(connection, execution)
                connection.execute(queries.REFER, (artifact.sha256, number))
            keep()
        return artifact

    def hold_artifact(self, content: bytes | PathLike[str], name: str) -> Artifact:
        with self._artifacts.incoming(content, name) as (artifact, keep):
            with self._database.preparing() as connection:
                connection.execute(queries.HOLD, (artifact.sha256, int(time.time())))
            keep()
        return artifact

    def open_artifact(self, sha256: str, execution: str | None = None) -> BinaryIO:
        return self.fetch_artifact(sha256, execution).open("rb")

    def fetch_artifact(self, sha256: str, execution: str | None = None) -> Path:
        file = self._artifacts.find(sha256)
        if execution is not None:
            with self._database.reading() as connection:
                refers = connection.execute(queries.REFERS, (sha256, execution)).fetchone()
            if refers is None:
                raise not_referred(sha256, execution)
        return file

    # -- moving

    def copy_execution(self, id: str) -> ExecutionCopy:
        copied = moving.copy(self._database, self.load(id), self.events(id))
        hashes = {copied.data["journal"]["record"][3], *copied.data["journal"]["forms"]}
        return copied._replace(flows={hash: self.get_flow(hash) for hash in hashes})

    def hold_copy(self, copy: ExecutionCopy) -> None:
        for hash, compiled in copy.flows.items():
            self.put_flow(hash, compiled)
        moving.hold(self._database, copy)

    def give_up(self, id: str, mark: Sequence[int]) -> bool:
        self._numbers.pop(id, None)
        return moving.give_up(self._database, id, mark)

    def drive_copy(self, id: str) -> bool:
        return moving.drive(self._database, id)

    def held_copies(self, source: str) -> list[str]:
        return moving.held(self._database, source)

    def drop_copy(self, id: str) -> None:
        moving.drop(self._database, id)

    # -- maintenance

    def prune(
        self, before: int, statuses: Sequence[str] = ENDED, ids: Sequence[str] = ()
    ) -> Pruned:
        pruned = pruning.prune(self._database, self._artifacts, before, statuses, ids)
        self._numbers.clear()  # a new execution may take an id that is free now
        return pruned

    def close(self) -> None:
        self._database.close()


def _find_execution(connection: sqlite3.Connection, id: str) -> tuple[Any, ...]:
    """Return the row of `sql.EXECUTION`."""
    row: tuple[Any, ...] | None = connection.execute(queries.EXECUTION, (id,)).fetchone()
    if row is None:
        raise no_execution(id)
    return row


def _read_votes(
    connection: sqlite3.Connection, row: tuple[Any, ...]
) -> tuple[list[tuple[str, int, bytes]], ListedWait]:
    """Return the answers to a wait, oldest first (user, whether it approves, event), and the wait.

    Args:
        connection: The connection to read from.
        row: Row of `queries.WAIT`.
    """
    whole = JournalTexts(connection, row[9], f"wait {row[0]}").whole
    rows = connection.execute(queries.VOTES, (row[10],))
    votes = [(voter, approves, whole(event)) for voter, approves, event in rows]
    return votes, read_wait(row, [event for _, _, event in votes], whole)


def _find_wait(connection: sqlite3.Connection, id: str) -> tuple[Any, ...]:
    """Return the row of `sql.WAIT`."""
    row: tuple[Any, ...] | None = connection.execute(queries.WAIT, (id,)).fetchone()
    if row is None:
        raise no_wait(id)
    return row


def _read_journal(
    connection: sqlite3.Connection, number: int, id: str, first: int, limit: int | None
) -> list[JournalEntry]:
    """Return events of one journal, checked."""
    ids = event_id(number, first), event_id(number + 1, 0)
    rows = connection.execute(queries.EVENTS, (*ids, -1 if limit is None else limit))
    return read_events(rows, first, f"execution {id}")


def _sent_before(
    connection: sqlite3.Connection, address: str, message_id: str
) -> SendResult | None:
    """Return the message with this id to this address, if any."""
    row = connection.execute(queries.SENT, (address, message_id)).fetchone()
    if row is None:
        return None
    texts = JournalTexts(connection, row[3], f"message {message_id}")
    return SendResult(row[0], row[1], first=False, event=texts.whole(row[2]))


def _store_message(
    connection: sqlite3.Connection,
    execution: int,
    address: str,
    message_id: str,
    at: int,
    event: bytes,
) -> int:
    """Put a message into an inbox and return its number."""
    number = connection.execute(queries.SEND, (execution, address, message_id, at, event)).lastrowid
    assert number is not None
    return number


def _nobody_takes(signal: str, key: str) -> NotFound:
    return NotFound(f"no open execution takes signal {signal!r} with key {key!r}")
