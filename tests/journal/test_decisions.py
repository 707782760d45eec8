# Shows F41
"""The first decision stands, regardless of its process (F41)."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from flowengine.journal.records import Append, NewExecution
from flowengine.journal.sqlite.store import SqliteStore
from flowengine.kernel.notation.addresses import wait_id

Start = Callable[..., "subprocess.Popen[str]"]
COUNT = 1000


@pytest.mark.endurance
def test_two_processes_decide_a_thousand_waits_at_once(tmp_path: Path, start: Start) -> None:
    """Each wait has one decision, reported to both processes, and one message to its execution."""
    store = SqliteStore(tmp_path / "s.db", "process")
    store.put_flow("f", b"compiled")
    asked = [{"id": n, "kind": "approval", "since": 0} for n in range(COUNT)]
    new = NewExecution("orders", None, "f", 0)
    assert store.commit([Append("e1", 0, 0, [(0, b"x")], new=new, opened=asked)]) == [None]
    waits = [wait_id("e1", n) for n in range(COUNT)]
    (tmp_path / "waits").write_text("\n".join(waits))
    people = ("user:ana", "user:ben")
    children = [start("decide", tmp_path / "s.db", by, tmp_path / "waits") for by in people]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")

    told = [child.communicate()[0].split("\n")[:-1] for child in children]

    inbox = Counter(message.event.decode() for message in store.inbox("e1"))
    winners: Counter[str] = Counter()
    for wait, ana, ben in zip(waits, *told, strict=True):
        (ana_won, ana_told), (ben_won, ben_told) = ana.split(), ben.split()
        assert {ana_won, ben_won} == {"0", "1"}
        assert ana_told == ben_told == people[ben_won == "1"]
        assert store.wait(wait).decision == ana_told.encode()
        winners[ana_told] += 1
    assert inbox == winners
    assert sum(inbox.values()) == COUNT
    store.close()
