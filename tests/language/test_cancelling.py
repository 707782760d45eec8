"""Cancellation, as far as `cancelling.cases.yaml` does not show it (F21)."""

from __future__ import annotations

from tests.language.stage import Stage


def test_late_result_of_a_withdrawn_step_is_dropped(stage: Stage) -> None:
    text = """
signals: {go: {}}
steps:
  - {id: s, next: {all: [target, stop]}}
  - {id: target, python: "tools:act", next: end}
  - {id: stop, wait: {signal: go}, next: kill}
  - {id: kill, cancel: [target]}
"""
    simulator = stage.simulator(text).start()
    [run] = simulator.running.values()
    simulator.send("go")
    assert simulator.status == "succeeded"
    before = simulator.state["outputs"]
    simulator.apply(
        {"type": "succeeded", "at": simulator.now, "unit": run.unit, "attempt": 1, "value": 9}
    )
    assert simulator.state["outputs"] == before


def test_cancelling_at_once_ends_a_cleanup_that_is_under_way(stage: Stage) -> None:
    text = """
steps: [{id: w, wait: {for: 1h}}]
finally: [{id: tidy, python: "tools:act"}, {id: last, python: "tools:act"}]
"""
    played = stage.simulator(text).start()
    for now, status in ((False, "running"), (True, "cancelled")):
        played.apply(
            {"type": "cancel", "at": played.now, "reason": "no", "by": "user:a", "now": now}
        )
        assert (played.status, played.started) == (status, ["finally/tidy"])
