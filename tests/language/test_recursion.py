# Shows F21
"""Single-token flows behave like plain recursion over their text: in runs, forks and retries."""

from __future__ import annotations

from collections import Counter
from math import ceil
from typing import Any

import pytest

from flowengine.errors import Conflict
from tests.language.recursion import UNDO, Effect, Recursion, Told, draw_file, result
from tests.language.stage import Call, Stage
from tests.simulation.simulator import Fails

FLOWS = 50
MOST = 30
"""Maximum number of forks per flow. Large flows have hundreds of addresses, and forks are slow."""


class Calls:
    """Tasks of an execution, which record each call. The first calls of a step may fail."""

    def __init__(self, stage: Stage, file: dict[str, Any], fates: dict[str, int]) -> None:
        self.stage = stage
        self.fates = dict(fates)
        self.effects: list[Effect] = []
        steps = [f"s{number}" for number in range(1, 200)]
        stage.world.script = dict.fromkeys([*steps, "compensate"], self.call)

    def call(self, call: Call) -> int:
        self.effects.append((call.address, call.value))
        if self.fates.get(call.step, 0) > 0:
            self.fates[call.step] -= 1
            raise Fails("Odd", retryable=True)
        return result(call.step if call.step != "compensate" else "s0", call.value)

    def heal(self) -> None:
        """Let all later calls succeed, and start a new list of calls."""
        self.fates, self.effects = {}, []

    def told(self, ran: Any) -> Told:
        """Return the actual outcome of an execution."""
        for _ in range(30):
            if ran.status == "waiting":  # a pause before another attempt
                ran = self.stage.later(ran.execution, 5)
        error = ran.error["type"] if ran.error else None
        return Told(ran.status, ran.outputs if error is None else None, error, self.effects)


@pytest.mark.endurance
def test_runs(stage: Stage) -> None:
    for seed in range(FLOWS):
        file, fates = draw_file(seed)
        calls = Calls(stage, file, fates)
        assert calls.told(stage.run(file, id=f"run{seed}")) == Recursion(file, fates).play(), seed


@pytest.mark.endurance
def test_forks_at_every_address(stage: Stage) -> None:
    assert sum(_fork_everywhere(stage, seed) for seed in range(FLOWS // 10)) > FLOWS / 2


@pytest.mark.endurance
@pytest.mark.parametrize("block", range(10))
def test_forks_of_many_flows(stage: Stage, block: int, pytestconfig: pytest.Config) -> None:
    """Large flows are forked at some addresses only, or at all of them with `--endurance`."""
    most = None if pytestconfig.option.endurance else MOST
    for seed in range(100 + block, 250, 10):
        _fork_everywhere(stage, seed, most)


def _fork_everywhere(stage: Stage, seed: int, most: int | None = None) -> int:
    """Run a flow and fork it at each address, or at `most` of them. Return the number of forks."""
    file, fates = draw_file(seed)
    calls = Calls(stage, file, fates)
    calls.told(stage.run(file, id=f"run{seed}"))
    plain = Recursion(file, fates)
    undone = Counter(address for address, _ in plain.play().effects if address.endswith(UNDO))
    forks = 0
    apart = 1 if most is None else ceil(len(plain.entered) / most) or 1
    for at in plain.entered[seed % apart :: apart]:
        if undone[at] > 1:
            continue
        calls.heal()
        told = calls.told(stage.do(stage.engine.executions.fork_async(f"run{seed}", from_step=at)))
        left_out = frozenset(undone.keys() - {at}) if at.endswith(UNDO) else frozenset[str]()
        assert told == Recursion(file, fates, at=at, undone=left_out).play(), (seed, at)
        forks += 1
    return forks


@pytest.mark.endurance
def test_retries_of_what_failed(stage: Stage) -> None:
    """Executions that ran compensations before they failed cannot be retried."""
    found: Counter[str] = Counter()
    for seed in range(FLOWS, 2 * FLOWS):
        file, fates = draw_file(seed)
        plain = Recursion(file, fates)
        if plain.play().status != "failed":
            continue
        calls = Calls(stage, file, fates)
        calls.told(stage.run(file, id=f"run{seed}"))
        calls.heal()
        try:
            ran = stage.do(stage.engine.executions.retry_async(f"run{seed}"))
        except Conflict:
            assert plain.undoing, seed
            found["refused"] += 1
            continue
        assert calls.told(ran) == Recursion(file, fates, again=plain.raised).play(), seed
        found["retried"] += 1
    assert found["retried"] > FLOWS / 5
    assert found["refused"]
