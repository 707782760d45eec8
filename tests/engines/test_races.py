# Shows V13
"""Many start executions with the same and with other keys at once (V13)."""

from __future__ import annotations

import random
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from flowengine.engines.engine import Engine
from flowengine.journal.records import ENDED
from tests.engines import child, racers, world
from tests.worker import worker_process

RACES, ROUNDS = 20, 2
"""Races of a case, each for a place, and how often each racer starts an execution for each."""
MODES = ("queue", "cancel", "reject")


@pytest.mark.endurance
@pytest.mark.parametrize("then", MODES)
@pytest.mark.parametrize("block", range(10))
def test_of_executions_with_one_key_one_is_at_work(block: int, then: str, tmp_path: Path) -> None:
    """Also when processes that start and that drive them are killed."""
    flow, store, draw = racers.make(tmp_path, then), tmp_path / "store", random.Random(block)
    places = [f"p{number}" for number in range(RACES)] * ROUNDS
    with Engine(store, durability="process") as engine:
        engine.flows.deploy(flow)
        workers = [begin_to_work(store) for _ in range(2)]

        def replace() -> None:
            child.kill(workers.pop(draw.randrange(len(workers))))
            workers.append(begin_to_work(store))

        try:
            race(flow, str(store), places, replace, draw)
            # Those that were replaced must have ended before the others may.
            world.until(lambda: then != "cancel" or len(unfinished(engine)) == RACES, pause=0.05)
            (tmp_path / "open").touch()
            replace()
            world.until(lambda: not unfinished(engine), pause=0.05)
            racers.judge(then, flow, ends(engine))
        finally:
            for worker in workers:
                child.kill(worker)


def race(
    flow: Path, store: str, places: list[str], replace: Callable[[], None], draw: random.Random
) -> None:
    """Let racers start executions, and kill one of them, and a worker.

    Args:
        flow: The flow's file.
        store: The store, or its address.
        places: A race is for one of these.
        replace: Kills a worker, and starts another one.
        draw: Decides when they are killed.
    """
    barrier = child.CONTEXT.Barrier(2)
    both = [child.start(racers.run, store, flow, who, places, barrier) for who in ("ada", "bob")]
    others = draw.sample(places, len(places))
    doomed = child.start(racers.run, store, flow, racers.DOOMED, others, None)
    reached = draw.randrange(1, 3 * len(places) // 2)
    world.until(lambda: requested(flow, racers.DOOMED) * 2 >= reached, pause=0.001)
    child.kill(doomed)
    reached = draw.randrange(1, len(places))
    world.until(lambda: requested(flow, "ada") >= reached, pause=0.001)
    replace()
    for process in both:
        process.join(300)
        assert process.exitcode == 0


def requested(flow: Path, who: str) -> int:
    """Return how many executions a racer has requested."""
    found = racers.notes(flow)
    return sum(note.what == "requested" and note.name.startswith(who) for note in found)


def begin_to_work(store: Path) -> BaseProcess:
    """Start a worker, which takes those of a killed one without long pauses between them."""
    return worker_process.start(store, at_once=4 * RACES, probation=0.1)


def unfinished(engine: Engine) -> list[str]:
    """Return the executions that have not ended."""
    found = engine.executions.list(limit=10_000).items
    return [one["execution"] for one in found if one["status"] not in ENDED]


def ends(engine: Engine) -> dict[str, dict[str, str]]:
    """Return how executions have ended, by place and name."""
    found: dict[str, dict[str, str]] = {}
    for one in engine.executions.list(limit=10_000).items:
        inputs = engine.executions.show(one["execution"])["inputs"]
        found.setdefault(inputs["place"], {})[inputs["name"]] = one["status"]
    return found
