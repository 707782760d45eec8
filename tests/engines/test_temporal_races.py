# Shows V13
"""Executions with one key at once in Temporal (V13)."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from temporalio.service import RPCError, RPCStatusCode

from flowengine import Engine
from flowengine.engines.temporal.connection import TemporalConnection, read_address
from flowengine.engines.temporal.store import TemporalStore
from flowengine.journal.records import Scheduled
from tests.engines import racers, world
from tests.engines.temporal_server import RunningWorker, StoreNamed
from tests.engines.test_races import MODES, RACES, ROUNDS, ends, race, unfinished

SHORT = ("--heartbeat", "3s")


@pytest.mark.endurance(sample=200)
@pytest.mark.parametrize("then", MODES)
@pytest.mark.parametrize("block", range(10))
def test_of_executions_with_one_key_one_is_at_work(
    block: int, then: str, tenth: int | None, server: StoreNamed, tmp_path: Path
) -> None:
    """Also when processes that start and that drive them are killed."""
    draw = random.Random(block)
    flow, store = racers.make(tmp_path, then), server(f"races-{then}")
    races = range(RACES)[tenth :: 1 if tenth is None else 10]
    workers = [RunningWorker(store, *SHORT) for _ in range(2)]

    def replace() -> None:
        workers.pop(draw.randrange(len(workers))).kill()
        workers.append(RunningWorker(store, *SHORT))

    try:
        with Engine(store) as engine:
            engine.flows.deploy(flow)
            race(flow, store, [f"{block}-{one}" for one in races] * ROUNDS, replace, draw)
            world.until(
                lambda: then != "cancel" or len(unfinished(engine)) == len(races), pause=0.25
            )
            (tmp_path / "open").touch()
            replace()
            world.until(lambda: not unfinished(engine), pause=0.25)
            racers.judge(then, flow, ends(engine))
    finally:
        for worker in workers:
            worker.kill()


RETRIED = "timeout: 100ms, retry: {attempts: 2, delay: 1ms},"


@pytest.mark.endurance(sample=100)
@pytest.mark.parametrize("modifiers", ["", RETRIED])
def test_the_next_one_begins_when_the_attempts_of_the_cancelled_one_have_ended(
    modifiers: str, store: str, tmp_path: Path
) -> None:
    """Also if its last attempt waits for the one before, which has timed out."""
    id = "slow_retried" if modifiers else "slow"
    file = world.make(tmp_path, LEAVES.replace("MODIFIERS", modifiers))
    file.write_text(file.read_text().replace("id: flow", f"id: {id}"))

    def claims(engine: Engine) -> list[tuple[str, bool]]:
        found = engine.store.claims(f"concurrency {id}:r")
        return [(one.execution.removeprefix(id), one.held) for one in found]

    with Engine(store) as engine:
        engine.start(file, id=f"{id}0")
        world.until(lambda: len(world.effects(tmp_path)) == 1)
        timers = 2 if modifiers else 0  # of the time-out, and of the delay
        world.until(
            lambda: (
                [one["type"] for one in engine.executions.events(f"{id}0")].count("timer") == timers
            )
        )
        engine.start(file, id=f"{id}1")
        world.until(lambda: engine.executions.result(f"{id}0").status == "cancelled")
        engine.start(file, id=f"{id}2")
        world.until(lambda: engine.executions.result(f"{id}1").status == "cancelled")
        assert claims(engine) == [("0", True), ("2", False)]
        (tmp_path / "go").touch()
        world.until(lambda: len(world.effects(tmp_path)) == 3)
        engine.executions.cancel(f"{id}2")
    notes = [result for _, _, result in world.effects(tmp_path)]
    assert notes == ["entered", "left"] * (len(notes) // 2)


LEAVES = """
inputs: {repo: {type: string, default: r}}
concurrency: {key: "${{ inputs.repo }}", max: 1, then: cancel}
steps: [{id: work, python: "effects:leave_slowly", MODIFIERS effect: idempotent}]
"""


def test_a_request_to_a_lock_that_is_continued_in_another_run_is_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Temporal refuses it for a moment. Repeated with the same id, it counts once."""
    names: list[str] = []

    class Client:
        async def execute_update_with_start_workflow(self, *_: Any, id: str, **__: Any) -> Any:
            names.append(id)
            if len(names) == 1:
                raise RPCError("task in failed state", RPCStatusCode.FAILED_PRECONDITION, b"")
            return {"answer": True}

    async def client(_: TemporalConnection) -> Client:
        return Client()

    monkeypatch.setattr(TemporalConnection, "client", client)
    store = TemporalStore(read_address("temporal://127.0.0.1:1/none"))
    assert store.move_schedule(Scheduled("f", "h", "s", 1, 2), 3, None)
    store.close()
    assert len(names) == 2
    assert len({*names}) == 1
