"""The index of words by which executions are found, with FTS5 of SQLite.

An index of words costs a hundred times less if many executions are added at once. Every so many new
executions their texts are added, with those that triggers have noted in `unindexed`. A search adds
the rest first. The index has words of `words_of`, separated by blanks, so that FTS5
divides them as the other stores do, and nothing in a search is a command to it.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress

from flowengine.errors import StoreError
from flowengine.journal.filters import text_of, words_of
from flowengine.journal.sqlite import queries
from flowengine.journal.sqlite.database import StoreDatabase
from flowengine.journal.sqlite.rows import read_execution

_NEVER = 2**62
"""After all numbers of executions."""
_LAST = "\U0010ffff"
"""Follows all characters of ids."""
_EVERY = 256
"""New executions after which texts are added."""
_MOST = 20_000
"""Executions whose texts are added in one transaction, so that others can write in between."""


def keep_up(connection: sqlite3.Connection, number: int) -> None:
    """Index the texts of the last executions, after every so many new ones.

    Args:
        connection: In a write transaction.
        number: Number of the execution that was just created.
    """
    if number % _EVERY == 0:
        with suppress(StoreError), Fts5():
            _index(connection, 2 * _EVERY)


def index_all(database: StoreDatabase) -> None:
    """Index the texts of all executions, and remove those of deleted ones.

    Raises:
        StoreError: This SQLite cannot do so.
    """
    while True:
        with database.reading() as connection, Fts5():
            last = _last(connection)
            if last is not None and connection.execute(queries.IS_INDEXED, (last,)).fetchone()[0]:
                return
        with database.writing() as connection, Fts5():
            _index(connection, _MOST)


class Fts5:
    """A context that uses the index of words."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, sqlite3.OperationalError) and "no such module" in str(error):
            raise StoreError(
                "executions cannot be searched for text: the SQLite library of this Python, "
                f"{sqlite3.sqlite_version}, was built without FTS5",
                hint="use a Python whose SQLite has it, or filter by flow, status or label",
            ) from None


def _last(connection: sqlite3.Connection) -> int | None:
    """Return the number of the newest execution in the index. None: it does not exist yet."""
    if connection.execute(queries.HAS_TEXTS).fetchone() is None:
        return None
    row = connection.execute(queries.LAST_INDEXED).fetchone()
    return 0 if row is None else int(row[0])


def _index(connection: sqlite3.Connection, most: int) -> None:
    connection.execute(queries.MAKE_TEXTS)
    added = connection.execute(queries.NOT_YET_INDEXED, (_last(connection), most)).fetchall()
    # The index has all executions up to its newest one, so that none is added before others.
    until = added[-1][0] if len(added) == most else _NEVER
    changed = connection.execute(queries.UNINDEXED, (until, most)).fetchall()
    for number, *columns in (*added, *changed):
        if columns[0] is None:
            connection.execute(queries.REMOVE_TEXT, (number,))
        else:
            words = " ".join(words_of(text_of(read_execution(columns))))
            connection.execute(queries.PUT_TEXT, (number, words))
    if changed:
        connection.execute(queries.INDEXED, (changed[-1][0],))


def row_by_row(search: str) -> tuple[str, tuple[str, ...]]:
    """Return a condition for the executions that a text finds, and its values.

    Args:
        search: See `ExecutionFilter.search`.
    """
    words = [*dict.fromkeys(words_of(search))]
    has_words = " AND ".join(["instr(' ' || words, ?) > 0"] * len(words)) or "0"
    beginning = search.strip()
    has_id = "executions.id >= ? AND executions.id < ?" if beginning.isascii() else "0"
    ids = (beginning, beginning + _LAST) if beginning.isascii() else ()
    text = f"EXISTS (SELECT 1 FROM texts WHERE rowid = executions.number AND {has_words})"
    return f"({text} OR {has_id})", (*(f" {word}" for word in words), *ids)


def find(connection: sqlite3.Connection, search: str) -> int:
    """Write the numbers of the executions that a text finds into `found`, and return how many.

    Args:
        connection: In a transaction, after `index_all`. The table belongs to it alone.
        search: See `ExecutionFilter.search`.
    """
    connection.execute(queries.MAKE_FOUND)
    connection.execute(queries.CLEAR_FOUND)
    if words := dict.fromkeys(words_of(search)):
        match = " ".join(f'"{word}"*' for word in words)
        connection.execute(queries.FIND_TEXTS, (match,))
    beginning = search.strip()
    if beginning.isascii():  # as all ids
        connection.execute(queries.FIND_IDS, (beginning, beginning + _LAST))
    (count,) = connection.execute(queries.COUNT_FOUND).fetchone()
    return int(count)
