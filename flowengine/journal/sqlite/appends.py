"""Writing appends to the tables, inside the transaction of a commit.

Every written row depends on the fence. The epoch is checked first, under the write lock that the
transaction holds from its start, so that no other process can take the lease in between.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from flowengine.errors import Conflict, Hint, LeaseLost
from flowengine.journal.encoding import (
    SHORTEST,
    TextPosition,
    checksum,
    pack,
    packed_again,
    text_places,
)
from flowengine.journal.filters import failure_of, turn_of
from flowengine.journal.records import (
    ENDED,
    Append,
    Beginning,
    ExecutionHead,
    InboxMessage,
    NewExecution,
    Plain,
)
from flowengine.journal.refusals import no_execution, not_new, unheard
from flowengine.journal.sqlite import queries
from flowengine.journal.sqlite.claims import end_claims_of_ended, rejected, write_claims
from flowengine.journal.sqlite.rows import (
    JournalTexts,
    Places,
    event_row,
    list_sum,
    read_execution,
    read_wait,
    shortened,
)
from flowengine.journal.sqlite.search import keep_up
from flowengine.journal.step_table import write_steps
from flowengine.kernel.notation.addresses import wait_id

ANYONE = ""
"""Assignee of waits that any user may answer."""
FIRST_EPOCH = 1
"""Epoch of the lease of a new execution with a holder. No lease with epoch 0 has a holder."""
WHOLE_LIFE = -1
"""Number of the wait for keys that are valid until an execution ends."""


def write(
    connection: sqlite3.Connection, append: Append, number: int | None = None
) -> tuple[int, Conflict | None]:
    """Write one append, all or nothing.

    Args:
        connection: In a write transaction.
        append: The append.
        number: Number of the execution, if known. The fence verifies it.

    Returns:
        The number of the execution, and why the append was left out, or None.
    """
    occupied = rejected(connection, append) if append.claims else None
    if occupied is not None:
        return 0, occupied
    if append.new is not None:
        number, refusal = _create(connection, append, append.new)
    else:
        if number is None:
            row = connection.execute(queries.NUMBER, (append.execution,)).fetchone()
            if row is None:
                return 0, lease_lost(connection, append.execution, None)
            number = row[0]
        refusal = _fence(connection, number, append)
    if refusal is not None:
        return number, refusal
    connection.executemany(
        queries.APPEND,
        [event_row(number, seq, event) for seq, event in enumerate(append.events, append.seq)],
    )
    if append.steps:
        write_steps(connection, number, append.steps)
    _write_index(connection, number, append)
    if append.release if append.head is None else append.head.status in ENDED:
        end_claims_of_ended(connection, number)
    return number, None


def _fence(connection: sqlite3.Connection, number: int, append: Append) -> Conflict | None:
    """Return why an append is refused, or None.

    If the append releases the lease, this is done here, so that checking and releasing are a single
    statement.
    """
    held = (number, append.epoch)
    late = _expired_too_late(connection, append) if append.closed else None
    ends = append.head is not None and append.head.status == "succeeded"
    if append.release and late is None:
        release = queries.RELEASE_HEARD if ends else queries.RELEASE
        if connection.execute(release, held).rowcount == 1:
            return None
    if ends and late is None:
        rows = connection.execute(queries.INBOX, (number,)).fetchall()
        late = unheard(append, (InboxMessage(row[0], append.execution, *row[1:]) for row in rows))
        if append.release and late is None and connection.execute(queries.RELEASE, held).rowcount:
            return None
    is_held = connection.execute(queries.FENCE, held).fetchone() is not None
    if is_held and (late is not None or not append.release):
        return late
    return lease_lost(connection, append.execution, number)


def create_waiting(
    connection: sqlite3.Connection,
    begin: Beginning,
    at: int,
    files: Sequence[tuple[str, str | None]] = (),
) -> int:
    """Create an execution whose first event the caller puts into its inbox.

    Args:
        connection: In a write transaction, which also stores that event. Otherwise the death of
            this process would leave an execution that has its locks and never starts.
        begin: The execution.
        at: When it is created.
        files: As `Append.files`.

    Returns:
        Its number.

    Raises:
        Conflict: Its id is taken, or its flow is missing.
    """
    number, refusal = write(connection, begin.append(at, files))
    if refusal is not None:
        raise refusal
    return number


def lease_lost(connection: sqlite3.Connection, execution: str, number: int | None) -> LeaseLost:
    """Return the error for a lost lease, with the new holder.

    Args:
        connection: Used to look up the holder of the lease.
        execution: Id, for the message.
        number: Number of the execution, if it still exists.
    """
    row = connection.execute(queries.HOLDER, (number,)).fetchone()
    if row is None:
        who = "it is no longer in the store"
    elif row[1] is None:
        who = "its lease was released"
    else:
        who = f"process {row[2]} on {row[4]} holds it now"
    return LeaseLost(
        f"this process lost execution {execution}: {who}. Its last changes were not saved",
        hint=Hint(
            f"see its current state: flowengine show {execution}",
            http=f"see its current state: GET /v1/executions/{execution}",
        ),
    )


def _create(
    connection: sqlite3.Connection, append: Append, new: NewExecution
) -> tuple[int, Conflict | None]:
    """Insert a new execution with its head, its labels and its first lease.

    Returns:
        Its number, or None and the reason.
    """
    epoch = 0 if new.owner is None else FIRST_EPOCH
    if append.epoch != epoch:
        return 0, lease_lost(connection, append.execution, None)
    head = append.head or ExecutionHead("running", new.created_at)
    kept = _replace(connection, append.execution) if new.files_of == append.execution else ()
    row = (
        append.execution,
        new.flow,
        new.version,
        new.created_at,
        pack(dict(new.labels)),
        new.started_by,
        new.parent,
        new.forked_from,
        new.title,
        pack(dict(new.key_inputs)) if new.key_inputs else None,
        *_head_row(head),
        new.hash,
    )
    cursor = connection.execute(queries.CREATE, row)
    if cursor.rowcount == 0:
        return 0, _not_created(connection, append.execution, new)
    number = cursor.lastrowid
    assert number is not None
    if append.release:  # it starts and ends with one append
        epoch, owner = epoch + 1, None
    else:
        owner = new.owner
    connection.execute(queries.CREATE_LEASE, (number, epoch, owner))
    if new.files_of is not None:
        connection.execute(queries.REFER_TO_ALL, (number, new.files_of))
        connection.executemany(queries.REFER, [(digest, number) for digest in kept])
    for name, value in new.labels.items():
        connection.execute(queries.CREATE_LABEL, (name, value, new.created_at, number))
    keep_up(connection, number)
    return number, None


def _replace(connection: sqlite3.Connection, execution: str) -> list[str]:
    """Remove an execution that has ended, and return the digests of its artifacts."""
    found = connection.execute(queries.PRUNABLE_ONE, (execution,)).fetchone()
    if found is None:
        return []
    kept = [digest for (digest,) in connection.execute(queries.ARTIFACTS_OF, found)]
    remove(connection, *found)
    return kept


def remove(connection: sqlite3.Connection, number: int) -> None:
    """Remove the rows of an execution from the database, by its number."""
    for statement in queries.PRUNE:
        connection.execute(statement, {"number": number})


def _not_created(connection: sqlite3.Connection, execution: str, new: NewExecution) -> Conflict:
    """Return why a new execution was not inserted."""
    if connection.execute(queries.HAS_FLOW, (new.hash,)).fetchone() is None:
        return Conflict(
            f"execution {execution} cannot start: its flow {new.hash} is not in the store",
            hint="store the flow first. If `prune` has just removed it, try again",
        )
    row = connection.execute(queries.EXECUTION, (execution,)).fetchone()
    return not_new(execution, read_execution(row[1:]))


def _expired_too_late(connection: sqlite3.Connection, append: Append) -> Conflict | None:
    """Return a conflict if a wait with a recorded decision expires."""
    for closed in append.closed:
        if closed.how != "expired":
            continue
        wait = wait_id(append.execution, closed.number)
        if connection.execute(queries.EXPIRES_TOO_LATE, (wait,)).fetchone():
            row = connection.execute(queries.WAIT, (wait,)).fetchone()
            whole = JournalTexts(connection, row[9], f"wait {wait}").whole
            return Conflict(
                f"wait {wait} was decided before it expired", standing=read_wait(row, [], whole)
            )
    return None


def _write_index(connection: sqlite3.Connection, number: int, append: Append) -> None:
    """Update the data shown in lists, after the events are written."""
    if append.opened or append.closed or append.taken:
        _write_waits(connection, number, append)
    for signal, key in append.keys:
        connection.execute(queries.ADD_KEY, (signal, key, number, WHOLE_LIFE))
    for sent in append.sent:
        connection.execute(queries.PUT_OUT, (append.execution, sent.to, sent.at, sent.event))
    if append.claims:
        write_claims(connection, number, append)
    if append.head is not None:
        if append.new is None:  # a new execution was inserted with it
            connection.execute(queries.SET_HEAD, (*_head_row(append.head), number))
        if append.head.status in ENDED:
            connection.execute(queries.DROP_KEYS, (number,))
    if append.moved is not None:
        connection.execute(queries.SET_FLOW, (*append.moved, number))
    for digest, of in append.files:
        connection.execute(queries.REFER_TOO, {"number": number, "sha256": digest, "of": of})
    for hash in append.forms:
        connection.execute(queries.KEEP_FORM, (number, hash))
    if append.snapshot is not None:
        _set_snapshot(connection, number, append, append.snapshot)


def _write_waits(connection: sqlite3.Connection, number: int, append: Append) -> None:
    """Update what is waited for, and the messages that have arrived."""
    events = (event for _, event in append.events)
    places = cache(lambda: text_places(enumerate(events, append.seq)))
    for record in append.opened:
        _open_wait(connection, append.execution, number, record, places)
    for closed in append.closed:
        wait = wait_id(append.execution, closed.number)
        row = (closed.how, closed.at, shortened(closed.result, places), wait)
        connection.execute(queries.CLOSE_WAIT, row)
        connection.execute(queries.CLOSE_WAIT_FOR, (wait,))
        connection.execute(queries.DROP_WAIT_KEYS, (number, closed.number))
    for message in append.taken:
        _take(connection, number, append.seq, message, places)


def _take(
    connection: sqlite3.Connection, number: int, seq: int, message: int, places: Places
) -> None:
    """Record that a message is in the journal, which contains its long texts from now on."""
    taken = connection.execute(queries.TAKE, (seq, message, number)).fetchone()
    if taken is None:
        return
    address, message_id, event = taken
    row: Any = (message, event)
    change = queries.SHORTEN_MESSAGE
    kind, _, wait = address.partition(" ")
    if kind == "wait":
        row = connection.execute(queries.VOTE_OF, (wait, message_id)).fetchone()
        change = queries.SHORTEN_VOTE
    if row is not None and len(row[1]) >= SHORTEST:
        connection.execute(change, (shortened(packed_again(row[1]), places), row[0]))


def _set_snapshot(
    connection: sqlite3.Connection,
    number: int,
    append: Append,
    snapshot: tuple[int, bytes],
) -> None:
    """Add a snapshot, and write the new parts of the lists that it leaves out.

    Earlier snapshots are of no use after their lists have changed.
    """
    seq, state = snapshot
    cut = 0
    for part in append.lists:
        cut += connection.execute(queries.CUT_LIST, (number, part.name, part.first)).rowcount
        if part.items:
            row = (number, part.name, part.first, list_sum(part), part.items)
            connection.execute(queries.ADD_TO_LIST, row)
    if cut:
        connection.execute(queries.FORGET_SNAPSHOTS, (number,))
    connection.execute(queries.SET_SNAPSHOT, (number, seq, checksum(state, seq), state))


def _open_wait(
    connection: sqlite3.Connection,
    execution: str,
    number: int,
    record: Mapping[str, Plain],
    places: Places,
) -> None:
    """Insert or update a wait, with its assignees and the keys it listens for."""
    wait = wait_id(execution, record["id"])
    before = connection.execute(queries.OPENED_BEFORE, (wait,)).fetchone()
    if before is not None and before[1] is not None:
        for statement in queries.FORGET_WAIT:
            connection.execute(statement, {"number": before[0], "address": f"wait {wait}"})
    first: dict[str, TextPosition] = {}
    # An update, whose texts are in the journal already.
    if before is not None and before[1] is None:
        first = JournalTexts(connection, number, f"wait {wait}").places(before[2])
    packed = shortened(pack(dict(record)), lambda: {**places(), **first})
    connection.execute(
        queries.OPEN_WAIT,
        (
            wait,
            record["id"],
            record["kind"],
            record.get("batch"),
            record["since"],
            turn_of(record),
            packed,
            number,
        ),
    )
    connection.execute(queries.CLOSE_WAIT_FOR, (wait,))
    for assignee in record.get("assignees") or (ANYONE,):
        connection.execute(queries.OPEN_WAIT_FOR, (assignee, wait))
    for signal in record.get("signals") or ():
        if signal.get("key") is not None:
            connection.execute(
                queries.ADD_KEY, (signal["signal"], signal["key"], number, record["id"])
            )


def _head_row(head: ExecutionHead) -> tuple[object, ...]:
    """Return the columns of a head, from `status` to `failure`."""
    ended = head.status in ENDED
    due, ended_at = (None, head.at) if ended else (head.due, None)
    failure = failure_of(head.error)
    return head.status, head.at, due, ended_at, head.outputs, head.error, failure


def find_number(connection: sqlite3.Connection, execution: str) -> int:
    """Return the number of an execution.

    Args:
        connection: Used to look it up.
        execution: Full id.

    Returns:
        Its number.

    Raises:
        NotFound: The execution does not exist.
    """
    row = connection.execute(queries.NUMBER, (execution,)).fetchone()
    if row is None:
        raise no_execution(execution)
    number: int = row[0]
    return number
