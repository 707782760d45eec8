"""Timers of executions that nobody drives, and clocks that go back (F21)."""

from __future__ import annotations

from tests.language.stage import Stage


def test_time_that_passed_while_nobody_drove_counts_in_order(stage: Stage) -> None:
    """A message of day 2 wins over a timer of day 3, although both are processed on day 4."""
    text = """
signals: {note: {}}
steps:
  - id: w
    wait: {first: [{id: late, for: 3d}, {id: noted, signal: note}]}
outputs: {w: "${{ steps.w.output.id }}"}
"""
    day = 86_400
    execution = stage.run(text).execution
    stage.clock.seconds += 2 * day
    stage.engine.signal("note", 1, execution=execution, resume=False)
    assert stage.later(execution, 2 * day).outputs == {"w": "noted"}

    execution = stage.run(text).execution
    stage.clock.seconds += 3.5 * day
    stage.engine.signal("note", 1, execution=execution, resume=False)
    assert stage.later(execution, day).outputs == {"w": "late"}


def test_clock_that_goes_back_neither_fires_early_nor_loses_a_timer(stage: Stage) -> None:
    text = "steps:\n  - {id: w, wait: 1h}\n"
    execution = stage.run(text).execution
    assert stage.later(execution, -7200).status == "waiting"
    assert stage.later(execution, 7200 + 3600).status == "succeeded"
