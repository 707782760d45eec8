"""Steps of an execution by status, kind and order, read from a store of each kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.agents.models.registry import using
from flowengine.agents.models.scripted import ScriptedModel
from flowengine.engines.infos import ExecutionInfo
from flowengine.errors import NotFound, UsageError
from tests.engines import world

FLOW = """
steps:
  - id: each
    map: {over: "${{ [2, 1, 0, 3] }}", concurrency: 1, on_item_error: continue, max_failures: 4}
    python: "works:work"
    effect: idempotent
    with: {n: "${{ item }}"}
    retry: {attempts: 3, delay: 0s}
  - id: first
    agent: {model: double/any, settings: {max_tokens: 10}}
    with: {prompt: Hello}
  - id: second
    agent: {model: double/any, settings: {max_tokens: 10}}
    with: {prompt: Hello}
  - {id: ask, approval: Go on?}
"""
WORK = """
import time

def work(n: int) -> int:
    time.sleep(n / 20)
    if n % 2:
        raise ValueError(f"{n} is odd")
    return n
"""
SAID = [
    {"text": "Hi.", "usage": {"input_tokens": 5, "output_tokens": 2, "cost_usd": 0.5}},
    {"text": "Hello.", "usage": {"input_tokens": 9, "output_tokens": 3, "cost_usd": 0.25}},
]


def addresses(info: ExecutionInfo) -> list[str]:
    return [step["address"] for step in info["steps"]]


@pytest.mark.parametrize("kind", ["folder", "memory"])
def test_steps_are_shown_by_status_and_kind_and_in_an_order(kind: str, tmp_path: Path) -> None:
    (tmp_path / "works.py").write_text(WORK)
    file = world.make(tmp_path, FLOW)
    with (
        Engine(tmp_path / "store" if kind == "folder" else None) as engine,
        using(ScriptedModel(SAID)),
    ):
        id = engine.run(file).execution

        def show(**given: Any) -> ExecutionInfo:
            return engine.executions.show(id, **given)

        assert addresses(show(status="failed")) == ["each[1]", "each[3]"]
        assert addresses(show(status="waiting")) == ["ask"]
        assert addresses(show(kind="python", limit=2)) == ["each[0]", "each[1]"]
        slowest = addresses(show(sort="time", kind="python"))
        assert (slowest[:2], slowest[4]) == (["each", "each[3]"], "each[2]")
        assert addresses(show(sort="time", limit=1)) == ["ask"]  # it has not ended
        assert addresses(show(sort="attempts", limit=2)) == ["each[1]", "each[3]"]
        assert addresses(show(sort="error", status="failed", limit=1)) == ["each[1]"]
        dearest, other = [show(sort=by, limit=1)["steps"][0] for by in ("cost", "tokens")]
        assert dearest["address"].startswith("first")
        assert (dearest["tokens"], dearest["cost_usd"]) == (7, 0.5)
        assert (other["tokens"], other["cost_usd"]) == (12, 0.25)
        assert "took" not in show(limit=1)
        whole = {step["address"]: step for step in show()["steps"]}
        for step in show(sort="time")["steps"]:
            step.pop("tokens", None)
            step.pop("cost_usd", None)
            assert {**step, "took": None} == {**whole[step["address"]], "took": None}
        with pytest.raises(UsageError, match="sort is 'odd'") as told:
            show(sort="odd")
        assert "time" in told.value.with_hint


def test_an_execution_that_is_deleted_while_it_is_shown_is_not_found(tmp_path: Path) -> None:
    with Engine(tmp_path / "store") as engine:
        id = engine.run(world.make(tmp_path, "steps: [{id: a, output: 1}]")).execution
        _, folds = engine.executions.folds(id)
        engine.executions.prune()
        with pytest.raises(NotFound, match="deleted while its steps were read"):
            folds.level("")
        with pytest.raises(NotFound, match="no execution"):
            engine.executions.folds(id)


@pytest.mark.parametrize("kind", ["folder", "memory"])
def test_the_events_of_a_step_are_those_that_began_changed_or_ended_it(
    kind: str, tmp_path: Path
) -> None:
    (tmp_path / "works.py").write_text(WORK)
    file = world.make(tmp_path, FLOW)
    with (
        Engine(tmp_path / "store" if kind == "folder" else None) as engine,
        using(ScriptedModel(SAID)),
    ):
        (wait,) = engine.run(file).waits
        engine.approvals.approve(wait["id"], comment="Fine.")
        id, every = wait["execution"], engine.executions.events
        whole = {entry["seq"]: entry for entry in every(id)}
        for address in ("each[1]", "ask"):
            own = [*every(id, step=address)]
            assert [entry["type"] for entry in own if entry.get("address") == address] == (
                ["failed", "timer", "failed", "timer", "failed"]
                if address == "each[1]"
                else ["decided"]
            )
            assert own == [whole[entry["seq"]] for entry in own]
            assert [*every(id, step=address, from_seq=own[-1]["seq"])] == own[-1:]
        with pytest.raises(NotFound, match="no step 'odd'"):
            every(id, step="odd")
        with pytest.raises(UsageError, match="either 'step' or 'follow'"):
            every(id, step="ask", follow=True)
