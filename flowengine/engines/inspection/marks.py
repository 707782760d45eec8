"""What only a replay of a long execution shows, on disk, so that it is replayed once.

These are the facts from which differences are computed, and how a failed execution can be retried.

Everything in the file can be derived from the journals. It may be deleted at any time, and a file
that is damaged is replaced. Nothing in it is trusted: values are plain data of limited size.
"""

from __future__ import annotations

import os
import sqlite3
import zlib
from _thread import RLock
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from flowengine.errors import NotFound, StoreError
from flowengine.journal.encoding import MAX_SIZE, checksum, inflate, pack, unpack

if TYPE_CHECKING:
    from flowengine.journal.records import ExecutionRecord
    from flowengine.journal.store import DirectoryPort

EVERY = 500
"""Events from which the facts of an execution are recorded."""
MOST_BYTES = 2 * 1024**3
"""Maximum size of the file. Executions that were recorded first are dropped."""
FILE = "histories.db"
_PLAIN, _DEFLATED = b"\x00", b"\x01"
_WORTH_IT = 1024
"""Bytes from which compression is worth its time."""
_VERSION = 5
_FACTS = 200
"""Facts in one row."""
_TABLES = """
CREATE TABLE executions (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, created_at INTEGER NOT NULL,
    bytes INTEGER NOT NULL, UNIQUE (id, created_at));
CREATE TABLE compared (
    execution INTEGER NOT NULL UNIQUE, number INTEGER NOT NULL, event BLOB NOT NULL,
    body BLOB NOT NULL);
CREATE TABLE points (execution INTEGER NOT NULL UNIQUE, number INTEGER NOT NULL, point TEXT);
CREATE TABLE facts (
    execution INTEGER NOT NULL, first INTEGER NOT NULL, facts BLOB NOT NULL,
    contents BLOB NOT NULL, UNIQUE (execution, first));
"""


class DamagedMarks(StoreError):
    """The recorded data cannot be used, and has to be recorded again."""


class DamageGuard:
    """A context in which recorded data is used: errors inside it are damage of that data."""

    __slots__ = ()

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, (DamagedMarks, OSError)):
            raise DamagedMarks(
                f"the recorded data of an execution is damaged: {error}",
                hint="try again: it is replaced",
            ) from error


def name_of(packed: bytes) -> bytes:
    """Return a name that no other event has at the same place in a journal."""
    import hashlib

    return hashlib.blake2b(packed, digest_size=16).digest()


class Marks:
    """The marks of executions.

    Args:
        folder: Where the file is, accessible for this user only. None: in memory.
        most_bytes: Maximum size of the recorded data.
    """

    def __init__(self, folder: str | None, most_bytes: int = MOST_BYTES) -> None:
        self._path = ":memory:" if folder is None else os.path.join(folder, FILE)
        self._most = most_bytes
        self._lock = RLock()
        self._connection = self._opened()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def of(self, record: ExecutionRecord) -> ExecutionMarks | None:
        """Return the marks of an execution. None: there are none.

        Args:
            record: Of the execution.
        """
        row = self.rows(
            "SELECT number FROM executions WHERE id = ? AND created_at = ?",
            (record.id, record.created_at),
        )
        return ExecutionMarks(self, row[0][0], record.id) if row else None

    def begin(self, record: ExecutionRecord) -> ExecutionMarks:
        """Return the marks of an execution that has none yet: earlier ones are deleted."""
        with self.changing() as connection:
            self.forget(record)
            cursor = connection.execute(
                "INSERT INTO executions (id, created_at, bytes) VALUES (?, ?, 0)",
                (record.id, record.created_at),
            )
            assert cursor.lastrowid is not None
            return ExecutionMarks(self, cursor.lastrowid, record.id)

    def forget(self, record: ExecutionRecord) -> None:
        """Delete the marks of an execution."""
        self._delete("id = ? AND created_at = ?", (record.id, record.created_at))

    def trim(self) -> None:
        """Delete the executions that were recorded first, if there are too many bytes."""
        rows = self.rows("SELECT id, bytes FROM executions ORDER BY number DESC", ())
        total, trimmed = 0, set[str]()
        for id, size in rows:
            total += size
            if total > self._most and total > size:  # never the last one
                trimmed.add(id)
        for id in trimmed:
            self._delete("id = ?", (id,))

    def forget_deleted(self, store: DirectoryPort) -> None:
        """Delete the marks of the executions that the store no longer has."""
        for (id,) in self.rows("SELECT id FROM executions", ()):
            try:
                store.execution(id)
            except NotFound:
                self._delete("id = ?", (id,))

    def rows(self, query: str, values: Sequence[Any]) -> list[Any]:
        """Return the rows of a query.

        Raises:
            StoreError: The file is damaged or cannot be read.
        """
        try:
            with self._lock:
                return self._connection.execute(query, values).fetchall()
        except (sqlite3.Error, OverflowError) as error:
            raise self._fault(error) from None

    @contextmanager
    def changing(self) -> Iterator[sqlite3.Connection]:
        """Change the file in the block, completely or not at all. A block may be inside another.

        Raises:
            StoreError: The file is damaged or cannot be written.
        """
        with self._lock:
            connection = self._connection
            if connection.in_transaction:
                yield connection
                return
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
            except (sqlite3.Error, OverflowError) as error:
                raise self._fault(error) from None
            finally:
                if connection.in_transaction:
                    with suppress(sqlite3.Error):
                        connection.execute("ROLLBACK")

    def renew(self) -> None:
        """Replace the file by an empty one, because it is damaged."""
        with self._lock:
            self._connection.close()
            self._remove()
            self._connection = self._opened()

    def _delete(self, which: str, values: Sequence[Any]) -> None:
        with self.changing() as connection:
            rows = connection.execute(f"SELECT number FROM executions WHERE {which}", values)
            for (number,) in rows.fetchall():
                for table in ("compared", "facts", "points"):
                    connection.execute(f"DELETE FROM {table} WHERE execution = ?", (number,))
                connection.execute("DELETE FROM executions WHERE number = ?", (number,))

    def _opened(self) -> sqlite3.Connection:
        if self._path != ":memory:":
            os.close(os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        try:
            return self._connected()
        except sqlite3.DatabaseError:
            self._remove()
        try:
            return self._connected()
        except sqlite3.Error as error:
            raise self._fault(error) from None

    def _connected(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, timeout=10, isolation_level=None, check_same_thread=False
        )
        try:
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_SIZE)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")  # what is lost is recorded again
            connection.execute("PRAGMA secure_delete = ON")
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version != _VERSION:
                if connection.execute("SELECT 1 FROM sqlite_schema").fetchone():
                    raise sqlite3.DatabaseError("it is of another version")
                connection.executescript(f"BEGIN;{_TABLES}PRAGMA user_version={_VERSION};COMMIT;")
        except BaseException:
            connection.close()
            raise
        return connection

    def _remove(self) -> None:
        if self._path != ":memory:":
            for end in ("", "-wal", "-shm", "-journal"):
                with suppress(FileNotFoundError):
                    os.unlink(self._path + end)

    def _fault(self, error: Exception) -> StoreError:
        return DamagedMarks(
            f"{self._path} cannot be used: {error}",
            hint="it has copies only: delete it, and try again",
        )


