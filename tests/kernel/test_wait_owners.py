"""The owner of a wait determines the effect of its decision. Closed waits stay closed."""

from __future__ import annotations

from typing import get_args

from flowengine.kernel.event_effects import DECISIONS
from flowengine.kernel.state.phases import Owner
from flowengine.kernel.waiting.waits import LET_GO

OWNERS: set[Owner] = set(get_args(Owner))


def test_every_owner_has_its_rows() -> None:
    assert set(DECISIONS) == OWNERS
    assert set(LET_GO) == OWNERS - {"permission"}  # handled by `shared_questions.close_question`
