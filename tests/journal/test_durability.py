# Shows F30, F80
"""Durability of commits: the promise of each of the three levels (F80), and real kills (F30)."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from flowengine.engines.memory.store import MemoryStore
from flowengine.errors import StoreError, UsageError
from flowengine.journal.records import Append, Beginning, LockOperation, NewExecution
from flowengine.journal.sqlite.store import SqliteStore
from flowengine.journal.store import Durability, JournalStore
from tests.journal.database import connection_of
from tests.rows import each_row
from tests.testing.faulty_store import FaultyStore, ProcessDied

Start = Callable[..., "subprocess.Popen[str]"]
LEVELS: list[Durability] = ["power", "process", "none"]
SYNCHRONOUS = {"power": 2, "process": 1, "none": 0}


def begin(store: JournalStore, id: str = "e1") -> None:
    store.put_flow("f", b"compiled")
    new = NewExecution("orders", None, "f", 0)
    assert store.commit([Append(id, 0, 0, [(0, b"0")], new=new)]) == [None]


def append(store: JournalStore, seq: int) -> None:
    assert store.commit([Append("e1", 0, seq, [(seq, b"%d" % seq)])]) == [None]


@pytest.mark.parametrize("level", LEVELS)
def test_the_level_is_read_back_from_the_open_database(level: Durability, tmp_path: Path) -> None:
    """The level depends on a pragma, which is read back from the connection that commits use."""
    store = SqliteStore(tmp_path / "s.db", level)
    connection = connection_of(store)

    assert store.durability == level
    assert connection.execute("PRAGMA synchronous").fetchone() == (SYNCHRONOUS[level],)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.execute("PRAGMA synchronous = OFF")
    assert store.durability == "none"
    store.close()


def test_a_level_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'high'.*\n.*power, process or none"):
        SqliteStore(tmp_path / "s.db", "high")  # type: ignore[arg-type]


LOSES: list[tuple[Durability, bool, int]] = [
    ("power", False, 0),
    ("power", True, 0),
    ("process", False, 0),
    ("process", True, 3),
    ("none", False, 3),
    ("none", True, 3),
]


@pytest.mark.parametrize("backing", ["memory", "sqlite"])
@pytest.mark.parametrize(("level", "power_cut", "lost"), LOSES)
def test_each_level_keeps_its_promise_at_every_commit(
    level: Durability, power_cut: bool, lost: int, backing: str, tmp_path: Path
) -> None:
    """A store that loses unsynced data loses exactly what its level permits."""
    files = iter(range(100))

    def make(is_dead: object) -> JournalStore:
        if backing == "memory":
            return MemoryStore()
        return SqliteStore(tmp_path / f"{next(files)}.db", level)

    for last in range(5, 9):
        store = FaultyStore(make, durability=None if backing == "sqlite" else level)
        begin(store)
        for seq in range(1, last):
            append(store, seq)
            if seq == last - 4:
                store.sync()  # SQLite's checkpoints occasionally do this too

        store.restart(power_cut=power_cut)

        assert store.durability == level
        assert [entry.seq for entry in store.events("e1")] == list(range(last - lost))
        append(store, last - lost)
        store.close()


@each_row("fault", ["die before", "die after"])
def test_a_death_at_any_write_leaves_all_of_it_or_nothing(fault: str) -> None:
    """The next process finds every completed commit, and no partial one."""
    write = 0
    while True:
        store = FaultyStore(faults={write: fault})  # type: ignore[dict-item]
        returned = 0
        try:
            begin(store)
            returned = 1
            for returned in range(2, 6):
                append(store, returned - 1)
        except ProcessDied:
            with pytest.raises(ProcessDied):
                store.arrived(0)
        else:
            break
        store.restart(power_cut=True)
        found = len(store.executions().items) and len(store.events("e1"))
        assert returned <= found + 1 <= returned + 2
        write += 1
    assert write == 6


def test_a_store_error_at_any_write_leaves_nothing_of_it() -> None:
    """The same store works again once the cause is gone."""
    for write in range(6):
        store = FaultyStore(faults={write: "full"})
        errors = []
        for seq in range(5):
            try:
                append(store, seq) if seq else begin(store)
            except StoreError as error:
                errors.append(error)
                append(store, seq) if seq else begin(store)

        assert [error.message[:9] for error in errors] == ["the disk "]
        assert errors[0].hint == "free some space, then resume"
        assert len(store.events("e1")) == 5


def test_at_no_moment_is_an_execution_there_without_its_first_event(tmp_path: Path) -> None:
    """A creator that dies then would leave one that has its lock for ever, and never starts."""
    path = tmp_path / "s.db"
    with closing(SqliteStore(path)) as store, closing(SqliteStore(path)) as other:
        store.put_flow("f", b"compiled")
        looks: list[list[bytes]] = []

        def look(statement: str) -> None:
            if statement == "COMMIT":
                there = other.executions().items
                looks.append([message.event for one in there for message in other.inbox(one.id)])
                assert len(other.claims("l")) == len(there)

        connection_of(store).set_trace_callback(look)
        claim = LockOperation("l", 0, 1, granted=b"granted")
        new = NewExecution("orders", None, "f", 0)
        store.begin(Beginning("e1", new, [], b"started", [claim]), [(b"content", "a.txt")])
        look("COMMIT")

    assert len(looks) > 1
    assert [*filter(None, looks)] == [[b"granted", b"started"]]


@pytest.mark.endurance
@pytest.mark.parametrize("block", range(5))
@pytest.mark.parametrize("level", ["power", "process"])
def test_killed_processes_lose_nothing_that_was_committed(
    level: Durability, block: int, tmp_path: Path, start: Start
) -> None:
    """kill -9 at random moments: every commit that returned is complete."""
    dice = random.Random(f"{level} {block}")
    path = tmp_path / "s.db"
    for _ in range(4):
        child = start("write", path, level)
        assert child.stdout is not None
        for _ in range(dice.randrange(1, 60)):
            line = child.stdout.readline()
        child.send_signal(signal.SIGKILL)
        rest = child.stdout.read().splitlines()
        complete = [line, *(word for word in rest if len(word.split()) == 2)]
        id, said = complete[-2 if len(complete) > 1 else -1].split()

        store = SqliteStore(path, level)
        one, two = store.events(id), store.events(id.replace("a", "b"))
        assert len(one) == len(two) > int(said)
        for entry in one:
            assert entry.payload == f"{id} {entry.seq} ".encode() * (1 + entry.seq % 40)
        store.close()
    assert sqlite3.connect(path).execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_torn_log_gives_the_commits_before_the_tear(tmp_path: Path, start: Start) -> None:
    """The log is cut at a random byte: the store then contains a prefix of the commits."""
    path = tmp_path / "s.db"
    child = start("write", path, "process", "60")  # few enough to be all in the log
    assert child.stdout is not None
    for _ in range(30):
        id, _ = child.stdout.readline().split()
    child.send_signal(signal.SIGKILL)
    child.wait()
    log = path.with_name("s.db-wal").read_bytes()
    main = path.read_bytes()
    dice = random.Random(7)
    cut_at = sorted({0, len(log), *(dice.randrange(len(log)) for _ in range(60))})

    found = []
    for cut in cut_at:
        folder = tmp_path / f"cut{cut}"
        folder.mkdir()
        (folder / "s.db").write_bytes(main)
        (folder / "s.db-wal").write_bytes(log[:cut])
        store = SqliteStore(folder / "s.db", "process")
        listed = {execution.id for execution in store.executions().items}
        other = id.replace("a", "b")
        one = store.events(id) if id in listed else []
        two = store.events(other) if other in listed else []
        assert len(one) == len(two) or (len(one), len(two)) == (1, 0)
        found.append(len(one))
        check = connection_of(store).execute("PRAGMA integrity_check").fetchone()
        assert check == ("ok",)
        store.close()

    assert found == sorted(found)
    assert found[0] == 0
    assert found[-1] >= 29
