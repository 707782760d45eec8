"""Records beside a journal refer to long texts by their position in it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from flowengine.errors import StoreError
from flowengine.journal.encoding import pack
from flowengine.journal.records import Append, NewExecution
from flowengine.journal.sqlite.store import SqliteStore
from flowengine.kernel.notation.addresses import wait_id

TEXT = "".join(str(number) for number in range(1000))
WAIT = wait_id("e", 1)


def test_a_wait_whose_event_is_damaged_says_so(tmp_path: Path) -> None:
    record = {"id": 1, "kind": "ask", "since": 0, "title": TEXT}
    new = NewExecution("f", None, "f", 0)
    event = (0, pack({"says": TEXT}))
    with closing(SqliteStore(tmp_path / "s.db")) as store:
        store.put_flow("f", b"compiled")
        assert store.commit([Append("e", 0, 0, [event], new=new, opened=[record])]) == [None]
        assert store.wait(WAIT).record == record
    with closing(sqlite3.connect(tmp_path / "s.db")) as database, database:
        database.execute("UPDATE events SET payload = CAST(x'80' || payload AS BLOB)")

    with closing(SqliteStore(tmp_path / "s.db")) as store:
        with pytest.raises(StoreError, match=rf"wait {WAIT} is damaged: entry 0 of its execution"):
            store.wait(WAIT)
        assert store.execution("e").id == "e"
