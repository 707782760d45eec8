"""Attempts in Temporal that are at work for longer than a run of their workflow."""

from __future__ import annotations

import asyncio
import time
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
    monkeypatch.setenv(HEARTBEAT, "1s")


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
