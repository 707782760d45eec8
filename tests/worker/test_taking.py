# Shows V4
"""A worker takes all that is due, and leaves it well when it is stopped (V1, V2, V3, V4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flowengine.engines.engine import Engine
from flowengine.engines.host import SystemClock
from flowengine.engines.infos import ScheduledStart
from flowengine.engines.memory.store import MemoryStore
from flowengine.engines.results import ExecutionResult
from flowengine.errors import Conflict, InputError, LeaseLost
from flowengine.flow.schedules import NoSchedule
from flowengine.worker import loop
from flowengine.worker.loop import TakenExecution, Worker
from tests.engines import child, world
from tests.engines.test_leases import SLOW
from tests.replacing import Limits

BOUND = 60.0
ASKING = "steps: [{id: ask, approval: {title: Go?}}]\n"
NAPPING = "steps: [{id: nap, wait: 1h}]\n"


class Stage:
    """A worker on the running loop, and its log."""

    def __init__(self, engine: Engine, **options: Any) -> None:
        self.told: list[TakenExecution] = []
        self.stopping = asyncio.Event()
        self.changed = asyncio.Event()
        self.worker = Worker(engine, tell=self._tell, **options)
        self.drain = BOUND

    def _tell(self, taken: TakenExecution) -> None:
        self.told.append(taken)
        self.changed.set()

    async def until(self, holds: Callable[[], object]) -> None:
        """Run the worker until something holds, then stop it."""
        task = asyncio.create_task(self.worker.work(self.stopping, drain=self.drain))
        async with asyncio.timeout(BOUND):
            while not holds():
                self.changed.clear()
                wait = asyncio.ensure_future(self.changed.wait())
                await asyncio.wait([wait, task], return_when="FIRST_COMPLETED", timeout=0.05)
                wait.cancel()
                assert holds() or not task.done(), "the worker has ended"
        self.stopping.set()
        await task

    @property
    def taken(self) -> dict[str, str]:
        """Execution → why it was taken."""
        return {one.due.execution: one.due.why for one in self.told}


def run(tmp_path: Path, play: Callable[[Engine], Any], **options: Any) -> None:
    """Play with an engine on a loop."""

    async def main() -> None:
        async with Engine(tmp_path / "store", linger=0, **options) as engine:
            await play(engine)

    asyncio.run(main())


def statuses(engine: Engine) -> dict[str, str]:
    return {one["execution"]: one["status"] for one in engine.executions.list().items}


# Shows V1
def test_each_kind_of_what_is_due_is_taken(tmp_path: Path) -> None:
    """Timers, expiries, decisions, signals, starts, and executions whose owner died."""
    killed = world.make(tmp_path / "killed", SLOW)
    process = child.start(child.begin, str(tmp_path / "store"), killed, "left")
    clock = world.Clock()
    with Engine(tmp_path / "store", linger=0, clock=clock) as engine:
        world.until(lambda: statuses(engine) == {"left": "running"} and _at_work(engine, "left"))
        assert child.kill(process)
        engine.run(world.make(tmp_path / "nap", NAPPING), id="nap")
        engine.run(world.make(tmp_path / "ask", ASKING), id="decided")
        engine.run(world.make(tmp_path / "ask", ASKING), id="open")
        [wait] = engine.approvals.list(execution="decided").items
        engine.approvals.approve(wait["id"], resume=False)
        engine.start(world.make(tmp_path / "ask", ASKING), id="recorded")
    (tmp_path / "killed" / "go").touch()
    clock.time += 3_600_000

    async def play(engine: Engine) -> None:
        stage = Stage(engine)
        ends = {"nap": "succeeded", "decided": "succeeded", "left": "succeeded"}
        wanted = ends | {"open": "waiting", "recorded": "waiting"}
        await stage.until(lambda: statuses(engine) == wanted)
        assert stage.taken == {
            "nap": "timer", "decided": "message", "recorded": "message", "left": "left",
        }  # fmt: skip

    run(tmp_path, play, clock=clock)


@pytest.mark.parametrize("reported", [True, False])
# Shows V3
def test_it_wakes_when_another_process_has_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: Limits, reported: bool
) -> None:
    """By the report of the operating system, else by looking now and then."""
    limits(loop, LOOK=3600.0 if reported else 0.05)
    if not reported:
        monkeypatch.setattr(loop, "reports_of", lambda folder: None)

    async def play(engine: Engine) -> None:
        await engine.run_async(world.make(tmp_path, ASKING), id="it")
        [wait] = engine.approvals.list(execution="it").items
        stage = Stage(engine)

        async def decide() -> None:
            await asyncio.sleep(0.2)  # by then it sleeps (otherwise the test shows less)
            with Engine(tmp_path / "store") as other:
                other.approvals.approve(wait["id"], resume=False)

        deciding = asyncio.create_task(decide())
        await stage.until(lambda: engine.executions.result("it").ended)
        await deciding
        assert stage.worker.by_reports is reported

    run(tmp_path, play)


# Shows V11
def test_it_wakes_when_a_schedule_is_due(tmp_path: Path, limits: Limits) -> None:
    limits(loop, LOOK=3600.0)

    class Ahead:
        ahead = 0

        def now(self) -> int:
            return SystemClock().now() + self.ahead

    clock = Ahead()

    async def play(engine: Engine) -> None:
        text = 'start: [{schedule: "* * * * *"}]\nsteps: [{id: a, output: 1}]\n'
        engine.flows.deploy(world.make(tmp_path, text))
        clock.ahead = round((engine.next_due() or 0) * 1000) - 300  # it is due in 300 ms
        begun: list[ScheduledStart] = []
        stage = Stage(engine, tell_start=begun.append)
        await stage.until(lambda: "succeeded" in statuses(engine).values())
        assert [start.execution for start in begun] == [*statuses(engine)] == [*stage.taken]

    run(tmp_path, play, clock=clock)


def test_schedules_that_cannot_start_are_tried_less_and_less_often_and_hold_up_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    errors: dict[str, Exception | None] = {
        "broken": NoSchedule("no such zone"), "refused": InputError("no"), "well": None,
    }  # fmt: skip
    tried: list[tuple[int, str]] = []
    now = 0

    class Starting:
        @property
        def flows(self) -> Starting:
            return self

        def start_due(self, *, leave: set[tuple[str, str]]) -> list[ScheduledStart]:
            names = [name for name in errors if (name, "* * * * *") not in leave]
            tried.extend((now, name) for name in names)
            return [
                ScheduledStart(name, "* * * * *", 0, None if errors[name] else "it", errors[name])
                for name in names
            ]

        def hear(self) -> None: ...

        def want(self) -> None: ...

        def due(self) -> list[Any]:
            return []

    worker = Worker(Starting())  # type: ignore[arg-type]
    monkeypatch.setattr(loop, "monotonic", lambda: float(now))
    for now in range(200):
        if now == 150:
            errors["broken"] = None
        worker.poll()

    assert [at for at, name in tried if name == "broken"][:8] == [0, 1, 3, 7, 15, 31, 63, 123]
    assert [at for at, name in tried if name == "broken"][8:] == [*range(183, 200)]
    assert [name for _, name in tried].count("refused") == 200, "it passes a time over"
    assert [name for _, name in tried].count("well") == 200


TWO = """
steps:
  - {id: first, python: "effects:stay"}
  - {id: once_after, python: "effects:act"}
