"""Following the commands proposed after a failure never books anything twice."""

from __future__ import annotations

import shlex
from collections import Counter
from itertools import count, islice
from typing import Any

import pytest

from flowengine import ExecutionResult
from tests.language.recursion import UNDO, Recursion, draw_file, result
from tests.language.stage import Call, Stage
from tests.simulation.simulator import Fails

FLOWS = 40
ROUNDS = 6
"""Maximum number of consecutive commands."""


class Bookings:
    """Current bookings of random flows, by address."""

    def __init__(self, stage: Stage, file: dict[str, Any], fates: dict[str, int]) -> None:
        self.stage = stage
        self.fates = dict(fates)
        self.booked: Counter[str] = Counter()
        self.bookable = {step["id"] for step in _steps(file) if "compensate" in step}
        names = [f"s{number}" for number in range(1, 200)]
        stage.world.script = dict.fromkeys([*names, "compensate"], self.call)

    def call(self, call: Call) -> int:
        if self.fates.get(call.step, 0) > 0:
            self.fates[call.step] -= 1
            raise Fails("Odd", retryable=False)
        if call.step == "compensate":
            self.booked[call.address.removesuffix(UNDO)] -= 1
        elif call.step in self.bookable:
            self.booked[call.address] += 1
        return result(call.step if call.step != "compensate" else "s0", call.value)

    def check(self, seed: int) -> None:
        """Check that nothing is booked twice, and nothing released without a booking."""
        assert set(self.booked.values()) <= {0, 1}, (seed, self.booked)

    def carry_out(self, command: str) -> ExecutionResult:
        """Execute a proposed command line."""
        program, verb, *words = shlex.split(command)
        assert program == "flowengine"
        if verb == "retry":
            [execution] = words
            return self.stage.do(self.stage.engine.executions.retry_async(execution))
        assert verb == "fork"
        execution, option, step = words
        assert option == "--from-step"
        return self.stage.do(self.stage.engine.executions.fork_async(execution, from_step=step))


def _steps(file: Any) -> list[dict[str, Any]]:
    """Return all steps of a flow file, at every depth."""
    if isinstance(file, list):
        return [step for part in file for step in _steps(part)]
    if not isinstance(file, dict):
        return []
    own = [file] if "id" in file else []
    return [*own, *(step for part in file.values() for step in _steps(part))]


@pytest.mark.endurance
def test_every_command_that_is_proposed_books_nothing_twice(stage: Stage) -> None:
    """Steps fail, then some compensations. The proposed commands are executed until there is none.

    Then everything is booked once, or everything is undone.
    """
    verbs: Counter[str] = Counter()
    failing = (seed for seed in count() if Recursion(*draw_file(seed)).play().status == "failed")
    for seed in islice(failing, FLOWS):
        file, fates = draw_file(seed)
        bookings = Bookings(stage, file, {**fates, "compensate": seed % 3})
        ran = stage.run(file, id=f"run{seed}")
        bookings.fates = {"compensate": max(0, bookings.fates["compensate"] - 1)}
        for _ in range(ROUNDS):
            bookings.check(seed)
            if ran.status != "failed":
                assert ran.status == "succeeded", (seed, ran)
                break
            command = stage.engine.executions.show(ran.execution).get("command")
            if command is None:
                assert bookings.booked.total() == 0, (seed, bookings.booked)
                break
            verbs[command.split()[1] + UNDO * command.endswith(UNDO)] += 1
            ran = bookings.carry_out(command)
        else:
            raise AssertionError((seed, ran))
    assert min(verbs["retry"], verbs["fork"], verbs[f"fork{UNDO}"]) > 0, verbs
