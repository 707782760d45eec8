"""The table of the steps of executions, in a file of SQLite or in memory."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from flowengine.journal.records import OVER, StepRow

TABLE = """CREATE TABLE steps (
    id INTEGER PRIMARY KEY, address TEXT NOT NULL, step TEXT NOT NULL, status TEXT NOT NULL,
    outcome TEXT, attempt INTEGER NOT NULL, started INTEGER NOT NULL, since INTEGER NOT NULL,
    began INTEGER, began_by INTEGER, ended INTEGER, ended_by INTEGER, until INTEGER, output BLOB,
    error BLOB, notes BLOB, tokens INTEGER, cost INTEGER)"""
"""id is the execution's number << 32 | the row's number."""


def _quoted(statuses: Iterable[str]) -> str:
    return ", ".join(f"'{status}'" for status in sorted(statuses))


_FIRST = "SELECT coalesce(max(number), 0) << 32 FROM executions WHERE id = ?"
_WRITE = f"INSERT OR REPLACE INTO steps VALUES ({', '.join('?' * len(StepRow._fields))})"
_SELECT = f"SELECT id & 0xffffffff, {', '.join(StepRow._fields[1:])} FROM steps"
_OWN = "id >= :first AND id < :first + (1 << 32)"
_NOTED = f"""{_SELECT} WHERE {_OWN} AND (error IS NOT NULL OR notes IS NOT NULL
    OR address IN (SELECT value FROM json_each(:addresses)))"""
_ORDERS = {
    "time": "ended - started DESC NULLS FIRST",
    "attempts": "attempt DESC",
    "error": "error IS NULL, ended",
    "tokens": "tokens DESC",
    "cost": "cost DESC",
}
_ORDERED = f"""SELECT id & 0xffffffff, address FROM steps
    WHERE {_OWN} AND id > :first AND since < :before ORDER BY"""
_CURRENT = f"{_SELECT} WHERE {_OWN} AND id > :first AND until IS NULL"
_ALL = f"{_SELECT} WHERE {_OWN} AND since < :before"
_IS_EMPTY = f"SELECT NOT EXISTS (SELECT 1 FROM steps WHERE {_OWN})"
_STATES = f"""SELECT id & 0xffffffff, address, step, status,
    coalesce(ended_by < :before AND (until IS NOT NULL OR status IN ({_quoted(OVER)})), 0)
    FROM steps WHERE {_OWN} AND id > :first AND since < :before ORDER BY id"""
_SOME = f"{_SELECT} WHERE id >= :first + :from AND id < :first + :from + :count"
_CHANGING = f"""{_SELECT} WHERE {_OWN} AND (id = :first
    OR id = (SELECT max(id) FROM steps WHERE {_OWN})
    OR until IS NULL AND status NOT IN ({_quoted(OVER - {"failed"})}))"""
_FIRST_FAILURE = f"SELECT min(ended_by) FROM steps WHERE {_OWN} AND error IS NOT NULL"
_FIRST_INSIDE = f"""SELECT min(started) FROM steps WHERE {_OWN} AND id > (
    SELECT coalesce(max(id), :first) FROM steps WHERE {_OWN} AND address = :address)
    AND (address >= :address || '[' AND address < :address || '\\'
    OR address >= :address || '@' AND address < :address || 'A')"""


def write_steps(connection: sqlite3.Connection, number: int, rows: Iterable[StepRow]) -> None:
    """Add or replace rows, inside the transaction of a commit.

    Args:
        connection: In a write transaction.
        number: Number of the execution.
        rows: The rows.
    """
    first = number << 32
    connection.executemany(_WRITE, [(first | row[0], *row[1:]) for row in rows])


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

    def all(self, before: int) -> Sequence[StepRow]:
        """Return all rows, and that of the execution.

        Args:
            before: Number of the first event to leave out. The rows have the results of later ones.
        """
        return self._rows(_ALL, before=before)

    def is_empty(self) -> bool:
        """Return whether there are no rows, not even that of the execution."""
        return bool(self._read(_IS_EMPTY)[0][0])

    def states(self, before: int) -> Sequence[tuple[int, str, str, str, bool]]:
        """Return number, address, step id and status of all rows but that of the execution.

        Args:
            before: Number of the first event to leave out. The last item is False for a row that
                has another status before it, or may have.
        """
        return self._read(_STATES, before=before)

    def rows(self, first: int, count: int) -> Sequence[StepRow]:
        """Return rows.

        Args:
            first: Number of the first one.
            count: How many numbers.
        """
        return self._rows(_SOME, **{"from": first}, count=count)

    def noted(self, addresses: Sequence[str]) -> Sequence[StepRow]:
        """Return the rows with an error or with notes, and all rows at some addresses."""
        return self._rows(_NOTED, addresses=json.dumps(addresses))

    def ordered(self, by: str, before: int) -> Sequence[tuple[int, str]]:
        """Return number and address of all rows but that of the execution, in another order.

        Args:
            by: `time`: what has not ended, then the slowest. `attempts`, `tokens`, `cost`: most
                first. `error`: what failed, in order.
            before: Number of the first event to leave out. The rows have the results of later ones.
        """
        return self._read(f"{_ORDERED} {_ORDERS[by]}, id", before=before)

    def current(self) -> Sequence[StepRow]:
        """Return the last row at each address, and perhaps others."""
        return self._rows(_CURRENT)

    def changing(self) -> Sequence[StepRow]:
        """Return the last rows of what has not ended or has failed, the newest, and number 0."""
        return self._rows(_CHANGING)

    def first_failure(self) -> int | None:
        """Return the number of the first event with which a step failed. None: none did."""
        found: int | None = self._read(_FIRST_FAILURE)[0][0]
        return found

    def first_inside(self, address: str) -> int | None:
        """Return when the first item or round of a map or loop began, since it ended last.

        None: there is none.
        """
        found: int | None = self._read(_FIRST_INSIDE, address=address)[0][0]
        return found

    def _rows(self, query: str, **values: Any) -> list[StepRow]:
        return [*map(StepRow._make, self._read(f"{query} ORDER BY id", **values))]

    def _read(self, query: str, **values: Any) -> list[Any]:
        with self.reading() as connection:
            (first,) = connection.execute(_FIRST, (self._id,)).fetchone()
            return connection.execute(query, {"first": first, **values}).fetchall()


def steps_in_memory(rows: Iterable[StepRow]) -> StepTable:
    """Return a table of rows that are in no store."""
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    connection.execute(TABLE)
    connection.execute("CREATE TABLE executions AS SELECT 1 AS number, '' AS id")
    write_steps(connection, 1, rows)
    return StepTable(lambda: nullcontext(connection), "")
