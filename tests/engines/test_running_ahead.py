"""Quick steps that may repeat run before earlier ones are committed. All others run afterwards."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import flowengine
from flowengine import Conflict, Engine
from flowengine.engines.running import driver
from flowengine.errors import LeaseLost, StoreError
from flowengine.journal.lease_holders import steady_now, this_process
from flowengine.journal.records import Append
from flowengine.journal.sqlite.store import SqliteStore
from tests.engines import child
from tests.replacing import Limits

MODULE = """\
import os
import sys
from flowengine import quick

@quick
def count(value: int = 0) -> int:
    look(value)
    return value + 1

@quick
def act(value: int = 0) -> int:
    look(value)
    with open("acted.txt", "a") as file:
        file.write(f"{value}\\n")
    return value + 1

def look(value):
    if value == int(os.environ.get("ENDS", -1)):
        os.kill(os.getpid(), 9)
    if "ahead_hook" in sys.modules:
        sys.modules["ahead_hook"].look(value)
"""
HEAD = """\
flowengine: 1
id: ahead
tools:
  count: {python: "ahead_tools:count", effect: pure}
  act: {python: "ahead_tools:act", effect: once}
  put: {python: "ahead_tools:act", effect: idempotent}
"""


class Watched(SqliteStore):
    """A store that records the number of events in each commit."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, durability="process")
        self.sizes: list[int] = []

    def commit(self, appends: Sequence[Append]) -> list[Conflict | None]:
        self.sizes += [len(append.events) for append in appends]
        return super().commit(appends)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "ahead_tools.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("ahead_hook", None)


def hook(look: Callable[[int], object]) -> None:
    """Make the steps call a function of the test."""
    module: Any = ModuleType("ahead_hook")
    module.look = look
    sys.modules["ahead_hook"] = module


def chain(folder: Path, *tools: str) -> flowengine.LoadedFlow:
    steps = [f"  - {{id: s0, call: {tools[0]}}}\n"]
    for n, tool in enumerate(tools[1:], 1):
        given = f"${{{{ steps.s{n - 1}.output }}}}"
        steps.append(f"  - {{id: s{n}, call: {tool}, with: {{value: '{given}'}}}}\n")
    last = f"outputs: {{last: '${{{{ steps.s{len(tools) - 1}.output }}}}'}}\n"
    path = folder / "ahead.yaml"
    path.write_text(HEAD + "steps:\n" + "".join(steps) + last)
    return flowengine.load(path)


def test_pure_steps_share_a_commit(folder: Path) -> None:
    store = Watched(folder / "store.db")
    with Engine(store) as engine:
        result = engine.run(chain(folder, *["count"] * 6))
        assert result.outputs == {"last": 6}
        types = [entry["type"] for entry in engine.executions.events(result.execution)]
    assert types == ["started", *["succeeded"] * 6]
    assert sum(store.sizes) == 7
    assert store.sizes[0] == 1  # the start is on disk before any step runs
    assert len(store.sizes) < 7


def test_what_acts_runs_alone(folder: Path) -> None:
    """All previous events are on disk before it runs, and its result before any other step runs."""
    store = Watched(folder / "store.db")
    with Engine(store) as engine:
        on_disk: list[int] = []
        hook(lambda _value: on_disk.append(len(list(engine.executions.events("it")))))
        engine.run(chain(folder, "act", "act", "count", "act", "count"), id="it")
    assert on_disk == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("in_memory", "stored"), [(True, [1, 1, 1, 4, 5]), (False, [1, 2, 3, 4, 5])]
)
def test_only_in_memory_idempotent_steps_run_ahead(
    folder: Path, limits: Limits, in_memory: bool, stored: list[int]
) -> None:
    """On disk, a crash could repeat an earlier call after a later one."""
    limits(driver, QUICK_SECONDS=60)
    before: list[int] = []
    with Engine(None if in_memory else folder / "store.db") as engine:
        hook(lambda _value: before.append(len(list(engine.executions.events("it")))))
        engine.run(chain(folder, "put", "put", "put", "act", "put"), id="it")
    assert before == stored


def test_an_interrupt_in_memory_repeats_only_what_may_repeat(folder: Path, limits: Limits) -> None:
    limits(driver, QUICK_SECONDS=60)
    flow = chain(folder, "act", "put", "put", "act", "put")
    ran: list[int] = []

    def interrupt(value: int) -> None:
        ran.append(value)
        if ran == [0, 1, 2]:
            raise KeyboardInterrupt

    hook(interrupt)
    with Engine(None) as engine:
        with pytest.raises(KeyboardInterrupt):
            engine.run(flow, id="it")
        assert engine.resume("it").outputs == {"last": 5}
    assert ran == [0, 1, 2, 1, 2, 3, 4]


