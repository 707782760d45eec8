# Shows V52
"""Comparison of two executions: what it costs, and attempts that were cut off (F76)."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowengine import Engine
from tests.engines import world


def test_attempts_that_were_cut_off_are_no_difference(tmp_path: Path) -> None:
    """A crash in between changes attempts and their numbers, but no results."""
    flow = world.make(
        tmp_path,
        """
steps:
  - {id: a, run: {command: [echo, "1"]}, effect: pure, in: host}
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


LONG = """
state: {seen: {type: array, default: [], reducer: append}}
steps:
  - {id: first, output: "${{ execution.id }} at ${{ execution.started_at }}"}
  - id: each
    map: {over: 40, concurrency: 1}
    group:
      - {id: read, python: "reads:read", effect: pure, with: {n: "${{ item }}"}, set: {seen: "${{ output }}"}}
      - {id: twice, output: "${{ steps.read.output + steps.read.output }}"}
  - {id: ask, approval: "Keep ${{ size(state.seen) }}?"}
  - {id: say, output: "${{ steps.first.output }} ${{ json(steps.each.output) }}"}
outputs: {said: "${{ steps.say.output }}"}
"""  # noqa: E501
READS = """
from pathlib import Path

import pytest

def read(n: int) -> str:
    changed = Path(__file__).with_name("changed")
    return "new" if changed.exists() and int(changed.read_text()) == n else f"old {n}"
"""


@pytest.mark.parametrize("changed", [0, 27, 99])
def test_the_first_result_that_differs_is_found(changed: int, tmp_path: Path) -> None:
    (tmp_path / "reads.py").write_text(READS)
    flow = world.make(tmp_path, LONG)
    with Engine(tmp_path / "store") as engine:
        runs = []
        for _ in range(2):
            (wait,) = engine.run(flow).waits
            engine.approvals.approve(wait["id"])
            runs.append(wait["execution"])
            (tmp_path / "changed").write_text(str(changed))
        found = engine.executions.diff(*runs)
    assert found["same"] == (changed == 99)
    if changed != 99:
        assert found["parting"]["address"] == f"each[{changed}]/read"  # type: ignore[index]
