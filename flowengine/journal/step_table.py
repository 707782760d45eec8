"""The table of the steps of executions, in a file of SQLite or in memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

from flowengine.journal.records import OVER, StepRow

TABLE = """CREATE TABLE steps (
    id INTEGER PRIMARY KEY, address TEXT NOT NULL, step TEXT NOT NULL, status TEXT NOT NULL,
    outcome TEXT, attempt INTEGER NOT NULL, started INTEGER NOT NULL, since INTEGER NOT NULL,
    began INTEGER, began_by INTEGER, ended INTEGER, ended_by INTEGER, until INTEGER, output BLOB,
    error BLOB, notes BLOB, tokens INTEGER, cost INTEGER, input INTEGER)"""
"""id is the execution's number << 32 | the row's number."""


def quoted(statuses: Iterable[str]) -> str:
    """Return statuses as a list in SQL."""
    return ", ".join(f"'{status}'" for status in sorted(statuses))


_FIRST = "SELECT coalesce(max(number), 0) << 32 FROM executions WHERE id = ?"
_WRITE = f"INSERT OR REPLACE INTO steps VALUES ({', '.join('?' * len(StepRow._fields))})"
_SELECT = f"SELECT id & 0xffffffff, {', '.join(StepRow._fields[1:])} FROM steps"
OWN = "id >= :first AND id < :first + (1 << 32)"
_IS_EMPTY = f"SELECT NOT EXISTS (SELECT 1 FROM steps WHERE {OWN})"
CURRENT = f"{OWN} AND id > :first AND until IS NULL"
"""The last row at each address, and perhaps others."""
CHANGING = f"""{OWN} AND (id = :first
    OR id = (SELECT max(id) FROM steps WHERE {OWN})
    OR until IS NULL AND status NOT IN ({quoted(OVER - {"failed"})}))"""
"""The last rows of what has not ended or has failed, the newest, and number 0."""
FIRST_INSIDE = f"""SELECT min(started) FROM steps WHERE {OWN} AND id > (
    SELECT coalesce(max(id), :first) FROM steps WHERE {OWN} AND address = :address)
    AND (address >= :address || '[' AND address < :address || '\\'
    OR address >= :address || '@' AND address < :address || 'A')"""
"""When the first item or round of a map or loop began, since it ended last."""


def write_steps(connection: sqlite3.Connection, number: int, rows: Iterable[StepRow]) -> None:
    """Add or replace rows, inside the transaction of a commit.

    Args:
        connection: In a write transaction.
        number: Number of the execution.
        rows: The rows.
    """
    connection.executemany(_WRITE, [(number << 32 | row[0], *row[1:]) for row in rows])


class StepTable:
    """Reads the rows of the steps of one execution, in order of beginning.

    Args:
        reading: Opens a connection for a read.
        id: Full id of the execution.
    """

    def __init__(
        self, reading: Callable[[], AbstractContextManager[sqlite3.Connection]], id: str
    ) -> None:
        self.reading = reading
        self._id = id

    @property
    def is_empty(self) -> bool:
        """Whether there are no rows, not even that of the execution."""
        return bool(self.read(_IS_EMPTY)[0][0])

    def rows(self, where: str, **values: Any) -> list[StepRow]:
        """Return the rows for which a condition holds, in order. `:first` is the number 0."""
        return [*map(StepRow._make, self.read(f"{_SELECT} WHERE {where} ORDER BY id", **values))]

    def read(self, query: str, **values: Any) -> list[Any]:
        """Return the results of a query. In it, `:first` is the row number 0."""
        with self.reading() as connection:
            (first,) = connection.execute(_FIRST, (self._id,)).fetchone()
            return connection.execute(query, {"first": first, **values}).fetchall()