"""


def test_after_a_drain_nothing_is_interrupted_and_nothing_is_asked(tmp_path: Path) -> None:
    """The attempt that runs ends. The next one has not begun, which is certain."""
    file = world.make(tmp_path, TWO)

    async def play(engine: Engine) -> None:
        engine.start(file, id="it")
        stage = Stage(engine)
        working = asyncio.create_task(stage.until(stage.stopping.is_set))
        while not _at_work(engine):  # noqa: ASYNC110 - a running step sends no notice
            await asyncio.sleep(0.01)
        stage.stopping.set()
        while stage.worker.is_ready:  # noqa: ASYNC110 - from then on it drains
            await asyncio.sleep(0.01)
        (tmp_path / "go").touch()
        await working
        assert [address for address, _, _ in world.effects(tmp_path)] == ["first"]
        assert statuses(engine) == {"it": "waiting"}
        assert engine.executions.result("it").status == "waiting"
        [reason] = engine.executions.why("it")
        assert reason["what"] == "attempt 1 has not begun: its process was stopped before"
        steps = engine.executions.show("it")["steps"]
        assert [step["status"] for step in steps] == ["succeeded", "waiting"]

    run(tmp_path, play)

    async def again(engine: Engine) -> None:
        stage = Stage(engine)
        await stage.until(lambda: engine.executions.result("it").ended)
        assert engine.executions.result("it").status == "succeeded"
        after = engine.executions.show("it", step="once_after")["steps"][0]
        assert [one["status"] for one in after["tries"]] == ["succeeded"]

    run(tmp_path, again)
    assert world.check_effects(tmp_path) == {"first", "once_after"}


PUT_OFF = """
budget: {tool_calls: 2}
steps:
  - {id: first, python: "effects:stay"}
  - id: once_after
    python: "effects:act"
    timeout: 1h
    retry: {attempts: 1}
