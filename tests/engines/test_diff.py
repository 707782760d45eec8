# Shows V52
"""Comparison of two executions: what it costs, and attempts that were cut off (F76)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.engines.inspection import diff
from tests.engines import world
from tests.replacing import Limits

REVIEW = """
inputs:
  text: {type: string}
state:
  level: {type: integer, default: 1}
steps:
  - id: read
    output: "${{ inputs.text }} read"
  - id: review
    approval: {title: "${{ steps.read.output }}?"}
    next: {outcome: {approve: publish, reject: end}}
  - id: publish
    output:
      text: ${{ steps.read.output }}
      level: ${{ state.level }}
      at: ${{ execution.id }}
outputs: {published: "${{ steps.publish.output }}"}
"""


def decided(
    engine: Engine, flow: Any, choice: str = "approve", text: str = "a", **more: Any
) -> str:
    """Run a flow with one approval to its end, and return the execution's ID."""
    (wait,) = engine.run(flow, {"text": text}).waits
    engine.approvals.decide(wait["id"], choice, **more)
    return wait["execution"]


def test_what_is_alike_is_compared_as_bytes_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Engine(tmp_path / "store") as engine:
        flow = world.make(tmp_path, REVIEW)
        first, other = decided(engine, flow), decided(engine, flow)
        monkeypatch.setattr(diff, "_sorted", lambda _: pytest.fail("values are sorted"))
        monkeypatch.setattr(diff, "_compare", lambda *_: pytest.fail("values are searched"))
        assert engine.executions.diff(first, other)["same"]


def test_attempts_that_were_cut_off_are_no_difference(tmp_path: Path) -> None:
    """A crash in between changes attempts and their numbers, but no results."""
    flow = world.make(
        tmp_path,
        """
steps:
  - {id: a, run: {argv: [echo, "1"]}, effect: pure, in: host}
  - {id: b, output: "${{ steps.a.output.stdout }}"}
outputs: {b: "${{ steps.b.output }}"}
""",
    )
    with Engine(None) as engine:
        whole = engine.run(flow).execution
        cut = engine.start(flow)
        world.cut_off(engine, cut)
        engine.resume(cut)
        assert [one["type"] for one in engine.executions.events(cut)] == [
            "started",
            "cut",
            "succeeded",
        ]
        assert engine.executions.diff(whole, cut)["same"]


def approved(engine: Engine, result: Any) -> str:
    """Approve everything, and return the id of the execution."""
    while result.waits:
        engine.approvals.approve(result.waits[0]["id"])
        result = engine.executions.result(result.execution)
    assert result.status == "succeeded"
    return str(result.execution)


def test_of_many_steps_that_differ_the_first_are_listed_and_the_others_counted(
    tmp_path: Path, limits: Limits
) -> None:
    flow = world.make(
        tmp_path,
        """
inputs: {same: {type: integer}}
steps:
  - id: each
    map: 12
    output: "${{ item < inputs.same ? -1 : item + inputs.same }}"
""",
    )
    limits(diff, MOST_STEPS=3)
    with Engine(tmp_path / "store") as engine:
        left, right = (
            engine.run(flow, {"same": same}, id=f"same-{same}").execution for same in (1, 2)
        )
        found = engine.executions.diff(left, right)

    assert found["parting"] is not None
    assert found["parting"]["what"] == "inputs"
    assert [pair["address"] for pair in found["steps"]] == ["each[1]", "each[2]", "each[3]"]
    assert found["steps"][0]["differ"] == [{"path": "output", "left": 2, "right": -1}]
    assert found["more_steps"] == 9


def test_ids_of_waits_and_times_inside_of_texts_are_no_differences(tmp_path: Path) -> None:
    """Most contents contain none, and are compared as they are stored."""
    flow = world.make(
        tmp_path,
        """
steps:
  - {id: ask, approval: {title: "Go on?"}}
  - {id: told, output: "by ${{ execution.id }} (0123456789abcdef)"}
""",
    )
    with Engine(tmp_path / "store") as engine:
        runs = []
        for _ in range(2):
            (wait,) = engine.run(flow).waits
            engine.approvals.decide(wait["id"], "approve", comment=f"as {wait['id']} says")
            runs.append(wait["execution"])
        found = engine.executions.diff(*runs)

    assert found["same"]
    assert found["steps"] == []
