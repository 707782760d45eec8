# Shows F92
"""Locks in random orders: steps that never run at the same time (F92, S22, S23, S26-S28)."""

from __future__ import annotations

import random

from flowengine.kernel import ENDED
from tests.language.stage import Script, Stage
from tests.simulation.simulator import Simulator, unpacked


def played(
    stage: Stage, text: str, script: Script | None = None, *, seed: int = 0
) -> list[list[str]]:
    """Run a flow in a random order of ends. Return the tasks running together at each moment."""
    simulator = stage.simulator(text, script).start({})
    draws = random.Random(seed)
    together = [_tasks(simulator)]
    while simulator.status not in ENDED:
        if simulator.running:
            simulator.end(draws.choice(list(simulator.running.values())))
        else:
            assert simulator.step(), simulator.state
        if draws.random() < 0.1:
            simulator.state = unpacked(simulator.state)
        together.append(_tasks(simulator))
    assert unpacked(simulator.replayed()) == unpacked(simulator.state)
    assert simulator.status == "succeeded", simulator.state["error"]
    return together


def _tasks(simulator: Simulator) -> list[str]:
    return sorted(run.address for run in simulator.running.values())


def most(together: list[list[str]], *steps: str) -> int:
    """Return the highest number of these steps that ran at once."""
    return max(sum(a.split("[")[0].split("/")[-1] in steps for a in one) for one in together)


COUNTER = """
state: {n: {type: integer, default: 0}}
steps:
  - {id: s, next: {all: [a, b]}}
  - id: a
    map: {over: 5, concurrency: 5}
    lock: counter
    python: "tools:act"
    set: {n: "${{ state.n + 1 }}"}
    next: end
  - id: b
    loop: {until: "${{ round.number == 4 }}", max: 4}
    lock: {key: counter}
    python: "tools:act"
    set: {n: "${{ state.n + 10 }}"}
    next: end
outputs: {n: "${{ state.n }}"}
"""


def test_a_counter_under_a_lock_counts(stage: Stage) -> None:
    for seed in range(20):
        assert most(played(stage, COUNTER, seed=seed), "a", "b") == 1


NESTED = """
steps:
  - {id: s, next: {all: [g, h]}}
  - id: g
    lock: A
    parallel:
      - {id: x, lock: A, python: "tools:act"}
      - {id: y, lock: A, python: "tools:act"}
      - {id: free, python: "tools:act"}
    next: end
  - {id: h, lock: A, python: "tools:act", next: end}
"""


def test_a_lock_held_around_is_taken_again_inside(stage: Stage) -> None:
    """The flow ends, the inner steps exclude one another, and no outer step gets in between."""
    for seed in range(20):
        together = played(stage, NESTED, seed=seed)
        assert most(together, "x", "y", "h") == 1
        assert most(together, "h", "free") == 1


CIRCLE = """
inputs: {a: {type: string, default: A}}
steps:
  - {id: s, next: {all: [g, h]}}
  - id: g
    lock: "${{ inputs.a }}"
    group: [{id: g1, python: "tools:act"}, {id: g2, lock: B, python: "tools:act"}]
    on_error: continue
    next: end
  - id: h
    lock: B
    group: [{id: h1, python: "tools:act"}, {id: h2, lock: "${{ inputs.a }}", python: "tools:act"}]
    on_error: continue
    next: end
"""


def test_of_computed_locks_the_last_to_close_a_circle_gets_an_error(stage: Stage) -> None:
    circles = 0
    for seed in range(12):
        simulator = stage.simulator(CIRCLE).start({"a": "A"})
        draws = random.Random(seed)
        while simulator.status not in ENDED:
            simulator.end(draws.choice(list(simulator.running.values())))
        errors = [o.error["type"] for o in simulator.observations if o.error]
        assert set(errors) <= {"LockCycle"}
        circles += bool(errors)
        assert simulator.status == "succeeded"
    assert circles
