"""`sqlite`: a database file, read-only unless the spec sets another mode.

The database itself decides which operations a statement may perform. It calls back for every table,
function and pragma while it compiles the statement, so nothing depends on the text. Statements run
one after another on a dedicated thread, so the connection may be used from any thread, task or
loop.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

from pydantic import BaseModel

from flowengine.sdk import (
    Command,
    EnvironmentBusy,
    EnvironmentClosed,
    EnvironmentStartFailed,
    EnvironmentUnavailable,
    LimitExceeded,
    PathEscape,
    Plain,
    Refused,
    StepContext,
    StepError,
    ValidationError,
)
from flowengine.sdk.environments import (
    Capabilities,
    Provider,
    Request,
    Resource,
    Spec,
    background,
    both_forms,
)
from flowengine.sdk.environments.models import Config, has_reference
from flowengine.sdk.files.confined_files import is_own_file
from flowengine.sdk.texts.sizes import size_text
from flowengine_envs.sandboxes.mounts import named_folder

MEMORY = ":memory:"
Parameters = Sequence[Plain] | Mapping[str, Plain]
_Result = TypeVar("_Result")

_inside: ContextVar[tuple[int, ...]] = ContextVar("inside", default=())
"""Databases in whose transaction the caller is. Passed to the background loop at each call."""

_ROWS = 10_000
_BYTES = 16 * 1024 * 1024
_SECONDS = 30.0
_PAGE = 4096
_BATCH = 256
"""Rows fetched before the size of the result is checked."""

_READS = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_RECURSIVE,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_PRAGMA,
}
"""No transaction statements: an open transaction would lock the file for writers."""
_PRAGMAS = frozenset(
    {
        *("collation_list", "database_list", "foreign_key_check", "foreign_key_list"),
        *("function_list", "index_info", "index_list", "index_xinfo", "integrity_check"),
        *("quick_check", "table_info", "table_list", "table_xinfo"),
    }
)
"""Pragmas that only return information. Their arguments, if any, are names."""
_FUNCTIONS = frozenset({"load_extension", "readfile", "writefile", "edit", "fts3_tokenizer"})


class SqlError(StepError):
    """A statement is wrong or violated a constraint. The message is the database's."""

    type = "SqlError"


class Rows(list[dict[str, Plain]]):
    """Rows of a result, each a map from column to value."""

    truncated = False
    """Whether the limits cut rows off."""
    limit = ""
    """The limit that was reached, with its value."""


class StatementEffect(NamedTuple):
    """Effect of a statement."""

    changed: int
    """Number of changed rows, or -1 if the database does not report it."""
    last_id: int | None
    """Row id of the last row that was inserted."""


