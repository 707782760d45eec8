"""The phases of units: every move of the table is made by some flow, and no other is."""

from __future__ import annotations

import pytest

from flowengine.kernel.events import ErrorData
from flowengine.kernel.state.moves import move
from flowengine.kernel.state.phases import MOVES, Phase
from flowengine.kernel.state.records import Unit
from tests.kernel.test_random_flows import FLOWS, play
from tests.language.stage import Stage
from tests.language.test_retrying import Chance, written


class Seen(frozenset[Phase]):
    """Phases that a unit may move to, which remembers those it was asked for."""

    def __init__(self, _allowed: frozenset[Phase]) -> None:
        self.asked: set[object] = set()

    def __contains__(self, phase: object) -> bool:
        self.asked.add(phase)
        return super().__contains__(phase)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> dict[Phase, Seen]:
    watched = {phase: Seen(allowed) for phase, allowed in MOVES.items()}
    for phase, allowed in watched.items():
        monkeypatch.setitem(MOVES, phase, allowed)
    return watched


def test_flows_make_every_move(stage: Stage, seen: dict[Phase, Seen]) -> None:
    for seed in range(0, FLOWS, 3):
        play(seed, 0, crashes=True)
    for seed in range(40):
        _fail_and_retry(stage, seed)
    _lose_the_environment(stage)

    missing = {(now, then) for now in seen for then in seen[now] - seen[now].asked}
    assert missing == set()


def _fail_and_retry(stage: Stage, seed: int) -> None:
    flow = written(stage, seed, wild=True)
    if flow is not None:
        chance = Chance(stage, flow, seed)
        chance.rest()
        if chance.played.status == "failed" and chance.retry():
            chance.rest()


def _lose_the_environment(stage: Stage) -> None:
    """It cannot be had again before an attempt begins: somebody is asked."""
    played = stage.simulator("steps: [{id: a, run: ls}]").start()
    (unit, attempt), _ = next(iter(played.running.items()))
    error: ErrorData = {"type": "EnvironmentLost", "message": "gone"}
    played.apply(
        {"type": "lost", "at": 0, "unit": unit, "attempt": attempt, "ran": "no", "error": error}
    )
    assert played.state["units"][unit]["phase"] == "ask"


def test_any_other_move_is_refused() -> None:
    unit: Unit = {"id": 7, "phase": "wait"}

    move(unit, "wait")
    with pytest.raises(AssertionError, match="unit 7 cannot move from wait to run"):
        move(unit, "run")
    assert unit["phase"] == "wait"
