# Shows V14
"""Steps with needs in Temporal: they wait for a worker that has a place for them (V14)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from flowengine import Engine
from tests.engines.temporal_server import RunningWorker, StoreNamed
from tests.engines.test_temporal import replay, wait_until

pytestmark = pytest.mark.endurance

WHERE = """
import os, time
from pathlib import Path

HERE = Path(__file__).parent

def where() -> int:
    return os.getpid()

def alone() -> int:
    mark = HERE / "alone"
    mark.touch(exist_ok=False)
    time.sleep(0.05)
    mark.unlink()
    return os.getpid()

def dies_once() -> int:
    if not (HERE / "died").exists():
        (HERE / "died").touch()
        os.kill(os.getpid(), 9)
    return os.getpid()
"""
FLOW = """
flowengine: 1
id: needs
steps:
  - id: p
    parallel:
      - {id: a, python: "where:where", needs: [gpu], timeout: 1m}
      - {id: b, python: "where:where", needs: [box]}
      - {id: ab, python: "where:where", needs: [gpu, box]}
  - {id: each, map: {over: 8, concurrency: 4}, python: "where:alone", needs: [gpu]}
  - {id: killed, python: "where:dies_once", effect: idempotent, needs: [gpu]}
  - {id: c, python: "where:where", needs: [box]}
outputs:
  a: ${{ steps.p.output.a }}
  b: ${{ steps.p.output.b }}
  ab: ${{ steps.p.output.ab }}
  each: ${{ steps.each.output }}
  k: ${{ steps.killed.output }}
  c: ${{ steps.c.output }}
"""
SHORT = ("--heartbeat", "3s")
GPU = ("--offers", "gpu", "--concurrency", "1", *SHORT)


def test_each_step_runs_where_it_can_and_waits_for_another_worker_if_one_dies(
    server: StoreNamed, tmp_path: Path
) -> None:
    (tmp_path / "where.py").write_text(WHERE)
    flow = tmp_path / "flow.yaml"
    flow.write_text(FLOW)
    address = server("needs")
    with Engine(address) as engine, RunningWorker(address, *SHORT):
        assert engine.run(flow, id="it").status == "waiting"
        whys = {reason["address"]: reason["command"] for reason in engine.executions.why("it")}
        assert whys == {
            "p/a": "flowengine worker --offers gpu",
            "p/b": "flowengine worker --offers box",
            "p/ab": "flowengine worker --offers box --offers gpu",
        }
        with (
            RunningWorker(address, "--offers", "box", *SHORT) as box,
            RunningWorker(address, "--offers", "box", *GPU) as both,
        ):
            wait_until(lambda: both.process.poll() is not None, 300)
            starts = "flowengine worker --offers gpu"
            wait_until(lambda: engine.executions.why("it")[0].get("command") == starts, 300)
            with RunningWorker(address, *GPU) as gpu:
                wait_until(lambda: engine.executions.result("it").ended, 300)
                assert gpu.stop() == 0
            boxes = {box.process.pid, both.process.pid}
        outputs = engine.executions.result("it").outputs
        assert outputs is not None
        assert outputs["a"] == outputs["ab"] == both.process.pid
        assert outputs["each"] == [both.process.pid] * 8
        assert outputs["b"] in boxes
        assert (outputs["k"], outputs["c"]) == (gpu.process.pid, box.process.pid)
    asyncio.run(replay(address, "it"))
