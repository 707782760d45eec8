"""Long executions that another process has shown: what it has recorded is not read again."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from flowengine import Engine
from flowengine.engines.executions import linked_flows
from flowengine.engines.inspection import glance, marks
from flowengine.engines.inspection.marks import FILE, Marks
from flowengine.errors import StoreError
from flowengine.journal import encoding
from flowengine.journal.sqlite.store import SqliteStore
from flowengine.page.timeline import timeline

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
"""Events between two marks."""


def prepare(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Make a folder with flows the current one, in which short executions are long."""
    patch.chdir(folder)
    (folder / "works.py").write_text(WORKS)
    (folder / "long.yaml").write_text(LONG)
    (folder / "fails.yaml").write_text(FAILS)
    (folder / "kept").mkdir(exist_ok=True)
    patch.setattr(marks, "EVERY", SHOWN)
    patch.setattr(marks, "_PER_EVENT", 2000)  # states at most of the marks
    patch.setattr(marks, "NEW", 2 * SHOWN)
    patch.setattr(glance, "LONG", 100)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    prepare(tmp_path, monkeypatch)
    return tmp_path


class Recorded(NamedTuple):
    """A store with a long execution, and what a server has recorded of it."""

    folder: Path
    id: str
    overview: Any
    events: list[Any]
    whole: Any


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        prepare(folder, patch)
        id = run()
        with Engine("store") as fresh:
            fresh.keep_histories()
            shown, events = overview(fresh, id), list(fresh.executions.events(id))
            whole = fresh.executions.show(id, tries=True)
        with server() as engine:
            overview(engine, id)
    return Recorded(folder, id, shown, events, whole)


@pytest.fixture
def recorded(made: Recorded, folder: Path) -> Recorded:
    """Return a copy in the current folder."""
    for name in ("store", "kept"):
        shutil.copytree(made.folder / name, folder / name, dirs_exist_ok=True)
    return made._replace(folder=folder)


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


def overview(engine: Engine, id: str, **more: Any) -> Any:
    """Return what the page shows first."""
    with engine.executions.folds(id, **more) as (info, folds):
        level = folds.level("")
        found = timeline(folds, info["started_at"], 0, "", 0, (0, 0))
        return info, level.rows, folds.statuses(), folds.failures(), found.bars


def run(flow: str = "long.yaml") -> str:
    with Engine("store") as engine:
        return engine.run(flow).execution


def test_a_new_server_reads_of_each_view_only_what_it_shows(
    recorded: Recorded, costs: Callable[[], tuple[int, int]]
) -> None:
    _, id, expected, whole, _ = recorded
    with Engine("store") as fresh:
        past = overview(fresh, id, until=100)
        [step] = fresh.executions.show(id, step="each[77]/one")["steps"]
    assert len(whole) > 120
    costs()
    most = 2 * SHOWN

    with server() as engine:
        assert engine.executions.glance(id) is None
        assert overview(engine, id) == expected
        read, applied = costs()
        assert read <= most
        assert applied < SHOWN
    with server() as engine:
        assert list(islice(engine.executions.events(id, from_seq=10), 50)) == whole[10:60]
        read, applied = costs()
        assert read <= most + 50 + SHOWN
        assert applied < SHOWN
    with server() as engine:
        assert overview(engine, id, until=100) == past
        read, applied = costs()
        assert read <= 2 * most
        assert applied <= 2 * SHOWN
        overview(engine, id, until=50)  # backwards
        read, applied = costs()
        assert read <= most
        assert applied <= SHOWN
    with server() as engine:
        assert engine.executions.show(id, step="each[77]/one")["steps"] == [step]
        read, applied = costs()
        assert read <= most
        assert applied < SHOWN
    with closing(sqlite3.connect(Path("kept") / FILE)) as file, file:  # values are read for steps
        file.execute("UPDATE steps SET step = x'' WHERE address = 'each[3]/one'")
    with server() as engine:
        assert overview(engine, id) == expected
        with pytest.raises(StoreError):
            engine.executions.show(id)
    assert expected[3][0][0]["address"] == "each[77]/one"


