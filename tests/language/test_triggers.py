"""What executions with triggers keep (F21, F23)."""

from __future__ import annotations

from tests.language.stage import Stage


def test_what_a_long_idle_execution_keeps_does_not_grow(stage: Stage) -> None:
    text = """
signals: {go: {}}
limits: {idle: 1h}
steps: [{id: t, trigger: go, output: "${{ signal.data }}"}]
outputs: {last: "${{ steps.t.output }}"}
"""
    simulator = stage.simulator(text).start()
    for number in range(1500):
        simulator.send("go", number)
    assert simulator.status == "waiting", "a message that comes is waited for: it is no hot cycle"
    assert len(simulator.state["layers"]) <= 1
    assert len(simulator.state["scopes"][1]["ended"]) <= 1
    simulator.run()
    assert simulator.state["outputs"] == {"last": 1499}


# Shows F23
def test_persistent_is_kept_for_a_wait_that_comes_later_and_transient_is_not(stage: Stage) -> None:
    """A transient trigger alone keeps no messages: those that it rejects are gone."""
    text = """
signals: {go: {}}
limits: {idle: 1h}
steps:
  - {id: begin, wait: 1h, next: end}
  - {id: t, trigger: {signal: go, match: "${{ signal.data == 1 }}", KIND}}
"""
    for kind, kept in (("transient: true", 0), ("transient: false", 1)):
        simulator = stage.simulator(text.replace("KIND", kind)).start()
        simulator.send("go", 2)
        assert len(simulator.state["kept"].get("go", ())) == kept
        simulator.send("go", 1)
        assert "t succeeded" in simulator.story()
