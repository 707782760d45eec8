# Shows F6
"""Running flows in this process: sync and async, timers, cancellation, concurrency (F1, F6)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from flowengine.engines.engine import Engine
from flowengine.engines.memory.store import MemoryStore
from flowengine.engines.results import Update
from flowengine.engines.starting import beginning
from flowengine.errors import Conflict, UsageError
from tests.engines import child, flows, world

HELLO = """
inputs:
  name: {type: string}
  times: {type: integer, default: 1}
steps:
  - {id: greet, output: "Hello, ${{ inputs.name }}!"}
outputs:
  message: ${{ steps.greet.output }}
"""
NAP = """
steps:
  - id: nap
    python: effects:nap
    effect: idempotent
    with: {seconds: 600}
"""


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine(None, user="user:me") as engine:
        yield engine


class CountingStore(MemoryStore):
    """A store that records how its commits were grouped."""

    def __init__(self) -> None:
        super().__init__()
        self.commits: list[int] = []

    def commit(self, appends: Any) -> Any:
        self.commits.append(len(appends))
        return super().commit(appends)


async def begun(engine: Engine, id: str) -> None:
    """Wait until a step of an execution runs."""
    async with aclosing(engine.updates(id)) as updates:
        async for update in updates:
            if is_running(update):
                return


def is_running(update: Update) -> bool:
    """Return whether an update reports a step that runs."""
    return update.step is not None and update.step.status == "running"


def test_of_two_who_record_one_id_at_once_the_second_is_told_what_differs(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = world.make(tmp_path, HELLO)
    race = beginning.create

    def create(*given: Any) -> str:
        monkeypatch.setattr(beginning, "create", race)
        engine.start(file, {"name": "Ada"}, id="it")
        return race(*given)

    monkeypatch.setattr(beginning, "create", create)
    with pytest.raises(Conflict, match='"Ada" there and "Bob" here'):
        engine.start(file, {"name": "Bob"}, id="it")
    assert engine.resume("it").outputs == {"message": "Hello, Ada!"}


def test_timeout_ends_the_attempt_and_its_process(engine: Engine, tmp_path: Path) -> None:
    text = """
steps:
  - id: long
    run: "echo $$ > pid; cp pid %s; sleep 600"
    timeout: %ds
"""
    for seconds in (1, 10, 50):  # on a busy machine, it may start later
        file = world.make(tmp_path, text % (tmp_path / "pid", seconds))
        result = engine.run(file)
        assert result.error is not None
        assert result.error["type"] == "Timeout"
        if (tmp_path / "pid").exists():
            break
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


def test_async_calls_run_many_at_once_in_shared_commits(tmp_path: Path) -> None:
    store = CountingStore()
    file = world.make(tmp_path, flows.CHAIN)

    async def main() -> list[Any]:
        async with Engine(store) as engine:
            flow = engine.load(file)
            runs = [engine.run_async(flow) for _ in range(200)]
            return list(await asyncio.gather(*runs))

    results = asyncio.run(main())
    assert {result.status for result in results} == {"succeeded"}
    assert sum(store.commits) > 3 * len(store.commits)
    assert store.commits[0] == 200


def test_sync_call_on_an_event_loop_says_what_to_call(tmp_path: Path) -> None:
    file = world.make(tmp_path, HELLO)

    async def main() -> None:
        async with Engine(None) as engine:
            with pytest.raises(UsageError, match="event loop"):
                engine.run(file, {"name": "Ada"})

    asyncio.run(main())


def test_cancelling_the_awaiting_task_saves_the_execution(tmp_path: Path) -> None:
    file = world.make(tmp_path, NAP)

    async def main() -> None:
        async with Engine(tmp_path / "store") as engine:
            task = asyncio.create_task(engine.run_async(file, id="it"))
            await begun(engine, "it")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            reason = engine.executions.why("it")[0]
            assert "was running when its process ended" in reason["what"]

    began = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - began < 300
    with Engine(tmp_path / "store") as engine:
        assert engine.executions.cancel("it", reason="enough").status == "cancelled"


def stopped(store: Path, file: Path) -> None:
    """Run a flow that interrupts this process, and fail if it does not."""
    with Engine(store) as engine, pytest.raises(KeyboardInterrupt):
        engine.run(file, id="it")


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_signal_stops_the_process_not_the_execution(tmp_path: Path, number: str) -> None:
    text = f"steps:\n  - {{id: stop, python: effects:interrupt, with: {{name: {number}}}}}\n"
    file = world.make(tmp_path, text)
    process = child.start(stopped, tmp_path / "store", file)
    process.join()
    assert process.exitcode == 0
    with Engine(tmp_path / "store") as engine:
        assert engine.executions.result("it").status == "interrupted"
        assert "flowengine resume" in engine.executions.why("it")[0]["command"]


def test_cancel_from_another_engine_reaches_the_owner(tmp_path: Path) -> None:
    file = world.make(tmp_path, NAP)

    async def main() -> Any:
        async with Engine(tmp_path / "store") as owner:
            task = asyncio.create_task(owner.run_async(file, id="it"))
            await begun(owner, "it")
            with ThreadPoolExecutor(1) as threads, Engine(tmp_path / "store") as other:
                cancelling = threads.submit(other.executions.cancel, "it", reason="no more")
                assert cancelling.result().status == "running"  # the owner's loop stands still
            return await task

    result = asyncio.run(main())
    assert result.status == "cancelled"
    assert result.error["message"] == "no more"


def test_an_execution_that_ends_while_it_is_read_is_not_shown_as_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = 'steps: [{id: stay, python: "effects:stay", effect: idempotent}]'
    file = world.make(tmp_path, text)
    with Engine(tmp_path / "store") as reader:
        holder = reader.store.holder

        def ended_before(id: str, now: int) -> Any:
            monkeypatch.setattr(reader.store, "holder", holder)
            (tmp_path / "go").touch()
            owner.result()
            return holder(id, now)

        with ThreadPoolExecutor(1) as threads, Engine(tmp_path / "store") as other:
            runs = threading.Event()
            other.subscribe(lambda update: runs.set() if is_running(update) else None)
            owner = threads.submit(other.run, file, id="it")
            assert runs.wait(60)
            monkeypatch.setattr(reader.store, "holder", ended_before)

            assert reader.executions.summary("it")["status"] == "running"
            assert reader.executions.summary("it")["status"] == "succeeded"


def test_decision_on_an_execution_that_is_driven_here_moves_it(tmp_path: Path) -> None:
    text = """
