"""Databases: permitted statements, bounds, and concurrent access (E42-E47)."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.execution_environment import EnvironmentManager
from flowengine.sdk import (
    EnvironmentBusy,
    EnvironmentClosed,
    EnvironmentUnavailable,
    LimitExceeded,
    Refused,
    ValidationError,
)
from flowengine_envs.kinds.sqlite import Database, SqlError, StatementEffect

Open = Callable[..., Database]


@pytest.fixture
def opened(manager: EnvironmentManager, tmp_path: Path) -> Open:
    """Opens a database through the manager. `limits` are its limits, the rest its `config`."""

    def opened(limits: dict[str, Any] | None = None, **config: Any) -> Database:
        spec = {
            "kind": "sqlite",
            "scope": "session",
            "folder": str(tmp_path),
            "config": {"path": "a.db", **config},
            "limits": limits or {},
        }
        database: Database = manager.ensure(spec).resource
        return database

    return opened


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A database with a table of three rows."""
    path = tmp_path / "a.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (a, b)")
        connection.execute("CREATE INDEX i ON t (a)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(1, "x"), (2, "y"), (3, None)])
    connection.close()
    return path


# Rows and parameters (E42)


# Shows E42
def test_rows_are_maps_and_parameters_are_bound(opened: Open) -> None:
    database = opened(path=":memory:")
    database.execute("create table t (a, b)")

    assert database.execute("insert into t values (?, ?)", [1, "x"]) == StatementEffect(1, 1)
    database.execute("insert into t values (:n, :text)", {"n": 2, "text": "'; drop table t--"})

    assert database.query("select a from t where a = ?", [1]) == [{"a": 1}]
    assert database.query("select b from t where a = :n", {"n": 2}) == [{"b": "'; drop table t--"}]
    assert database.execute("update t set b = 'z'") == StatementEffect(2, 2)


# Shows E42
def test_an_exception_in_a_transaction_takes_all_of_it_back(opened: Open) -> None:
    database = opened(path=":memory:")
    database.execute("create table t (a)")

    def fail() -> None:
        with database.transaction():
            database.execute("insert into t values (1)")
            raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        fail()
    with database.transaction():
        database.execute("insert into t values (2)")
        database.execute("insert into t values (3)")

    assert database.query("select a from t") == [{"a": 2}, {"a": 3}]


def test_a_transaction_in_a_transaction_is_refused_and_the_outer_one_goes_on(opened: Open) -> None:
    database = opened(path=":memory:")
    database.execute("create table t (a)")

    with database.transaction():
        database.execute("insert into t values (1)")
        with pytest.raises(ValidationError, match="open already"), database.transaction():
            raise AssertionError("not reached")

    assert database.query("select a from t") == [{"a": 1}]


async def fail(database: Database) -> None:
    async with database.async_transaction():
        await database.async_execute("insert into t values (1)")
        raise RuntimeError("no")


def test_coroutines_have_the_same_verbs(opened: Open) -> None:
    database = opened(path=":memory:")

    async def work() -> Any:
        await database.async_execute("create table t (a)")
        with pytest.raises(RuntimeError, match="no"):
            await fail(database)
        async with database.async_transaction():
            await database.async_execute("insert into t values (2)")
        with pytest.raises(RuntimeError, match="async_query"):
            database.query("select 1")
        return await database.async_query("select a from t")

    assert asyncio.run(work()) == [{"a": 2}]


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("selct 1", "syntax error"),
        ("select * from missing", "no such table"),
        ("insert into t values (1)", "CHECK constraint failed"),
        ("select ?", "bindings"),
    ],
)
def test_what_is_wrong_with_a_statement_is_said_in_the_words_of_the_database(
    opened: Open, sql: str, told: str
) -> None:
    database = opened(path=":memory:")
    database.execute("create table t (a check (a > 1))")

    with pytest.raises(SqlError, match=told) as caught:
        database.query(sql)
    assert not caught.value.retryable
    assert database.query("select 1 as one") == [{"one": 1}]


# What is refused (E43, E44)


@pytest.mark.parametrize(
    "sql",
    [
        "delete from t",
        "with x as (select 1) delete from t",
        "-- select\ndelete from t",
        "explain delete from t; delete from t",
        "pragma user_version = 7",
        "attach 'b.db' as b",
        "select load_extension('x')",
        "vacuum into 'b.db'",
        "select 1; delete from t",
        "create table u (a)",
        "begin",
        "begin exclusive transaction",
        "savepoint s",
    ],
)
# Shows E43
def test_read_only_is_kept_by_the_database(
    opened: Open, file: Path, tmp_path: Path, sql: str
) -> None:
    before = file.read_bytes()
    database = opened()

    for verb in (database.query, database.execute):
        with pytest.raises((Refused, SqlError)):
            verb(sql)

    assert file.read_bytes() == before
    assert not (tmp_path / "b.db").exists()
    assert len(database.query("-- c\nselect 1 from t")) == 3
    # No refused statement has left a lock, so others can write at once.
    with sqlite3.connect(file, timeout=0) as other:
        other.execute("insert into t values (4, 'z')")
    other.close()
    assert len(database.query("select 1 from t")) == 4


