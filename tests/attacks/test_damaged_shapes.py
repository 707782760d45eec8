"""Records with valid checksums but data of the wrong shape are reported as damage, by name."""

from __future__ import annotations

import random
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from flowengine.cli import main
from flowengine.engines.engine import Engine
from flowengine.engines.executions import growing_lists
from flowengine.journal.encoding import checksum, pack, packed_again, unpack
from flowengine.journal.sqlite.rows import event_row
from tests.engines import world
from tests.replacing import patches_everywhere

FLOW = """\
flowengine: 1
id: pay
signals: {paid: {}}
state: {seen: {type: array, default: [], reducer: append}}
steps:
  - {id: all, map: {over: "${{ [1, 2] }}", as: n}, set: {seen: "${{ n }}"}}
  - id: both
    group:
      - {id: a, output: 1}
      - {id: b, output: {x: [1]}}
  - {id: told, wait: {signal: paid}}
  - {id: sure, approval: {title: "Pay?", assignees: ["user:ana", "user:ben"], need: 2}}
outputs: {seen: "${{ state.seen }}"}
"""
CALLS = """\
flowengine: 1
id: calls
steps:
  - {id: a, python: "mod:same", with: {x: 1}}
  - {id: b, loop: {until: "${{ true }}", max: 2}, output: 1}
"""
SMALL = "flowengine: 1\nid: {0}\nsteps:\n  - {{id: a, {1}}}\noutputs: {{x: 1}}\n"
STORED = [("pay", "waits", 4), ("done", "ended", 0), ("no", "failed", 1), ("calls", "called", 0)]
"""Flow, execution, final state, and exit code."""
WRONG: tuple[Any, ...] = (None, True, -1, 2**63, 1.5, "x", b"x", [], [[]], {}, {"x": {}}, {1: 2})
GONE = object()
TRIES = 5
"""Number of changes tried in each table."""
ANSWERED = {0, 1, 3, 4, 5, 6, 7, 8, 9}
"""Exit codes of commands that succeeded or failed regularly. 10 reports a damaged store."""
TABLES = {
    "executions": ("labels", "outputs", "error"),
    "events": ("payload",),
    "snapshots": ("state",),
    "waits": ("record", "decision", "result"),
    "votes": ("event",),
    "messages": ("event",),
    "flows": ("compiled",),
}


class Kept(NamedTuple):
    """A packed record of the store."""

    table: str
    column: str
    row: int
    value: Any


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a small store of waiting, ended and failed executions."""
    folder = tmp_path_factory.mktemp("made")
    with patches_everywhere() as patch:
        patch.chdir(folder)
        Path("mod.py").write_text("def same(x: int) -> int:\n    return x\n")
        Path("pay.yaml").write_text(FLOW)
        Path("calls.yaml").write_text(CALLS)
        Path("done.yaml").write_text(SMALL.format("done", "output: 1"))
        Path("no.yaml").write_text(SMALL.format("no", "fail: {type: Nope, message: no}"))
        for name, id, code in STORED:
            words = ["run", f"{name}.yaml", "--id", id, "--label", "a=b", "--no-interactive"]
            assert main(words) == code
        with Engine() as engine:
            engine.signal("paid", {"sum": 1}, execution="waits")
            engine.resume("waits")
            (wait,) = engine.approvals.list(execution="waits").items
            engine.approvals.decide(wait["id"], "approve", by="user:ben")
            execution = world.host_of(engine).stored("waits", 0)
            also = {growing_lists.STORED: 0, growing_lists.FLOW: execution.linked.hash}
            packed = pack({**execution.state, **also})
        with closing(sqlite3.connect(".flowengine/flowengine.db")) as database, database:
            (number,) = database.execute(
                "SELECT number FROM executions WHERE id = 'waits'"
            ).fetchone()
            database.execute(
                "INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?)",
                (number, execution.seq, checksum(packed, execution.seq), packed),
            )
    return folder


def records(path: Path) -> list[Kept]:
    """Return every packed record of a store."""
    found = []
    with closing(sqlite3.connect(path)) as database:
        for table, columns in TABLES.items():
            for column in columns:
                for row, packed in database.execute(f"SELECT rowid, {column} FROM {table}"):
                    if packed and isinstance(packed, bytes):  # not the number of a vote
                        found.append(Kept(table, column, row, unpack(packed_again(packed))))
    return found


def write(path: Path, kept: Kept, value: Any) -> None:
    """Replace the value of a record, with a valid checksum."""
    values: tuple[Any, ...]
    with closing(sqlite3.connect(path)) as database, database:
        if kept.table == "events":
            (at,) = database.execute("SELECT at FROM events WHERE id = ?", (kept.row,)).fetchone()
            id, _, total, packed = event_row(
                kept.row >> 32, kept.row & 0xFFFFFFFF, (at, pack(value))
            )
            change, values = "sum = ?, payload = ? WHERE id = ?", (total, packed, id)
        elif kept.table == "snapshots":
            (seq,) = database.execute("SELECT seq FROM snapshots").fetchone()
            packed = pack(value)
            change, values = (
                "sum = ?, state = ? WHERE execution = ?",
                (checksum(packed, seq), packed, kept.row),
            )
        else:
            change, values = f"{kept.column} = ? WHERE rowid = ?", (pack(value), kept.row)
        database.execute(f"UPDATE {kept.table} SET {change}", values)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every part of a value."""
    yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


