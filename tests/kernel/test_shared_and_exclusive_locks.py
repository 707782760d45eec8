"""Shared and exclusive locks, in the order of arrival."""

from __future__ import annotations

import random
from typing import Any

import pytest

from flowengine.kernel import ENDED
from tests.simulation.simulator import Simulator
from tests.testing.graphs import Described, graph, step, v, x

ITEM = ["item", "index", "key"]
SHARED = v(x(lambda names: names["item"] == "r"))


def calls(kinds: str, scope: str = "execution", concurrency: int = 100, **more: Any) -> Described:
    """Return a map with an item for each letter: `r` locks shared, `w` exclusively."""
    lock = {"key": v("calls"), "permits": 1, "scope": scope, "shared": SHARED}
    over: Described = {"over": v(list(kinds)), "names": ITEM, "concurrency": v(concurrency)}
    over["on_item_error"] = "continue"
    return step(more.pop("name", "call"), map=over, lock=lock, **more)


@pytest.mark.endurance
@pytest.mark.parametrize("block", range(10))
def test_random_orders_keep_sharing_apart_from_holding_alone(block: int) -> None:
    for seed in range(block * 10, block * 10 + 10):
        play_random_calls(seed)


def play_random_calls(seed: int) -> None:
    """Run calls with shared and exclusive locks, with occasional crashes of the process."""
    draws = random.Random(seed)
    kinds = "".join(draws.choice("rrw") for _ in range(draws.randint(2, 12)))
    script = {"call": lambda _run: draws.choice([1, 2])}
    played = Simulator(graph(calls(kinds, draws.choice(["execution", "run"]))), script, seed=seed)
    played.start()
    while played.status not in ENDED:
        at_work = [run.address for run in played.running.values()]
        letters = [kinds[int(a.removeprefix("call[").rstrip("]"))] for a in at_work]
        assert set(letters) <= {"r"} or letters == ["w"]
        if draws.random() < 0.05:
            played.crash()
        played.step()
    first = list(dict.fromkeys(played.started))
    assert first == [f"call[{number}]" for number in range(len(kinds))]