# Shows E43
def test_pragmas_that_only_tell_are_allowed(opened: Open, file: Path) -> None:
    assert [row["name"] for row in opened().query("pragma table_info(t)")] == ["a", "b"]
    assert opened().query("pragma integrity_check") == [{"integrity_check": "ok"}]


@pytest.mark.parametrize(
    "sql", ["attach ':memory:' as b", "select load_extension('x')", "vacuum into 'b.db'"]
)
def test_writing_lets_nobody_out_of_the_file(
    opened: Open, file: Path, tmp_path: Path, sql: str
) -> None:
    database = opened(mode="rw")

    with pytest.raises((Refused, SqlError)):
        database.execute(sql)
    assert not (tmp_path / "b.db").exists()
    assert database.execute("delete from t where a = 1").changed == 1


# Shows E44
def test_rw_makes_no_file_and_rwc_does(opened: Open, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentUnavailable, match="rwc"):
        opened(mode="rw")
    assert not (tmp_path / "a.db").exists()

    opened(mode="rwc").execute("create table t (a)")
    assert (tmp_path / "a.db").exists()


# Shows E44
def test_the_file_lies_below_the_roots_with_links_resolved(opened: Open, tmp_path: Path) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    sqlite3.connect(outside / "o.db").close()
    (tmp_path / "link.db").symlink_to(outside / "o.db")
    (tmp_path / "folder").symlink_to(outside)

    for path in ("../x.db", str(outside / "o.db"), "link.db", "folder/o.db"):
        with pytest.raises(EnvironmentUnavailable, match=r"config\.roots"):
            opened(path=path, mode="rwc")
    assert opened(path="link.db", roots=[str(outside)]).query("select 1 as a") == [{"a": 1}]
    for root in ("folder", str(tmp_path / "folder")):  # a sandbox may have made the link
        with pytest.raises(EnvironmentUnavailable, match=r"link|leads"):
            opened(path="folder/o.db", roots=[root])


def test_what_is_no_database_does_not_open(opened: Open, tmp_path: Path) -> None:
    (tmp_path / "a.db").write_text("not a database, but long enough to look like one" * 50)

    with pytest.raises(Exception, match="not a database"):
        opened()