"""
HELD = """
steps:
  - {id: a, python: "hold:until", with: {name: a}, effect: idempotent}
  - {id: b, python: "hold:until", with: {name: b}, effect: idempotent}
"""
UNTIL = """
import asyncio
from pathlib import Path

async def until(name: str) -> None:
    while not (Path(__file__).parent / f"{name}.go").exists():
        await asyncio.sleep(0.01)
"""


# Shows V6
def test_deaths_count_only_as_long_as_nothing_is_done_in_between(tmp_path: Path) -> None:
    file = world.make(tmp_path, HELD)
    (tmp_path / "hold.py").write_text(UNTIL)
    dead: set[str] = set()
    store = MemoryStore(is_dead=lambda owner: owner.id in dead)

    async def main() -> None:
        engines = [Engine(store, linger=0) for _ in range(3)]
        engines[0].start(file, id="it")
        counted, taking = [], []
        for engine, step in zip(engines, "aab", strict=True):
            [due] = engine.due()
            counted.append(due.deaths)
            taking.append(asyncio.create_task(engine.take_async("it")))
            while step not in _running(engine):  # noqa: ASYNC110 - a running step sends no notice
                await asyncio.sleep(0.01)
            if len(counted) == 2:
                (tmp_path / "a.go").touch()
                while "b" not in _running(engine):  # noqa: ASYNC110 - as above
                    await asyncio.sleep(0.01)
            dead.add(world.host_of(engine).keeper.owner.id)
        (tmp_path / "b.go").touch()
        ends = await asyncio.gather(*taking, return_exceptions=True)
        assert counted == [0, 1, 1]
        assert [type(end) for end in ends[:2]] == [LeaseLost, LeaseLost]
        assert isinstance(ends[2], ExecutionResult)
        assert ends[2].status == "succeeded"

    asyncio.run(main())


def _running(engine: Engine) -> set[str]:
    steps = engine.executions.show("it")["steps"]
    return {step["address"] for step in steps if step["status"] in ("running", "interrupted")}


ASKED = """
steps:
  - {id: ask, approval: {title: Go?}}
  - {id: after, output: 1}
