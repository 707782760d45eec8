# Shows F74
"""Budgets under crashes, in every order, and with changed flows (F74)."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine.engines.interventions.obstacles import obstacles
from flowengine.kernel import ENDED
from flowengine.kernel.commands import OpenWait
from flowengine.kernel.view import begun, budget_of, worked
from tests.language.stage import Call, Stage
from tests.simulation.explorer import deciding, explore
from tests.simulation.invariants import check_over
from tests.simulation.simulator import Fails, OneOf, Simulator, unpacked

ACT = 'python: "tools:act", effect: idempotent'
EACH = f"""
budget: {{tool_calls: 3}}
steps:
  - id: each
    map: {{over: 6, concurrency: 4, on_item_error: continue, max_failures: 6}}
    {ACT.replace(", ", chr(10) + "    ")}
    with: {{value: "${{{{ index }}}}"}}
outputs: {{got: "${{{{ steps.each.output }}}}"}}
"""
ASK = EACH.replace("3}", "3, then: ask}")
NIGHT = 12 * 3_600_000
"""In milliseconds."""


def used(simulator: Simulator, frame: int = 0) -> int:
    """Return the number of calls counted by a budget."""
    budget = budget_of(simulator.state, frame)
    assert budget is not None
    return begun(budget)


def time_used(simulator: Simulator) -> int:
    return worked(simulator.state, simulator.state["budget"], simulator.now)


def questions(simulator: Simulator) -> list[int]:
    """Return the numbers of all questions asked about budgets."""
    opened = [c.record for c in simulator.commands if isinstance(c, OpenWait)]
    return list(dict.fromkeys(record["id"] for record in opened if record["step"] == "budget"))


def moved_on(simulator: Simulator, address: str, milliseconds: int) -> None:
    """End a task that has run for that long. Timers due before that fire."""
    run = next(run for run in simulator.running.values() if run.address == address)
    end = simulator.now + milliseconds
    while True:
        timers = simulator.state["timers"]
        due = min((timer["due"] for timer in timers.values()), default=end + 1)
        if due > end:
            break
        simulator.pass_time()
    if (run.unit, run.attempt) in simulator.running:
        del simulator.running[run.unit, run.attempt]
        event: Any = {"type": "succeeded", "at": end, "unit": run.unit, "attempt": run.attempt,
                      "value": None}  # fmt: skip
        simulator.apply(event)


def test_every_order_of_calls_and_answers_keeps_the_limit(stage: Stage) -> None:
    text = f"""
budget: {{tool_calls: 2, then: ask}}
steps:
  - {{id: s, next: {{all: [a, b, c]}}}}
  - {{id: a, {ACT}, next: end}}
  - {{id: b, {ACT}, next: end, deadline: 1m, on_error: continue}}
  - {{id: c, {ACT}, next: end, on_error: continue}}
"""
    answers = deciding("budget", {"choice": "approve", "form": {"tool_calls": 3}}, "reject")
    found = explore(
        stage.simulator(text).graph, {"a": OneOf([1, Fails("Odd")])}, outside=[answers], limit=3000
    )

    assert found.complete, found
    assert {len(played.started) for played in found.runs} == {2, 3}
    assert all(played.status in ENDED for played in found.runs)


def test_a_detached_flow_is_one_call_and_bounds_itself(stage: Stage) -> None:
    found = stage.run(f"""
budget: {{tool_calls: 2}}
flows:
  apart: {{budget: {{tool_calls: 3}}, steps: [{{id: x, map: {{over: 4, concurrency: 1}}, {ACT}}}]}}
steps:
  - {{id: begin, flow: apart, background: true}}
  - {{id: a, {ACT}}}
  - {{id: b, {ACT}, on_error: continue}}