def test_a_pipe_does_not_open_and_is_not_waited_for(opened: Open, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.db")

    with pytest.raises(Exception, match="is not a file"):
        opened()


# Bounds (E45)

NUMBERS = "with recursive n(i) as (select 1 union all select i + 1 from n where i < {}) "


# Shows E45
def test_a_result_stops_at_the_largest_number_of_rows(opened: Open) -> None:
    database = opened(path=":memory:", rows=1000)

    rows = database.query(NUMBERS.format(10**9) + "select i from n")

    assert (len(rows), rows.truncated) == (1000, True)
    all_of_them = database.query(NUMBERS.format(1000) + "select i from n")
    assert (len(all_of_them), all_of_them.truncated) == (1000, False)


def test_a_result_stops_at_the_largest_number_of_bytes(opened: Open) -> None:
    database = opened(path=":memory:", limits={"output": "100kB"})

    rows = database.query(NUMBERS.format(10**9) + "select printf('%01000d', i) as text from n")

    assert (rows.truncated, rows.limit) == (True, "limits.output is 100,000 bytes")
    assert 90 <= len(rows) <= 100


def test_one_value_larger_than_the_result_may_be_is_an_error(opened: Open) -> None:
    database = opened(path=":memory:", limits={"output": "100kB"})

    told = r"larger than 100,000 bytes \(limits.output\)"
    with pytest.raises(LimitExceeded, match=told) as caught:
        database.query("select zeroblob(100000000)")
    assert caught.value.data == {"limit": "output", "value": 100_000}


# Shows E45
def test_an_endless_statement_is_interrupted_and_the_connection_stays_usable(opened: Open) -> None:
    database = opened(path=":memory:", limits={"time": 0.2})
    begin = time.monotonic()

    for verb in (database.query, database.execute):
        with pytest.raises(LimitExceeded, match=r"limits\.time"):
            verb(NUMBERS.format(10**12) + "select count(*) from n")

    assert time.monotonic() - begin < 60
    assert database.query("select 1 as a") == [{"a": 1}]


def test_a_cancelled_statement_is_interrupted(opened: Open) -> None:
    database = opened(path=":memory:")

    async def work() -> Any:
        endless = NUMBERS.format(10**12) + "select count(*) from n"
        asking = asyncio.ensure_future(database.async_query(endless))
        # Nothing else shows that a statement without an end has begun.
        while not database._turn.locked():  # noqa: ASYNC110 - it runs from then on
            await asyncio.sleep(0.001)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        return await asyncio.wait_for(database.async_query("select 1 as a"), 60)

    assert asyncio.run(work()) == [{"a": 1}]


def test_a_file_grows_to_its_limit(opened: Open, file: Path) -> None:
    database = opened(mode="rw", limits={"disk": "100kB"})

    for _ in range(2):
        database.execute("insert into t values (zeroblob(10000), 1)")
    with pytest.raises(LimitExceeded, match=r"limits\.disk"):
        database.execute("insert into t values (zeroblob(90000), 1)")
    assert file.stat().st_size <= 100_000


# At once (E46)


@pytest.mark.endurance
# Shows E46
def test_twenty_threads_write_at_once(opened: Open, file: Path) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute("pragma journal_mode = wal")  # fewer syncs
    connection.close()
    database = opened(mode="rw")

    def work(number: int) -> None:
        for each in range(50):
            database.execute("insert into t values (?, ?)", [number, each])

    with ThreadPoolExecutor(20) as pool:
        list(pool.map(work, range(20)))

    assert database.query("select count(*) as n from t") == [{"n": 1003}]


def test_parallel_tasks_do_not_mix_their_transactions(opened: Open) -> None:
    database = opened(path=":memory:")
    database.execute("create table t (task, step)")

    async def one(task: int) -> None:
        async with database.async_transaction():
            for step in range(3):
                await database.async_execute("insert into t values (?, ?)", [task, step])
                await asyncio.sleep(0)

    async def all_of_them() -> None:
        await asyncio.gather(*map(one, range(10)))

    asyncio.run(all_of_them())

    rows = database.query("select task, step from t order by rowid")
    tasks = [row["task"] for row in rows]
    assert all(len({*tasks[at : at + 3]}) == 1 for at in range(0, 30, 3))


# Shows E46
def test_a_lock_held_elsewhere_is_waited_for_within_a_bound(opened: Open, file: Path) -> None:
    database = opened(mode="rw", busy=0.2)
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("begin immediate")

    with pytest.raises(EnvironmentBusy, match=str(file)) as caught:
        database.execute("delete from t")
    assert caught.value.retryable

    other.execute("rollback")
    other.close()
    assert database.execute("delete from t").changed == 3


# The end (E47)


# Shows E47
def test_release_rolls_back_and_leaves_the_file_whole(
    opened: Open, file: Path, manager: EnvironmentManager, tmp_path: Path
) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute("pragma journal_mode = wal")
    connection.close()
    database = opened(mode="rw")
    open_one = database.transaction()
    open_one.__enter__()
    database.execute("delete from t")

    report = manager.release_scope("session")

    assert (len(report.released), report.failed) == (1, [])
    with pytest.raises(EnvironmentClosed):
        open_one.__exit__(None, None, None)
    assert not list(tmp_path.glob("a.db-*"))
    check = sqlite3.connect(file)
    assert check.execute("select count(*) from t").fetchone() == (3,)
    check.close()
    file.unlink()


# In a flow

FLOW = """
flowengine: 1
id: it
environments: {db: {kind: sqlite, config: {path: a.db, rows: 2}}}
steps:
  - {id: all, run: select a from t order by a, in: db}
  - {id: some, run: {script: "select b from t where a = :a", env: {a: "${{ 2 }}"}}, in: db}
  - {id: wrong, run: {script: delete from t, accept: any}, in: db}
outputs: {all: "${{ steps.all.output }}", some: "${{ steps.some.output }}", wrong: "${{ steps.wrong.output }}"}
"""  # noqa: E501


def test_a_step_is_told_when_its_rows_were_cut_and_what_was_refused(
    file: Path, folder: Path
) -> None:
    Path("flow.yaml").write_text(FLOW)
    with Engine("store") as engine:
        outputs = engine.run("flow.yaml").outputs
    assert outputs is not None

    assert outputs["all"]["value"] == [{"a": 1}, {"a": 2}]
    assert outputs["all"]["stderr"] == "cut after 2 rows: config.rows is 2"
    assert (outputs["some"]["value"], outputs["some"]["stderr"]) == ([{"b": "y"}], "")
    assert outputs["wrong"]["exit_code"] == 1
    assert "config.mode is rw" in outputs["wrong"]["stderr"]
