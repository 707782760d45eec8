# Shows V11
"""Schedules: jitter, several processes and backfills (also `scheduled_starts.cases.yaml`)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from flowengine.engines.engine import Engine
from flowengine.engines.infos import ScheduledStart
from flowengine.worker.loop import Worker
from tests.engines import world
from tests.engines.world import Clock

HOUR, DAY = 3_600_000, 86_400_000
MONDAY = int(datetime(2027, 11, 1, tzinfo=UTC).timestamp() * 1000)
DAILY = """
inputs: {day: {type: string}}
start:
  - {schedule: 0 9 * * *, with: {day: "${{ execution.scheduled_at }}"}}
steps: [{id: note, set: {said: "${{ inputs.day }}"}}]
state: {said: {type: string, default: ""}}
outputs: {day: "${{ state.said }}"}
"""


@pytest.fixture
def clock() -> Clock:
    return Clock(MONDAY)


@pytest.fixture
def engine(tmp_path: Path, clock: Clock) -> Iterator[Engine]:
    with Engine(tmp_path / "store", user="user:me", clock=clock) as engine:
        yield engine


def with_keys(keys: str) -> str:
    return DAILY.replace("{schedule: 0 9 * * *,", "{schedule: 0 9 * * *, " + keys + ",")


def days(found: list[ScheduledStart]) -> list[str]:
    return [datetime.fromtimestamp(one.time / 1000, UTC).strftime("%dT%H") for one in found]


def test_with_jitter_an_execution_starts_later_than_its_time(
    engine: Engine, clock: Clock, tmp_path: Path
) -> None:
    """By an amount that is the same for all workers, and differs from day to day."""
    engine.flows.deploy(world.make(tmp_path, with_keys("jitter: 30m, missed: skip")))
    delays = []
    for day in range(5):
        [scheduled] = engine.store.schedules()
        assert scheduled.time == MONDAY + day * DAY + 9 * HOUR
        assert scheduled.due is not None
        delays.append(scheduled.due - scheduled.time)
        clock.time = scheduled.due - 1
        assert engine.flows.start_due() == []
        clock.time = scheduled.due
        [begun] = engine.flows.start_due()
        assert begun.time == scheduled.time
    assert all(0 <= delay < HOUR / 2 for delay in delays)
    assert len(set(delays)) == 5


def test_of_several_processes_one_starts_each_time(tmp_path: Path) -> None:
    """Many times, while both see every time as due."""
    clock = Clock(MONDAY)
    text = DAILY.replace("0 9 * * *", '"*/5 * * * *"')
    with (
        Engine(tmp_path / "store", clock=clock) as one,
        Engine(tmp_path / "store", clock=clock) as other,
        ThreadPoolExecutor(2) as threads,
    ):
        one.flows.deploy(world.make(tmp_path, text))
        for turn in range(1, 41):
            clock.time = MONDAY + turn * 300_000
            both = [threads.submit(engine.flows.start_due) for engine in (one, other)]
            found = [begun for future in both for begun in future.result()]
            assert len(found) == 1, turn
        assert len(one.executions.list(limit=100).items) == 40


HELD = """
inputs: {day: {type: string}}
start: [{schedule: 0 9 * * *, with: {day: "${{ execution.scheduled_at }}"}}]
steps: [{id: hold, python: "gate:hold", with: {day: "${{ inputs.day }}"}}]
outputs: {now: "${{ steps.hold.output }}"}
"""
GATE = """
import asyncio
HELD, FULL = [], asyncio.Event()

async def hold(day: str) -> int:
    HELD.append(day)
    if len(HELD) == 3:
        FULL.set()
    await FULL.wait()
    await asyncio.sleep(0.05)
    now = len(HELD)
    HELD.remove(day)
    return now
"""


# Shows V12
def test_a_backfill_runs_at_most_so_many_at_once(
    engine: Engine, clock: Clock, tmp_path: Path
) -> None:
    file = world.make(tmp_path, HELD)
    (tmp_path / "gate.py").write_text(GATE)
    engine.flows.deploy(file)
    clock.time += 7 * DAY
    since, until = (datetime(2027, 11, day, tzinfo=UTC) for day in (1, 20))
    ended: list[ScheduledStart] = []
    found = asyncio.run(
        engine.flows.backfill_async("flow", since, until, concurrency=3, tell=ended.append)
    )
    assert days(found) == [f"0{day}T09" for day in range(1, 8)]
    assert sorted(days(ended)) == days(found), "none of the future"
    outputs = [engine.executions.result(one.execution or "").outputs or {} for one in found]
    assert {one["now"] for one in outputs} <= {1, 2, 3}
    assert max(one["now"] for one in outputs) == 3
    again = asyncio.run(engine.flows.backfill_async("flow", since, until))
    assert [one.execution for one in again] == [one.execution for one in found]
    assert len(engine.executions.list().items) == 7


def test_a_backfill_waits_while_a_worker_runs_its_execution(
    engine: Engine, clock: Clock, tmp_path: Path
) -> None:
    engine.flows.deploy(world.make(tmp_path, DAILY))
    clock.time += 2 * DAY
    since, until = (datetime(2027, 11, day, tzinfo=UTC) for day in (1, 3))

    async def play() -> None:
        async with Engine(tmp_path / "store", linger=0, clock=clock) as other:
            stopping = asyncio.Event()
            working = asyncio.create_task(Worker(other).work(stopping, drain=60))
            async with asyncio.timeout(60):
                found = await engine.flows.backfill_async("flow", since, until)
            stopping.set()
            await working
        statuses = [engine.executions.result(one.execution or "").status for one in found]
        assert statuses == ["succeeded", "succeeded"]

    asyncio.run(play())
