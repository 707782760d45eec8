"""Removal of obsolete data, in small transactions so that other processes can write in between."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from flowengine.errors import StoreError
from flowengine.journal.artifacts import ArtifactFolder
from flowengine.journal.lease_holders import this_process
from flowengine.journal.records import Pruned
from flowengine.journal.refusals import check_statuses
from flowengine.journal.sqlite import queries
from flowengine.journal.sqlite.appends import remove
from flowengine.journal.sqlite.database import StoreDatabase
from flowengine.journal.sqlite.search import index_all
from flowengine.kernel.notation.accounts import read_account
from flowengine.util.files import HELD_SECONDS

_BATCH = 200
"""Executions removed in one transaction."""
_LONGEST_PAUSE = 0.2
_NUMBERS = 10_000
"""Numbers of events, or budgets, checked in one transaction."""


def prune(
    database: StoreDatabase,
    artifacts: ArtifactFolder,
    before: int,
    statuses: Sequence[str],
    ids: Sequence[str],
) -> Pruned:
    """Remove executions that have ended, then all data that only they referred to.

    Args:
        database: Contains the executions.
        artifacts: Contains their files.
        before: Executions and periods of budgets that ended at this time or earlier.
        statuses: Only executions with one of these statuses.
        ids: Also these executions, if they have ended.

    Returns:
        How much was removed.
    """
    check_statuses(statuses)
    executions = sum(_prune_status(database, before, status) for status in statuses)
    for id in ids:
        with database.writing() as connection:
            if (found := connection.execute(queries.PRUNABLE_ONE, (id,)).fetchone()) is not None:
                remove(connection, *found)
                executions += 1
    budgets = _prune_budgets(database, before)
    with database.writing() as connection:
        connection.execute(queries.PRUNE_FLOWS)
        connection.execute(queries.END_HOLDS, (int(time.time()) - HELD_SECONDS,))
        connection.execute(queries.FORGET_OWNERS, (this_process().boot,))
        is_numbered = connection.execute(queries.IS_NUMBERED).fetchone() is not None
    if is_numbered and executions:
        _prune_numbers(database)
    with suppress(StoreError):  # this SQLite has no FTS5, so it has indexed nothing
        index_all(database)
    files, size = _sweep(database, artifacts)
    return Pruned(executions, files, size, budgets)


@contextmanager
def _in_turn(database: StoreDatabase) -> Iterator[sqlite3.Connection]:
    """Open a transaction, after which other processes have as much time to write.

    SQLite has no queue: those that wait for the lock look for it from time to time, and one that
    takes it again at once keeps them out.
    """
    with database.writing() as connection:
        began = time.monotonic()
        yield connection
    time.sleep(min(time.monotonic() - began, _LONGEST_PAUSE))


def _prune_status(database: StoreDatabase, before: int, status: str) -> int:
    """Remove the executions with a status and return their number."""
    removed = last = 0
    while True:
        with _in_turn(database) as connection:
            batch = connection.execute(queries.PRUNABLE, (status, before, last, _BATCH)).fetchall()
            for (number,) in batch:
                remove(connection, number)
        removed += len(batch)
        if len(batch) < _BATCH:
            return removed
        last = batch[-1][0]


def _prune_budgets(database: StoreDatabase, before: int) -> int:
    """Remove the budgets whose period was over by a time, and return their number."""
    with database.reading() as connection:
        names = [name for (name,) in connection.execute(queries.NAMES_OF_BUDGETS).fetchall()]
    over = [(name,) for name in names if read_account(name).is_over(before)]
    removed = 0
    for first in range(0, len(over), _NUMBERS):
        with _in_turn(database) as connection:
            batch = over[first : first + _NUMBERS]
            removed += connection.executemany(queries.PRUNE_BUDGET, batch).rowcount
    return removed


def _prune_numbers(database: StoreDatabase) -> None:
    """Remove the numbers of removed events."""
    with database.reading() as connection:
        (last,) = connection.execute(queries.LAST_NUMBER).fetchone()
    for after in range(0, last, _NUMBERS):
        limits = {"after": after, "until": after + _NUMBERS, "last": last}
        with _in_turn(database) as connection:
            connection.execute(queries.OBSOLETE_NUMBERS, limits)


def _sweep(database: StoreDatabase, artifacts: ArtifactFolder) -> tuple[int, int]:
    """Remove unreferenced artifacts, and return their number and bytes."""
    connection = database.connection()

    def is_referred(digest: str) -> bool:
        return connection.execute(queries.IS_REFERRED, (digest,)).fetchone() is not None

    sizes: list[int] = []
    for shelf in artifacts.shelves():
        with _in_turn(database):
            sizes += artifacts.sweep(shelf, is_referred)
    artifacts.remove_abandoned()
    return len(sizes), sum(sizes)
