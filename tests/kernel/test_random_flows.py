# Shows F21
"""Random flows under random schedules: the invariants hold.

`tests.simulation.invariants` defines the invariants. `tests/kernel/test_draw.py` shows that all
moves of the tables of states are made.
"""

from __future__ import annotations

import random

import pytest

from tests.rows import each_row
from tests.simulation.invariants import check_over
from tests.simulation.simulator import Simulator
from tests.testing.random_graphs import random_graph
from tests.testing.random_plays import random_play

FLOWS = 40
"""The same seeds in each run. A slice adds eight times as many."""
MANY = 3_200


def play(seed: int, *, crashes: bool) -> Simulator:
    """Run the flow of a seed once. With crashes, the whole run differs."""
    return random_play(random_graph(random.Random(seed)), f"{seed}/{crashes}", crashes=crashes)


def check(seed: int, *, crashes: bool) -> None:
    try:
        check_over(play(seed, crashes=crashes))
    except Exception as error:
        raise AssertionError(f"{seed=} {crashes=}: {error!r}") from error


@pytest.mark.endurance
@pytest.mark.parametrize("crashes", [False, True], ids=["calm", "crashes"])
# Shows F74
def test_all_properties_hold(crashes: bool) -> None:
    """After every event and at the end, even if the state is restored from bytes at any moment."""
    for seed in range(FLOWS):
        check(seed, crashes=crashes)


@pytest.mark.endurance
@pytest.mark.parametrize("block", range(10))
def test_all_properties_hold_of_thousands(block: int) -> None:
    for seed in range(FLOWS + block, FLOWS + MANY, 10):
        check(seed, crashes=seed % 3 > 0)


@each_row("block", range(2))
# Shows V14
def test_all_properties_hold_while_attempts_are_left_to_workers(block: int) -> None:
    """Of steps that need what a process does not offer. Whoever takes them begins them anew."""
    left = 0
    for seed in range(block, FLOWS, 2):
        graph = random_graph(random.Random(seed))
        try:
            played = random_play(graph, f"{seed}/left", crashes=seed % 3 > 0, leaves=True)
            check_over(played)
        except Exception as error:
            raise AssertionError(f"{seed=}: {error!r}") from error
        left += [event["type"] for event in played.journal].count("offered")
    assert left > FLOWS / 2


def test_a_call_that_waits_for_a_shared_budget_can_be_retried() -> None:
    """It claims anew, whether it is named or goes on beside the retried step."""
    for seed in (91, 275, 359, 616, 682):
        check(seed, crashes=seed < 600)


def test_a_result_that_came_late_counts_in_a_second_retry_too() -> None:
    """The first retry went back to a point where its step was withdrawn, the second one beyond."""
    simulator = play(7208, crashes=True)
    check_over(simulator)
    assert [event["type"] for event in simulator.journal].count("retry") == 2