class Database(Resource):
    """A connection to a database.

    Args:
        connection: The open connection. It is used only on `thread`.
        thread: The one thread it is used on.
        file: Path for messages.
    """

    def __init__(
        self,
        request: Request,
        connection: sqlite3.Connection,
        thread: ThreadPoolExecutor,
        file: str,
    ) -> None:
        super().__init__(request)
        self.file = file
        self._connection = connection
        self._thread = thread
        self._seconds = request.limits.time or _SECONDS
        self._rows = request.config.rows
        self._bytes = request.limits.output or _BYTES
        self._disk = request.limits.disk
        self._reads_only = request.config.mode == "ro" and file != MEMORY
        self._turn = asyncio.Lock()
        self._ended = False

    async def _query(self, sql: str, params: Parameters = ()) -> Rows:
        """Return the rows of one statement.

        Args:
            sql: One statement.
            params: Values for `?` by position, or for `:name` by name.

        Returns:
            The rows, cut where the limits of rows and bytes are reached.

        Raises:
            Refused: The mode or the policy forbids it.
            SqlError: The database rejected it.
            EnvironmentBusy: Another connection has locked the database.
            LimitExceeded: It took too long.
        """
        return await self._work(lambda: self._fetch(sql, params))

    query, async_query = both_forms(_query)

    async def _execute(self, sql: str, params: Parameters = ()) -> StatementEffect:
        """Run one statement and return its effect.

        Args:
            sql: One statement.
            params: Values for `?` by position, or for `:name` by name.

        Returns:
            The number of changed rows.

        Raises:
            Refused: The mode or the policy forbids it.
            SqlError: The database rejected it.
            EnvironmentBusy: Another connection has locked the database.
            LimitExceeded: It took too long.
        """

        def execute() -> StatementEffect:
            cursor = self._connection.execute(sql, params)
            done = StatementEffect(cursor.rowcount, cursor.lastrowid)
            cursor.close()
            return done

        return await self._work(execute)

    execute, async_execute = both_forms(_execute)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make the block one atomic change, rolled back if the block raises.

        Other callers wait until it has ended.
        """
        self._begin()
        mark = _inside.set((*_inside.get(), id(self)))
        try:
            yield
        except BaseException:
            with suppress(EnvironmentClosed):  # then it is rolled back
                self._end("ROLLBACK")
            raise
        else:
            self._end("COMMIT")
        finally:
            _inside.reset(mark)

    @asynccontextmanager
    async def async_transaction(self) -> AsyncIterator[None]:
        """Like `transaction`, for `async with`."""
        await self._async_begin()
        mark = _inside.set((*_inside.get(), id(self)))
        try:
            yield
        except BaseException:
            with suppress(EnvironmentClosed):
                await self._async_end("ROLLBACK")
            raise
        else:
            await self._async_end("COMMIT")
        finally:
            _inside.reset(mark)

    async def _begin_(self) -> None:
        if id(self) in _inside.get():
            raise ValidationError(f"{self.name}: a transaction is open already")
        await self._turn.acquire()
        try:
            await self._on_thread(lambda: self._transact("BEGIN"))
        except BaseException:
            self._turn.release()
            raise

    _begin, _async_begin = both_forms(_begin_)

    async def _end_(self, how: str) -> None:
        try:
            await self._on_thread(lambda: self._transact(how))
        except BaseException:
            with suppress(StepError):
                await self._on_thread(self._connection.rollback)
            raise
        finally:
            self._turn.release()

    _end, _async_end = both_forms(_end_)

    def _transact(self, statement: str) -> None:
        """Begin or end a transaction, which is refused for a read-only database."""
        self._connection.set_authorizer(None)
        try:
            self._connection.execute(statement)
        finally:
            self._connection.set_authorizer(_reader if self._reads_only else _writer)

    async def close(self) -> None:
        """Roll back any open transaction and close the connection. Closing twice is harmless."""
        if self._ended:
            return
        self._ended = True
        loop = asyncio.get_running_loop()
        self._connection.interrupt()
        await loop.run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=False)

    def _close(self) -> None:
        with suppress(sqlite3.Error):
            self._connection.rollback()
        self._connection.close()

    async def _work(self, work: Callable[[], _Result]) -> _Result:
        """Use the connection when it is free, or at once inside a transaction."""
        if id(self) in _inside.get():
            return await self._on_thread(work)
        async with self._turn:
            return await self._on_thread(work)

    async def _on_thread(self, work: Callable[[], _Result]) -> _Result:
        loop = asyncio.get_running_loop()
        late = loop.call_later(self._seconds, self._connection.interrupt)
        running = loop.run_in_executor(self._thread, work)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            self._connection.interrupt()
            with suppress(sqlite3.Error):
                await running
            raise
        except (sqlite3.Error, sqlite3.Warning, OverflowError) as error:
            raise self._step_error(error) from error
        finally:
            late.cancel()

    def _fetch(self, sql: str, params: Parameters) -> Rows:
        """Fetch rows until a limit is reached."""
        rows = Rows()
        size = 0
        cursor = self._connection.execute(sql, params)
        try:
            names = [column[0] for column in cursor.description or ()]
            while batch := cursor.fetchmany(_BATCH):
                for row in batch:
                    size += sum(map(_size, row))
                    if len(rows) == self._rows or size > self._bytes:
                        rows.truncated = True
                        rows.limit = f"limits.output is {size_text(self._bytes)}"
                        if len(rows) == self._rows:
                            rows.limit = f"config.rows is {self._rows}"
                        return rows
                    rows.append(dict(zip(names, row, strict=True)))
        finally:
            cursor.close()
        return rows

    def _step_error(self, error: Exception) -> StepError:
        """Return a database error as an error of the language."""
        message = str(error)
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return EnvironmentBusy(f"{self.file} is locked by another process", retryable=True)
        if code in (sqlite3.SQLITE_AUTH, sqlite3.SQLITE_READONLY):
            hint = ". It is read-only unless config.mode is rw" if self._reads_only else ""
            return Refused(f"{self.name} does not allow this statement: {message}{hint}")
        limit, value = "", 0.0
        if code == sqlite3.SQLITE_INTERRUPT:
            limit, value = "time", self._seconds
            what = f"the statement took longer than {value:g} s"
        elif code == sqlite3.SQLITE_FULL and self._disk is not None:  # else the machine's is full
            limit, value = "disk", self._disk
            what = f"{self.file} cannot have more than {size_text(value)}"
        elif code == sqlite3.SQLITE_TOOBIG:
            limit, value = "output", self._bytes
            what = f"a value or statement is larger than {size_text(value)}"
        if not limit:
            return SqlError(message, retryable=False)
        data: dict[str, Plain] = {"limit": limit, "value": value}
        return LimitExceeded(f"{self.name}: {what} (limits.{limit})", data=data)


class Sqlite(Provider[Database]):
    """Opens SQLite databases."""

    kind = "sqlite"
    leaves_traces = False
    sample: ClassVar[Mapping[str, Plain]] = {"path": MEMORY}

    def config_model(self) -> type[BaseModel]:
        from pydantic import Field

        class SqliteConfig(Config):
            """A database file."""

            path: str = Field(min_length=1)
            """The file, relative to the working directory. `:memory:` for a temporary database."""
            mode: Literal["ro", "rw", "rwc"] = "ro"
            """Read only, read and write, or also create a missing file."""
            roots: tuple[str, ...] = (".",)
            """Directories that must contain the file, after links are resolved."""
            rows: int = Field(default=_ROWS, gt=0)
            """Maximum number of rows that a query returns."""
            busy: float = Field(default=5.0, ge=0, allow_inf_nan=False)
            """Seconds to wait for another connection's lock."""

        return SqliteConfig

    def capabilities(self, sandbox: Capabilities) -> Capabilities:
        """Return the guarantees that the database itself enforces."""
        return Capabilities(
            "none",
            {
                "filesystem": "one file, and statements that open another are refused",
                "network": "no statement reaches it",
                "variables": "no statement reads them",
                "time": "a statement is interrupted",
                "output": "rows and bytes of a result are counted",
                "disk": "largest number of pages",
            },
            {"time": _SECONDS, "output": _BYTES},
        )

    async def probe(self, spec: Spec) -> None:
        """Check that the file exists and is in an allowed place."""
        if not has_reference(spec.config.path):  # Otherwise it is known only at opening.
            await asyncio.to_thread(_file, spec, spec.config)

    async def ensure(self, request: Request) -> Database:
        """Open the database."""
        file = await asyncio.to_thread(_file, request.spec, request.config)
        thread = ThreadPoolExecutor(1, thread_name_prefix=f"sqlite-{request.spec.resource_key}")
        loop = asyncio.get_running_loop()
        try:
            connection = await loop.run_in_executor(thread, lambda: _open(file, request))
        except BaseException as error:
            thread.shutdown(wait=False)
            if isinstance(error, sqlite3.Error):
                raise EnvironmentStartFailed(f"{request.spec}: {file}: {error}") from error
            raise
        return Database(request, connection, thread, file)

    def health_check(self, resource: Database) -> bool:
        """Return whether the connection is open. It has no process that could end."""
        return not resource.given_back

    async def release(self, resource: Database) -> None:
        await resource.close()

    async def run(
        self, resource: Database, context: StepContext, command: Command
    ) -> dict[str, Plain]:
        """Run the one statement of `script`, with `env` as its named parameters."""
        if command.script is None:
            raise ValidationError("a 'sqlite' environment takes a 'script', not 'command'")
        code, value, stderr = 0, None, ""
        try:
            rows = await background().wait(resource._query(command.script, command.env))
            value = list(rows)
            if rows.truncated:
                stderr = f"cut after {len(rows)} rows: {rows.limit}"
        except (SqlError, Refused) as error:
            code, stderr = 1, error.message
        return {"exit_code": code, "stdout": "", "stderr": stderr, "value": value, "files": {}}