"""


def test_an_engine_that_drains_only_records(tmp_path: Path) -> None:
    async def play(engine: Engine) -> None:
        flow = engine.load(world.make(tmp_path, ASKED))
        [wait] = (await engine.run_async(flow, id="it")).waits
        await engine.drain_async(BOUND)
        for call in (engine.run_async(flow, id="new"), engine.resume_async("it")):
            with pytest.raises(Conflict, match="this engine is draining"):
                await call
        assert engine.start(flow, id="recorded") == "recorded"
        decision = await engine.approvals.approve_async(wait["id"])
        assert decision.result is None
        assert {one.execution: one.why for one in engine.due()} == {
            "it": "message", "recorded": "message",
        }  # fmt: skip
        async with Engine(tmp_path / "store") as other:
            assert (await other.resume_async("it")).status == "succeeded"

    run(tmp_path, play)


MAPPED = """
steps:
  - id: each
    map: {over: [1, 2, 3, 4], as: n, concurrency: 2}
    group:
      - {id: first, python: "effects:stay", effect: idempotent}
      - {id: once_after, python: "effects:act"}
"""


@pytest.mark.parametrize(("text", "count"), [(PUT_OFF, 2), (MAPPED, 8)])
def test_what_was_put_off_has_its_whole_time_and_its_place_in_the_budget(
    tmp_path: Path, text: str, count: int
) -> None:
    file = world.make(tmp_path, text)
    clock = world.Clock()

    async def play(engine: Engine) -> None:
        engine.start(file, id="it")
        taking = asyncio.create_task(engine.take_async("it"))
        while not _at_work(engine):  # noqa: ASYNC110 - a running step sends no notice
            await asyncio.sleep(0.01)
        draining = asyncio.create_task(engine.drain_async(BOUND))
        await asyncio.sleep(0)
        (tmp_path / "go").touch()
        await asyncio.gather(draining, taking)
        assert not any("once_after" in address for address, _, _ in world.effects(tmp_path))
        assert await engine.take_async("it") is None

    run(tmp_path, play, clock=clock)
    clock.time += 2 * 3_600_000

    async def again(engine: Engine) -> None:
        [due] = engine.due()
        assert (due.execution, due.deaths) == ("it", 0)
        result = await engine.take_async("it")
        assert result is not None
        assert (result.status, result.error) == ("succeeded", None)

    run(tmp_path, again, clock=clock)
    assert len(world.check_effects(tmp_path)) == count
    with Engine(tmp_path / "store") as engine:
        cuts = [entry for entry in engine.executions.events("it") if entry["type"] == "cut"]
    assert {entry["began"] for entry in cuts} == {False}


def test_what_takes_longer_than_the_drain_is_interrupted(tmp_path: Path) -> None:
    file = world.make(tmp_path, SLOW)

    async def play(engine: Engine) -> None:
        engine.start(file, id="it")
        stage = Stage(engine)
        stage.drain = 0.05
        working = asyncio.create_task(stage.until(stage.stopping.is_set))
        while not _at_work(engine):  # noqa: ASYNC110 - a running step sends no notice
            await asyncio.sleep(0.01)
        stage.stopping.set()
        await working
        assert statuses(engine) == {"it": "interrupted"}

    run(tmp_path, play)


def _at_work(engine: Engine, id: str = "it") -> bool:
    return any("is running in" in reason["what"] for reason in engine.executions.why(id))


def test_an_execution_that_this_process_cannot_run_does_not_stop_it(tmp_path: Path) -> None:
    async def play(engine: Engine) -> None:
        await engine.run_async(world.make(tmp_path / "a", NAPPING.replace("1h", "1ms")), id="sound")
        engine.start(world.make(tmp_path / "b", ASKING), id="broken")
        take = engine.take_async

        async def fails(id: str, on_taken: Callable[[], None]) -> Any:
            if id == "broken":
                raise RuntimeError("no such plug-in")
            return await take(id, on_taken)

        engine.take_async = fails  # type: ignore[assignment,method-assign]
        stage = Stage(engine)
        await stage.until(
            lambda: engine.executions.result("sound").ended and "broken" in stage.taken
        )
        errors = [one for one in stage.told if one.error is not None]
        assert [str(one.error) for one in errors] == ["no such plug-in"]

    run(tmp_path, play)
