"""Executions that are moved from and to the SQLite store. See `flowengine.journal.store`."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from flowengine.errors import Conflict
from flowengine.journal.encoding import deflated, pack, unpack
from flowengine.journal.records import (
    ENDED,
    Append,
    Claimed,
    ClosedWait,
    ExecutionHead,
    ExecutionRecord,
    ListedWait,
    ListPart,
    Loaded,
    LockOperation,
    Owner,
    new_of,
)
from flowengine.journal.refusals import check_movable, ended
from flowengine.journal.sqlite import queries
from flowengine.journal.sqlite.appends import FIRST_EPOCH, WHOLE_LIFE, find_number, remove, write
from flowengine.journal.sqlite.claims import end_claims
from flowengine.journal.sqlite.database import StoreDatabase
from flowengine.journal.sqlite.rows import JournalTexts, read_wait
from flowengine.journal.store import ExecutionCopy

_HOLDER = Owner("moving", 0, 0, "another store, from which it is moved here", "")
"""The holder of executions that are not driven yet. It never dies. Its id is followed by the
location of the other store."""
_ALWAYS = 2**62


def copy(database: StoreDatabase, loaded: Loaded, events: Sequence[Any]) -> ExecutionCopy:
    """Return an execution.

    Args:
        database: Contains it.
        loaded: What is needed to continue it.
        events: All its events.

    Raises:
        Conflict: It has ended, or is running.
        UsageError: Others wait for its locks, or it waits for a lock that another has.
    """
    record = loaded.record
    if record.status in ENDED:
        raise ended(record)
    with database.reading() as connection:
        number = find_number(connection, record.id)
        mark = _mark(connection, number)
        if mark[0] != len(events) or (events and record.status == "running"):
            raise _is_running(record.id)
        data = {
            "journal": {
                "record": [*record],
                "first": 0,
                "entries": [[*event] for event in events],
                "snapshot": None if loaded.snapshot is None else [*loaded.snapshot],
                "lists": [[*part] for part in loaded.lists],
                "keys": [
                    [signal, key, None if wait == WHOLE_LIFE else wait]
                    for signal, key, wait in connection.execute(queries.KEYS, (number,))
                ],
                "forms": [hash for (hash,) in connection.execute(queries.FORMS, (number,))],
            },
            "waits": _waits(connection, number),
            "opened": mark[2],
            "messages": _messages(connection, number, record.id),
            "claims": _claims(connection, number, record.id),
        }
        files = [digest for (digest,) in connection.execute(queries.FILES, (number,))]
    return ExecutionCopy(data, {}, files, mark)


def _mark(connection: sqlite3.Connection, number: int) -> list[int]:
    """Return the numbers of events, messages and waits. Votes are messages, too."""
    row: Sequence[int] = connection.execute(queries.MARK, {"number": number}).fetchone()
    return [*row]


def _is_running(id: str) -> Conflict:
    return Conflict(f"execution {id} is running", hint="move it when it waits")


def _claims(connection: sqlite3.Connection, number: int, id: str) -> list[list[Any]]:
    """Return its claims on shared locks."""
    messages = []
    for lock, unit, permits, is_held, granted, amounts in connection.execute(
        queries.CLAIMS_OF, (number,)
    ):
        if amounts is not None:
            if not is_held:  # its calls have ended, so it only waits
                claim = LockOperation(lock, unit, granted=granted, amounts=unpack(amounts))
                messages.append([*claim])
            continue
        rows = connection.execute(queries.CLAIMS, (lock,))
        check_movable(id, lock, [Claimed(*row) for row in rows])
        messages.append(
            [*LockOperation(lock, unit, permits, "reject" if is_held else "queue", granted)]
        )
    return messages


def _waits(connection: sqlite3.Connection, number: int) -> list[list[Any]]:
    messages = []
    for place, (id,) in enumerate(connection.execute(queries.WAITS_OF, (number,)).fetchall(), 1):
        row = connection.execute(queries.WAIT, (id,)).fetchone()
        whole = JournalTexts(connection, number, f"wait {id}").whole
        wait = read_wait(row, [], whole)
        votes = [
            [voter, at, bool(approves), whole(event), None, None]
            for voter, at, approves, event in connection.execute(queries.ALL_OF_VOTES, (row[10],))
        ]
        messages.append([place, [*wait._replace(record={})], pack(wait.record), votes])
    return messages


def _messages(connection: sqlite3.Connection, number: int, execution: str) -> list[Any]:
    """Return messages as `MemoryMessages.copy` does."""
    delivered, untaken, last = [], [], 0
    for last, address, id, at, event, taken in connection.execute(queries.MESSAGES_OF, (number,)):
        kind, _, rest = address.partition(" ")
        if kind == "claim":  # the other store has its own
            if taken is None:
                raise _is_running(execution)
            continue
        parts = [kind, *(rest.split(" ", 1) if kind == "key" else [rest])]
        whole = JournalTexts(connection, number, f"message {id}").whole
        delivered.append([parts, id, [last, execution, at, whole(event) if event else b""]])
        if taken is None:
            untaken.append(last)
    sent = [[*row] for row in connection.execute(queries.UNDELIVERED, (execution,))]
    return [delivered, untaken, last, sent, max([item[0] for item in sent], default=0)]


def hold(database: StoreDatabase, copy: ExecutionCopy) -> None:
    """Store a copy that is not driven yet.

    Raises:
        Conflict: There is an execution with this id that is driven, or a lock is not free.
    """
    journal = copy.data["journal"]
    record = ExecutionRecord(*journal["record"])
    drop(database, record.id)
    holder = _holder_for(copy.source)
    with database.writing() as connection:
        connection.execute(queries.RENEW, (*holder, _ALWAYS))
        append = _append(record, copy.data, holder)
        number, refusal = write(connection, append)
        if refusal is not None:
            raise refusal
        for _, wait, _, votes in copy.data["waits"]:
            _put_votes(connection, ListedWait(*wait), votes)
        # Its journal has them. It waits for the answers of budgets.
        connection.execute(queries.NO_GRANTS, {"number": number})
        delivered, untaken, _, sent, _ = copy.data["messages"]
        waiting = {*untaken}
        for address, id, (old, _, at, event) in delivered:
            row = (number, " ".join(address), id, at, event, None if old in waiting else 0)
            connection.execute(queries.PUT_MESSAGE, row)
        for _, *undelivered in sent:
            connection.execute(queries.PUT_UNDELIVERED, undelivered)


def _append(record: ExecutionRecord, data: Mapping[str, Any], holder: Owner) -> Append:
    """Return a copy as a single append of a new execution."""
    waits = [(ListedWait(*wait), unpack(packed)) for _, wait, packed, _ in data["waits"]]
    journal = data["journal"]
    snapshot = journal["snapshot"]
    return Append(
        record.id,
        FIRST_EPOCH,
        0,
        [(at, payload) for _, at, payload in journal["entries"]],
        (),
        new_of(record)._replace(owner=holder.id),
        ExecutionHead(record.status, record.changed_at, record.due),
        [shown for _, shown in waits],
        [
            ClosedWait(wait.number, wait.how, wait.closed_at or 0, wait.result or b"")
            for wait, _ in waits
            if wait.how is not None
        ],
        [(signal, key) for signal, key, wait in journal["keys"] if wait is None],
        claims=[LockOperation(*claim) for claim in data["claims"]],
        snapshot=None if snapshot is None else (snapshot[0], snapshot[1]),
        forms=journal["forms"],
        lists=[ListPart(*part) for part in journal["lists"]],
    )


def _put_votes(connection: sqlite3.Connection, wait: ListedWait, votes: Sequence[Any]) -> None:
    number, _, _ = connection.execute(queries.OPENED_BEFORE, (wait.id,)).fetchone()
    for by, at, approves, event, *_ in votes:
        row = (number, by, at, approves, deflated(event))
        given = connection.execute(queries.VOTE, row).lastrowid
        if event == wait.decision:
            connection.execute(queries.DECIDED_BY, (given, number))
            connection.execute(queries.CLOSE_WAIT_FOR, (wait.id,))


def give_up(database: StoreDatabase, id: str, mark: Sequence[int]) -> bool:
    """Remove an execution that is as it was when it was copied, and return whether it was."""
    with database.writing() as connection:
        number = find_number(connection, id)
        is_same = _mark(connection, number) == [*mark]
        if is_same:
            _remove(connection, number, None)
    return is_same


def drop(database: StoreDatabase, id: str) -> None:
    """Remove a copy that is not driven yet, if there is one."""
    with database.writing() as connection:
        if (number := _held(connection, id)) is not None:
            _remove(connection, number, {})


def drive(database: StoreDatabase, id: str) -> bool:
    """Let a copy be driven, and return whether there is one."""
    with database.writing() as connection:
        number = _held(connection, id)
        if number is not None:
            connection.execute(queries.RELEASE, (number, FIRST_EPOCH))
    return number is not None


def held(database: StoreDatabase, source: str) -> list[str]:
    """Return the ids of copies from a store that are not driven yet."""
    with database.reading() as connection:
        rows = connection.execute(queries.ALL_HELD_BY, (_holder_for(source).id,)).fetchall()
    return [id for (id,) in rows]


def _holder_for(source: str) -> Owner:
    return _HOLDER._replace(id=f"{_HOLDER.id} {source}")


def _held(connection: sqlite3.Connection, id: str) -> int | None:
    """Return the number of a copy that is not driven yet, or None."""
    row = connection.execute(queries.HELD_BY, {"id": id, "owner": _HOLDER.id}).fetchone()
    return None if row is None else int(row[0])


def _remove(connection: sqlite3.Connection, number: int, used: Mapping[str, int] | None) -> None:
    (at,) = connection.execute(queries.CHANGED_AT, (number,)).fetchone()
    end_claims(connection, number, at, used=used)
    remove(connection, number)
