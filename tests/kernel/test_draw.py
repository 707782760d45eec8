"""Random runs of the kernel make every move that its tables of states have.

`tests/kernel/test_random_flows.py` checks their properties.
"""

from __future__ import annotations

import pytest

from tests.kernel.test_random_flows import play
from tests.kernel.watched_moves import ALLOWED, watched_moves
from tests.language.test_phases import HELD
from tests.replacing import patches_everywhere

PLAYS = 1000


@pytest.mark.endurance
def test_every_move_is_made() -> None:
    """Some occur only once in hundreds of runs."""
    with patches_everywhere() as patch, watched_moves() as seen:
        patch.setattr("tests.simulation.simulator.check_now", lambda _simulator: None)
        for seed in range(PLAYS):
            play(seed, crashes=True)

    assert ALLOWED - HELD <= seen <= ALLOWED
