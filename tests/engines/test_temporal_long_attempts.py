# Shows D7
"""Attempts in Temporal that are at work for longer than a run of their workflow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.history.v1 import HistoryEvent

from flowengine import Engine
from flowengine.engines.temporal.connection import connect, read_address
from flowengine.engines.temporal.heartbeat import VARIABLE as HEARTBEAT
from flowengine.engines.temporal.objects import VARIABLE as OBJECTS
from flowengine.engines.temporal.requests import WATCH
from tests.engines import world
from tests.engines.temporal_server import RunningWorker, StoreNamed
from tests.engines.test_temporal import replay
from tests.engines.test_temporal_faults import cuts, taken
from tests.replacing import patches_everywhere

pytestmark = pytest.mark.endurance

PASSING_BY = """
steps:
  - id: all
    parallel:
      - {id: once_long, python: "effects:stay_and_log"}
      - {id: each, map: {over: 100, concurrency: 4}, python: "effects:act"}
    output: "${{ steps.once_long.output }}"
outputs: {long: "${{ steps.all.output }}"}
"""


SHORT = "5s"
"""A heartbeat. On a busy machine, a worker with a shorter one is silent for so long that its
attempts count as lost, or that its guard ends it and nobody continues."""


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HEARTBEAT, SHORT)


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


def test_a_long_attempt_outlives_runs_and_delays_no_other(
    server: StoreNamed, tmp_path: Path
) -> None:
    address, file = server("long"), world.make(tmp_path, PASSING_BY)
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
        ends = [one for one in engine.executions.events("passed") if one["type"] == "succeeded"]
    assert len(ends) == 101
    [logs] = [one["log"] for one in ends if one["address"] == "all/once_long"]  # in any order
    assert [line[-1] for line in logs["lines"]] == ["began"]
    asyncio.run(replay(address, "passed"))


TWO = """
steps:
  - id: all
    parallel:
      - {id: once_long, python: "effects:stay"}
      - {id: again, python: "effects:stay", effect: idempotent}
      - {id: each, map: {over: 30, concurrency: 2}, python: "effects:act", effect: idempotent}
