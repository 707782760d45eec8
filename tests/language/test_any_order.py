# Shows F21
"""Random flows: equal outcomes in any order, and an end despite any disturbance (F21, F24)."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest

from flowengine.flow.compile import Compiled
from tests.language.stage import Call, Stage, check_told, outcome_of
from tests.simulation.simulator import Fails, Simulator, unpacked
from tests.testing.random_flows import LIBRARY, Author


def drawn(stage: Stage, seed: int, *, wild: bool = False) -> dict[str, Any]:
    """Return a random flow, and write the library that it imports."""
    (stage.folder / "lib.yaml").write_text(json.dumps(LIBRARY))
    return Author(seed, wild=wild, library="lib.yaml").flow()


def accepted(stage: Stage, seed: int, *, wild: bool = False) -> Compiled | None:
    """Return a random flow, or None if the checker rejects it."""
    return stage.compiled_if_accepted(drawn(stage, seed, wild=wild))


def echo(call: Call) -> Any:
    """Return a value that depends on address and argument only. Some addresses always fail."""
    if random.Random(call.address).random() < 0.2:
        raise Fails("Broken", call.address, retryable=False)
    return [call.step, call.value]


SCRIPT = {f"s{n}": echo for n in range(1, 100)}


@pytest.mark.endurance
@pytest.mark.parametrize("block", range(10))
def test_outcome_is_the_same_in_any_order(stage: Stage, block: int) -> None:
    played = 0
    for seed in range(block * 1000, block * 1000 + 20):
        compiled = accepted(stage, seed)
        if compiled is None:
            continue
        played += 1
        for holding in ("q", "pr"):
            inputs = {name: name in holding for name in "pqr"}
            found = set()
            for order in range(4):
                state = stage.simulate(compiled, SCRIPT, inputs, seed=order).state
                found.add(repr(outcome_of(state["status"], state["outputs"], state["error"])))
            assert len(found) == 1, (seed, holding, found)
    assert played > 6


@pytest.mark.endurance
@pytest.mark.parametrize("block", range(10))
def test_wild_flows_end_whatever_happens_and_crashes(stage: Stage, block: int) -> None:
    ends: Counter[str] = Counter()
    for seed in range(block * 1000, block * 1000 + 20):
        compiled = accepted(stage, seed, wild=True)
        if compiled is None:
            continue
        for order in range(3):
            simulator = stage.simulator(compiled, SCRIPT, seed=order)
            simulator.start({name: bool(order & 1) for name in "pqr"})
            _disturbed(simulator, random.Random(order))
            assert simulator.status in {"succeeded", "failed"}, (seed, order, simulator.status)
            check_told(simulator)
            assert unpacked(simulator.replayed()) == unpacked(simulator.state)
            ends[simulator.status] += 1
    assert min(ends["succeeded"], ends["failed"]) > 0


def _disturbed(simulator: Simulator, draw: random.Random) -> None:
    """Run an execution to its end with crashes at random moments."""
    while simulator.step():
        if draw.random() < 0.1 and simulator.status == "running":
            simulator.crash()


@pytest.mark.endurance
@pytest.mark.parametrize("block", range(10))
def test_engine_and_simulator_agree(stage: Stage, block: int) -> None:
    played = 0
    for seed in range(7000 + block * 10, 7010 + block * 10):
        if accepted(stage, seed) is not None:
            played += 1
            inputs = {name: bool(seed & bit) for name, bit in (("p", 1), ("q", 2), ("r", 4))}
            stage.play(drawn(stage, seed), SCRIPT, inputs, most=1)
    assert played > 2