""")
    assert found.status == "succeeded"
    [apart] = [e for e in stage.engine.executions.list().items if e["execution"] != found.execution]

    calls = [
        stage.engine.executions.show(one)["budgets"]
        for one in (found.execution, apart["execution"])
    ]
    assert [(one["flow"], one["tool_calls"]["used"]) for [one] in calls] == [
        ("flow", 2),
        ("apart", 3),
    ]
    assert apart["status"] == "failed"


def test_calls_at_once_use_their_time_once(stage: Stage) -> None:
    text = f"budget: {{wall_time: 1h}}\nsteps: [{{id: a, map: {{over: 3}}, {ACT}}}]"
    played = stage.simulator(text).start({})
    for number in range(3):
        moved_on(played, f"a[{number}]", 60_000)

    assert time_used(played) == 180_000
    assert played.status == "succeeded"


def test_time_in_which_no_process_was_there_is_nobodys(stage: Stage) -> None:
    text = f"budget: {{wall_time: 1h}}\nsteps: [{{id: a, map: {{over: 4}}, {ACT}}}]"
    played = stage.simulator(text).start({})
    moved_on(played, "a[0]", 600_000)

    played.state = unpacked(played.state)
    cut = list(played.running.values())
    played.running.clear()
    for run in cut:
        event: Any = {"type": "cut", "at": played.state["now"], "unit": run.unit,
                      "attempt": run.attempt}  # fmt: skip
        if run is cut[0]:
            event["at"] += NIGHT
        played.apply(event)
    assert time_used(played) == 600_000
    late = next(iter(played.state["timers"]))
    due: Any = {"type": "timer", "at": played.now, "timer": late}
    played.apply(due)  # it came due overnight
    assert len(played.running) == 3

    moved_on(played, "a[2]", 49 * 60_000)
    assert len(played.running) == 2
    moved_on(played, "a[3]", 2 * 60_000)
    assert played.error is not None
    assert time_used(played) == 3_600_000
    assert unpacked(played.replayed()) == unpacked(played.state)


def test_why_tells_until_when_calls_may_run(stage: Stage) -> None:
    stage.world.held = {"a"}
    text = f"budget: {{wall_time: 2h}}\nsteps: [{{id: a, {ACT}}}]"
    seen: list[Any] = []

    async def look() -> None:
        seen.extend(stage.engine.executions.why("it"))

    stage.run_meanwhile(text, lambda: stage.world.started == ["a"], look)
    assert any("may run until" in reason["what"] and "due" in reason for reason in seen)


def test_an_attempt_that_began_counts_whatever_became_of_it(stage: Stage) -> None:
    text = f"""
budget: {{tool_calls: 3}}
steps: [{{id: a, {ACT}, on_error: continue}}, {{id: b, {ACT}, on_error: continue}}]
"""
    played = stage.simulator(text).start({})
    played.crash()
    played.crash()
    assert used(played) == 3
    played.finish("a")
    assert played.run().started == ["a"] * 3, "nothing is left for b"


def test_a_call_whose_environment_was_not_there_has_not_begun(stage: Stage) -> None:
    played = stage.simulator(
        f"budget: {{tool_calls: 1}}\nsteps: [{{id: a, {ACT}}}, {{id: b, {ACT}}}]"
    ).start({})
    [run] = played.running.values()
    error = {"type": "EnvironmentUnavailable", "message": "gone"}
    gone: Any = {"type": "lost", "at": played.now, "unit": run.unit, "attempt": run.attempt,
                 "ran": "no", "error": error}  # fmt: skip
    played.apply(gone)
    assert used(played) == 0

    played.decide("a", "retry")
    played.finish("a")
    assert played.error is not None
    assert played.error["step"] == "b"
    assert used(played) == 1


def test_what_was_cut_off_and_may_not_run_again_is_settled_before_it_is_undone(
    stage: Stage,
) -> None:
    text = f"""
