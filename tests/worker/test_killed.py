"""Workers that die: nothing is lost or done twice, and what kills them is set aside (V2, V6)."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from flowengine.engines.engine import Engine
from tests.engines import world
from tests.worker import worker_process

POISON = """
steps:
  - {id: die, python: "poison:die", effect: idempotent}
"""
DIE = """
import os, signal
from pathlib import Path

async def die() -> str:
    if not (Path(__file__).parent / "harmless").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    return "lived"
"""
WORK = """
steps:
  - {id: nap, wait: 10ms}
  - {id: act, python: "effects:act", effect: idempotent, output: "${{ result }}"}
"""


def statuses(engine: Engine) -> Counter[str]:
    return Counter(one["status"] for one in engine.executions.list(limit=10_000).items)


# Shows V6
def test_what_kills_its_worker_again_and_again_is_set_aside(tmp_path: Path) -> None:
    """Three tries, and the others continue. It is listed with its reason, and resumed by hand."""
    poison = world.make(tmp_path / "poison", POISON)
    (tmp_path / "poison" / "poison.py").write_text(DIE)
    work = world.make(tmp_path / "work", WORK)
    store = tmp_path / "store"
    with Engine(store, durability="process") as engine:
        engine.start(poison, id="poison")
        for number in range(20):
            engine.start(work, id=f"work{number}")
        deaths = 0
        worker = worker_process.start(store)
        bound = time.monotonic() + 120
        while statuses(engine) != {"succeeded": 20, "quarantined": 1}:
            assert time.monotonic() < bound, statuses(engine)
            if worker.exitcode is not None:
                deaths += 1
                worker = worker_process.start(store)
            time.sleep(0.02)
        if deaths < 3:
            worker.join()
            deaths += 1
            worker = worker_process.start(store)
        engine.start(work, id="last")
        world.until(
            lambda: engine.executions.result("last").ended
        )  # it continues, and leaves the other alone
        worker.terminate()
        worker.join()

        assert (deaths, worker.exitcode) == (3, 0)
        assert engine.due() == []
        [found] = engine.executions.list(status="quarantined").items
        assert found["command"] == "flowengine resume poison"
        reasons = [reason["what"] for reason in engine.executions.why("poison")]
        assert "quarantined: the last 3 processes that ran it died" in reasons
        (tmp_path / "poison" / "harmless").touch()
        assert engine.resume("poison").status == "succeeded"


@pytest.mark.endurance
@pytest.mark.parametrize(("seed", "count"), [*((seed, 200) for seed in range(9)), (9, 2000)])
# Shows V2
def test_workers_that_are_killed_lose_nothing_and_do_nothing_twice(
    tmp_path: Path, seed: int, count: int
) -> None:
    dice = random.Random(seed)
    file = world.make(tmp_path, WORK)
    (tmp_path / "slowly").touch()
    store = tmp_path / "store"
    with Engine(store, durability="process") as engine:
        flow = engine.load(file)
        for number in range(count):
            engine.start(flow, id=f"e{number}")
        workers = [worker_process.start(store) for _ in range(4)]
        kills = 0
        bound = time.monotonic() + 300
        while not engine.executions.list(limit=1).items or set(statuses(engine)) - {
            "succeeded", "quarantined",
        }:  # fmt: skip
            assert time.monotonic() < bound, statuses(engine)
            time.sleep(dice.uniform(0.03, 0.15))
            if kills < 10:
                kills += 1
                place = dice.randrange(4)
                workers[place].kill()
                workers[place].join()
                workers[place] = worker_process.start(store)
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.join()
        assert {worker.exitcode for worker in workers} <= {0, -signal.SIGTERM}  # the newest
        for one in engine.executions.list(status="quarantined", limit=count).items:
            engine.resume(one["execution"])  # killed three times in a row by chance

        assert statuses(engine) == {"succeeded": count}
        for number in range(count):
            ends = Counter(
                (entry["type"], entry.get("address"))
                for entry in engine.executions.events(f"e{number}")
            )
            assert ends["timer", "nap"] == ends["succeeded", "act"] == 1
    # An attempt is repeated only if its worker was killed meanwhile, and then under the same key.
    keys = Counter(key for _, key, _ in world.effects(tmp_path))
    assert len(keys) == count
    assert keys.total() <= count + 8 * kills
