# Shows F33
"""Faults of disks, folders, files and other processes: error messages, and data that survives.

The faults are real where possible (F33): limits on file sizes, a full database, a read-only folder,
a truncated or altered file, a lock. `test_durability.py` covers simulated faults.
"""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flowengine.errors import NotFound, StoreError
from flowengine.journal.records import Append, ExecutionHead, ListPart, NewExecution, Vote
from flowengine.journal.sqlite import database, schema
from flowengine.journal.sqlite.store import SqliteStore
from flowengine.journal.store import JournalStore
from flowengine.kernel.notation.addresses import wait_id
from tests.journal.database import connection_of

Start = Callable[..., "subprocess.Popen[str]"]
COUNT = 60


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


def begin(store: JournalStore, id: str = "e1") -> None:
    store.put_flow("f", b"compiled")
    new = NewExecution("orders", None, "f", 0)
    asked = [{"id": 0, "kind": "approval", "since": 0}]
    appended = Append(id, 0, 0, [(0, payload(0))], new=new, opened=asked)
    assert store.commit([appended]) == [None]


def payload(seq: int) -> bytes:
    return b"event %d " % seq * (1 + seq % 50)


def append(store: JournalStore, seq: int, id: str = "e1") -> None:
    assert store.commit([Append(id, 0, seq, [(seq, payload(seq))])]) == [None]


def append_all(store: JournalStore, seqs: Iterator[int]) -> None:
    for seq in seqs:
        append(store, seq)


