"""The store with injected faults, used by tests of the code above the port."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowengine.errors import StoreError
from flowengine.journal.records import Append, NewExecution, Owner
from tests.rows import each_row
from tests.testing.faulty_store import FaultyStore, ProcessDied

ANA = Owner("ana", 1, 1, "here", "boot")


def begin(store: FaultyStore) -> None:
    store.renew(ANA, 10**9)
    store.put_flow("f", b"compiled")
    new = NewExecution("orders", None, "f", 0, owner="ana")
    assert store.commit([Append("e1", 1, 0, [(0, b"x")], new=new)]) == [None]


def test_writes_are_counted_and_shown() -> None:
    seen: list[tuple[int, str]] = []
    store = FaultyStore(on_write=lambda number, method: seen.append((number, method)))

    begin(store)
    store.load("e1")

    assert seen == [(0, "renew"), (1, "put_flow"), (2, "commit")]
    assert store.writes == 3


@each_row(
    ("fault", "says"),
    [("full", "is full"), ("locked", "has locked"), ("read only", "only be read")],
)
def test_a_fault_is_an_error_that_has_written_nothing(fault: str, says: str) -> None:
    store = FaultyStore(faults={2: fault})  # type: ignore[dict-item]

    with pytest.raises(StoreError, match=rf"{says}.*write 2, commit"):
        begin(store)

    assert store.executions().items == []
    begin(store)
    assert len(store.executions().items) == 1


def test_the_dead_do_nothing_until_the_next_process_starts() -> None:
    store = FaultyStore()
    begin(store)

    store.die()
    with pytest.raises(ProcessDied):
        store.load("e1")
    with pytest.raises(ProcessDied):
        store.send("e1", b"x", 1, "m")
    store.restart()

    assert len(store.events("e1")) == 1


def test_the_leases_of_the_dead_are_free() -> None:
    store = FaultyStore()
    begin(store)
    assert store.holder("e1", 0) == ANA

    store.restart()

    assert store.holder("e1", 0) is None
    assert store.acquire("e1", "ben", 0) == 2


def test_what_was_synced_is_there_again_after_a_power_cut(tmp_path: Path) -> None:
    """A new store is created, and all synced operations are replayed on it, including artifacts."""
    store = FaultyStore(durability="process")
    begin(store)
    (tmp_path / "report").write_bytes(b"content")
    digest = store.put_artifact("e1", tmp_path / "report", "report").sha256
    store.send("e1", b"kept", 1, "m1")
    store.sync()
    (tmp_path / "report").write_bytes(b"changed")
    store.send("e1", b"lost", 2, "m2")

    store.restart(power_cut=True)

    assert [message.event for message in store.inbox("e1")] == [b"kept"]
    assert store.fetch_artifact(digest).read_bytes() == b"content"
    assert store.send("e1", b"again", 3, "m2").first
    store.close()
