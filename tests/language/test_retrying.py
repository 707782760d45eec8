"""Random flows that fail and are retried, with crashes in between: no effect is repeated (F36)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from flowengine.errors import Conflict, FlowFileError
from flowengine.flow.compile import Compiled
from flowengine.kernel import ENDED
from flowengine.kernel.commands import Run
from tests.language.stage import Stage
from tests.simulation.explorer import anything
from tests.simulation.invariants import check_over
from tests.simulation.simulator import Fails, Simulator
from tests.testing.random_flows import Author

REPLY = "done"
FAILED = 10
"""How many flows of a block fail, at least."""
MENDED = 3
"""How many of them succeed when they are retried, at least."""
SEEDS = 1000
"""How many flows may be drawn for them. About one of three fails."""


def written(stage: Stage, seed: int, wild: bool) -> Compiled | None:
    """Return a random flow whose steps must not run twice and that handles few errors."""
    draw = random.Random(seed)
    flow: dict[str, Any] = Author(draw, wild=wild).flow()
    _let_fail(flow, draw)
    flow["defaults"] = {"effect": "once"}
    try:
        return stage.compile(flow)
    except FlowFileError:
        return None


def _let_fail(value: Any, draw: random.Random) -> None:
    """Remove the handlers of most steps, and let some expressions fail."""
    if isinstance(value, list):
        for one in value:
            _let_fail(one, draw)
    if not isinstance(value, dict):
        return
    for one in list(value.values()):
        _let_fail(one, draw)
    if "python" in value:
        value.pop("retry", None)
        if draw.random() < 0.8:
            value.pop("on_error", None)
        if draw.random() < 0.8:
            value.pop("compensate", None)
        if "map" in value or "loop" in value or draw.random() < 0.9:
            return
        value["output"] = "${{ [result][inputs.p ? 0 : 1] }}"
    if isinstance(value.get("map"), dict) and "over" in value["map"] and draw.random() < 0.7:
        value["map"]["on_item_error"] = draw.choice(["wait", "stop", "continue"])


class Chance:
    """Runs a flow with random failures, crashes and late results."""

    def __init__(self, stage: Stage, flow: Compiled, seed: int) -> None:
        self.draw = random.Random(seed)
        self.fails = 0.3
        self.why = ""
        script = {step["id"]: self.task for step in flow.flow["steps"]}
        graph = stage.simulator(flow).graph
        self.played = Simulator(graph, script, seed=seed, outside=[anything(times=3)])
        inputs = {name: self.draw.random() < 0.7 for name in flow.flow.get("inputs", {})}
        self.played.start(inputs)

    def task(self, run: Run) -> Any:
        done = {address for _, address in self.played.done}
        assert run.address not in done, f"{run.address} is done again"
        if self.draw.random() < self.fails:
            raise Fails("Odd", retryable=False)
        return REPLY

    def rest(self) -> None:
        """Apply events until none is possible, answering questions about attempts."""
        played = self.played
        for _ in range(3000):
            can = played.possible()
            asked = [wait for wait in played.waits() if wait["kind"] == "question"]
            if asked and (not can or self.draw.random() < 0.3):
                choice = self.draw.choice(["retry", "result"])
                if "budget" in played.state["waits"][asked[0]["id"]]:
                    choice = asked[0]["choices"][0]["id"]
                more = {"value": REPLY} if choice == "result" else {}
                played.decide(asked[0]["address"], choice, **more)
            elif not can:
                return
            elif played.running and self.draw.random() < 0.05:
                played.crash()
            else:
                played.let(can[self.draw.randrange(len(can))])
        raise AssertionError("it does not come to rest")

    def retry(self) -> bool:
        """Retry a failed execution, and return whether that was possible."""
        for run in list(self.played.stopped.values()):
            if self.draw.random() < 0.5:
                self.played.end_late(run, REPLY)
        try:
            self.played.retry()
        except Conflict as refused:
            self.why = refused.message
            return False
        return True


@pytest.mark.endurance
@pytest.mark.parametrize("block", range(10))
@pytest.mark.parametrize("wild", [False, True], ids=["calm", "wild"])
def test_whatever_is_retried_nothing_done_once_is_done_again(
    stage: Stage, wild: bool, block: int
) -> None:
    failed = retried = refused = mended = 0
    seeds = iter(range(block * SEEDS, (block + 1) * SEEDS))
    while failed < FAILED or mended < MENDED:
        seed = next(seeds)
        flow = written(stage, seed, wild)
        if flow is None:
            continue
        chance = Chance(stage, flow, seed)
        played = chance.played
        chance.rest()
        failed += played.status == "failed"
        for turn in range(5):
            if played.status != "failed":
                break
            if turn == 3:
                chance.fails = 0.0
            if not chance.retry():
                refused += 1
                break
            retried += 1
            chance.rest()
            mended += played.status == "succeeded"
        if played.status in ENDED:
            check_over(played)
    assert retried >= FAILED
    assert refused < retried
