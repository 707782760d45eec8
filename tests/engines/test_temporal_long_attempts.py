"""Attempts in Temporal that are at work for longer than a run of their workflow."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.engines.temporal.address import read_address
from flowengine.engines.temporal.connection import connect
from flowengine.engines.temporal.heartbeat import VARIABLE as HEARTBEAT
from flowengine.engines.temporal.requests import WATCH
from tests.engines import world
from tests.engines.temporal_server import RunningWorker
from tests.engines.test_temporal import replay
from tests.engines.test_temporal_faults import cuts, taken

pytestmark = pytest.mark.endurance(slices=5)

PASSING_BY = """
steps:
  - id: all
    parallel:
      - {id: once_long, python: "effects:stay_and_log"}
      - {id: each, map: {over: 100, concurrency: 4}, python: "effects:act"}
    output: "${{ steps.once_long.output }}"
outputs: {long: "${{ steps.all.output }}"}
"""


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HEARTBEAT, "3s")  # shorter ones are missed on a busy machine


def runs(address: str, id: str) -> list[list[Any]]:
    """Return the histories of an execution's runs, the oldest first."""

    async def read() -> list[list[Any]]:
        client = await connect(read_address(address))
        run: str | None = client.get_workflow_handle(id).run_id
        found: list[list[Any]] = []
        while run != "":
            handle = client.get_workflow_handle(id, run_id=run)
            found.insert(0, [*(await handle.fetch_history()).events])
            start = found[0][0].workflow_execution_started_event_attributes
            run = start.continued_execution_run_id
        return found

    return asyncio.run(read())


def watches(history: list[Any]) -> int:
    """Return how many watching activities a run has begun."""
    return sum(
        event.activity_task_scheduled_event_attributes.activity_type.name == WATCH
        for event in history
    )


def test_a_long_attempt_outlives_runs_and_delays_no_other(server: str, tmp_path: Path) -> None:
    address, file = f"{server}/long", world.make(tmp_path, PASSING_BY)
    with RunningWorker(address) as worker, Engine(address) as engine:
        engine.start(file, id="passed")
        world.until(lambda: len(world.effects(tmp_path)) == 100, pause=0.1)
        (tmp_path / "go").touch()
        assert engine.resume("passed").outputs == {"long": "rested"}
        assert worker.stop() == 0
    histories = runs(address, "passed")
    assert len(histories) > 4
    assert [watches(one) for one in histories[1:]] == [1] * (len(histories) - 1)
    with Engine(address) as engine:
        *others, last = [one for one in engine.events("passed") if one["type"] == "succeeded"]
    assert len(others) == 100
    assert [line[-1] for line in last["log"]["lines"]] == ["began"]
    asyncio.run(replay(address, "passed"))


TWO = """
steps:
  - id: all
    parallel:
      - {id: once_long, python: "effects:stay"}
      - {id: again, python: "effects:stay", effect: idempotent}
      - {id: each, map: {over: 30, concurrency: 2}, python: "effects:act", effect: idempotent}
"""
PHASES = {
    "first activities": lambda histories: bool(histories),
    "watched": lambda histories: len(histories) == 1 and watches(histories[-1]) == 2,
    "continued": lambda histories: len(histories) > 1,
}


def begin(address: str, folder: Path, id: str, phase: str, engine: Engine) -> None:
    """Start an execution with two long attempts, and wait until they are in a phase."""
    text = TWO if phase == "continued" else TWO.replace("over: 30", "over: 2")
    engine.start(world.make(folder, text), id=id)
    world.until(lambda: len(world.effects(folder)) >= 2, pause=0.1)
    world.until(lambda: PHASES[phase](runs(address, id)), pause=0.1)


def rested(folder: Path) -> list[str]:
    """Return the steps whose long attempts have taken effect."""
    return sorted(step for step, _, result in world.effects(folder) if result == "rested")


@pytest.mark.endurance
@pytest.mark.parametrize("phase", PHASES)
def test_long_attempts_of_a_killed_worker_are_cut_off(
    phase: str, server: str, tmp_path: Path
) -> None:
    address, id = f"{server}/long", f"killed-{phase.replace(' ', '-')}"
    with Engine(address) as engine:
        with RunningWorker(address) as worker:
            begin(address, tmp_path, id, phase, engine)
            worker.kill()
        with RunningWorker(address) as worker:
            world.until(lambda: len(cuts(engine, id)) >= 2, pause=0.1)
            world.until(lambda: any("step=all/again" in line for line in taken(worker)))
            [asked] = engine.waits(execution=id).items
            assert (asked["address"], asked["ran"]) == ("all/once_long", "maybe")
            (tmp_path / "go").touch()
            engine.decide(asked["id"], "result", value="decided")
            assert engine.resume(id).status == "succeeded"
    assert rested(tmp_path) == ["all/again"]


@pytest.mark.endurance
@pytest.mark.parametrize("phase", PHASES)
def test_a_cancelled_execution_ends_after_its_long_attempts(
    phase: str, server: str, tmp_path: Path
) -> None:
    address, id = f"{server}/long", f"cancelled-{phase.replace(' ', '-')}"
    with RunningWorker(address) as worker, Engine(address) as engine:
        begin(address, tmp_path, id, phase, engine)
        assert engine.cancel(id).status == "cancelled"
        (tmp_path / "go").touch()
        assert worker.stop() == 0
    assert rested(tmp_path) == []
    asyncio.run(replay(address, id))


def test_watched_attempts_end_while_their_worker_drains(server: str, tmp_path: Path) -> None:
    address = f"{server}/long"
    with RunningWorker(address) as worker, Engine(address) as engine:
        begin(address, tmp_path, "drained", "watched", engine)
        worker.process.terminate()
        world.until(lambda: any("draining" in line for line in worker.log))
        with RunningWorker(address):
            (tmp_path / "go").touch()
            assert engine.resume("drained").status == "succeeded"
            assert worker.stop() == 0
        assert cuts(engine, "drained") == []
    assert rested(tmp_path) == ["all/again", "all/once_long"]


def test_a_worker_that_stops_cuts_off_watched_attempts(server: str, tmp_path: Path) -> None:
    address = f"{server}/long"
    with RunningWorker(address, "--drain", "10ms") as worker, Engine(address) as engine:
        begin(address, tmp_path, "stopped", "watched", engine)
        assert worker.stop() == 0
        (tmp_path / "go").touch()
        with RunningWorker(address):
            [asked] = engine.resume("stopped").waits
            assert (asked["address"], asked["ran"]) == ("all/once_long", "maybe")
            engine.cancel("stopped")
    assert rested(tmp_path) == ["all/again"]


@pytest.mark.endurance
@pytest.mark.parametrize("block", range(5))
def test_attempts_that_are_stopped_as_they_become_long_have_ended(
    block: int, server: str, tmp_path: Path
) -> None:
    address, file = f"{server}/long", world.make(tmp_path, TWO.replace("over: 30", "over: 1"))
    ids = [f"raced-{block}-{number}" for number in range(10)]
    with RunningWorker(address) as worker, Engine(address) as engine:
        for id in ids:
            engine.start(file, id=id)
        for number, id in enumerate(ids):
            world.until(lambda id=id: watches(runs(address, id)[-1]) > number % 2)  # type: ignore[misc]
            engine.cancel(id, resume=False)
        assert {engine.resume(id).status for id in ids} == {"cancelled"}
        (tmp_path / "go").touch()
        assert worker.stop() == 0
    assert rested(tmp_path) == []
