"""A second process that uses a store: `child.py COMMAND STORE …`. Tests use its pipes."""

from __future__ import annotations

import os
import resource
import sys

from flowengine.errors import Conflict, StoreError
from flowengine.journal.lease_holders import steady_now, this_process
from flowengine.journal.records import Append, NewExecution
from flowengine.journal.sqlite.store import SqliteStore

FLOW = "f" * 64
FOREVER = 10**15


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def hear() -> str:
    return sys.stdin.readline().strip()


def event(execution: str, seq: int) -> bytes:
    return f"{execution} {seq} ".encode() * (1 + seq % 40)


def begin(store: SqliteStore, id: str) -> None:
    """Create an execution owned by this process."""
    owner = this_process()
    store.renew(owner, FOREVER)
    store.put_flow(FLOW, b"compiled")
    new = NewExecution("orders", None, FLOW, 0, owner=owner.id)
    assert store.commit([Append(id, 1, 0, [(0, event(id, 0))], new=new)]) == [None]


def write(path: str, durability: str, most: str = "1000000") -> None:
    """Append to two executions in one commit, repeatedly, and report each commit."""
    store = SqliteStore(path, durability)  # type: ignore[arg-type]
    a, b = f"a{os.getpid()}", f"b{os.getpid()}"
    begin(store, a)
    begin(store, b)
    say(a, 0)
    for seq in range(1, int(most) + 1):
        store.commit([Append(id, 1, seq, [(seq, event(id, seq))]) for id in (a, b)])
        say(a, seq)
    hear()


def append(path: str) -> None:
    """Append one event for each line of input, and report each result."""
    store = SqliteStore(path, "process")
    begin(store, "e1")
    say("holds", os.getpid())
    seq = 1
    while hear():
        (refusal,) = store.commit([Append("e1", 1, seq, [(seq, event("e1", seq))])])
        say(type(refusal).__name__, refusal or "")
        seq += refusal is None


def acquire(path: str, id: str) -> None:
    """On a line of input, try to acquire each lease in turn, and report the results."""
    store = SqliteStore(path, "process")
    owner = this_process()
    store.renew(owner, FOREVER)
    say("ready")
    hear()
    for number in range(int(id)):
        try:
            store.acquire(f"e{number}", owner.id, steady_now())
            say("had")
        except Conflict as conflict:
            say(conflict.standing.pid)
    hear()  # leases end with this process, so it must outlive the check


def fill(path: str, start: str, step: str) -> None:
    """Append under a limit on file sizes. Each time it is reached, report that and raise it."""
    store = SqliteStore(path, "process")
    begin(store, "e1")
    seq, limit = 1, int(start)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for _ in range(40):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        try:
            while True:
                store.commit([Append("e1", 1, seq, [(seq, event("e1", seq))])])
                seq += 1
        except StoreError as error:
            say(seq, error.with_hint)
        limit += int(step)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert store.commit([Append("e1", 1, seq, [(seq, event("e1", seq))])]) == [None]
    say(seq + 1, "done")


def nobody(path: str) -> None:
    """Use the store as a user without write permission on its folder, if possible."""
    import sqlite3  # noqa: F401 - loaded while its files can be read

    from flowengine.journal.sqlite import pages  # noqa: F401

    if os.geteuid() == 0:
        os.setgroups([])
        os.setegid(65534)
        os.seteuid(65534)
    try:
        store = SqliteStore(path)
        say("opened", len(store.events("e1")))
        begin(store, "e2")
    except StoreError as error:
        say(error.exit_code, error.with_hint)


def make(path: str) -> None:
    """On a line of input, open or create a store."""
    say("ready")
    hear()
    store = SqliteStore(path)
    begin(store, f"e{os.getpid()}")
    say("made", len(store.executions().items))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