def test_after_a_kill_nothing_that_acted_runs_again(folder: Path) -> None:
    chain(folder, "count", "act", "count", "count", "act", "count", "count")
    for ends in (0, 3, 5, -1):
        process = child.start(_drive, folder, ends)
        process.join()
        assert process.exitcode == (-9 if ends >= 0 else 0)
    assert (folder / "acted.txt").read_text() == "1\n4\n"
    with Engine(folder / "killed.db") as engine:
        assert engine.executions.result("it").outputs == {"last": 7}


def _drive(folder: Path, ends: int) -> None:
    os.environ["ENDS"] = str(ends)
    os.chdir(folder)
    with Engine(Path(folder, "killed.db"), durability="process") as engine:
        result = engine.run(flowengine.load("ahead.yaml"), id="it")
    assert result.status == "succeeded"


def test_an_interrupt_loses_no_step_that_acted(folder: Path) -> None:
    flow = chain(folder, "act", "count", "count")
    with Engine(folder / "store.db") as engine:

        def interrupt(value: int) -> None:
            if value == 2:
                raise KeyboardInterrupt

        hook(interrupt)
        with pytest.raises(KeyboardInterrupt):
            engine.run(flow, id="it")
        types = [entry["type"] for entry in engine.executions.events("it")]
        assert types[:2] == ["started", "succeeded"]
        hook(lambda _value: None)
        assert engine.resume("it").outputs == {"last": 3}
    assert (folder / "acted.txt").read_text() == "0\n"


class Full(SqliteStore):
    """A store that raises a full-disk error at the first commit of several events."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, durability="process")
        self.refused: list[int] = []

    def commit(self, appends: Sequence[Append]) -> list[Conflict | None]:
        sizes = [len(append.events) for append in appends]
        if not self.refused and max(sizes) > 1:
            self.refused = sizes
            raise StoreError("the disk is full")
        return super().commit(appends)


def test_a_refused_commit_loses_only_pure_steps(folder: Path, limits: Limits) -> None:
    """Steps that ran ahead run again. Earlier effects are not repeated, later steps never ran."""
    limits(driver, QUICK_SECONDS=60)  # a busy machine would commit each by itself
    flow = chain(folder, "act", "count", "count", "count", "act", "count")
    ran: list[int] = []
    hook(ran.append)
    store = Full(folder / "store.db")
    with Engine(store) as engine:
        with pytest.raises(StoreError, match="the disk is full"):
            engine.run(flow, id="it")
        assert store.refused == [3]
        assert ran == [0, 1, 2, 3]
        assert len(list(engine.executions.events("it"))) == 2
        assert (folder / "acted.txt").read_text() == "0\n"

        assert engine.resume("it").outputs == {"last": 6}
        types = [entry["type"] for entry in engine.executions.events("it")]
        assert types == ["started", "succeeded", "cut", *["succeeded"] * 5]
    assert ran == [0, 1, 2, 3, 1, 2, 3, 4, 5]
    assert (folder / "acted.txt").read_text() == "0\n4\n"


def test_who_loses_the_lease_while_steps_run_ahead_writes_nothing(
    folder: Path, limits: Limits
) -> None:
    limits(driver, QUICK_SECONDS=60)
    flow = chain(folder, "act", "count", "count", "act")
    other = SqliteStore(folder / "store.db", "process", is_dead=lambda owner: True)
    owner = this_process()
    ran: list[int] = []

    def take_over(value: int) -> None:
        ran.append(value)
        if ran == [0, 1]:
            other.renew(owner, 2**60)
            epochs.append(other.acquire("it", owner.id, steady_now()))

    epochs: list[int] = []
    hook(take_over)
    with Engine(Watched(folder / "store.db")) as engine:
        with pytest.raises(LeaseLost):
            engine.run(flow, id="it")
        assert ran == [0, 1, 2]
        assert len(list(engine.executions.events("it"))) == 2
        other.release([("it", epochs[0])])
        assert engine.resume("it").outputs == {"last": 4}
    other.close()
    assert ran == [0, 1, 2, 1, 2, 3]
    assert (folder / "acted.txt").read_text() == "0\n3\n"