def test_of_one_that_was_recorded_when_it_was_short_the_first_view_is_a_glance(
    folder: Path, costs: Callable[[], tuple[int, int]]
) -> None:
    with Engine("store") as driver:
        id = driver.start("long.yaml")
        with server() as engine:
            overview(engine, id)
        driver.resume(id)
        with server() as engine:
            costs()
            seen = engine.executions.glance(id)
            assert seen is not None
            assert costs()[1] == 0
            overview(engine, id)
        with server() as engine:
            assert engine.executions.glance(id) is None


def test_how_a_failed_one_is_continued_is_determined_once(
    folder: Path, costs: Callable[[], tuple[int, int]]
) -> None:
    (folder / "fails.yaml").write_text(FAILS.replace("over: 60", "over: 70"))
    id = run("fails.yaml")
    with Engine("store") as fresh:
        expected = fresh.executions.show(id)
    with server() as engine:
        assert engine.executions.show(id) == expected
    costs()
    with server() as engine:
        info = overview(engine, id)[0]
        assert info["command"] == expected["command"]
        read, applied = costs()
        assert read <= 2 * SHOWN
        assert applied < SHOWN


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
        overview(engine, left)
        assert engine.executions.diff(left, right) == expected[0]
    with Engine("store") as driver:
        driver.approvals.approve(driver.executions.result(left).waits[0]["id"])
        grown = driver.executions.diff(left, right)
    for how in (
        "UPDATE facts SET contents = x'00'",
        "UPDATE facts SET facts = substr(facts, 1, 30)",
        "UPDATE compared SET body = x'01'",
        "DELETE FROM facts",
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


COLUMNS = ("steps SET body", "steps SET step", "marks SET state", "marks SET subjects")
SHAPES: Any = ([], 7, [{"address": "each"}, "x", [], {}])
OTHER_SHAPES = [f"UPDATE {c} = x'{packed(value).hex()}'" for c in COLUMNS for value in SHAPES]


@pytest.mark.parametrize(
    "how",
    [
        *OTHER_SHAPES,
        *("garbage", "truncated", "empty"),
        "PRAGMA user_version = 99",
        "DROP TABLE steps",
        "UPDATE marks SET state = substr(state, 1, 100) WHERE state IS NOT NULL",
        "UPDATE marks SET event = x'00'",
        "UPDATE marks SET number = number + 5000",
        "UPDATE steps SET body = substr(body, 1, 40)",
        "UPDATE steps SET body = x'00' || substr(body, 2)",
        "UPDATE steps SET step = substr(step, 1, 40)",
        "UPDATE steps SET rank = 'x', fold = 7",
        "DELETE FROM steps",
        "DELETE FROM marks WHERE state IS NULL",
        "DELETE FROM executions",
    ],
)
def test_what_is_damaged_is_recorded_anew(recorded: Recorded, how: str) -> None:
    id = recorded.id
    damage(how, Path("kept") / FILE)
    with server() as engine:
        whole = lambda *_: engine.executions.show(id, tries=True)  # noqa: E731
        for look in (overview, whole, lambda *_: list(engine.executions.events(id))):
            with suppress(StoreError):  # a damaged part may be found when it is needed
                look(engine, id)
        assert overview(engine, id) == recorded.overview
        assert engine.executions.show(id, tries=True) == recorded.whole
        assert list(engine.executions.events(id)) == recorded.events


def test_more_than_fits_is_refused_before_it_is_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    fits, bomb = packed("x" * 9_000), packed("x" * 1_000_000)
    assert len(bomb) < 10_000
    monkeypatch.setattr(encoding, "MAX_SIZE", 10_000)
    assert marks._unpacked(fits) == "x" * 9_000
    with pytest.raises(marks.DamagedMarks):
        marks._unpacked(bomb)


def test_another_journal_with_the_same_id_is_read_itself(folder: Path) -> None:
    """As after a restored backup, whose executions have gone another way since."""
    with Engine("store") as driver:
        result = driver.run("long.yaml")
        id = result.execution
    backup = {path.name: path.read_bytes() for path in Path("store").iterdir() if path.is_file()}
    with Engine("store") as driver:
        for wait in result.waits:
            driver.approvals.approve(wait["id"])
    with server() as engine:
        overview(engine, id)
    for path in Path("store").iterdir():
        if path.is_file():
            path.unlink()
    for name, content in backup.items():
        (Path("store") / name).write_bytes(content)
    with Engine("store") as driver:
        for wait in result.waits:
            driver.approvals.reject(wait["id"])
        driver.keep_histories()
        expected = overview(driver, id)
    with server() as engine:
        assert overview(engine, id) == expected


def test_of_a_deleted_execution_nothing_is_kept(folder: Path) -> None:
    ids = [run("fails.yaml"), run()]
    with server() as engine:
        for id in ids:
            overview(engine, id)
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
        overview(engine, ids[0])
        assert engine._marks is not None
        [(size,)] = engine._marks.rows("SELECT bytes FROM executions", ())
        engine._marks._most = 2 * size + size // 2
        for id in (ids[1], ids[0], ids[2]):
            overview(engine, id)
        known = [one for (one,) in engine._marks.rows("SELECT id FROM executions", ())]
        assert known == [ids[1], ids[2]]
        for id in ids:
            assert overview(engine, id)[0]["execution"] == id


def test_two_servers_record_one_execution(folder: Path) -> None:
    with Engine("store") as driver, server() as first, server() as second:
        id = driver.start("long.yaml")
        for engine in (first, second):
            overview(engine, id)
        result = driver.resume(id)
        for wait in result.waits:
            for engine in (second, first):
                overview(engine, id)
            driver.approvals.approve(wait["id"])
        driver.keep_histories()
        expected = overview(driver, id)
        for engine in (first, second):
            assert overview(engine, id) == expected
    with server() as engine:
        assert overview(engine, id) == expected


def test_a_file_that_cannot_be_written_keeps_no_view_from_being_shown(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch, costs: Callable[[], tuple[int, int]]
) -> None:
    (Path("kept") / FILE).unlink()

    def full(*_: Any, **__: Any) -> Any:
        raise marks.DamagedMarks("the disk is full", hint="make room")

    with server() as engine:
        monkeypatch.setattr(marks.ExecutionMarks, "add", full)
        assert list(islice(engine.executions.events(recorded.id), 5)) == recorded.events[:5]
        assert costs()[1] < SHOWN  # the first events need no later ones
        assert overview(engine, recorded.id) == recorded.overview


KILLED = """
import os, signal, sys
from flowengine import Engine
from flowengine.engines.inspection import marks

marks.EVERY, marks._PER_EVENT, add, added = 20, 8, marks.ExecutionMarks.add, []

def kill(*given):
    added.append(add(*given))
    if len(added) == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    return added[-1]

marks.ExecutionMarks.add = kill
with Engine("store") as engine:
    engine.keep_histories(folder="kept")
    engine.executions.show(sys.argv[1])
"""


@pytest.mark.endurance
def test_what_a_killed_process_has_begun_to_record_is_completed(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, id, expected, whole, _ = recorded
    with Engine("store") as fresh:
        past = overview(fresh, id, until=90)
    (Path("kept") / FILE).unlink()
    monkeypatch.setattr(marks, "_PER_EVENT", 8)  # few states
    query = "SELECT count(*), count(state) FROM marks"
    for number in (5, 2):
        killed = subprocess.run([sys.executable, "-c", KILLED, id, str(number)], check=False)
        assert killed.returncode == -signal.SIGKILL
        with closing(sqlite3.connect(Path("kept") / FILE)) as file:
            [(begun, states)] = file.execute(query).fetchall()
            assert begun > states > 0
        with server() as engine:
            assert overview(engine, id) == expected
            assert overview(engine, id, until=90) == past
        with server() as engine:
            assert list(engine.executions.events(id)) == whole
            assert overview(engine, id, until=90) == past
            assert overview(engine, id) == expected
            assert engine._marks is not None
            [(complete, few)] = engine._marks.rows(query, ())
            assert complete == len(whole) // SHOWN
            assert few < complete
        (Path("kept") / FILE).unlink()


def test_the_file_is_for_this_user_only(folder: Path) -> None:
    before = os.umask(0)
    try:
        with closing(Marks("kept")):
            assert {path.stat().st_mode & 0o777 for path in Path("kept").iterdir()} == {0o600}
    finally:
        os.umask(before)
