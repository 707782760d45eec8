"""Create the stored sample for the current version: `python tests/journal/make_store.py`.

Run it once, right before a version is released. Its output must never be regenerated.
"""

from __future__ import annotations

import sys
from pathlib import Path

from flowengine.journal.records import Append, ClosedWait, ExecutionHead, NewExecution, Owner, Vote
from flowengine.journal.sqlite import schema
from flowengine.journal.sqlite.store import SqliteStore
from flowengine.kernel.notation.addresses import wait_id

ENDED = "01k8xq3z00000000000000000a"
WAITING = "01k8xq7m00000000000000000b"
HASH = "f" * 64


def make(folder: Path) -> None:
    store = SqliteStore(folder / "flowengine.db")
    owner = Owner("ana", 1, 1, "here", "boot")
    store.renew(owner, 0)
    store.put_flow(HASH, b"compiled")
    store.remember_source("orders.yaml", HASH, [("orders.yaml", "d")], b"w")
    new = NewExecution("orders", "1", HASH, 1_700_000_000_000, {"team": "a"}, "user:ana")
    store.commit([Append(ENDED, 0, 0, [(1, b"started"), (2, b"done")], new=new)])
    store.put_artifact(ENDED, b"content\n", "report.txt")
    head = ExecutionHead("succeeded", 3, outputs=b"\x81\xa4done\xc3")
    store.commit([Append(ENDED, 0, 2, head=head)])

    new = NewExecution("orders", "1", HASH, 1_700_000_000_001, owner=owner.id)
    asked = [
        {"id": 0, "kind": "approval", "since": 5, "title": "Go?", "batch": "b"},
        {"id": 1, "kind": "approval", "since": 6, "title": "Pay?", "assignees": ["user:ana"]},
    ]
    first = [(1, b"started"), (2, b"asked")]
    store.commit([Append(WAITING, 1, 0, first, new=new, opened=asked, keys=[("paid", "7")])])
    store.decide(wait_id(WAITING, 0), Vote("user:ana", 7, True, b"yes"))
    store.send(WAITING, b"signal", 8, "m1")
    head = ExecutionHead("waiting", 9, due=1_800_000_000_000)
    closed = [ClosedWait(0, "decided", 9, b"result")]
    tail = [(8, b"decided"), (9, b"waiting")]
    store.commit([Append(WAITING, 1, 2, tail, head=head, closed=closed, snapshot=(2, b"state"))])
    store.close()


if __name__ == "__main__":
    target = Path(__file__).with_name("stores") / f"version-{len(schema.MIGRATIONS)}"
    if target.exists():
        sys.exit(f"{target} is there: what was released stays as it was")
    make(target)