budget: {{tool_calls: 1}}
tools: {{undo: {{python: "tools:act", effect: idempotent}}}}
steps: [{{id: a, {ACT}, compensate: {{call: undo}}}}]
on_error: compensate
"""
    played = stage.simulator(text).start({})
    played.crash()
    played.run()

    assert played.error is not None
    assert played.error["type"] == "BudgetExceeded"
    assert played.started == ["a", "a", "a/compensate"], "found out, then undone"


def test_under_another_form_its_numbers_hold_and_what_was_used_stays(stage: Stage) -> None:
    played = stage.simulate(ASK)
    played.decide("budget", "approve", form={"tool_calls": 4})
    played.run()
    assert used(played) == 4

    played.upgrade(stage.simulator(ASK.replace("6, concurrency", "7, concurrency")).graph)
    assert played.state["budget"]["limits"] == {"tool_calls": 4}, "what was raised stays raised"
    assert len(questions(played)) == 2

    played.upgrade(stage.simulator(ASK.replace("3, then", "5, then")).graph)
    played.run()
    assert used(played) == 5
    assert len(questions(played)) == 3

    played.upgrade(stage.simulator(EACH).graph)
    assert played.run().status == "succeeded", "what waited fails under 'then: stop'"
    assert len(played.started) == 5
    assert unpacked(played.replayed()) == unpacked(played.state)


def test_a_budget_that_comes_or_goes_with_another_form(stage: Stage) -> None:
    text = f"""
BUDGET
flows: {{child: {{CHILD steps: [{{id: x, map: {{over: 4, concurrency: 1}}, {ACT}}}]}}}}
steps: [{{id: s, flow: child}}]
"""

    def form(budget: str, child: str = "") -> Any:
        return stage.simulator(text.replace("BUDGET", budget).replace("CHILD", child)).graph

    without = form("")
    played = Simulator(without).start({})
    bound = form("budget: {tool_calls: 2, wall_time: 1h}", "budget: {tool_calls: 3, then: ask},")
    assert not obstacles(without, bound, played.state, {})
    played.upgrade(bound)
    frame = next(iter(played.state["frames"]))
    assert used(played) == used(played, frame) == 1, "what runs counts"

    played.upgrade(form("", "budget: {tool_calls: 2, then: ask},"))
    assert "budget" not in played.state
    assert not played.state["timers"]
    played.run()
    assert [wait["address"] for wait in played.waits()] == ["s/budget"]

    played.upgrade(without)
    assert played.run().status == "succeeded"
    assert unpacked(played.replayed()) == unpacked(played.state)


@pytest.mark.endurance
@pytest.mark.parametrize("block", range(10))
def test_random_crashes_never_lead_beyond_the_limit(stage: Stage, block: int) -> None:
    """100 crash schedules: recorded calls equal actual calls (F74)."""
    text = f"""
budget: {{tool_calls: 12, wall_time: 1h}}
flows:
  child:
    budget: {{tool_calls: 4}}
    steps: [{{id: x, {ACT}, retry: {{attempts: 3, delay: 1s}}}}, {{id: y, {ACT}}}]
steps:
  - {{id: each, map: {{over: 3, concurrency: 2, on_item_error: continue, max_failures: 3}}, flow: child}}
  - {{id: last, {ACT}, on_error: continue}}
"""  # noqa: E501
    compiled = stage.compile(text)
    statuses = set()
    for seed in range(block * 100, block * 100 + 100):
        played = stage.simulator(compiled, {"x": _odd}, seed=seed).start({})
        while played.possible():
            if played.random.random() < 0.15:
                played.crash()
            else:
                played.step()
        assert used(played) == len(played.started) <= 12
        statuses.add((len(played.started) == 12, played.status))
    assert statuses >= {(True, "succeeded"), (False, "succeeded")}


def _odd(call: Call) -> None:
    if call.attempt % 2:
        raise Fails("Odd", retryable=True)


def test_a_crash_under_a_full_budget_undoes_what_it_finds_out(stage: Stage) -> None:
    """An interrupted call exceeds the budget. The other is settled before it is recorded as cut."""
    text = f"""
budget: {{tool_calls: 2}}
steps:
  - id: both
    parallel:
      - {{id: a, {ACT}}}
      - {{id: b, {ACT}, compensate: {{python: "tools:act"}}}}
    on_error: compensate
"""
    played = stage.simulator(text, order="first").start({})
    played.crash()
    assert [run.attempt for run in played.running.values()] == [2], "b is settled"
    played.crash()
    assert [run.attempt for run in played.running.values()] == [3], "and again"
    played.run()

    assert played.error is not None
    assert played.error["type"] == "BudgetExceeded"
    assert played.started[-1] == "both/b/compensate"
    check_over(played)
