"""`start: {schedule}`: each time starts one execution of the deployed flow (V11)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from flowengine.engines.engine import Engine
from flowengine.engines.results import ScheduledStart
from flowengine.errors import FlowFileError
from flowengine.worker.loop import Worker
from tests.engines import world
from tests.engines.world import Clock
from tests.testing.faulty_store import FaultyStore, ProcessDied

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


def test_a_schedule_starts_an_execution_at_each_of_its_times(
    engine: Engine, clock: Clock, tmp_path: Path
) -> None:
    engine.deploy(world.make(tmp_path, with_keys("timezone: Europe/Berlin")))
    [start] = engine.starts()
    assert (start["schedule"], start["timezone"]) == ("0 9 * * *", "Europe/Berlin")
    assert start["next"] == start["due"] == "2027-11-01T08:00:00Z"
    assert engine.next_due() == 8 * 3600
    assert engine.start_due() == []
    clock.time += 8 * HOUR
    [begun] = engine.start_due()
    assert engine.start_due() == []
    assert begun.execution is not None
    assert [due.execution for due in engine.due()] == [begun.execution]
    ended = engine.resume(begun.execution)
    assert ended.outputs == {"day": "2027-11-01T08:00:00Z"}
    assert engine.starts()[0]["next"] == "2027-11-02T08:00:00Z"
    clock.time += DAY
    assert days(engine.start_due()) == ["02T08"]


@pytest.mark.parametrize(("missed", "started"), [("once", ["05T09"]), ("skip", [])])
def test_times_at_which_nothing_could_start(
    engine: Engine, clock: Clock, tmp_path: Path, missed: str, started: list[str]
) -> None:
    """One execution for the last of them, or none. Both continue with the next time."""
    engine.deploy(world.make(tmp_path, with_keys(f"missed: {missed}")))
    clock.time += 4 * DAY + 10 * HOUR
    assert days(engine.start_due()) == started
    assert engine.starts()[0]["next"] == "2027-11-06T09:00:00Z"
    assert engine.start_due() == []
    clock.time += DAY
    assert days(engine.start_due()) == (["06T09"] if missed == "once" else [])


def test_the_dates_of_a_host_that_was_off_over_a_change_of_clocks(
    engine: Engine, clock: Clock, tmp_path: Path
) -> None:
    clock.time = MONDAY - 2 * DAY + 10 * HOUR
    engine.deploy(world.make(tmp_path, with_keys("timezone: Europe/Berlin")))
    clock.time = MONDAY + DAY + 12 * HOUR
    [begun] = engine.start_due()
    assert begun.execution is not None
    assert engine.resume(begun.execution).outputs == {"day": "2027-11-02T08:00:00Z"}
    assert engine.starts()[0]["next"] == "2027-11-03T08:00:00Z"


def test_a_time_is_not_missed_while_a_worker_looks_now_and_then(
    engine: Engine, clock: Clock, tmp_path: Path
) -> None:
    engine.deploy(world.make(tmp_path, with_keys("missed: skip")))
    clock.time += 9 * HOUR + 30_000
    assert days(engine.start_due()) == ["01T09"]


def test_with_jitter_an_execution_starts_later_than_its_time(
    engine: Engine, clock: Clock, tmp_path: Path
) -> None:
    """By an amount that is the same for all workers, and differs from day to day."""
    engine.deploy(world.make(tmp_path, with_keys("jitter: 30m, missed: skip")))
    delays = []
    for day in range(5):
        [scheduled] = engine.store.schedules()
        assert scheduled.time == MONDAY + day * DAY + 9 * HOUR
        assert scheduled.due is not None
        delays.append(scheduled.due - scheduled.time)
        clock.time = scheduled.due - 1
        assert engine.start_due() == []
        clock.time = scheduled.due
        [begun] = engine.start_due()
        assert begun.time == scheduled.time
    assert all(0 <= delay < HOUR / 2 for delay in delays)
    assert len(set(delays)) == 5


def test_deployed_again_a_schedule_keeps_its_next_time(
    engine: Engine, clock: Clock, tmp_path: Path
) -> None:
    file = world.make(tmp_path, DAILY)
    engine.deploy(file)
    clock.time += 10 * HOUR
    file.write_text(file.read_text().replace("set: {said:", "title: Note, set: {said:"))
    engine.deploy(file)
    [begun] = engine.start_due()
    assert days([begun]) == ["01T09"], "a time between two deployments is not lost"
    file.write_text(file.read_text().replace("0 9", "0 12"))
    engine.deploy(file)
    assert engine.starts()[0]["next"] == "2027-11-01T12:00:00Z"
    engine.undeploy("flow")
    clock.time += DAY
    assert (engine.start_due(), engine.starts(), engine.next_due()) == ([], [], None)


def test_inputs_that_are_refused_pass_over_a_time(
    engine: Engine, clock: Clock, tmp_path: Path
) -> None:
    text = DAILY.replace("day: {type: string}", "day: {type: string, pattern: 02T}")
    engine.deploy(world.make(tmp_path, text))
    clock.time += 9 * HOUR
    [refused] = engine.start_due()
    assert refused.execution is None
    assert "'day'" in str(refused.error)
    clock.time += DAY
    [begun] = engine.start_due()
    assert (days([begun]), begun.error) == (["02T09"], None)


def test_of_several_processes_one_starts_each_time(tmp_path: Path) -> None:
    """Many times, while both see every time as due."""
    clock = Clock(MONDAY)
    text = DAILY.replace("0 9 * * *", '"*/5 * * * *"')
    with (
        Engine(tmp_path / "store", clock=clock) as one,
        Engine(tmp_path / "store", clock=clock) as other,
        ThreadPoolExecutor(2) as threads,
    ):
        one.deploy(world.make(tmp_path, text))
        for turn in range(1, 41):
            clock.time = MONDAY + turn * 300_000
            both = [threads.submit(engine.start_due) for engine in (one, other)]
            found = [begun for future in both for begun in future.result()]
            assert len(found) == 1, turn
        assert len(one.executions(limit=100).items) == 40


def test_a_crash_at_any_write_loses_no_time_and_starts_none_twice(tmp_path: Path) -> None:
    file = world.make(tmp_path, DAILY)
    for crash in range(20):
        clock = Clock(MONDAY)
        store = FaultyStore(faults={crash: "die after" if crash % 2 else "die before"})
        for _ in range(2):
            clock.time = MONDAY
            with suppress(ProcessDied), Engine(store, clock=clock) as engine:
                if not engine.starts():
                    engine.deploy(file)
                clock.time = MONDAY + 9 * HOUR
                engine.start_due()
            store.restart()
        writes, store.faults = store.writes, {}
        with Engine(store, clock=clock) as engine:
            assert engine.start_due() == []
            assert engine.starts()[0]["next"] == "2027-11-02T09:00:00Z", crash
            assert len(engine.executions().items) == 1, crash
        if writes <= crash:
            return
    raise AssertionError("it never came through")


@pytest.mark.parametrize(
    ("keys", "error"),
    [
        ("schedule: 0 24 * * *", r"flow\.yaml:4:20.*E103.*hour '24' is not valid"),
        ("schedule: 0 0 9 * * 1", r"flow\.yaml:4:20.*E103.*five fields .* not 6"),
        ("schedule: 0 9 * * *, timezone: Europe/Berli", r"flow\.yaml:4:41.*E103.*Europe/Berli"),
        ("schedule: 0 9 * * *, missed: all", r"flow\.yaml:4:39.*'once' or 'skip'"),
        ("schedule: 0 9 * * *, jitter: soon", r"flow\.yaml:4:39.*duration"),
        ("schedule: 0 9 * * *, signal: go", "E103"),
        ("signal: go, timezone: UTC", r"E103.*'timezone' has no meaning without 'schedule'"),
        ("schedule: 0 9 * * *, with: {day: 1}", "E402.*'day' must be text"),
        ("schedule: 0 9 * * *", "E402.*'day' is not given"),
        ('schedule: 0 9 * * *, with: {day: "${{ signal.key }}"}', "E301.*signal"),
    ],
)
def test_what_is_refused(tmp_path: Path, keys: str, error: str) -> None:
    text = "inputs: {day: {type: string}}\nstart: [{" + keys + "}]\nsteps: [{id: a, wait: 1s}]\n"
    with Engine(None) as engine, pytest.raises(FlowFileError, match=error):
        engine.load(world.make(tmp_path, text))


def test_a_schedule_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    entry = "  - {schedule: 0 9 * * *, with: {day: x}}\n"
    text = (
        f"inputs: {{day: {{type: string}}}}\nstart:\n{entry}{entry}steps: [{{id: a, wait: 1s}}]\n"
    )
    with Engine(None) as engine, pytest.raises(FlowFileError, match="listed twice"):
        engine.load(world.make(tmp_path, text))


def test_times_during_a_pause_are_not_missed(engine: Engine, clock: Clock, tmp_path: Path) -> None:
    file = world.make(tmp_path, DAILY)
    engine.deploy(file)
    [paused] = engine.pause_schedules("flow")
    assert "next" not in paused
    engine.deploy(file)
    clock.time += 3 * DAY
    assert (engine.start_due(), engine.next_due()) == ([], None)
    assert [start.get("next") for start in engine.resume_schedules("flow")] == [
        "2027-11-04T09:00:00Z"
    ]
    assert engine.start_due() == []
    clock.time += 9 * HOUR
    assert days(engine.start_due()) == ["04T09"]


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


def test_a_backfill_runs_at_most_so_many_at_once(
    engine: Engine, clock: Clock, tmp_path: Path
) -> None:
    file = world.make(tmp_path, HELD)
    (tmp_path / "gate.py").write_text(GATE)
    engine.deploy(file)
    clock.time += 7 * DAY
    since, until = (datetime(2027, 11, day, tzinfo=UTC) for day in (1, 20))
    ended: list[ScheduledStart] = []
    found = asyncio.run(engine.backfill_async("flow", since, until, at_once=3, tell=ended.append))
    assert days(found) == [f"0{day}T09" for day in range(1, 8)]
    assert sorted(days(ended)) == days(found), "none of the future"
    outputs = [engine.result(one.execution or "").outputs or {} for one in found]
    assert {one["now"] for one in outputs} <= {1, 2, 3}
    assert max(one["now"] for one in outputs) == 3
    again = asyncio.run(engine.backfill_async("flow", since, until))
    assert [one.execution for one in again] == [one.execution for one in found]
    assert len(engine.executions().items) == 7


def test_a_backfill_waits_while_a_worker_runs_its_execution(
    engine: Engine, clock: Clock, tmp_path: Path
) -> None:
    engine.deploy(world.make(tmp_path, DAILY))
    clock.time += 2 * DAY
    since, until = (datetime(2027, 11, day, tzinfo=UTC) for day in (1, 3))

    async def play() -> None:
        async with Engine(tmp_path / "store", linger=0, clock=clock) as other:
            stopping = asyncio.Event()
            working = asyncio.create_task(Worker(other).work(stopping, drain=60))
            async with asyncio.timeout(60):
                found = await engine.backfill_async("flow", since, until)
            stopping.set()
            await working
        statuses = [engine.result(one.execution or "").status for one in found]
        assert statuses == ["succeeded", "succeeded"]

    asyncio.run(play())