def changed(value: Any, place: tuple[Any, ...], other: Any) -> Any:
    """Return a value with one part replaced or removed."""
    if not place:
        return None if other is GONE else other
    whole = deepcopy(value)
    part = whole
    for key in place[:-1]:
        part = part[key]
    if other is GONE:
        del part[place[-1]]
    else:
        part[place[-1]] = other
    return whole


COMMANDS = [
    ["list"],
    ["approvals", "list"],
    *(
        [word, id]
        for id in ("waits", "failed", "ended")
        for word in ("show", "why", "events", "graph")
    ),
    ["graph", "waits", "--json"],
    ["fork", "waits", "--from-step", "both", "--no-interactive"],
    ["--json", "show", "waits"],
    ["run", "done.yaml", "--id", "ended"],
    ["retry", "failed"],
    ["resume", "waits", "--no-interactive"],
    ["approve", "waits", "--as", "ana"],
]


def change_flows(change: Callable[[Any], Any]) -> None:
    """Change all flows in the store of the current folder."""
    store = Path(".flowengine", "flowengine.db")
    for kept in records(store):
        if kept.table == "flows":
            write(store, kept, change(kept.value))


def copied(made: Path, folder: Path) -> Path:
    """Copy a folder with a store, and name the store once, since a copy is not used before that."""
    shutil.copytree(made, folder)
    assert main(["--store", str(folder / ".flowengine"), "list"]) == 0
    return folder


def tried(capture: pytest.CaptureFixture[str]) -> Iterator[str]:
    """Yield violations by the commands."""
    for words in COMMANDS:
        capture.readouterr()
        try:
            code = main(words)
        except Exception as error:
            yield f"{words}: {type(error).__name__}: {error}"
            continue
        told = capture.readouterr().err
        if code == 10:
            named = re.search(r"error: .*\b(execution|wait|flow) \S+", told)
            if named is None or "restore a backup" not in told:
                yield f"{words}: names no record: {told}"
        elif code not in ANSWERED:
            yield f"{words}: ended with {code}: {told}"


@pytest.mark.endurance
@pytest.mark.parametrize("part", range(10))
@pytest.mark.parametrize("table", TABLES)
def test_records_of_the_wrong_shape_are_damage(
    made: Path,
    tmp_path: Path,
    table: str,
    part: int,
    tenth: int | None,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Path(".flowengine", "flowengine.db")
    changes = [
        (kept, place, other)
        for kept in records(made / store)
        if kept.table == table
        for place in places(kept.value)
        for other in (*WRONG, GONE)
    ]
    wrong = []
    tries = random.Random(table).sample(changes, min(len(changes), 10 * TRIES))
    these = tries[part::10]
    for kept, place, other in these if tenth is None else these[tenth % TRIES :: TRIES]:
        folder = copied(made, tmp_path / "changed")
        monkeypatch.chdir(folder)
        write(store, kept, changed(kept.value, place, other))
        wrong += [f"{kept[:3]} {place} = {other!r}: {one}" for one in tried(capsys)]
        monkeypatch.chdir(tmp_path)
        shutil.rmtree(folder)
    assert changes
    assert not wrong, "\n".join(wrong)


def test_damage_is_told_by_the_name_of_the_record(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(copied(made, tmp_path / "changed"))
    store = Path(".flowengine", "flowengine.db")
    event = next(
        kept
        for kept in records(store)
        if kept.table == "events" and kept.value["type"] == "message"
    )
    write(store, event, changed(event.value, ("signal",), 5))

    assert main(["events", "waits"]) == 10

    number = event.row & 0xFFFFFFFF
    told = capsys.readouterr().err
    assert f"entry {number} of execution waits is damaged: its data has the wrong shape" in told
    assert "'signal' is of type int" in told


@pytest.mark.parametrize(
    ("key", "other", "words"),
    [
        ("body", GONE, ["graph", "waits"]),
        ("at", None, ["graph", "waits", "--json"]),
        ("action", True, ["fork", "waits", "--from-step", "both"]),
        ("loop", 7, ["fork", "called", "--from-step", "a"]),
        ("task", 5, ["show", "waits"]),
        ("budget", [[]], ["show", "waits"]),
    ],
)
def test_what_shows_or_copies_a_flow_says_that_it_is_damaged(
    made: Path,
    tmp_path: Path,
    key: str,
    other: Any,
    words: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def in_steps(value: Any) -> Any:
        if key == "budget":
            return changed(value, (key,), other)
        for number, step in enumerate(value["steps"]):
            if key in step or key == "task":
                value = changed(value, ("steps", number, key), other)
        return value

    monkeypatch.chdir(copied(made, tmp_path / "changed"))
    change_flows(in_steps)

    assert main(words) == 10
    assert "is damaged" in capsys.readouterr().err


@pytest.mark.parametrize("part", ["steps", "bodies", "expressions", "id"])
def test_a_damaged_flow_is_reported_until_its_file_runs_again(
    made: Path,
    tmp_path: Path,
    part: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(copied(made, tmp_path / "changed"))
    resume, run = (
        [*words, "--no-interactive"] for words in (["resume", "waits"], ["run", "pay.yaml"])
    )
    for _ in range(2):  # the second time, the compiled flow comes from the cache
        change_flows(lambda value: {name: value[name] for name in value if name != part})

        assert main(resume) == 10
        assert f"is damaged: its data has the wrong shape ('{part}' is missing)" in (
            capsys.readouterr().err
        )
        assert [main(run), main(resume)] == [4, 4]
