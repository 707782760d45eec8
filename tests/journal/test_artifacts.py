"""Files beside the journal: addressed by content, safely named, removed when unreferenced."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowengine.errors import NotFound
from flowengine.journal.records import Append, ExecutionHead, NewExecution
from flowengine.journal.sqlite.store import SqliteStore
from flowengine.sdk.files.file_names import clean_name


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    store = SqliteStore(tmp_path / "store" / "s.db", "none")
    begin(store, "e1")
    return store


def begin(store: SqliteStore, id: str) -> None:
    store.put_flow("f", b"compiled")
    new = NewExecution("orders", None, "f", 0)
    assert store.commit([Append(id, 0, 0, [(0, b"started")], new=new)]) == [None]


def end(store: SqliteStore, id: str) -> None:
    assert store.commit([Append(id, 0, 1, head=ExecutionHead("succeeded", 1))]) == [None]


def files(store: SqliteStore) -> list[Path]:
    folder = Path(store.location).parent / "artifacts"
    return sorted(path for path in folder.rglob("*") if path.is_file())


@given(st.text(max_size=400))
def test_any_name_becomes_a_safe_one(name: str) -> None:
    cleaned = clean_name(name)

    assert cleaned
    assert cleaned not in {".", ".."}
    assert not set(cleaned) & {"/", "\\", "\0", "\n"}
    assert len(cleaned.encode()) <= 255
    assert clean_name(cleaned) == cleaned


def test_the_same_content_is_one_file(store: SqliteStore) -> None:
    one = store.put_artifact("e1", b"content", "a")
    two = store.put_artifact("e1", b"content", "b")

    assert one.sha256 == two.sha256
    assert files(store) == [store.fetch_artifact(one.sha256)]


def test_an_artifact_cannot_be_written_by_accident(store: SqliteStore) -> None:
    path = store.fetch_artifact(store.put_artifact("e1", b"content", "a").sha256)

    assert path.stat().st_mode & 0o222 == 0


def test_putting_mends_a_file_that_was_altered(store: SqliteStore) -> None:
    path = store.fetch_artifact(store.put_artifact("e1", b"content", "a").sha256)
    path.chmod(0o600)
    path.write_bytes(b"altered")

    store.put_artifact("e1", b"content", "a")

    assert path.read_bytes() == b"content"


def test_what_cannot_be_put_leaves_no_file(store: SqliteStore) -> None:
    with pytest.raises(NotFound):
        store.put_artifact("e9", b"content", "a")

    assert files(store) == []


def test_what_must_survive_a_power_cut_is_synced_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes are synced before the name, and the name before the call returns.

    The lower level syncs only the file of a new store, which is essential.
    """
    synced: list[str] = []
    fsync = os.fsync

    def note(handle: int) -> None:
        synced.append(os.path.relpath(os.readlink(f"/proc/self/fd/{handle}"), tmp_path))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", note)
    store = SqliteStore(tmp_path / "new" / "store" / "s.db", "power")
    above, made, content, named = synced
    assert (above, made, named) == (".", "new", "new/store")
    assert content.startswith("new/store/s.db.")
    begin(store, "e1")
    synced.clear()

    digest = store.put_artifact("e1", b"content", "a").sha256

    made, above, content, shelf, named = synced
    assert (made, above) == ("new/store", "new/store/artifacts")
    assert content.startswith("new/store/artifacts/new/")
    assert (shelf, named) == ("new/store/artifacts", f"new/store/artifacts/{digest[:2]}")
    synced.clear()
    weaker = SqliteStore(tmp_path / "weaker" / "s.db", "process")
    assert [name.partition(".db.")[0] for name in synced] == [".", "weaker/s", "weaker"]
    synced.clear()
    begin(weaker, "e1")
    weaker.put_artifact("e1", b"content", "a")
    assert synced == []
    store.close()
    weaker.close()


def test_large_files_are_copied_in_parts(store: SqliteStore, tmp_path: Path) -> None:
    content = bytes(range(256)) * 10_000
    (tmp_path / "large").write_bytes(content)

    artifact = store.put_artifact("e1", tmp_path / "large", "large")

    assert artifact.size == len(content)
    assert store.fetch_artifact(artifact.sha256).read_bytes() == content


def test_leftovers_of_a_crash_are_removed_after_a_day(store: SqliteStore) -> None:
    store.put_artifact("e1", b"content", "a")
    new = Path(store.location).parent / "artifacts" / "new"
    (new / "old").write_bytes(b"half")
    (new / "young").write_bytes(b"half")
    os.utime(new / "old", (0, 0))

    store.prune(0)

    assert [path.name for path in new.iterdir()] == ["young"]


def test_a_file_without_reference_is_removed(store: SqliteStore) -> None:
    """Like a file left by a crash of `prune` between the database and the files."""
    kept = store.put_artifact("e1", b"kept", "a")
    loose = store.fetch_artifact(kept.sha256).parent / ("0" * 62)
    loose.write_bytes(b"loose")

    pruned = store.prune(0)

    assert (pruned.executions, pruned.artifacts, pruned.bytes) == (0, 1, 5)
    assert files(store) == [store.fetch_artifact(kept.sha256)]


@pytest.mark.endurance
def test_pruning_never_takes_what_is_being_put(tmp_path: Path) -> None:
    """One thread stores the same few contents for ever new executions while another one prunes."""
    store = SqliteStore(tmp_path / "s.db", "none", patience=60)
    missing: list[str] = []
    done = threading.Event()

    def put() -> None:
        for number in range(150):
            id = f"e{number}"
            begin(store, id)
            artifact = store.put_artifact(id, b"%d" % (number % 3), "a")
            try:
                store.fetch_artifact(artifact.sha256)
            except NotFound:
                missing.append(id)
            end(store, id)
        done.set()

    writer = threading.Thread(target=put)
    writer.start()
    removed = 0
    while not done.is_set():
        # The flow is removed with the last execution, but the next one needs it.
        store.remember_source("x", "f", [])
        removed += store.prune(1).artifacts
    writer.join()

    assert missing == []
    assert removed > 0
    store.close()
