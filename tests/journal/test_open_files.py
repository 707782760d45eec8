"""The locks of a store last as long as any part of the process uses it."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from flowengine.errors import StoreError
from flowengine.journal.records import Append, NewExecution
from flowengine.journal.sqlite.store import SqliteStore

OPEN_AND_CLOSE = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
print(connection.execute("SELECT count(*) FROM events").fetchone()[0])
connection.close()  # the last connection of all removes the log
"""


def from_outside(path: Path) -> int:
    """Open and close a store in another process, and return the number of events it reads."""
    words = [sys.executable, "-c", OPEN_AND_CLOSE, str(path)]
    return int(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


def append(store: SqliteStore, seq: int) -> None:
    new = NewExecution("orders", None, "f", 0) if not seq else None
    assert store.commit([Append("e1", 0, seq, [(seq, b"%d" % seq)], new=new)]) == [None]


def descriptors(path: Path) -> int:
    """Return the number of this process's descriptors for a file."""
    found = 0
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the descriptor of the listing
            found += os.readlink(each) == str(path)
    return found


def test_a_second_store_on_the_file_leaves_the_locks_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    first = SqliteStore(path)
    first.put_flow("f", b"compiled")
    append(first, 0)
    log = (tmp_path / "s.db-wal").stat().st_ino

    second = SqliteStore(path)
    assert from_outside(path) == 1
    assert (tmp_path / "s.db-wal").stat().st_ino == log  # the log is not mistaken for an unused one
    append(first, 1)
    second.close()
    assert from_outside(path) == 2
    append(first, 2)
    assert from_outside(path) == 3
    assert (tmp_path / "s.db-wal").stat().st_ino == log

    first.close()
    assert from_outside(path) == 3
    assert descriptors(path) == 0


def test_a_store_that_is_refused_or_forgotten_leaves_nothing_open(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    path.write_bytes(b"no database" * 100)
    for _ in range(2):
        with pytest.raises(StoreError, match="is not a store"):
            SqliteStore(path)
    assert descriptors(path) == 0

    path.unlink()
    store = SqliteStore(path)
    assert descriptors(path) == 2
    del store
    gc.collect()
    assert descriptors(path) == 0
