# Shows F92
"""Locks under random schedules: holders never overlap, and no unit waits forever."""

from __future__ import annotations

import random

import pytest

from flowengine.kernel import ENDED
from tests.simulation.simulator import Simulator
from tests.testing.graphs import Described, graph, step, v, x

KEYS = ["a", "b", "c"]


def nested(draws: random.Random, names: list[str], depth: int) -> Described:
    """Return a step with a random lock. A group contains further such steps."""
    name = f"s{len(names)}"
    names.append(name)
    key = draws.choice(KEYS)
    keys: Described = {"lock": {"key": v(x(lambda _names: key)), "hold": True}}
    keys["on_error"] = [{"do": "continue"}]
    if depth and draws.random() < 0.7:
        word = draws.choice(["group", "parallel"])
        keys[word] = [nested(draws, names, depth - 1) for _ in range(draws.randint(1, 3))]
        if draws.random() < 0.3:
            keys["finally_"] = [nested(draws, names, 0)]
    elif draws.random() < 0.2:
        keys.update(action="wait")
        keys["wait"] = {"mode": "first", "alternatives": [{"id": "ok", "after": v("1s")}]}
    if draws.random() < 0.3:
        keys["map"] = {"over": v(3), "names": ["item", "index", "key"], "concurrency": v(2)}
    return step(name, **keys)


def key_of(played: Simulator, number: int) -> str:
    name: str = played.state["units"][number]["lock"]
    return name.partition(":")[2]


def chain(played: Simulator, number: int) -> list[int]:
    """Return a unit and those around it. A `finally` is inside the unit that waits for it."""
    found = []
    while number:
        found.append(number)
        act = played.state["acts"][played.state["units"][number]["act"]]
        number = played.state["scopes"][act["scope"]]["unit"]
        if "final" in act:
            cleanup = played.state["cleanups"][act["final"]]
            number = cleanup["of"] if cleanup.get("kind") == "unit" else 0
    return found


def assert_apart(played: Simulator) -> None:
    """Check that no running unit holds the lock of another one, except of those around both."""
    chains = [chain(played, number) for number, _ in played.running]
    for index, one in enumerate(chains):
        for other in chains[:index]:
            mine = {key_of(played, n) for n in one if n not in other and holds(played, n)}
            its = {key_of(played, n) for n in other if n not in one and holds(played, n)}
            assert not mine & its


def holds(played: Simulator, number: int) -> bool:
    return bool(played.state["units"][number].get("has_lock"))


@pytest.mark.endurance
@pytest.mark.parametrize("block", range(10))
def test_random_locks_exclude_and_never_stall(block: int) -> None:
    """For any order of acquisition: a unit that would close a cycle receives `LockCycle`."""
    circles = 0
    for seed in range(block, 400, 10):
        draws = random.Random(seed)
        names: list[str] = []
        steps = [nested(draws, names, 3) for _ in range(draws.randint(2, 4))]
        flow = graph(step("all", parallel=steps), limits={"steps": 10_000})
        played = Simulator(flow, seed=seed).start()
        while played.status not in ENDED:
            assert_apart(played)
            if draws.random() < 0.02:
                played.crash()
            assert played.step(), f"stalled: {seed=}"
        assert played.status == "succeeded", seed
        told = [o.error for o in played.observations if o.error is not None]
        assert {error["type"] for error in told} <= {"LockCycle", "MapFailed", "Timeout"}
        circles += any(error["type"] == "LockCycle" for error in told)
    assert circles > 0