steps:
  - id: both
    parallel:
      - {id: sign, approval: Sure?}
      - {id: stay, python: "effects:stay", effect: idempotent}
"""
    file = world.make(tmp_path, text)

    async def main() -> Any:
        async with Engine(None) as engine:
            task = asyncio.create_task(engine.run_async(file, id="it"))
            async for update in engine.updates("it"):
                if update.kind == "wait" and update.data["status"] == "pending":
                    decision = await engine.approvals.approve_async(update.data["id"])
                    assert decision.result is None  # the driving process applies it
                    (tmp_path / "go").touch()
            return await task

    assert asyncio.run(main()).status == "succeeded"


def test_subscribers_are_told_what_is_on_disk(engine: Engine, tmp_path: Path) -> None:
    told: list[Update] = []
    journal: list[int] = []

    def tell(update: Update) -> None:
        told.append(update)
        if update.kind == "event":
            journal.append(len(list(engine.executions.events(update.execution))))

    end = engine.subscribe(tell)
    result = engine.run(world.make(tmp_path, flows.CHAIN))
    end()
    engine.run(world.make(tmp_path, HELLO), {"name": "Ada"})
    assert {update.execution for update in told} == {result.execution}
    events = [update.data for update in told if update.kind == "event"]
    assert events == list(engine.executions.events(result.execution))
    assert journal == [1, 2, 3, 4, 5]
    ways = [(u.step.address, u.step.status) for u in told if u.step is not None]
    assert ways[:3] == [("once_a", "running"), ("once_a", "succeeded"), ("b", "running")]
    assert told[-1].kind == "end"
    assert told[-1].data.outputs == {"sum": 16, "last": 17}


def test_printed_text_goes_to_standard_output_or_to_subscribers(
    engine: Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = world.make(tmp_path, 'steps:\n  - {id: say, call: std.print, with: {text: "hi"}}\n')
    engine.run(file)
    assert capsys.readouterr().out == "hi\n"
    told: list[Update] = []
    engine.subscribe(told.append)
    engine.run(file)
    assert capsys.readouterr().out == ""
    assert [u.data for u in told if u.kind == "text"] == [{"address": "say", "text": "hi"}]


class ClockSetBack:
    """A clock that is set back by an hour."""

    behind = 0

    def now(self) -> int:
        return int(time.time() * 1000) - self.behind

    def set_back(self) -> None:
        self.behind = 3_600_000


def test_a_clock_that_is_set_back_does_not_hold_the_process(tmp_path: Path) -> None:
    clock = ClockSetBack()
    file = world.make(tmp_path, "steps:\n  - {id: nap, wait: 500ms}\n")

    async def main() -> Any:
        async with Engine(tmp_path / "store", clock=clock, linger=1) as engine:

            def set_back(update: Update) -> None:
                if update.kind == "wait" and update.data["status"] == "pending":
                    clock.set_back()

            engine.subscribe(set_back)
            return await asyncio.wait_for(engine.run_async(file, id="it"), 60)

    assert asyncio.run(main()).status == "waiting"
