"""Random flows, run with all possible disturbances."""

from __future__ import annotations

import random
from typing import Any

from flowengine.flow.expressions.evaluator import CelEvaluator
from flowengine.kernel import ENDED, Graph
from flowengine.kernel.commands import Run
from flowengine.kernel.graph.specs import CompiledFlow
from tests.simulation.explorer import anything
from tests.simulation.invariants import check_over, is_stuck, it_does_not_stall
from tests.simulation.simulator import Fails, Simulator

REPLY = {"status": 200, "headers": {}, "body": None}
CRASHES = 50
"""Hypothesis also draws chances at which every attempt crashes, forever."""


def play(flow: CompiledFlow, chance: random.Random) -> Simulator:
    """Run a flow with random failures, crashes, decisions and messages."""

    def task(_run: Run) -> Any:
        if chance.random() < 0.15:
            raise Fails("Odd", retryable=chance.random() < 0.5)
        return REPLY

    script = {step["id"]: task for step in flow["steps"]}
    graph = Graph(flow, CelEvaluator(flow["expressions"], flow["id"]))
    played = Simulator(graph, script, outside=[anything(times=3)])
    played.start({name: chance.random() < 0.5 for name in flow.get("inputs", {})})
    _rest(played, chance)
    for number in range(20):
        if played.status != "waiting" or is_stuck(played):
            break
        played.send(chance.choice("st"), id=f"more{number}")
        _rest(played, chance)
    return played


def _rest(played: Simulator, chance: random.Random) -> None:
    """Apply events until none is possible, with occasional crashes."""
    crashes = 0
    for _ in range(2000):
        can = played.possible()
        if not can:
            return
        if played.running and crashes < CRASHES and chance.random() < 0.05:
            crashes += 1
            played.crash()
        else:
            played.let(can[chance.randrange(len(can))])
    raise AssertionError("it does not come to rest")


def check(flow: CompiledFlow, chance: random.Random) -> Simulator:
    """Run a flow that the checker accepts: it must end, or wait for a possible event."""
    played = play(flow, chance)
    check_over(played)
    it_does_not_stall(played)
    assert played.status in ENDED or played.status == "waiting"
    return played
