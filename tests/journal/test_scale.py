# Shows F35
"""The cost of a page is independent of the list's length (F35). See `benchmarks/` for figures."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flowengine.journal.records import (
    Append,
    ExecutionFilter,
    ExecutionHead,
    NewExecution,
    WaitFilter,
)
from flowengine.journal.sqlite.store import SqliteStore
from tests.journal.database import connection_of

SHORT, LONG = 500, 4_000


def fill(path: Path, count: int) -> SqliteStore:
    """Create a store of waiting executions, with rotating flows, teams and batches."""
    store = SqliteStore(path, "none")
    store.put_flow("f", b"compiled")
    appends = []
    for n in range(count):
        record = {
            "id": 0,
            "kind": "question" if n % 10 == 0 else "approval",
            "since": n,
            "assignees": [f"user:{n % 7}", "group:ops"],
            "batch": f"b{n % 5}",
        }
        new = NewExecution(f"flow{n % 3}", None, "f", n, {"team": str(n % 4)})
        appends.append(
            Append(
                f"e{n}",
                0,
                0,
                [(n, b"x")],
                (),
                new,
                ExecutionHead("waiting", n, due=n),
                opened=[record],
            )
        )
    assert store.commit(appends) == [None] * count
    return store


@contextmanager
def counted(store: SqliteStore) -> Iterator[list[int]]:
    """Count SQLite's work in hundreds of virtual machine steps, which is independent of time."""
    connection = connection_of(store)
    steps = [0]

    def step() -> None:
        steps[0] += 1

    connection.set_progress_handler(step, 10)
    yield steps
    connection.set_progress_handler(None, 0)


WAIT_FILTERS = [
    WaitFilter(),
    WaitFilter(kinds=["question"]),
    WaitFilter(flow="flow1"),
    WaitFilter(flow="flow1", kinds=["approval"]),
    WaitFilter(batch="b3"),
    WaitFilter(assignees=["user:3"]),
    WaitFilter(assignees=["user:3", "group:ops", "user:none"]),
    WaitFilter(assignees=["user:3"], flow="flow1"),
    WaitFilter(execution="e77"),
    WaitFilter(before=400),
    WaitFilter(since=100),
    WaitFilter(in_turn=True),
    WaitFilter(flow="flow1", in_turn=True),
    WaitFilter(assignees=["user:3", "group:ops"], in_turn=True),
    WaitFilter("all", kinds=["approval"]),
    WaitFilter("closed"),
]
EXECUTION_FILTERS = [
    ExecutionFilter(),
    ExecutionFilter(flow="flow1"),
    ExecutionFilter(status="waiting"),
    ExecutionFilter("flow1", "waiting"),
    ExecutionFilter(labels={"team": "2"}),
    ExecutionFilter(labels={"team": "2"}, flow="flow1"),
    ExecutionFilter(since=100),
    ExecutionFilter(status="failed"),
    ExecutionFilter(due=20),
    ExecutionFilter(forked_from="e7"),
    ExecutionFilter(labels={"team": "2"}, status="waiting"),
    ExecutionFilter(labels={"team": "2"}, status="failed"),
    ExecutionFilter(search="flow1"),
]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[SqliteStore, SqliteStore]:
    folder = tmp_path_factory.mktemp("stores")
    return fill(folder / "short.db", SHORT), fill(folder / "long.db", LONG)


@pytest.mark.endurance
@pytest.mark.parametrize("filter", WAIT_FILTERS, ids=str)
# Shows V54
def test_a_page_of_waits_costs_the_same_in_a_long_list(
    filter: WaitFilter, stores: tuple[SqliteStore, SqliteStore]
) -> None:
    """The first page, and one from the middle, of lists that differ by a factor of ten."""
    costs = []
    for store in stores:
        with counted(store) as steps:
            store.waits(filter, limit=20)
            store.waits(filter, after="250.250", limit=20)
        costs.append(steps[0])

    assert costs[1] <= costs[0] * 1.3 + 10


@pytest.mark.parametrize("filter", EXECUTION_FILTERS, ids=str)
def test_a_page_of_executions_costs_the_same_in_a_long_list(
    filter: ExecutionFilter, stores: tuple[SqliteStore, SqliteStore]
) -> None:
    costs = []
    for store in stores:
        with counted(store) as steps:
            store.executions(filter, limit=20)
            store.executions(filter, after="250.250", limit=20)
        costs.append(steps[0])

    assert costs[1] <= costs[0] * 1.3 + 10


def test_nothing_walks_a_whole_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries of a running execution use an index, never a table scan."""
    store = fill(tmp_path / "s.db", 10)
    connection = connection_of(store)
    asked: set[str] = set()
    connection.set_trace_callback(asked.add)
    store.load("e1")
    store.events("e1", 0, 5)
    store.inbox("e1")
    store.arrived(0)
    store.wait(store.waits(WaitFilter(execution="e1")).items[0].id)
    store.find_execution("e1")
    store.short_execution("e1")
    store.find_wait(store.waits(WaitFilter(execution="e1")).items[0].id[:6])
    store.send("e1", b"x", 1, "m")
    store.commit([Append("e1", 0, 1, [(1, b"x")], keys=[("paid", "7")], taken=[1])])
    store.send_keyed("paid", "7", b"x", 1, "m")
    store.find_key("paid", "7")
    connection.set_trace_callback(None)
    plain = sqlite3.connect(tmp_path / "s.db")

    walks = []
    for statement in sorted(asked):
        if statement.startswith(("BEGIN", "COMMIT", "PRAGMA")):
            continue
        plan = [row[3] for row in plain.execute(f"EXPLAIN QUERY PLAN {statement}")]
        walks += [(step, statement) for step in plan if step.startswith("SCAN")]

    assert walks == []
    plain.close()
    store.close()
