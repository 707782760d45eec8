# Shows F32
"""One owner at a time: several processes that drive the same execution (F32)."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from flowengine.engines.engine import Engine
from flowengine.engines.infos import Reason
from flowengine.engines.leases import LeaseKeeper
from flowengine.engines.memory.store import MemoryStore
from flowengine.errors import Conflict, LeaseLost, NotFound
from flowengine.journal.lease_holders import steady_now
from flowengine.journal.records import Owner
from tests.engines import child, world

SLOW = """
steps:
  - id: nap
    python: effects:stay
    effect: idempotent
  - id: after
    python: effects:act
    effect: idempotent
"""


def drive(file: Path, id: str, ttl: float) -> None:
    """Drive an execution, and record the outcome in a file."""
    try:
        with Engine(file.parent / "store", ttl=ttl) as engine:
            said = str(engine.run(file, id=id).status)
    except Conflict as error:
        said = f"{type(error).__name__}: {error.message}"
    (file.parent / f"said-{os.getpid()}").write_text(said)


def until_at_work(file: Path, id: str) -> None:
    """Wait until a process holds an execution."""
    with Engine(file.parent / "store") as engine:
        while not any("running in process" in reason["what"] for reason in reasons(engine, id)):
            time.sleep(0.01)


def reasons(engine: Engine, id: str) -> list[Reason]:
    """Return why an execution does not proceed, or nothing if it does not exist yet."""
    try:
        return engine.executions.why(id)
    except NotFound:
        return []


def test_second_process_is_told_who_holds_the_execution(tmp_path: Path) -> None:
    file = world.make(tmp_path, SLOW)
    first = child.start(drive, file, "it", 15.0)
    until_at_work(file, "it")
    held = pytest.raises(Conflict, match=f"held by process {first.pid}")
    with Engine(tmp_path / "store") as engine, held:
        engine.resume("it")
    (tmp_path / "go").touch()
    first.join()
    assert (tmp_path / f"said-{first.pid}").read_text() == "succeeded"
    assert len(world.effects(tmp_path)) == 2


def test_killed_owner_is_followed_at_once(tmp_path: Path) -> None:
    file = world.make(tmp_path, SLOW)
    first = child.start(drive, file, "it", 60.0)
    until_at_work(file, "it")
    assert child.kill(first)
    (tmp_path / "go").touch()
    with Engine(tmp_path / "store") as engine:
        assert engine.resume("it").status == "succeeded"  # else the lease stays
    assert world.check_effects(tmp_path) == {"nap", "after"}


def freeze(pid: int, database: Path) -> None:
    """Stop a process while it holds no lock on the database."""
    while True:
        os.kill(pid, signal.SIGSTOP)
        world.until(lambda: b") T " in Path(f"/proc/{pid}/stat").read_bytes())  # not at once
        with closing(sqlite3.connect(database, timeout=0)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError:
                os.kill(pid, signal.SIGCONT)
                time.sleep(0.01)


def test_frozen_owner_that_wakes_can_write_nothing_and_says_so(tmp_path: Path) -> None:
    file = world.make(tmp_path, SLOW)
    first = child.start(drive, file, "it", 0.5)
    until_at_work(file, "it")
    assert first.pid is not None
    freeze(first.pid, tmp_path / "store" / "flowengine.db")
    (tmp_path / "go").touch()
    try:
        with Engine(tmp_path / "store", ttl=0.5) as engine:
            while True:
                try:
                    result = engine.resume("it")
                    break
                except Conflict:
                    time.sleep(0.05)
            before = list(engine.executions.events("it"))
    finally:
        os.kill(first.pid, signal.SIGCONT)
    first.join()
    assert result.status == "succeeded"
    said = (tmp_path / f"said-{first.pid}").read_text()
    assert said.startswith(LeaseLost.__name__)
    assert "lost execution" in said
    with Engine(tmp_path / "store") as engine:
        assert list(engine.executions.events("it")) == before


def test_lease_holds_while_a_step_blocks_the_loop(tmp_path: Path) -> None:
    text = "steps:\n  - {id: block, python: effects:block_loop, effect: idempotent}\n"
    file, ttl = world.make(tmp_path, text), 4.5
    first = child.start(drive, file, "it", ttl)
    until_at_work(file, "it")
    with Engine(tmp_path / "store") as engine:
        for _ in range(2):
            over = steady_now() + int(ttl * 1000)  # unless it was extended since
            world.until(lambda over=over: engine.store.holder("it", over))  # type: ignore[misc]
            with pytest.raises(Conflict):
                engine.resume("it")
    (tmp_path / "go").touch()
    first.join()
    assert (tmp_path / f"said-{first.pid}").read_text() == "succeeded"


HOLDING = """
import ctypes, time
from pathlib import Path

def hold() -> str:
    while not Path(__file__).with_name("go").exists():
        time.sleep(0.01)
    Path(__file__).with_name("held").touch()
    ctypes.PyDLL(None).sleep(8)  # it keeps the lock of the interpreter
    return "held"
"""


def drive_guarded(file: Path, id: str, ttl: float) -> None:
    """Drive an execution with a guard beside this process."""
    with Engine(file.parent / "store", ttl=ttl) as engine, engine.guarded():
        engine.run(file, id=id)


@pytest.mark.endurance
def test_a_function_that_holds_the_interpreter_loses_no_lease(tmp_path: Path) -> None:
    file = world.make(tmp_path, 'steps: [{id: it, python: "holding:hold"}]\n')
    (tmp_path / "holding.py").write_text(HOLDING)
    first = child.start(drive_guarded, file, "it", 3.0)
    until_at_work(file, "it")
    assert first.pid is not None
    guards = Path(f"/proc/{first.pid}/task/{first.pid}/children")
    world.until(lambda: "guard" in "".join(map(command, guards.read_text().split())))
    with Engine(tmp_path / "store") as engine:
        (tmp_path / "go").touch()
        world.until((tmp_path / "held").exists)
        ends = steady_now() + 7_000
        while steady_now() < ends:
            assert engine.store.holder("it", steady_now()) is not None
            time.sleep(0.05)
        world.until(lambda: engine.executions.result("it").status == "succeeded")
    first.join()


def command(pid: str) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def test_the_first_two_executions_at_once_are_renewed_by_one_thread() -> None:
    """Closing would wait for ever for a second one, which gets no signal to end."""

    class Meeting(MemoryStore):
        """A store in which both heartbeats meet, before either call has a thread."""

        def renew(self, owner: Owner, until: int) -> None:
            both.wait(60)
            super().renew(owner, until)

    both = threading.Barrier(2)
    others = set(threading.enumerate())  # engines that another test has left open
    keeper = LeaseKeeper(Meeting(), 1_000_000)
    with ThreadPoolExecutor(2) as pool:
        for call in [pool.submit(keeper.keep) for _ in range(2)]:
            call.result(60)
    new = set(threading.enumerate()) - others
    found = [one for one in new if one.name == "flowengine-leases"]
    keeper.close()

    assert len(found) == 1
    assert not found[0].is_alive()
