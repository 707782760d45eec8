"""What the checker accepts never stalls in the kernel (F24): random flows, orders and failures."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from flowengine.errors import FlowFileError
from flowengine.flow.compile import Compiled, compile_text
from flowengine.flow.expressions import CelEvaluator
from flowengine.kernel import Graph
from flowengine.kernel.commands import Run
from flowengine.testing.random_flows import tangled_flow
from flowengine.testing.simulator import Fails, Simulator


def accepted(draw: random.Random) -> Compiled | None:
    """Return a random flow, if the checker accepts it."""
    try:
        return compile_text(json.dumps(tangled_flow(draw)))
    except FlowFileError:
        return None


def play(compiled: Compiled, seed: int) -> Simulator:
    """Play a flow to its end under one schedule, with tasks that fail now and then."""
    draw = random.Random(seed)

    def result(_run: Run) -> Any:
        if draw.random() < 0.15:
            raise Fails("Odd", retryable=False)
        return {"status": 200, "headers": {}, "body": None}

    graph = Graph(compiled.flow, CelEvaluator(compiled.flow["expressions"], "random"))
    script = {step["id"]: result for step in compiled.flow["steps"]}
    return Simulator(graph, script, seed=seed).start({"flag": bool(seed % 2)}).run()


@pytest.mark.parametrize("block", range(4))
def test_no_accepted_flow_stalls(block: int) -> None:
    """Of random flows those that pass the checker end, whatever the order and the failures."""
    played = 0
    for seed in range(block * 1000, block * 1000 + 100):
        compiled = accepted(random.Random(seed))
        if compiled is None:
            continue
        played += 1
        for schedule in range(3):
            simulator = play(compiled, schedule)
            assert simulator.status in {"succeeded", "failed"}, (seed, schedule, simulator.status)
    assert played >= 5
