# Shows V52
"""Comparison of two executions: what it costs, and attempts that were cut off (F76)."""

from __future__ import annotations

from pathlib import Path

from flowengine import Engine
from tests.engines import world


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
