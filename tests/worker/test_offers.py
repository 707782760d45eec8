# Shows V14
"""Workers that offer different things share a store: each step runs where it can (V14)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from flowengine.engines.engine import Engine
from flowengine.engines.inspection import unattended
from tests.engines import world
from tests.replacing import Limits
from tests.worker import worker_process
from tests.worker.test_taking import Stage

WHERE = """
import os
from pathlib import Path

HERE = Path(__file__).parent

async def where() -> int:
    return os.getpid()

async def dies_once() -> int:
    if not (HERE / "died").exists():
        (HERE / "died").touch()
        os.kill(os.getpid(), 9)
    return os.getpid()
"""
BOTH = """
steps:
  - id: p
    parallel:
      - {id: a, python: "where:where", needs: [gpu]}
      - {id: b, python: "where:where", needs: [box]}
  - {id: killed, python: "where:dies_once", effect: idempotent, needs: [gpu]}
  - {id: c, python: "where:where", needs: [box]}
outputs:
  a: ${{ steps.p.output.a }}
  b: ${{ steps.p.output.b }}
  k: ${{ steps.killed.output }}
  c: ${{ steps.c.output }}
"""
TURNS = """
state: {drawn: {type: boolean, default: false}}
steps:
  - id: p
    parallel:
      - id: polls
        python: effects:act
        loop: {until: "${{ state.drawn }}", max: 100000, every: <EVERY>}
      - {id: draws, python: "effects:act", needs: [gpu], set: {drawn: true}}
"""


def test_each_step_runs_where_it_can_and_another_worker_takes_over_from_a_killed_one(
    tmp_path: Path,
) -> None:
    file = world.make(tmp_path / "flow", BOTH)
    (tmp_path / "flow" / "where.py").write_text(WHERE)
    store = tmp_path / "store"
    with Engine(store, durability="process") as engine:
        engine.start(file, id="it")
        gpu, box = (worker_process.start(store, offers=[label]) for label in ("gpu", "box"))
        first = gpu.pid
        world.until(lambda: gpu.exitcode is not None)
        starts = "flowengine worker --offers gpu"
        world.until(lambda: engine.executions.why("it")[0].get("command") == starts)
        gpu = worker_process.start(store, offers=["gpu"])
        world.until(lambda: engine.executions.result("it").ended)
        for process in (gpu, box):
            process.terminate()
            process.join()

        assert engine.executions.result("it").outputs == {
            "a": first, "b": box.pid, "k": gpu.pid, "c": box.pid,
        }  # fmt: skip


@pytest.mark.parametrize("every", ["0ms", "10ms"])
def test_a_worker_hands_over_what_another_one_has_waited_for(
    tmp_path: Path, limits: Limits, every: str
) -> None:
    """Although it always has something to run, which goes on where the execution is driven then."""
    limits(unattended, PATIENCE=50)
    file = world.make(tmp_path / "flow", TURNS.replace("<EVERY>", every))

    async def main() -> None:
        given: dict[str, Any] = {"store": tmp_path / "store", "linger": 0}
        async with Engine(**given) as plain, Engine(**given, offers=["gpu"]) as able:
            plain.start(file, id="it")
            first, second = Stage(plain), Stage(able)
            ended = lambda: plain.executions.result("it").ended  # noqa: E731 - both wait for it
            driving = asyncio.create_task(first.until(ended))
            world_is = asyncio.get_running_loop().time() + 60
            while not first.told:
                assert asyncio.get_running_loop().time() < world_is
                await asyncio.sleep(0.01)
            await second.until(ended)
            await driving
            assert plain.executions.result("it").status == "succeeded"
            assert second.taken == {"it": "needs"}
            assert [event["type"] for event in plain.executions.events("it")].count(
                "unoffered"
            ) == 1

    asyncio.run(main())
