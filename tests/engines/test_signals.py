"""Due executions, and clocks that jump back."""

from __future__ import annotations

from pathlib import Path

from flowengine.engines.engine import Engine
from tests.engines import world
from tests.engines.world import Clock

ORDER = """
inputs:
  order: {type: string, default: "7"}
signals:
  paid:
    key: ${{ inputs.order }}
    data: {type: object, properties: {n: {type: integer}}, required: [n]}
  stop: {}
steps:
  - id: pay
    wait: {first: [{id: paid, signal: paid}, {id: stopped, signal: stop}]}
    next: {outcome: {paid: done, stopped: end}}
  - {id: done, output: "${{ steps.pay.output.data.n }}"}
outputs: {n: "${{ steps.done.output }}"}
"""


def due(engine: Engine) -> list[str]:
    return [one.execution for one in engine.due()]


def test_what_is_due_is_what_can_move_and_nobody_holds(tmp_path: Path) -> None:
    clock = Clock(10**12)  # leases have their own clock, which must not be mixed up with it
    with Engine(tmp_path / "store", clock=clock, linger=0) as engine:
        flow = world.make(tmp_path, "steps: [{id: nap, wait: 10s}]\n")
        for id in ("early", "late"):
            assert engine.run(flow, id=id).status == "waiting"
            clock.time += 4000
        assert due(engine) == []
        clock.time += 2000
        assert due(engine) == ["early"]
        clock.time += 4000
        assert due(engine) == ["early", "late"]
        with Engine(tmp_path / "store", clock=clock) as other:
            world.hold(other, "early")
            assert due(engine) == ["late"]
        assert [engine.resume(id).status for id in due(engine)] == ["succeeded", "succeeded"]
        assert due(engine) == []


# Shows F33
def test_clock_that_jumps_back_does_not_turn_history_round(tmp_path: Path) -> None:
    clock = Clock(0)
    with Engine(tmp_path / "store", clock=clock) as engine:
        clock.time = 1_000_000
        id = engine.run(world.make(tmp_path, ORDER)).execution
        clock.time = 500_000
        assert engine.signal("paid", {"n": 1}, execution=id).result is not None
        times = [entry["at"] for entry in engine.executions.events(id)]
    assert times == sorted(times)
