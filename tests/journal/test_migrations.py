# Shows F38
"""A store of an earlier release opens, and one of a later release is rejected (F38).

`stores/` contains a small store of each released version, created by `make_store.py` of that
version and never changed. A new version adds a file. This test opens them all.
"""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from flowengine.errors import StoreError
from flowengine.journal.records import Append, ExecutionFilter, WaitFilter
from flowengine.journal.sqlite import schema
from flowengine.journal.sqlite.store import SqliteStore

STORES = Path(__file__).with_name("stores")
VERSION = len(schema.MIGRATIONS)


@pytest.fixture(params=range(1, VERSION + 1))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> SqliteStore:
    shutil.copytree(STORES / f"version-{request.param}", tmp_path / "store")
    return SqliteStore(tmp_path / "store" / "flowengine.db")


def test_stores_of_every_version_can_be_read(store: SqliteStore) -> None:
    """Everything stored can be read: journals, snapshots, waits, decisions, messages, artifacts."""
    ended, waiting = store.executions().items[::-1]
    assert (ended.status, ended.flow, ended.labels) == ("succeeded", "orders", {"team": "a"})
    assert store.execution(ended.id).outputs == b"\x81\xa4done\xc3"
    assert [entry.payload for entry in store.events(ended.id)] == [b"started", b"done"]
    assert waiting.due == 1_800_000_000_000

    loaded = store.load(waiting.id)
    assert loaded.snapshot == (2, b"state")
    assert [entry.seq for entry in loaded.tail] == [2, 3]
    assert store.get_flow(waiting.hash) == b"compiled"
    assert store.find_source("orders.yaml") == (waiting.hash, [("orders.yaml", "d")], b"w")

    (pending,) = store.waits(WaitFilter(assignees=["user:ana"])).items
    assert pending.record["title"] == "Pay?"
    (decided,) = store.waits(WaitFilter("closed")).items
    assert store.wait(decided.id).votes == [b"yes"]
    assert [message.event for message in store.inbox(waiting.id)] == [b"yes", b"signal"]
    assert store.find_key("paid", "7") == waiting.id
    digest = "434728a410a78f56fc1b5899c3593436e61ab0c731e9072d95e96db290205e53"
    assert store.fetch_artifact(digest).read_bytes() == b"content\n"
    assert store.executions(ExecutionFilter(labels={"team": "a"})).items == [ended]
    store.close()


def test_stores_of_every_version_can_be_gone_on_with(store: SqliteStore) -> None:
    """After migration, an old execution accepts new events, and the file has the new version."""
    id = store.executions().items[0].id
    epoch = store.acquire(id, "somebody", 0)

    assert store.commit([Append(id, epoch, 4, [(9, b"new")])]) == [None]

    assert len(store.events(id)) == 5
    version = store._database.connection().execute("PRAGMA user_version").fetchone()
    assert version == (VERSION,)
    store.close()


def test_a_store_of_a_later_version_is_refused_with_the_version_needed(tmp_path: Path) -> None:
    shutil.copytree(STORES / f"version-{VERSION}", tmp_path / "store")
    path = tmp_path / "store" / "flowengine.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.commit()
    connection.close()
    before = path.read_bytes()

    with pytest.raises(StoreError) as caught:
        SqliteStore(path)

    assert "has version 99. This release supports versions up to" in caught.value.message
    assert caught.value.hint == "use a release of flowengine that supports store version 99"
    assert path.read_bytes() == before


def test_a_migration_that_fails_leaves_the_store_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(STORES / f"version-{VERSION}", tmp_path / "store")
    path = tmp_path / "store" / "flowengine.db"
    broken = ("CREATE TABLE more (x)", "INSERT INTO nowhere VALUES (1)")
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, broken))

    with pytest.raises(StoreError, match="no such table: nowhere"):
        SqliteStore(path)

    monkeypatch.undo()
    store = SqliteStore(path)
    tables = store._database.connection().execute("SELECT name FROM sqlite_schema").fetchall()
    assert ("more",) not in tables
    assert len(store.executions().items) == 2
    store.close()


def test_a_migration_is_done_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each version is reached from the previous one, and existing tables are kept."""
    shutil.copytree(STORES / f"version-{VERSION}", tmp_path / "store")
    path = tmp_path / "store" / "flowengine.db"
    more = ("CREATE TABLE more (x)", "INSERT INTO more VALUES (1)")
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, more))

    for _ in range(2):
        store = SqliteStore(path)
        rows = store._database.connection().execute("SELECT count(*) FROM more").fetchone()
        assert rows == (1,)
        store.close()


def test_the_tables_of_a_released_version_stay_as_they_were(tmp_path: Path) -> None:
    """A released version is followed by another one, never changed."""
    SqliteStore(tmp_path / "s.db").close()
    query = "SELECT name, sql FROM sqlite_schema ORDER BY name"
    made = sqlite3.connect(tmp_path / "s.db").execute(query).fetchall()
    kept = (
        sqlite3.connect(STORES / f"version-{VERSION}" / "flowengine.db").execute(query).fetchall()
    )

    assert made == kept
