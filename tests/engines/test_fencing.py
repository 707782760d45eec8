"""A process that was stopped does not go on beside the one that has taken its execution over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from flowengine.engines.engine import Engine
from flowengine.engines.leases import LeaseKeeper
from flowengine.engines.memory.store import MemoryStore
from flowengine.errors import Conflict, LeaseLost
from flowengine.journal.lease_holders import steady_now
from tests.engines import child, world
from tests.engines.test_leases import freeze

TTL = 0.5
MODULE = """\
import asyncio
import ctypes
import os
import time
from pathlib import Path

HERE = Path(__file__).parent


def note(what: str) -> None:
    with open(HERE / "effects", "a") as file:
        file.write(f"{what} {os.getpid()}\\n")


def waits() -> bool:
    return not (HERE / "go").exists()


def loop() -> str:
    note("began")
    while waits():
        time.sleep(0.001)
    note("acted")
    return "acted"


def native() -> str:
    note("began")
    if waits():
        ctypes.CDLL(None).poll(None, 0, 4000)
    note("acted")
    return "acted"


def nap() -> str:
    note("began")
    time.sleep(0.3)
    note("acted")
    return "acted"


async def coroutine() -> str:
    note("began")
    while waits():
        await asyncio.sleep(0.001)
    note("acted")
    return "acted"


async def hold() -> str:
    note("began")
    ctypes.PyDLL(None).usleep(1_500_000)  # it keeps the lock of the interpreter
    note("acted")
    return "acted"
"""
FLOW = """
steps:
  - {id: a, python: "acts:FUNCTION", effect: once}
  - {id: b, python: "acts:note", with: {what: "next"}, effect: once}
"""


def drive(file: Path) -> None:
    try:
        with Engine(file.parent / "store", ttl=TTL) as engine:
            engine.run(file, id="it")
    except LeaseLost:
        (file.parent / "lost").touch()


def effects(folder: Path, what: str) -> list[int]:
    """Return the processes in which something has happened."""
    file = folder / "effects"
    lines = file.read_text().splitlines() if file.exists() else []
    return [int(line.split()[1]) for line in lines if line.startswith(f"{what} ")]


def taken_over(engine: Engine) -> Any:
    """Continue the execution as soon as its process counts as gone, and return the question."""
    while True:
        try:
            [asked] = engine.resume("it").waits
            return asked
        except Conflict:
            time.sleep(0.02)


@pytest.mark.parametrize("function", ["loop", "native", "coroutine"])
def test_what_a_stopped_process_was_doing_is_not_done_beside_the_next_attempt(
    function: str, tmp_path: Path
) -> None:
    file = world.make(tmp_path, FLOW.replace("FUNCTION", function))
    (tmp_path / "acts.py").write_text(MODULE)
    stopped = child.start(drive, file)
    world.until(lambda: bool(effects(tmp_path, "began")))
    assert stopped.pid is not None
    freeze(stopped.pid, tmp_path / "store" / "flowengine.db")
    try:
        with Engine(tmp_path / "store", ttl=TTL) as engine:
            asked = taken_over(engine)
            where = f"Process {stopped.pid} on {os.uname().nodename} may still be at work on it"
            assert where in asked["body"]
            (tmp_path / "go").touch()
            engine.approvals.decide(asked["id"], "retry")
            assert engine.executions.result("it").status == "succeeded"
            (tmp_path / "go").unlink()
    finally:
        os.kill(stopped.pid, signal.SIGCONT)
    world.until((tmp_path / "lost").exists)
    (tmp_path / "go").touch()
    stopped.join()
    assert effects(tmp_path, "acted") == effects(tmp_path, "next") == [os.getpid()]


def test_a_stopped_command_ends_when_its_execution_is_taken_over(tmp_path: Path) -> None:
    """Its function would act at once if it was continued."""
    file = world.make(tmp_path, FLOW.replace("FUNCTION", "nap"))
    (tmp_path / "acts.py").write_text(MODULE)
    store = str(tmp_path / "store")
    command = [sys.executable, "-m", "flowengine", "--store", store, "run", str(file), "--id=it"]
    with (
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as stopped,
        Engine(store) as engine,
        ExitStack() as after,
    ):
        after.callback(stopped.kill)
        world.until(lambda: bool(effects(tmp_path, "began")))
        freeze(stopped.pid, tmp_path / "store" / "flowengine.db")
        holder = engine.store.holder("it", 0)
        assert holder is not None
        world.host_of(engine).journals.renew(holder, 1)  # as if the time of its lease had passed
        asked = taken_over(engine)
        assert stopped.wait(60) == -signal.SIGKILL
        assert "may still be at work" not in asked["body"]
        engine.approvals.decide(asked["id"], "retry")
        assert engine.executions.result("it").status == "succeeded"
    assert effects(tmp_path, "acted") == effects(tmp_path, "next") == [os.getpid()]


def test_a_result_that_comes_late_answers_the_question_about_it(tmp_path: Path) -> None:
    """The function gave no other thread of its process a turn, so that it seemed to be gone."""
    file = world.make(tmp_path, FLOW.replace("FUNCTION", "hold"))
    (tmp_path / "acts.py").write_text(MODULE)
    held = child.start(drive, file)
    world.until(lambda: bool(effects(tmp_path, "began")))
    with Engine(tmp_path / "store", ttl=TTL) as engine:
        asked = taken_over(engine)
        held.join()
        assert (tmp_path / "lost").exists()
        assert engine.resume("it").status == "succeeded"
        [first, _] = engine.executions.show("it")["steps"]
        assert (first["attempts"], first["status"]) == (1, "succeeded")
        with pytest.raises(Conflict):
            engine.approvals.decide(asked["id"], "retry")
    assert len(effects(tmp_path, "acted")) == len(effects(tmp_path, "next")) == 1


def test_a_lease_is_only_looked_up_after_a_late_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []

    class Counting(MemoryStore):
        def holder(self, execution: str, now: int) -> Any:
            reads.append(execution)
            return keeper.owner if holds else None

    now, holds = [steady_now()], True
    monkeypatch.setattr("flowengine.engines.leases.steady_now", lambda: now[0])
    keeper = LeaseKeeper(Counting(), 1000)
    keeper.reserve("it")
    assert keeper.has("it")
    assert reads == []
    now[0] += 1001
    assert keeper.has("it")
    assert keeper.has("it")
    assert reads == ["it"]
    now[0] += 1001
    holds = False
    assert not keeper.has("it")
    keeper.renew()  # the heartbeats go on
    assert not keeper.has("it")