class ExecutionMarks:
    """The marks of one execution.

    Args:
        marks: All marks.
        execution: Its number there.
        name: Its id.
    """

    def __init__(self, marks: Marks, execution: int, name: str) -> None:
        self.name = name
        self._marks = marks
        self._execution = execution

    def compared(self, number: int, event: bytes) -> tuple[Any, list[Any]] | None:
        """Return the body and the facts of `add_compared`. None: there are none for these events.

        Args:
            number: Number of events of the execution.
            event: The name of the last one.
        """
        rows = self._marks.rows(
            "SELECT body FROM compared WHERE execution = ? AND number = ? AND event = ?",
            (self._execution, number, event),
        )
        if not rows:
            return None
        parts = self._marks.rows(
            "SELECT facts FROM facts WHERE execution = ? ORDER BY first", (self._execution,)
        )
        with DamageGuard():
            return _unpacked(rows[0][0]), [
                fact for (packed,) in parts for fact in _unpacked(packed)
            ]

    def point(self, number: int) -> tuple[str | None] | None:
        """Return the fork point after so many events, in a tuple. None: it is not recorded."""
        rows: list[Any] = self._marks.rows(
            "SELECT point FROM points WHERE execution = ? AND number = ?",
            (self._execution, number),
        )
        return rows[0] if rows else None

    def add_point(self, number: int, point: str | None) -> None:
        """Record the fork point after so many events, in place of an earlier one."""
        with self._marks.changing() as connection:
            row = self._execution, number, point
            connection.execute("INSERT OR REPLACE INTO points VALUES (?, ?, ?)", row)

    def contents(self, number: int) -> tuple[int, list[Any]]:
        """Return contents of facts, and the number of the first of them.

        Args:
            number: The number of a fact that is among them.
        """
        rows = self._marks.rows(
            "SELECT first, contents FROM facts WHERE execution = ? AND first <= ? "
            "ORDER BY first DESC LIMIT 1",
            (self._execution, number),
        )
        if not rows:
            raise self._lost()
        return rows[0][0], _unpacked(rows[0][1])

    def add_compared(
        self, number: int, event: bytes, body: Any, facts: Sequence[Any], contents: Sequence[Any]
    ) -> None:
        """Record the facts of the whole execution in place of those of a shorter one.

        Args:
            number: Number of its events.
            event: The name of the last one.
            body: Plain data.
            facts: Plain data of each fact.
            contents: The content of each.
        """
        starts = range(0, len(facts), _FACTS)
        rows = [
            (
                *(self._execution, start),
                _packed(facts[start : start + _FACTS]),
                _packed(contents[start : start + _FACTS]),
            )
            for start in starts
        ]
        size = sum(len(row[2]) + len(row[3]) for row in rows)
        with self._marks.changing() as connection:
            for table in ("compared", "facts"):
                connection.execute(f"DELETE FROM {table} WHERE execution = ?", (self._execution,))
            connection.execute(
                "INSERT INTO compared VALUES (?, ?, ?, ?)",
                (self._execution, number, event, _packed(body)),
            )
            connection.executemany("INSERT INTO facts VALUES (?, ?, ?, ?)", rows)
            connection.execute(
                "UPDATE executions SET bytes = bytes + ? WHERE number = ?",
                (size, self._execution),
            )

    def _lost(self) -> StoreError:
        return StoreError(
            "the recorded data of an execution was deleted meanwhile", hint="try again"
        )


def _packed(value: Any) -> bytes:
    """Return plain data as bytes with a checksum. That of long data is part of the zlib format."""
    packed = pack(value)
    if len(packed) >= _WORTH_IT:
        return _DEFLATED + zlib.compress(packed, 1)
    return _PLAIN + checksum(packed).to_bytes(4, "big") + packed


def _unpacked(packed: Any) -> Any:
    with DamageGuard():
        if packed[:1] == _DEFLATED:
            return unpack(inflate(packed[1:]))
        if packed[:5] != _PLAIN + checksum(packed[5:]).to_bytes(4, "big"):
            raise ValueError("its checksum is wrong")
        return unpack(packed[5:])
