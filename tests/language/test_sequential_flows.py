"""Flows in which only one step is at work at a time have the outcome of plain recursion."""

from __future__ import annotations

import pytest

from tests.language.sequential import Oracle, draw_flow, written
from tests.language.stage import Stage

FLOWS = 600


@pytest.mark.endurance
@pytest.mark.parametrize("block", range(10))
def test_random_sequential_flows_give_what_recursion_gives(stage: Stage, block: int) -> None:
    for seed in range(block, FLOWS, 10):
        flow = draw_flow(seed)
        played = stage.simulate(written(flow), seed=seed)
        how = played.outputs if played.error is None else played.error["type"]
        state = {key: cell[0] for key, cell in played.state["vars"].items()}
        assert (played.status, how, state) == Oracle(flow).play(), f"{seed=}"


def test_the_flows_drawn_end_in_every_way() -> None:
    plays = [Oracle(draw_flow(seed)).play() for seed in range(FLOWS)]
    failed = [how for status, how, _ in plays if status == "failed"]

    assert set(failed) >= {"Oops", "Nope", "Other", "Cancelled", "LoopLimit", "Deadline"}
    assert len(failed) < len(plays) / 2
    assert sum(len(state["log"]) > 8 for _, _, state in plays) > len(plays) / 10