def _file(spec: Spec, config: Any) -> str:
    """Return the resolved path of the database, which must be in an allowed place."""
    if config.path == MEMORY:
        return MEMORY
    path = Path(spec.folder, config.path).resolve()
    present = (root for root in config.roots if Path(spec.folder, root).is_dir())
    roots = [named_folder(spec, root) for root in present]
    if not any(path.is_relative_to(root) for root in roots):
        within = ", ".join(config.roots)
        raise PathEscape(f"{spec}: {path} is not below {within} (config.roots)")
    if is_own_file(str(path)):
        raise Refused(f"{spec}: {path} belongs to a store of the engine")
    if path.exists() and not path.is_file():  # SQLite would wait for the other end of a pipe
        raise EnvironmentUnavailable(f"{spec}: {path} is not a file: correct config.path")
    if config.mode != "rwc" and not path.exists():
        create = " or set 'mode: rwc' to create it" if config.mode == "rw" else ""
        raise EnvironmentUnavailable(
            f"{spec}: there is no file {path}: correct config.path{create}"
        )
    return str(path)


def _open(file: str, request: Request) -> sqlite3.Connection:
    """Open a database and disable everything that no statement may use."""
    config = request.config
    if file == MEMORY:
        target, writes = MEMORY, True
    else:
        target, writes = f"{Path(file).as_uri()}?mode={config.mode}", config.mode != "ro"
    connection = sqlite3.connect(
        target, uri=file != MEMORY, timeout=config.busy, isolation_level=None
    )
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        # Raises if the file is not a database.
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if request.limits.disk and writes:
            connection.execute(f"PRAGMA max_page_count = {max(1, request.limits.disk // _PAGE)}")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, request.limits.output or _BYTES)
        connection.set_authorizer(_writer if writes else _reader)
    except BaseException:
        connection.close()
        raise
    return connection


def _reader(
    action: int, first: str | None, second: str | None, database: str | None, view: str | None
) -> int:
    if action not in _READS:
        return sqlite3.SQLITE_DENY
    return _writer(action, first, second, database, view)


def _writer(
    action: int, first: str | None, second: str | None, database: str | None, view: str | None
) -> int:
    if action in (sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH):
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_PRAGMA and (first or "").lower() not in _PRAGMAS:
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _FUNCTIONS:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


def _size(value: Any) -> int:
    return len(value) if isinstance(value, str | bytes) else 8
