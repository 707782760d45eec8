# Shows F32
"""One writer at a time, tested with processes that are killed, frozen, and compete (F32)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from flowengine.journal.lease_holders import is_dead, steady_now, this_process
from flowengine.journal.records import Append, NewExecution, Owner
from flowengine.journal.sqlite.store import SqliteStore
from flowengine.sdk import processes as process_identity
from flowengine.sdk.processes import processes

Start = Callable[..., "subprocess.Popen[str]"]


def hear(child: subprocess.Popen[str]) -> list[str]:
    assert child.stdout is not None
    return child.stdout.readline().strip().split(maxsplit=1)


def tell(child: subprocess.Popen[str], word: str = "go") -> None:
    assert child.stdin is not None
    child.stdin.write(f"{word}\n")


def test_this_process_lives_and_differs_each_time() -> None:
    one, two = this_process(), this_process()

    assert one.id != two.id
    assert one[1:] == two[1:]
    assert one.pid == os.getpid()
    assert not is_dead(one)


FIRST_THREAD_ENDS = """
import ctypes, platform, threading
def tell():
    while open("/proc/self/stat").read().rpartition(")")[2].split()[0] != "Z": pass
    print("alone", flush=True)
    threading.Event().wait()
threading.Thread(target=tell).start()
ctypes.CDLL(None).syscall(93 if platform.machine() in ("aarch64", "riscv64") else 60, 0)
"""


def test_a_process_lives_as_long_as_any_of_its_threads() -> None:
    """Also after `kill -9`, until the last has left the kernel: it may finish a write there."""
    command = [sys.executable, "-c", FIRST_THREAD_ENDS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert hear(child) == ["alone"]
        began = process_identity.started(child.pid)
        assert began is not None
        owner = process_identity.this_process()._replace(pid=child.pid, started=began)
        assert child.pid in [one.pid for one in processes()]

        os.kill(child.pid, signal.SIGKILL)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

        assert is_dead(owner)
        assert child.pid not in [one.pid for one in processes()]


def test_one_of_two_that_race_for_a_lease_gets_it(tmp_path: Path, start: Start) -> None:
    """200 leases, two processes: one acquires the lease, the other learns its holder."""
    count = 200
    store = SqliteStore(tmp_path / "s.db", "process")
    store.put_flow("f", b"compiled")
    new = NewExecution("orders", None, "f", 0)
    store.commit([Append(f"e{n}", 0, 0, [(0, b"x")], new=new) for n in range(count)])
    children = [start("acquire", tmp_path / "s.db", count) for _ in range(2)]
    for child in children:
        hear(child)
    for child in children:
        tell(child)

    told = [[hear(child)[0] for _ in range(count)] for child in children]

    for one, two in zip(*told, strict=True):
        assert (one, two) in {("had", str(children[0].pid)), (str(children[1].pid), "had")}
    store.close()


def test_a_pid_that_was_used_again_is_another_process() -> None:
    me = this_process()

    assert is_dead(Owner("other", me.pid, me.started - 1, me.host, me.boot))


def test_what_ran_before_the_machine_started_again_is_dead() -> None:
    me = this_process()
    boot, _, namespace = me.boot.partition("/")

    assert is_dead(Owner("other", me.pid, me.started, me.host, f"{boot[::-1]}/{namespace}"))


@pytest.mark.parametrize(
    "other",
    [{"boot": "another/pid:[1]", "host": "another"}, {"boot": "same/pid:[1]"}],
    ids=["another machine", "another container"],
)
def test_processes_that_cannot_be_seen_are_not_called_dead(other: dict[str, str]) -> None:
    """Their leases end only by expiry."""
    me = this_process()
    boot = me.boot.partition("/")[0]
    there = other.get("host", me.host), other["boot"].replace("same", boot)

    assert not is_dead(Owner("other", 2**22 + 1, me.started, *there))


def test_where_processes_cannot_be_looked_at_nobody_is_called_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process_identity, "boot", lambda: "")

    assert not is_dead(this_process()._replace(pid=2**22 + 1))


def test_lease_times_do_not_follow_the_date(time_is: Callable[[float], None]) -> None:
    """Leases use the time since boot, so changes of the date have no effect."""
    before = steady_now()
    time_is(0.0)

    assert 0 <= steady_now() - before < 60_000


def test_nothing_is_written_after_the_lease_has_gone_to_another(tmp_path: Path) -> None:
    """Two owners take the lease from each other, and the current one writes continuously.

    Once an acquisition has returned, no event of an earlier owner enters the journal.
    """
    store = SqliteStore(tmp_path / "s.db", "none", patience=60)
    store.put_flow("f", b"compiled")
    new = NewExecution("orders", None, "f", 0)
    assert store.commit([Append("e1", 0, 0, [(0, b"start")], new=new)]) == [None]
    handovers: list[tuple[int, int]] = []

    def own(name: str, rounds: int) -> None:
        mine = SqliteStore(tmp_path / "s.db", "none", patience=60)
        for round in range(rounds):
            epoch = mine.acquire("e1", name, 0)  # leases are never renewed, so each has expired
            seq = len(mine.events("e1"))
            handovers.append((epoch, seq))  # the other owner may already have the lease again
            while mine.commit([Append("e1", epoch, seq, [(0, b"%d" % epoch)])]) == [None]:
                seq += 1
                if round == rounds - 1:
                    break
        mine.close()

    threads = [threading.Thread(target=own, args=[name, 40]) for name in ("ana", "ben")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    written = [0, *(int(entry.payload) for entry in store.events("e1")[1:])]
    assert len(written) > 2  # both have written
    for epoch, seq in handovers:
        assert all(author >= epoch for author in written[seq:])
    assert len({epoch for epoch, _ in handovers}) == 80
    store.close()
