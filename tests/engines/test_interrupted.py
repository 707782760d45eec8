"""Interrupted executions: their process died, or a recorded decision was not applied yet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from flowengine.engines.engine import Engine
from flowengine.engines.infos import StepInfo
from tests.engines import child, world
from tests.engines.test_leases import SLOW, until_at_work

ONCE = """
steps:
  - {id: once_pay, python: "effects:stay"}
  - {id: after, python: "effects:act", effect: idempotent}
"""


def statuses(engine: Engine, status: str | None = None) -> dict[str, str]:
    return {one["execution"]: one["status"] for one in engine.executions.list(status=status).items}


def steps_of(engine: Engine) -> list[StepInfo]:
    """Return the steps of the execution, with their attempts."""
    addresses = [step["address"] for step in engine.executions.show("it")["steps"]]
    return [engine.executions.show("it", step=address)["steps"][0] for address in addresses]


@pytest.fixture
def killed(tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that kills an execution's process during a step and returns the flow."""

    def run(text: str) -> Path:
        file = world.make(tmp_path, text)
        process = child.start(child.begin, str(tmp_path / "store"), file, "it")
        until_at_work(file, "it")
        with Engine(tmp_path / "store") as engine:
            assert engine.executions.result("it").status == "running"
            assert statuses(engine, "running") == {"it": "running"}
            assert statuses(engine, "interrupted") == {}
        assert child.kill(process)
        return file

    return run


def test_an_execution_whose_process_died_is_interrupted_wherever_it_is_shown(
    killed: Callable[[str], Path], tmp_path: Path
) -> None:
    killed(SLOW)
    with Engine(tmp_path / "store") as engine:
        assert statuses(engine) == {"it": "interrupted"}
        assert statuses(engine, "interrupted") == {"it": "interrupted"}
        assert statuses(engine, "running") == {}
        assert engine.executions.result("it").status == "interrupted"
        shown = engine.executions.show("it")
        assert (shown["status"], shown["command"]) == ("interrupted", "flowengine resume it")
        [why] = engine.executions.why("it")
        assert why["command"] == "flowengine resume it"

        (tmp_path / "go").touch()
        assert engine.resume("it").status == "succeeded"
        tries = [step["tries"] for step in steps_of(engine) if len(step["tries"]) > 1]
        assert [[one["status"] for one in each] for each in tries] == [["interrupted", "succeeded"]]
        assert tries[0][0]["ended_at"] == tries[0][1]["started_at"]
        assert statuses(engine, "interrupted") == {}
        assert "command" not in engine.executions.show("it")


def test_a_decision_that_nobody_has_taken_is_told_and_not_offered_again(
    killed: Callable[[str], Path], tmp_path: Path
) -> None:
    killed(ONCE)
    with Engine(tmp_path / "store") as engine:
        [question] = engine.resume("it").waits
        assert engine.executions.show("it")["status"] == "stalled"
        [asked] = steps_of(engine)[0]["tries"]
        assert asked["status"] == "interrupted"
        assert "ended_at" in asked
        engine.approvals.decide(question["id"], "retry", resume=False)

    with Engine(tmp_path / "store") as engine:
        shown = engine.executions.show("it")
        assert (shown["status"], shown["waits"]) == ("interrupted", [])
        assert shown["command"] == "flowengine resume it"
        assert statuses(engine, "stalled") == {}
        assert statuses(engine, "interrupted") == {"it": "interrupted"}
        [why] = engine.executions.why("it")
        assert "a decision by" in why["what"]
        assert why["command"] == "flowengine resume it"
        (tmp_path / "go").touch()
        assert engine.resume("it").status == "succeeded"