def fill(path: Path) -> None:
    """Create a store with one execution and everything in the main file."""
    store = SqliteStore(path, "process")
    begin(store)
    for seq in range(1, COUNT):
        append(store, seq)
    store.send("e1", b"message", 1, "m1")
    lists = [ListPart("log", 0, b"items" * 20)]
    store.commit([Append("e1", 0, COUNT, snapshot=(COUNT // 2, b"state" * 100), lists=lists)])
    store.close()
    assert not path.with_name("s.db-wal").exists()


def expect_journal(store: JournalStore, count: int = COUNT) -> None:
    assert [entry.payload for entry in store.events("e1")] == [payload(n) for n in range(count)]


# A full disk


def test_a_full_database_keeps_what_was_committed_and_goes_on(path: Path) -> None:
    """SQLite's page limit causes the error of a full disk on any file system."""
    store = SqliteStore(path, "process")
    begin(store)
    connection = connection_of(store)
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + 3}")

    seqs = iter(range(1, 10**6))
    with pytest.raises(StoreError) as caught:
        append_all(store, seqs)

    seq = next(seqs) - 1
    assert caught.value.message == f"the disk that holds the store {path} is full"
    assert caught.value.hint
    assert "earlier commits are kept" in caught.value.hint
    assert caught.value.exit_code == 10
    expect_journal(store, seq)
    connection.execute("PRAGMA max_page_count = 1000000")
    append(store, seq)
    expect_journal(store, seq + 1)
    store.close()


def test_a_group_that_does_not_fit_leaves_nothing_of_itself(path: Path) -> None:
    """One of many appends is too large: none is written, and each can be written later."""
    store = SqliteStore(path, "process")
    begin(store, "e1")
    begin(store, "e2")
    connection = connection_of(store)
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + 3}")
    small = Append("e1", 0, 1, [(1, payload(1))], head=ExecutionHead("waiting", 5))
    large = Append("e2", 0, 1, [(1, b"x" * 100_000)])

    with pytest.raises(StoreError, match="is full"):
        store.commit([small, large])

    expect_journal(store, 1)
    assert store.execution("e1").status == "running"
    connection.execute("PRAGMA max_page_count = 1000000")
    assert store.commit([small, large]) == [None, None]
    store.close()


def test_writes_cut_off_by_the_system_at_every_size_lose_nothing(path: Path, start: Start) -> None:
    """A limit on file sizes interrupts writes midway, at a later point each time."""
    child = start("fill", path, 200_000, 1777)
    told = [line.split(maxsplit=1) for line in child.communicate()[0].splitlines()]

    assert child.returncode == 0
    assert len(told) == 41
    assert told[-1][1] == "done"
    for _, message in told[:-1]:
        assert f"{path} could not be read or written: disk I/O error" in message
        assert "the limit of file sizes" in message
    counts = [int(count) for count, _ in told]
    assert counts == sorted(counts)
    store = SqliteStore(path)
    assert len(store.events("e1")) == counts[-1]
    store.close()
    assert sqlite3.connect(path).execute("PRAGMA integrity_check").fetchone() == ("ok",)


# Missing permissions


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that all users can read, but only its owner can write."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def run_as_nobody(start: Start, folder: Path) -> str:
    if os.geteuid() != 0:
        folder.chmod(0o555)
    child = start("nobody", folder / "s.db")
    return child.communicate()[0]


def test_a_folder_that_may_not_be_written_is_named(open_folder: Path, start: Start) -> None:
    said = run_as_nobody(start, open_folder)

    assert said.startswith("10 ")
    assert f"the store {open_folder / 's.db'} cannot be opened" in said
    assert "check the permissions" in said
    assert "give the engine another store" in said


def test_a_store_in_a_read_only_folder_is_not_written(open_folder: Path, start: Start) -> None:
    fill(open_folder / "s.db")

    said = run_as_nobody(start, open_folder)

    assert "10 the store" in said
    assert str(open_folder) in said
    open_folder.chmod(0o755)
    store = SqliteStore(open_folder / "s.db")
    expect_journal(store)
    store.close()


def test_a_store_where_a_folder_is_expected_to_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")

    with pytest.raises(StoreError, match="cannot be opened"):
        SqliteStore(tmp_path / "file" / "s.db")
    with pytest.raises(StoreError, match="cannot be opened"):
        SqliteStore(tmp_path)


def test_a_place_without_write_ahead_log_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a file system without shared memory between processes."""
    monkeypatch.setattr(database, "PARAMETERS", "mode=rw&vfs=unix-dotfile")
    with pytest.raises(StoreError, match=r"cannot use a write-ahead log\n.*local disk"):
        SqliteStore(path)
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
def test_nobody_else_may_look_into_a_store(tmp_path: Path, umask: int) -> None:
    folder = tmp_path / "a" / "b"
    before = os.umask(umask)
    try:
        store = SqliteStore(folder / "s.db")
        begin(store)
        store.put_artifact("e1", b"text", "a.txt")
        made = [tmp_path / "a", *(tmp_path / "a").rglob("*")]
        modes = {one.name: one.stat().st_mode & 0o777 for one in made}
        store.close()
    finally:
        os.umask(before)

    files = {name for name in modes if name.startswith("s.db")}
    assert files == {"s.db", "s.db-wal", "s.db-shm"}
    assert {modes[name] for name in files} == {0o600}
    assert {one.stat().st_mode & 0o777 for one in made if one.is_dir()} == {0o700}
    assert {one.stat().st_mode & 0o077 for one in made if one.exists()} == {0}


# Missing files


def delete(path: Path) -> None:
    shutil.rmtree(path.parent)


def move(path: Path) -> None:
    path.parent.rename(path.parent.with_name("moved"))


def make_anew(path: Path) -> None:
    delete(path)
    SqliteStore(path).close()


@pytest.mark.parametrize("make_away", [delete, move, make_anew])
def test_a_store_that_is_gone_is_noticed_at_the_next_commit(
    tmp_path: Path, make_away: Callable[[Path], None]
) -> None:
    path = tmp_path / "store" / "s.db"
    one, group = SqliteStore(path), SqliteStore(path)
    begin(one)
    begin(group, "e2")
    append(one, 1)
    make_away(path)

    for attempt in range(2):
        with pytest.raises(StoreError, match=r"was (deleted or moved|replaced by another) while"):
            append(one, 2 + attempt)
    two = Append("e2", 0, 1, [(0, payload(1))], head=ExecutionHead("failed", 0))
    with pytest.raises(StoreError, match="Nothing since then was saved"):
        group.commit([two])
    with pytest.raises(StoreError, match=r"was (deleted or moved|replaced by another) while"):
        group.execution("e2")
    one.close()
    group.close()


@pytest.mark.parametrize("ending", ["-wal", "-shm"])
@pytest.mark.parametrize("replaced", [False, True])
def test_a_log_that_is_gone_is_noticed_at_the_next_commit(
    path: Path, ending: str, replaced: bool
) -> None:
    one, group = SqliteStore(path), SqliteStore(path)
    begin(one)
    begin(group, "e2")
    append(one, 1)
    gone = path.with_name(path.name + ending)
    content = gone.read_bytes()
    gone.unlink()
    if replaced:
        gone.write_bytes(content)

    what = "replaced by another" if replaced else "deleted or moved"
    for attempt in range(2):
        with pytest.raises(StoreError, match=rf"{gone.name}, .* was {what} while") as caught:
            append(one, 2 + attempt)
        assert caught.value.exit_code == 10
    with pytest.raises(StoreError, match="last commits may be lost"):
        group.execution("e2")
    one.close()
    group.close()
    again = SqliteStore(path)
    assert len(again.events("e1")) >= 2  # committed before any file was removed
    again.close()


@pytest.mark.parametrize("left", [[], ["s.db"]], ids=["all of it", "its log"])
def test_a_thread_that_comes_later_makes_no_new_file(tmp_path: Path, left: list[str]) -> None:
    path = tmp_path / "s.db"
    store = SqliteStore(path)
    begin(store)
    for file in tmp_path.iterdir():
        if file.name not in left:
            file.unlink()
    caught: list[str] = []

    def write() -> None:
        try:
            append(store, 1)
        except StoreError as error:
            caught.append(error.message)

    thread = threading.Thread(target=write)
    thread.start()
    thread.join()

    assert len(caught) == 1
    assert [file.name for file in tmp_path.iterdir()] == left
    store.close()


def test_an_empty_file_is_no_new_store(path: Path) -> None:
    fill(path)
    os.truncate(path, 0)

    with pytest.raises(StoreError, match="is an empty file: its content is lost") as caught:
        SqliteStore(path)

    assert caught.value.exit_code == 10
    assert path.stat().st_size == 0


@pytest.mark.parametrize("name", ["a b?c#d%20.db", "ü.db"])
def test_a_store_may_have_any_name(tmp_path: Path, name: str) -> None:
    store = SqliteStore(tmp_path / name)
    begin(store)
    store.close()
    assert [one.name for one in tmp_path.iterdir()] == [name]


# Damaged files


def test_a_cut_file_is_told_at_once(path: Path) -> None:
    fill(path)
    size = path.stat().st_size
    os.truncate(path, size - 4096)

    with pytest.raises(StoreError) as caught:
        SqliteStore(path)

    assert (
        caught.value.message
        == f"the store {path} is truncated: it has {size - 4096} bytes of {size}"
    )
    assert caught.value.hint
    assert "restore a backup" in caught.value.hint


@pytest.mark.parametrize(
    "content", [b"hello", b"\x00" * 5000, b"SQLite format 3\x00" + b"x" * 5000]
)
def test_a_file_that_is_no_database_is_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)

    with pytest.raises(StoreError, match=r"not a store|another program|damaged|truncated"):
        SqliteStore(path)

    assert path.read_bytes() == content


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
def test_what_is_no_file_is_refused_at_once(path: Path, make: Callable[[Path], None]) -> None:
    make(path)
    with pytest.raises(StoreError, match="it is not a regular file"):
        SqliteStore(path)


def test_another_programs_database_is_left_alone(path: Path) -> None:
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE recipes (name TEXT)")
    before = path.read_bytes()

    with pytest.raises(StoreError, match="another program's database"):
        SqliteStore(path)

    assert sqlite3.connect(path).execute("SELECT * FROM recipes").fetchall() == []
    assert path.read_bytes()[100:] == before[100:]


@pytest.mark.parametrize("format", [0, 2])
# Shows F38
def test_a_store_of_another_format_is_refused_untouched(path: Path, format: int) -> None:
    SqliteStore(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {format}")
    connection.close()
    before = path.read_bytes()

    with pytest.raises(StoreError) as caught:
        SqliteStore(path)

    assert caught.value.message == (
        f"the store {path} has format {format}. This release reads format {schema.FORMAT}"
    )
    assert path.read_bytes() == before


def read_all(store: JournalStore) -> list[object]:
    """Read everything stored about an execution."""
    loaded = store.load("e1")
    events = store.events("e1")
    rest = [store.inbox("e1"), store.wait(wait_id("e1", 0)), store.executions(), store.waits()]
    return [loaded.snapshot, loaded.lists, loaded.tail, events, *rest]


@pytest.mark.endurance
def test_altered_bytes_never_give_another_history(path: Path, tmp_path: Path) -> None:
    """After changes of random bytes, the events are intact, or an error reports the damage."""
    fill(path)
    original = path.read_bytes()
    dice = random.Random(11)
    store = SqliteStore(path)
    journal, snapshot = store.events("e1"), store.load("e1").snapshot
    store.close()
    altered, errors = tmp_path / "altered.db", 0
    for _ in range(400):
        content = bytearray(original)
        for _ in range(dice.choice([1, 1, 1, 30])):
            content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
        altered.write_bytes(content)
        try:
            store = SqliteStore(altered)
        except StoreError:
            errors += 1
            continue
        try:
            assert store.events("e1") == journal[: len(store.events("e1"))]
            assert store.load("e1").snapshot in {snapshot, None}
            read_all(store)
        except (StoreError, NotFound):
            errors += 1
        finally:
            store.close()
    assert 20 < errors < 380


def test_a_damaged_event_is_named(path: Path) -> None:
    fill(path)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE events SET payload = ? WHERE id & 0xffffffff = 40", (b"other",))
    connection.commit()
    connection.close()
    store = SqliteStore(path)

    with pytest.raises(StoreError, match="entry 40 of execution e1 is damaged"):
        store.events("e1")
    assert len(store.events("e1", limit=40)) == 40
    store.close()


def test_a_missing_event_is_named(path: Path) -> None:
    fill(path)
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM events WHERE id & 0xffffffff = 40")
    connection.commit()
    connection.close()
    store = SqliteStore(path)

    with pytest.raises(StoreError, match="entry 40 of execution e1 is missing"):
        store.load("e1")
    store.close()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE snapshots SET state = x'00'",
        "UPDATE lists SET items = x'00'",
        "UPDATE lists SET first = 1",
        "UPDATE lists SET name = 'other'",
    ],
)
def test_without_a_sound_snapshot_the_whole_journal_is_read(path: Path, change: str) -> None:
    """The journal is authoritative. Snapshots only save time."""
    fill(path)
    connection = sqlite3.connect(path)
    connection.execute(change)
    connection.commit()
    connection.close()
    store = SqliteStore(path)

    loaded = store.load("e1")

    assert loaded.snapshot is None
    assert len(loaded.tail) == COUNT
    store.close()


# Locks


def test_a_lock_of_another_process_is_waited_for_then_told(path: Path) -> None:
    fill(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    store = SqliteStore(path, "process", patience=0.05)
    expect_journal(store)
    for call in (
        lambda: append(store, COUNT),
        lambda: store.send("e1", b"x", 1, "m2"),
        lambda: store.decide(wait_id("e1", 0), Vote("user:ana", 1, True, b"yes")),
    ):
        with pytest.raises(
            StoreError, match=r"has locked the store .* for more than 0\.05 s\n.*fuser"
        ):
            call()

    other.execute("ROLLBACK")
    other.close()

    append(store, COUNT)
    expect_journal(store, COUNT + 1)
    store.close()


# Interrupts, threads and forks


def test_an_interrupt_in_the_middle_of_a_write_leaves_nothing_open(path: Path) -> None:
    """The next write is a complete transaction, and the next single event is durable."""
    store = SqliteStore(path, "process")
    begin(store)

    class Interrupting(list[tuple[int, bytes]]):
        def __iter__(self) -> Iterator[tuple[int, bytes]]:
            yield self[0]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.commit([Append("e1", 0, 1, Interrupting([(1, payload(1)), (2, payload(2))]))])
    connection_of(store).execute("BEGIN")
    append(store, 1)
    with sqlite3.connect(path) as other:
        assert other.execute("SELECT count(*) FROM events").fetchone() == (2,)
    store.close()


def test_a_closed_store_says_so(path: Path) -> None:
    store = SqliteStore(path)
    store.close()

    with pytest.raises(StoreError, match="has been closed"):
        store.executions()
    store.close()


def test_changes_of_another_process_are_seen_without_a_query(path: Path) -> None:
    store, other = SqliteStore(path), SqliteStore(path)
    begin(store)
    before = store.changes()
    assert store.changes() == before

    other.send("e1", b"x", 1, "m")

    assert store.changes() != before
    assert [message.event for message in store.arrived(0)] == [b"x"]
    store.close()
    other.close()


@pytest.mark.endurance
def test_many_processes_can_make_a_store_at_once(path: Path, start: Start) -> None:
    children = [start("make", path) for _ in range(5)]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")

    counts = [child.communicate()[0].split()[1] for child in children]

    assert sorted(counts)[-1] == "5"
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (schema.FORMAT,)
    connection.close()