"""
PHASES: dict[str, Callable[[list[list[Any]]], bool]] = {
    "first activities": bool,
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


@pytest.mark.parametrize("phase", PHASES)
def test_long_attempts_of_a_killed_worker_are_cut_off(
    phase: str, server: StoreNamed, tmp_path: Path
) -> None:
    address, id = server("long"), f"killed-{phase.replace(' ', '-')}"
    with Engine(address) as engine:
        with RunningWorker(address) as worker:
            begin(address, tmp_path, id, phase, engine)
            worker.kill()
        with RunningWorker(address) as worker:
            world.until(lambda: len(cuts(engine, id)) >= 2, pause=0.1)
            world.until(lambda: any("step=all/again" in line for line in taken(worker)))
            [asked] = engine.approvals.list(execution=id).items
            assert (asked["address"], asked["ran"]) == ("all/once_long", "maybe")
            (tmp_path / "go").touch()
            engine.approvals.decide(asked["id"], "result", value="decided")
            assert engine.resume(id).status == "succeeded"
    assert rested(tmp_path) == ["all/again"]


@pytest.mark.parametrize("phase", PHASES)
def test_a_cancelled_execution_ends_after_its_long_attempts(
    phase: str, server: StoreNamed, tmp_path: Path
) -> None:
    address, id = server("long"), f"cancelled-{phase.replace(' ', '-')}"
    with RunningWorker(address) as worker, Engine(address) as engine:
        begin(address, tmp_path, id, phase, engine)
        assert engine.executions.cancel(id).status == "cancelled"
        (tmp_path / "go").touch()
        assert worker.stop() == 0
    assert rested(tmp_path) == []
    asyncio.run(replay(address, id))


def test_watched_attempts_end_while_their_worker_drains(server: StoreNamed, tmp_path: Path) -> None:
    address = server("long")
    with RunningWorker(address) as worker, Engine(address) as engine:
        begin(address, tmp_path, "drained", "watched", engine)
        worker.process.terminate()
        world.until(lambda: any("draining" in line for line in worker.log))
        with RunningWorker(address):
            (tmp_path / "go").touch()
            assert engine.resume("drained").status == "succeeded"
            assert worker.drained() == 0
        assert cuts(engine, "drained") == []
    assert rested(tmp_path) == ["all/again", "all/once_long"]


def ends_of(step: str, engine: Engine, id: str) -> list[str]:
    """Return how the attempts of a step have ended."""
    events = [event for event in engine.executions.events(id) if event.get("address") == step]
    return [event["type"] for event in events if event["type"] in ("succeeded", "cut")]


# Shows D13
def test_a_draining_worker_is_asked_by_each_further_run(server: StoreNamed, tmp_path: Path) -> None:
    slow = '"effects:nap", with: {seconds: 0.2}'
    text = PASSING_BY.replace("over: 100", "over: 2000").replace('"effects:act"', slow)
    address, file = server("long"), world.make(tmp_path, text)
    with RunningWorker(address) as worker, Engine(address) as engine:
        engine.start(file, id="asked")
        world.until(lambda: any(watches(history) for history in runs(address, "asked")), pause=0.5)
        with RunningWorker(address):
            worker.process.terminate()
            world.until(lambda: any("draining" in line for line in worker.log))
            begun = len(runs(address, "asked"))
            world.until(lambda: len(runs(address, "asked")) > begun + 1, pause=0.5)
            (tmp_path / "go").touch()
            world.until(lambda: "all/once_long" in rested(tmp_path))
            assert worker.drained() == 0
            world.until(lambda: ends_of("all/once_long", engine, "asked"), pause=0.5)
            assert ends_of("all/once_long", engine, "asked") == ["succeeded"]
            engine.executions.cancel("asked")


def test_a_worker_that_stops_cuts_off_watched_attempts(server: StoreNamed, tmp_path: Path) -> None:
    address = server("long")
    with RunningWorker(address, "--drain", "10ms") as worker, Engine(address) as engine:
        begin(address, tmp_path, "stopped", "watched", engine)
        assert worker.stop() == 0
        (tmp_path / "go").touch()
        with RunningWorker(address):
            [asked] = engine.resume("stopped").waits
            assert (asked["address"], asked["ran"]) == ("all/once_long", "maybe")
            engine.executions.cancel("stopped")
    assert rested(tmp_path) == ["all/again"]


def are_watched(address: str, id: str, count: int) -> bool:
    """Return whether at least as many attempts of an execution are watched."""
    return watches(runs(address, id)[-1]) >= count


@pytest.mark.endurance(sample=200)
@pytest.mark.parametrize("block", range(5))
def test_attempts_that_are_stopped_as_they_become_long_have_ended(
    block: int, server: StoreNamed, tmp_path: Path
) -> None:
    address, file = server("long"), world.make(tmp_path, TWO.replace("over: 30", "over: 1"))
    ids = [f"raced-{block}-{number}" for number in range(10)]
    with RunningWorker(address) as worker, Engine(address) as engine:
        for id in ids:
            engine.start(file, id=id)
        for number, id in enumerate(ids):
            world.until(partial(are_watched, address, id, number % 3))
            engine.executions.cancel(id, resume=False)
        assert {engine.resume(id).status for id in ids} == {"cancelled"}
        (tmp_path / "go").touch()
        assert worker.stop() == 0
    assert rested(tmp_path) == []


@pytest.mark.endurance(sample=100)
@pytest.mark.parametrize("block", range(5))
# Shows D13
def test_results_of_attempts_that_have_just_become_long_outlive_their_worker(
    block: int, server: StoreNamed, tmp_path: Path
) -> None:
    """It stops while some of them have no watch yet."""
    address, file = server("long"), world.make(tmp_path, TWO.replace("over: 30", "over: 1"))
    ids = [f"replaced-{block}-{number}" for number in range(10)]
    with RunningWorker(address) as worker, Engine(address) as engine:
        for id in ids:
            engine.start(file, id=id)
        first = ids[2 * block]
        world.until(lambda: are_watched(address, first, 1))
        (tmp_path / "go").touch()
        world.until(lambda: len(rested(tmp_path)) == 2 * len(ids))
        assert worker.stop() == 0
        with RunningWorker(address):
            assert {engine.resume(id).status for id in ids} == {"succeeded"}
            assert [cuts(engine, id) for id in ids] == [[]] * len(ids)
    assert len(rested(tmp_path)) == 2 * len(ids)


WITH_TIMER = """
steps:
  - {id: long, python: "effects:stay", timeout: 1h}
"""


@pytest.fixture(scope="module")
def watched(server: StoreNamed, tmp_path_factory: pytest.TempPathFactory) -> list[HistoryEvent]:
    """The history of an execution that watches an attempt with a timer."""
    address, folder = server("long"), tmp_path_factory.mktemp("watched")
    with patches_everywhere() as patch:
        patch.setenv(HEARTBEAT, SHORT)
        patch.delenv(OBJECTS)
        with RunningWorker(address), Engine(address) as engine:
            engine.start(world.make(folder, WITH_TIMER), id="watched")
            world.until(lambda: watches(runs(address, "watched")[0]), pause=0.1)
            [history] = runs(address, "watched")
            engine.executions.cancel("watched")
    return history
