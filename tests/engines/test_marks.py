"""Long executions that another process has compared: what it has recorded is not read again."""

from __future__ import annotations

import os
import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.engines.executions import linked_flows
from flowengine.engines.inspection import marks, replayed
from flowengine.engines.inspection.marks import FILE, Marks
from flowengine.journal import encoding
from flowengine.journal.sqlite.store import SqliteStore

WORKS = """
def work(n):
    if n == 77:
        raise ValueError("77")
    return "x" * 300
"""
LONG = """
flowengine: 1
id: long
steps:
  - id: each
    map: {over: 120, as: n, on_item_error: continue}
    group:
      - {id: one, python: "works:work", with: {n: "${{ n }}"}}
      - {id: late, when: "${{ n % 90 == 7 }}", approval: {title: "Good ${{ n }}?"}}
  - {id: sign, approval: {title: Good?}}
"""
FAILS = """
flowengine: 1
id: fails
steps:
  - {id: each, map: {over: 60, as: n}, python: "works:work", with: {n: "${{ n }}"}}
  - {id: last, python: "works:work", with: {n: 77}}
"""
SHOWN = 20
"""Events from which an execution is recorded."""


def prepare(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Make a folder with flows the current one, in which short executions are long."""
    patch.chdir(folder)
    (folder / "works.py").write_text(WORKS)
    (folder / "long.yaml").write_text(LONG)
    (folder / "fails.yaml").write_text(FAILS)
    (folder / "kept").mkdir(exist_ok=True)
    patch.setattr(marks, "EVERY", SHOWN)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    prepare(tmp_path, monkeypatch)
    return tmp_path


@pytest.fixture
def costs(monkeypatch: pytest.MonkeyPatch) -> Callable[[], tuple[int, int]]:
    """Return what returns how many events were read and applied since the last call."""
    rows, applied = list[object](), list[object]()
    apply, events = linked_flows.apply, SqliteStore.events

    def counted(flows: Any, graph: Any, state: Any, event: Any, observe: Any = None) -> Any:
        applied.append(event["type"])
        return apply(flows, graph, state, event, observe)

    def read_from(store: SqliteStore, *given: Any, **more: Any) -> Any:
        found = events(store, *given, **more)
        rows.extend(found)
        return found

    monkeypatch.setattr(linked_flows, "apply", counted)
    monkeypatch.setattr(SqliteStore, "events", read_from)

    def found() -> tuple[int, int]:
        counts = len(rows), len(applied)
        rows.clear()
        applied.clear()
        return counts

    return found


@contextmanager
def server(**more: Any) -> Iterator[Engine]:
    """Return the engine of a server that was just started."""
    with Engine("store") as engine:
        engine.keep_histories(folder="kept", **more)
        yield engine


def run(flow: str = "long.yaml") -> str:
    with Engine("store") as engine:
        return engine.run(flow).execution


@pytest.mark.endurance
def test_what_was_compared_once_is_compared_again_without_its_journal(
    folder: Path, costs: Callable[[], tuple[int, int]]
) -> None:
    (folder / "other.yaml").write_text(LONG.replace("n % 90 == 7", "n % 90 == 8"))
    left, right = run(), run("other.yaml")
    with Engine("store") as fresh:
        expected = [
            fresh.executions.diff(left, right),
            fresh.executions.diff(right, left),
            fresh.executions.diff(left, left),
        ]
    with server() as engine:
        assert engine.executions.diff(left, right) == expected[0]
        assert len(expected[0]["steps"]) > 3
        costs()
    with server() as engine:
        assert [
            engine.executions.diff(left, right),
            engine.executions.diff(right, left),
            engine.executions.diff(left, left),
        ] == (expected)
        read, applied = costs()
        assert read <= 6
        assert applied == 0
    with Engine("store") as driver:
        driver.approvals.approve(driver.executions.result(left).waits[0]["id"])
        grown = driver.executions.diff(left, right)
    for how in (
        "UPDATE facts SET contents = x'00'",
        "UPDATE facts SET facts = substr(facts, 1, 30)",
        "UPDATE compared SET body = x'01'",
        "DELETE FROM facts",
        "DELETE FROM executions",
        "DROP TABLE facts",
        "PRAGMA user_version = 99",
        *("garbage", "truncated", "empty"),
    ):
        with server() as engine:
            assert engine.executions.diff(left, right) == grown
        damage(how, folder / "kept" / FILE)
    with server() as engine:
        assert engine.executions.diff(left, right) == grown


def damage(how: str, path: Path) -> None:
    """Change the file, as another program could."""
    content = path.read_bytes()
    garbage, half = random.Random(1).randbytes(len(content)), content[: len(content) // 2]
    files = {"garbage": garbage, "truncated": half, "empty": b""}
    if how in files:
        path.write_bytes(files[how])
    else:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(how)


def packed(value: Any) -> bytes:
    return marks._packed(value)


def test_more_than_fits_is_refused_before_it_is_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    fits, bomb = packed("x" * 9_000), packed("x" * 1_000_000)
    assert len(bomb) < 10_000
    monkeypatch.setattr(encoding, "MAX_SIZE", 10_000)
    assert marks._unpacked(fits) == "x" * 9_000
    with pytest.raises(marks.DamagedMarks):
        marks._unpacked(bomb)


def test_of_a_deleted_execution_nothing_is_kept(folder: Path) -> None:
    ids = [run("fails.yaml"), run()]
    with server() as engine:
        engine.executions.diff(*ids)
    content = (folder / "kept" / FILE).read_bytes()
    assert all(id.encode() in content for id in ids)
    with Engine("store") as engine:
        assert engine.executions.prune().executions == 1
    with server():
        pass
    content = (folder / "kept" / FILE).read_bytes()
    assert ids[0].encode() not in content
    assert ids[1].encode() in content


def test_no_more_is_recorded_than_permitted(folder: Path) -> None:
    ids = [run("fails.yaml") for _ in range(3)]
    with server() as engine:
        engine.executions.diff(ids[0], ids[0])
        assert engine._marks is not None
        [(size,)] = engine._marks.rows("SELECT bytes FROM executions", ())
        engine._marks._most = 2 * size + size // 2
        for id in ids[1:]:
            assert engine.executions.diff(id, ids[0])["steps"] == []
        known = {one for (one,) in engine._marks.rows("SELECT id FROM executions", ())}
        assert len(known) == 2
        assert ids[0] in known  # it was recorded again


def test_how_a_failed_one_is_continued_is_determined_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = run("fails.yaml")
    with Engine("store") as fresh:
        expected = fresh.executions.show(id)["command"]
    with server() as engine, engine.executions.folds(id) as (info, _):
        assert info["command"] == expected
    monkeypatch.setattr(replayed, "fork_point", lambda *_: pytest.fail("it was recorded"))
    with server() as engine, engine.executions.folds(id) as (info, _):
        assert info["command"] == expected


def test_the_file_is_for_this_user_only(folder: Path) -> None:
    before = os.umask(0)
    try:
        with closing(Marks("kept")):
            assert {path.stat().st_mode & 0o777 for path in Path("kept").iterdir()} == {0o600}
    finally:
        os.umask(before)
