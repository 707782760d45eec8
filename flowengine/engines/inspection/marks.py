"""Long executions as a server has read them, on disk, so that no other process reads them again.

A *mark* is a number of events after which an execution was recorded: the rows of the steps that
have changed since the mark before it, and the addresses and reasons of the events between them.
Some marks also have the state, from which a replay continues. Those of a state that grows are far
apart, so that all of them together take about as much space as the journal.

Everything in the file can be derived from the journals. It may be deleted at any time, and a file
that is damaged is replaced. Nothing in it is trusted: values are plain data of limited size.
"""

from __future__ import annotations

import os
import sqlite3
import zlib
from _thread import RLock
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from flowengine.errors import NotFound, StoreError
from flowengine.journal.encoding import MAX_SIZE, checksum, inflate, pack, unpack

if TYPE_CHECKING:
    from flowengine.journal.records import ExecutionRecord
    from flowengine.journal.store import DirectoryPort

EVERY = 500
"""Events between two marks."""
NEW = 2_000
"""Events that take no noticeable time to replay."""
MOST_BYTES = 2 * 1024**3
"""Maximum size of the file. Executions that have not been shown for longest are dropped."""
FILE = "histories.db"
_PER_EVENT = 500
"""Bytes of states for each event, on average."""
_PLAIN, _DEFLATED = b"\x00", b"\x01"
_WORTH_IT = 1024
"""Bytes from which compression is worth its time."""
_VERSION = 3
_FACTS = 200
"""Facts in one row."""
_TABLES = """
CREATE TABLE executions (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, created_at INTEGER NOT NULL,
    shown INTEGER NOT NULL, bytes INTEGER NOT NULL, UNIQUE (id, created_at));
CREATE TABLE marks (
    execution INTEGER NOT NULL, number INTEGER NOT NULL, event BLOB NOT NULL,
    subjects BLOB NOT NULL, state BLOB, UNIQUE (execution, number));
CREATE TABLE steps (
    execution INTEGER NOT NULL, address TEXT NOT NULL, mark INTEGER NOT NULL, fold TEXT,
    rank INTEGER, place INTEGER, body BLOB NOT NULL, step BLOB NOT NULL,
    UNIQUE (execution, address, mark));
CREATE INDEX steps_in_folds ON steps (execution, fold, address, mark, rank, place);
CREATE TABLE compared (
    execution INTEGER NOT NULL UNIQUE, number INTEGER NOT NULL, event BLOB NOT NULL,
    body BLOB NOT NULL);
CREATE TABLE facts (
    execution INTEGER NOT NULL, first INTEGER NOT NULL, facts BLOB NOT NULL,
    contents BLOB NOT NULL, UNIQUE (execution, first));
CREATE TABLE points (
    execution INTEGER NOT NULL, number INTEGER NOT NULL, point TEXT, UNIQUE (execution, number));
"""
_NEWEST = """
SELECT address, {}, max(mark) FROM steps
WHERE execution = ? AND mark <= ? {} GROUP BY address
"""
"""The newest row of each address. The other columns are of the row with the maximum."""


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


class MarkedStep(NamedTuple):
    """An address as it was at a mark."""

    address: str
    fold: str | None
    """The address of the fold around it. None: it is the whole execution."""
    rank: int
    place: int
    """Its number in that fold."""
    body: Any
    """What lists and timelines need, see `Folds.recorded`."""
    step: Any = None
    """The rest of its step, read separately."""


