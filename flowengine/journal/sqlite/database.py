"""Connections to the one SQLite file, its settings, and its error messages.

Each thread that uses a store has its own connection, which stays open, and a second one for writes
that need no separate sync (`StoreDatabase.preparing`). The file is in write-ahead log mode. The
durability of a commit depends on the pragma `synchronous` (https://sqlite.org/pragma.html):

| durability | synchronous | a commit |
|---|---|---|
| power   | FULL   | is on disk when it returns: the log is synced at every commit |
| process | NORMAL | is with the operating system: a power cut may lose whole recent commits |
| none    | OFF    | the same, and a power cut may damage the file |
"""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
import time
from _thread import RLock, _local, allocate_lock
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, ClassVar, Literal

from flowengine.errors import Hint, StoreError, UsageError
from flowengine.journal.sqlite import schema
from flowengine.journal.store import Durability
from flowengine.store_folder import APPLICATION_ID, in_use
from flowengine.util.files import draft_of, give_name, make_folder, sync_file, sync_folder

ERRORS = (sqlite3.Error, UnicodeDecodeError)
"""Exceptions of SQLite calls. The second one occurs when a message quotes a damaged file."""

_LEVELS: dict[Durability, int] = {"none": 0, "process": 1, "power": 2}
PARAMETERS = "mode=rw"
"""Parameters of the file names passed to SQLite."""
_HEADER_SIZE = 100
_MAGIC = b"SQLite format 3\x00"


# Files of stores that this process reads directly, each opened once and shared.
#
# SQLite's locks are POSIX locks, which belong to the process: closing *any* descriptor of a file
# drops all of them (https://sqlite.org/howtocorrupt.html, 2.2). Another process would then
# consider the store unused, and remove the log that this one still writes to. A process therefore
# has its own single descriptor for a file, and closes it after the last connection.


class OpenFile:
    """A use of a file, which stays open until its last use is released.

    Args:
        path: The path of the file.

    Raises:
        OSError: It cannot be opened, or is a directory, pipe or device.
    """

    _lock: ClassVar = RLock()
    _open: ClassVar[dict[tuple[int, int], list[int]]] = {}
    """Device and inode number of each file → number of uses, and its descriptors."""

    def __init__(self, path: str) -> None:
        self._is_used = False
        with self._lock:
            status = os.stat(path)
            if (status.st_dev, status.st_ino) not in self._open:
                if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for a writer
                    raise OSError(errno.EINVAL, "it is not a regular file")
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
                status = os.fstat(descriptor)  # the file may have been replaced in between
                self._open.setdefault((status.st_dev, status.st_ino), [0]).append(descriptor)
            self.identity = (status.st_dev, status.st_ino)
            in_use[self.identity] = os.path.abspath(path)
            self._entry = self._open[self.identity]
            self._entry[0] += 1
            self._is_used = True

    def release(self, close: Callable[[int], None] = os.close) -> None:
        """End this use. A second call has no effect."""
        with self._lock:
            if not self._is_used:
                return
            self._is_used = False
            self._entry[0] -= 1
            if not self._entry[0]:
                del self._open[self.identity]
                del in_use[self.identity]
                for descriptor in self._entry[1:]:
                    close(descriptor)

    def read(self, size: int) -> bytes:
        """Return the first bytes of the file."""
        return os.pread(self._entry[1], size, 0)

    def size(self) -> int:
        """Return the size of the file in bytes."""
        return os.fstat(self._entry[1]).st_size


class StoreDatabase:
    """The file and its connections.

    Args:
        path: The file. It and its directory are created if missing, readable for this user only.
        durability: The failure that a finished commit survives.
        patience: Seconds to wait for another writing process.
    """

    _file: OpenFile | None = None

    def __init__(self, path: str, durability: Durability, patience: float) -> None:
        if durability not in _LEVELS:
            raise UsageError(
                f"there is no durability {durability!r}", hint="use power, process or none"
            )
        self.path = path
        self._place = os.path.abspath(path)
        self._folder = os.path.dirname(self._place)
        self._level = _LEVELS[durability]
        self._patience = patience
        self._own = _local()
        self._all: list[LockedConnection] = []
        self._identities: list[tuple[str, tuple[int, int]]] = []
        """Path, device and inode number of each file in use."""
        self._lock = allocate_lock()
        self._closed = False
        self._prepare()

    def connection(self) -> LockedConnection:
        """Return this thread's connection, outside of any transaction.

        Code that uses it without a `Transaction` must hold its lock, `using`.
        """
        try:
            connection: LockedConnection = self._own.connection
        except AttributeError:
            connection = self._own.connection = self._open(self._level)
        try:
            is_settled = not connection.in_transaction
        except ERRORS as error:
            raise self.explain(error) from error
        return connection if is_settled else self._settled(connection)

    def reading(self) -> Transaction:
        """Return a transaction that reads one consistent state of the file."""
        return Transaction(self, self.connection(), "BEGIN")

    def writing(self) -> Transaction:
        """Return a transaction that holds the write lock from its start."""
        return Transaction(self, self.connection(), "BEGIN IMMEDIATE")

    def preparing(self) -> Transaction:
        """Return a transaction whose commit need not be on disk before a later one is.

        It is used for data that is worthless after a power cut (leases, whose holders died), and
        for data without meaning until a journal refers to it (flows, references to artifacts). The
        log is synced in order, so a later synced commit also brings this one to disk.
        """
        if self._level < _LEVELS["power"]:
            return self.writing()
        try:
            connection: LockedConnection = self._own.unsynced
        except AttributeError:
            connection = self._own.unsynced = self._open(_LEVELS["process"])
        return Transaction(self, self._settled(connection), "BEGIN IMMEDIATE")

    def close(self) -> None:
        """Close all connections. The store cannot be used afterwards.

        Threads that are using their connection finish first, because closing it there would crash
        the process. A thread that exceeds the timeout for other processes keeps its connection.
        """
        with self._lock:
            self._closed = True
            connections, self._all = self._all, []
        still_used = False
        for connection in connections:
            if connection.using.acquire(timeout=self._patience):
                connection.close()
                connection.using.release()
            else:
                still_used = True
        self._own = _local()
        if self._file is not None and not still_used:
            self._file.release()

    def __del__(self) -> None:
        if self._file is not None:
            self._file.release()

    def check_place(self) -> None:
        """Check that the database file and its log files have not been moved or deleted.

        Writes to a deleted file are lost. This includes the log, which contains the last commits,
        and the file whose locks coordinate access to the log.

        Raises:
            StoreError: A file was deleted, moved, or replaced by another.
        """
        for path, identity in self._identities:
            try:
                status = os.stat(path)
            except (FileNotFoundError, NotADirectoryError):
                raise self._is_gone(path, "deleted or moved") from None
            if (status.st_dev, status.st_ino) != identity:
                raise self._is_gone(path, "replaced by another")

    def _is_gone(self, path: str, what: str) -> StoreError:
        """Return the error for a file that was moved or deleted."""
        if path == self._place:
            return StoreError(
                f"the store {self.path} was {what} while it was in use. Nothing since then was "
                "saved",
                hint="put it back, or start over",
            )
        return StoreError(
            f"{path}, which belongs to the store, was {what} while it was in use. The last "
            "commits may be lost",
            hint=Hint(
                "end every process that uses the store, then list its content: flowengine list"
            ),
        )

    def durability(self) -> Durability:
        """Return the durability of a commit, according to the settings in force."""
        connection = self.connection()
        with connection.using:
            (level,) = connection.execute("PRAGMA synchronous").fetchone()
            (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
        return next((name for name in _LEVELS if _LEVELS[name] == level and mode == "wal"), "none")

    def explain(self, error: Exception) -> StoreError:
        """Return an error with the cause, the location and a hint.

        Args:
            error: One of `ERRORS`.
        """
        if self._closed:
            return self._is_closed()
        code = getattr(error, "sqlite_errorname", None) or type(error).__name__
        kind = next((name for name in _EXPLANATIONS if code.startswith(name)), None)
        if kind is None:
            return StoreError(f"the store {self.path} failed: {error} ({code})")
        return self._explained(kind, error, code)

    def _explained(self, kind: str, error: Exception, code: str) -> StoreError:
        message, hint = _EXPLANATIONS[kind]
        values = {"path": self.path, "error": error, "code": code, "patience": self._patience}
        return StoreError(message.format(**values), hint=_hint(hint.format(**values)))

    def _prepare(self) -> None:
        """Create the file if missing, and check that it is sound."""
        try:
            make_folder(self._folder, synced=self._level > _LEVELS["none"])
            if not os.path.lexists(self._place):
                self._make()
            self._file = OpenFile(self._place)
            check_header(self.path, self._file)
            self.connection()
            self._identities = [(self._place, self._file.identity)]
            for path in (f"{self._place}-wal", f"{self._place}-shm"):
                status = os.stat(path)
                self._identities.append((path, (status.st_dev, status.st_ino)))
        except OSError as error:
            self.close()
            raise self._cannot_be_opened(error) from None
        except StoreError:
            self.close()
            raise

    def _cannot_be_opened(self, error: OSError) -> StoreError:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            return self._explained("SQLITE_FULL", error, "")
        return StoreError(
            f"the store {self.path} cannot be opened: {error.strerror or error}",
            hint=_hint(f"check the permissions of the directory, or {_OTHER}"),
        )

    def _make(self) -> None:
        """Create the file privately and completely before it gets its name."""
        new = draft_of(self._place)
        try:
            os.close(os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            os.chmod(new, 0o600)  # despite the umask, and the log inherits the rights
            connection = self._connect(new)
            try:
                connection.execute("PRAGMA synchronous = OFF")
                # The log comes last. Its content is copied into the file when it is closed, and
                # SQLite does not report missing space at that point.
                connection.execute("PRAGMA journal_mode = MEMORY")
                for statement in ("BEGIN", *schema.TABLES, "COMMIT"):
                    connection.execute(statement)
                self._use_log(connection)
            finally:
                connection.close()
            synced = self._level > _LEVELS["none"]
            if synced:
                sync_file(new)
            give_name(new, self._place)
            if synced:
                sync_folder(self._folder)
        except ERRORS as error:
            raise self.explain(error) from error
        finally:
            for ending in ("", "-wal", "-shm", "-journal"):
                with suppress(FileNotFoundError):
                    os.unlink(new + ending)

    def _connect(self, path: str) -> LockedConnection:
        """Open a connection to an existing file. SQLite itself never creates one."""
        quoted = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
        return sqlite3.connect(
            f"file://{quoted}?{PARAMETERS}",
            uri=True,
            timeout=self._patience,
            isolation_level=None,  # transactions are started and ended explicitly
            check_same_thread=False,  # so that `close` can close the connections of other threads
            cached_statements=128,
            factory=LockedConnection,
        )

    def _settled(self, connection: LockedConnection) -> LockedConnection:
        """Return the connection after rolling back a transaction left by an interrupt."""
        try:
            if connection.in_transaction:
                with connection.using:
                    connection.execute("ROLLBACK")
        except ERRORS as error:
            raise self.explain(error) from error
        return connection

    def _is_closed(self) -> StoreError:
        return StoreError(f"the store {self.path} has been closed")

    def _open(self, level: int) -> LockedConnection:
        """Open a connection with a level of `synchronous`."""
        if self._closed:
            raise self._is_closed()
        self.check_place()  # SQLite would replace a missing log with a new one
        try:
            connection = self._connect(self._place)
        except ERRORS as error:
            raise self.explain(error) from error
        try:
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA cell_size_check = ON")
            self._use_log(connection)
            connection.execute(f"PRAGMA synchronous = {level}")
        except ERRORS as error:
            connection.close()
            raise self.explain(error) from error
        except StoreError:
            connection.close()
            raise
        with self._lock:
            if not self._closed:
                self._all.append(connection)
                return connection
        connection.close()
        raise self._is_closed()

    def _use_log(self, connection: sqlite3.Connection) -> None:
        """Switch the file to a write-ahead log, waiting for other processes if needed.

        SQLite itself does not wait for them here.
        """
        give_up = time.monotonic() + self._patience
        while True:
            try:
                (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
                break
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > give_up:
                    raise
                time.sleep(0.01)
        if mode != "wal":
            raise StoreError(
                f"the store {self.path} cannot use a write-ahead log",
                hint="put it on a local disk, since network file systems do not support it",
            )


class LockedConnection(sqlite3.Connection):
    """A connection, and the lock for using it."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.using = RLock()


class Transaction:
    """A transaction whose context manager returns its connection.

    It is committed at the end, and rolled back on any exception. Errors of SQLite are raised as
    `StoreError`.

    Args:
        database: The database.
        connection: One of its connections, of this thread.
        begin: The statement that starts it.
    """

    __slots__ = ("_begin", "_connection", "_database")

    def __init__(self, database: StoreDatabase, connection: LockedConnection, begin: str) -> None:
        self._database = database
        self._connection = connection
        self._begin = begin

    def __enter__(self) -> sqlite3.Connection:
        self._connection.using.acquire()
        try:
            self._connection.execute(self._begin)
        except BaseException as error:
            self._connection.using.release()
            if isinstance(error, ERRORS):
                raise self._database.explain(error) from error
            raise
        return self._connection

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> Literal[False]:
        try:
            if error is None:
                self._connection.execute("COMMIT")
                self._database.check_place()
            else:
                self._roll_back()
        except ERRORS as refused:
            self._roll_back()
            raise self._database.explain(refused) from refused
        finally:
            self._connection.using.release()
        if isinstance(error, ERRORS):
            raise self._database.explain(error) from error
        return False

    def _roll_back(self) -> None:
        """Roll back, unless SQLite has done so already after an error."""
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")


def check_header(path: str, file: OpenFile) -> None:
    """Refuse a file that is incomplete or not a store. Costs one small read.

    Args:
        path: Its name, for messages and to find its log.
        file: The file.

    Raises:
        StoreError: It is not an SQLite file, belongs to another program, has another format, or is
            shorter than its header declares.
    """
    header, size = file.read(_HEADER_SIZE), file.size()
    if not size:
        raise StoreError(
            f"the store {path} is an empty file: its content is lost",
            hint="restore a backup. To start over, remove the file and those next to it",
        )
    if len(header) < _HEADER_SIZE or not header.startswith(_MAGIC):
        raise StoreError(f"{path} is not a store: it is not an SQLite database", hint=_RESTORE)
    page_size, pages, format, application = (
        int.from_bytes(header[at : at + length], "big")
        for at, length in ((16, 2), (28, 4), (60, 4), (68, 4))
    )
    if application != APPLICATION_ID:
        raise StoreError(f"{path} is another program's database", hint=_ELSEWHERE)
    if format != schema.FORMAT:
        raise StoreError(
            f"the store {path} has format {format}. This release reads format {schema.FORMAT}",
            hint=_ELSEWHERE,
        )
    # https://sqlite.org/fileformat.html#in_header_database_size: the size is valid only if these
    # two agree, and missing pages may still be in the log.
    counted = header[24:28] == header[92:96]
    whole = pages * (65536 if page_size == 1 else page_size)
    if counted and size < whole and not _has_log(path):
        raise StoreError(
            f"the store {path} is truncated: it has {size} bytes of {whole}", hint=_RESTORE
        )


def _has_log(path: str) -> bool:
    """Return whether a log exists that may contain the missing pages."""
    try:
        return os.path.getsize(f"{path}-wal") > 0
    except FileNotFoundError:
        return False


_RESTORE = (
    "keep a copy of it and of the files next to it. Then restore a backup, or save the readable "
    "part with `sqlite3 FILE .recover`"
)
_OTHER = "name another with --store"


def _hint(text: str) -> Hint:
    """Return the remedy for a store, which the server's clients cannot apply."""
    return Hint(text.replace(_OTHER, "give the engine another store"), text)


_ELSEWHERE = Hint("give the engine another store", "name another place with --store")
_SAFE = "earlier commits are kept: "

_EXPLANATIONS: dict[str, tuple[str, str]] = {
    "SQLITE_FULL": (
        "the disk that holds the store {path} is full",
        _SAFE + "free some space, then resume",
    ),
    "SQLITE_IOERR_SHMSIZE": (
        "the disk that holds the store {path} has no room for the index of its log",
        _SAFE + "free some space, then resume",
    ),
    "SQLITE_IOERR": (
        "the store {path} could not be read or written: {error} ({code})",
        _SAFE + "check the disk, its quota and the limit of file sizes, then resume",
    ),
    "SQLITE_READONLY": (
        "the store {path} is read-only: {error}",
        _SAFE + f"allow writing to the file and its directory, or {_OTHER}",
    ),
    "SQLITE_CANTOPEN": (
        "the store {path} cannot be opened: {error}",
        f"check the permissions of the file and its directory, or {_OTHER}",
    ),
    "SQLITE_PERM": (
        "access to the store {path} was denied: {error}",
        f"check the permissions of the file and its directory, or {_OTHER}",
    ),
    "SQLITE_BUSY": (
        "another process has locked the store {path} for more than {patience:g} s",
        _SAFE + "end the process that holds it (`fuser -v {path}` names it), then try again",
    ),
    "SQLITE_CONSTRAINT": (
        "the store {path} has an entry in that place already: {error}",
        "an entry is never written over: two writers share one lease, which is a defect",
    ),
    "SQLITE_NOTADB": ("{path} is not a store: it does not hold an SQLite database", _RESTORE),
    "UnicodeDecodeError": ("the store {path} is damaged: it holds invalid text", _RESTORE),
    "SQLITE_CORRUPT": ("the store {path} is damaged: {error}", _RESTORE),
}
"""Code of SQLite, or its prefix → (cause, hint)."""