class StateMark(NamedTuple):
    """A mark with the state."""

    number: int
    """Of the first event after it."""
    event: bytes
    """The name of the event before it, see `name_of`."""
    state: Any


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
                "INSERT INTO executions (id, created_at, shown, bytes) "
                "SELECT ?, ?, coalesce(max(shown), 0) + 1, 0 FROM executions",
                (record.id, record.created_at),
            )
            assert cursor.lastrowid is not None
            return ExecutionMarks(self, cursor.lastrowid, record.id)

    def forget(self, record: ExecutionRecord) -> None:
        """Delete the marks of an execution."""
        self._delete("id = ? AND created_at = ?", (record.id, record.created_at))

    def trim(self) -> set[str]:
        """Delete the executions that have not been shown for longest, if there are too many bytes.

        Returns:
            Their ids.
        """
        rows = self.rows("SELECT id, bytes FROM executions ORDER BY shown DESC", ())
        total, trimmed = 0, set[str]()
        for id, size in rows:
            total += size
            if total > self._most and total > size:  # never the last one shown
                trimmed.add(id)
        for id in trimmed:
            self._delete("id = ?", (id,))
        return trimmed

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
                for table in ("marks", "steps", "points", "compared", "facts"):
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

    def shown(self) -> None:
        """Note that it is shown now."""
        with self._marks.changing() as connection:
            connection.execute(
                "UPDATE executions SET shown = (SELECT max(shown) FROM executions) + 1 "
                "WHERE number = ?",
                (self._execution,),
            )

    def last(self, after: int = 0, until: int | None = None) -> StateMark | None:
        """Return the last mark with a state. None: there is none.

        Args:
            after: It has more events than that.
            until: It has at most so many events. None: any number.

        Raises:
            StoreError: It is damaged.
        """
        rows = self._marks.rows(
            "SELECT number, event, state FROM marks WHERE execution = ? AND number > ? "
            "AND number <= ? AND state IS NOT NULL ORDER BY number DESC LIMIT 1",
            (self._execution, after, 2**62 if until is None else until),
        )
        if not rows:
            return None
        number, event, state = rows[0]
        return StateMark(number, event, _unpacked(state))

    def length(self) -> int:
        """Return the number of events at the last mark with a state. 0: there is none."""
        query = "SELECT max(number) FROM marks WHERE execution = ? AND state IS NOT NULL"
        return self._marks.rows(query, (self._execution,))[0][0] or 0

    def cut(self, number: int) -> None:
        """Delete the marks after one, which a process has begun and not completed."""
        with self._marks.changing() as connection:
            for table, column in (("marks", "number"), ("steps", "mark")):
                connection.execute(
                    f"DELETE FROM {table} WHERE execution = ? AND {column} > ?",
                    (self._execution, number),
                )

    def add(
        self,
        before: int,
        number: int,
        event: bytes,
        subjects: Sequence[tuple[str | None, str | None]],
        steps: Iterable[MarkedStep],
        state: Any,
    ) -> bool:
        """Add a mark, and return whether it was the next one.

        Args:
            before: Number of the mark before it. 0: it is the first one.
            number: Its number.
            event: The name of the event before it.
            subjects: Those of the events since the mark before it.
            steps: Those that have changed since.
            state: Plain data. None: there is none.
        """
        packed = _packed([list(subject) for subject in subjects])
        packed_state = None if state is None else _packed(state)
        rows: list[tuple[Any, ...]] = [
            (self._execution, step.address, number, *step[1:4], *map(_packed, step[4:]))
            for step in steps
        ]
        size = len(packed) + len(packed_state or b"")
        size += sum(len(row[1]) + len(row[-1]) + len(row[-2]) for row in rows)
        with self._marks.changing() as connection:
            newest = connection.execute(
                "SELECT coalesce(max(marks.number), 0) FROM executions LEFT JOIN marks "
                "ON marks.execution = executions.number WHERE executions.number = ? "
                "GROUP BY executions.number",
                (self._execution,),
            ).fetchone()
            if newest is None or newest[0] != before:
                return False  # another process has added one, or has deleted the execution
            connection.execute(
                "INSERT INTO marks VALUES (?, ?, ?, ?, ?)",
                (self._execution, number, event, packed, packed_state),
            )
            connection.executemany("INSERT INTO steps VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
            connection.execute(
                "UPDATE executions SET bytes = bytes + ? WHERE number = ?",
                (size, self._execution),
            )
        return True

    def has_room(self, number: int) -> bool:
        """Return whether a state is due at a mark, by the size of the one before it."""
        rows = self._marks.rows(
            "SELECT number, length(state) FROM marks WHERE execution = ? AND state IS NOT NULL "
            "ORDER BY number DESC LIMIT 1",
            (self._execution,),
        )
        return not rows or number - rows[0][0] >= rows[0][1] // _PER_EVENT

    def thin_out(self) -> None:
        """Delete the states before the last one that are too close to each other for their size."""
        rows = self._marks.rows(
            "SELECT number, length(state) FROM marks WHERE execution = ? AND state IS NOT NULL "
            "ORDER BY number",
            (self._execution,),
        )
        kept, size = 0, 0
        with self._marks.changing() as connection:
            for number, length in rows[:-1]:
                if number - kept < size // _PER_EVENT:
                    connection.execute(
                        "UPDATE marks SET state = NULL WHERE execution = ? AND number = ?",
                        (self._execution, number),
                    )
                    connection.execute(
                        "UPDATE executions SET bytes = bytes - ? WHERE number = ?",
                        (length, self._execution),
                    )
                else:
                    kept, size = number, length

    def subjects(self, number: int) -> tuple[int, list[Any]]:
        """Return the subjects of the events between two marks, and the number of the first.

        Args:
            number: Of one of these events.
        """
        rows = self._marks.rows(
            "SELECT number, subjects FROM marks WHERE execution = ? AND number > ? "
            "ORDER BY number LIMIT 1",
            (self._execution, number),
        )
        if not rows:
            raise self._lost()
        last, packed = rows[0]
        subjects = _unpacked(packed)
        return last - len(subjects), subjects

    def tree(self, mark: int, address: str | None = None) -> list[MarkedStep]:
        """Return addresses as they were at a mark, without their steps.

        Args:
            mark: Number of the mark.
            address: Only this one, if it existed. None: all.
        """
        rows = self._newest("fold, rank, place, body", mark, address)
        return [
            MarkedStep(address, fold, rank, place, _unpacked(body))
            for address, fold, rank, place, body, _ in rows
        ]

    def steps(self, mark: int, address: str | None = None) -> list[tuple[str, Any]]:
        """Return the addresses and the steps of the same, see `MarkedStep.step`."""
        rows = self._newest("step", mark, address)
        return [(address, _unpacked(step)) for address, step, _ in rows]

    def order(self, fold: str, mark: int) -> list[tuple[int, int, str]]:
        """Return rank, number and address of everything directly inside a fold, in order."""
        rows = self._marks.rows(
            "SELECT rank, place, address, max(mark) FROM steps "
            "WHERE execution = ? AND fold = ? AND mark <= ? GROUP BY address",
            (self._execution, fold, mark),
        )
        return sorted((rank, place, address) for rank, place, address, _ in rows)

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

    def point(self, number: int) -> tuple[str | None] | None:
        """Return the fork point after so many events, in a tuple. None: it is not known."""
        rows = self._marks.rows(
            "SELECT point FROM points WHERE execution = ? AND number = ?",
            (self._execution, number),
        )
        return (rows[0][0],) if rows else None

    def add_point(self, number: int, point: str | None) -> None:
        """Note the fork point after so many events."""
        with self._marks.changing() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO points VALUES (?, ?, ?)", (self._execution, number, point)
            )

    def _newest(self, columns: str, mark: int, address: str | None) -> list[Any]:
        which, values = ("", ()) if address is None else ("AND address = ?", (address,))
        query = _NEWEST.format(columns, which)
        rows = self._marks.rows(query, (self._execution, mark, *values))
        if not rows and not self._marks.rows(
            "SELECT 1 FROM marks WHERE execution = ? AND number = ?", (self._execution, mark)
        ):
            raise self._lost()
        return rows

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
