"""Budgets: limits on the number of calls and on the time at work (F74, F96)."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine.kernel import ENDED
from flowengine.kernel.commands import CloseWait, OpenWait
from flowengine.kernel.moving.obstacles import obstacles
from flowengine.kernel.view import begun, budget_of, worked
from flowengine.testing.explorer import deciding, explore
from flowengine.testing.invariants import check_over
from flowengine.testing.simulator import Fails, OneOf, Simulator, unpacked
from tests.language.stage import Call, Stage

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


# Calls


def test_items_at_once_never_go_beyond_it_and_the_others_fail(stage: Stage) -> None:
    for played in stage.orders(EACH, most=20):
        assert played.status == "succeeded"
        assert len(played.started) == used(played) == 3
    found = stage.run(EACH)
    assert found.outputs == {"got": [0, 1, 2, None, None, None]}
    assert len(stage.world.started) == 3


def test_its_error_is_routed_like_any_other_and_says_what_was_used_up(stage: Stage) -> None:
    found = stage.play(f"""
budget: {{tool_calls: 1}}
steps:
  - {{id: a, {ACT}}}
  - id: b
    {ACT.replace(", ", chr(10) + "    ")}
    on_error: [{{type: BudgetExceeded, output: "${{{{ error }}}}"}}]
outputs: {{got: "${{{{ steps.b.output }}}}"}}
""")

    error = found.outputs["got"]
    assert error["message"] == "'flow' has used up its 1 tool call (budget.tool_calls)"
    assert error["data"] == {"limit": "tool_calls", "of": 1, "flow": "flow", "refused": None}
    assert error["step"] == "b"


def test_every_attempt_counts_and_what_is_used_up_is_not_tried_again(stage: Stage) -> None:
    text = f"""
budget: {{tool_calls: 3}}
steps: [{{id: a, {ACT}, retry: {{attempts: 9, delay: 1s}}}}]
"""
    found = stage.play(text, {"a": Fails("Flaky", retryable=True)})

    assert found.error_type == "BudgetExceeded"
    assert stage.world.started == ["a"] * 3


def test_of_budgets_around_a_call_the_strictest_counts(stage: Stage) -> None:
    text = f"""
budget: {{tool_calls: OUTER}}
flows:
  child:
    budget: {{tool_calls: INNER}}
    steps: [{{id: inner, map: {{over: 4, concurrency: 1}}, {ACT}}}]
steps:
  - {{id: first, flow: child, on_error: continue}}
  - {{id: second, flow: child, on_error: continue}}
"""
    strict = stage.simulate(text.replace("OUTER", "9").replace("INNER", "2"))
    assert strict.started == [f"{one}/inner[{n}]" for one in ("first", "second") for n in (0, 1)]

    loose = stage.simulate(text.replace("OUTER", "5").replace("INNER", "4"))
    assert loose.started[4:] == ["second/inner[0]"]
    assert used(loose) == 5


def test_budgets_hold_in_imported_flows_and_those_bring_their_own(stage: Stage) -> None:
    """A library is bounded by its caller's budget and by its own (F96)."""
    (stage.folder / "lib.yaml").write_text(f"""
flowengine: 1
id: lib
flows:
  crawl:
    budget: {{tool_calls: 3}}
    inputs: {{pages: {{type: integer}}}}
    outputs: {{seen: "${{{{ size(steps.page.items.filter(i, i.status == 'succeeded')) }}}}"}}
    steps:
      - id: page
        map: {{over: "${{{{ inputs.pages }}}}", on_item_error: continue, max_failures: 9}}
        {ACT.replace(", ", chr(10) + "        ")}
""")
    using = """
imports: {lib: ./lib.yaml}
BUDGET
steps:
  - {id: one, flow: lib.crawl, with: {pages: 5}}
  - {id: two, flow: lib.crawl, with: {pages: 2}}
outputs: {seen: "${{ [steps.one.output.seen, steps.two.output.seen] }}"}
"""
    free = stage.play(using.replace("BUDGET", ""))
    bound = stage.play(using.replace("BUDGET", "budget: {tool_calls: 4}"))

    assert free.outputs == {"seen": [3, 2]}
    assert bound.outputs == {"seen": [3, 1]}


def test_what_undoes_and_cleans_up_is_counted_and_never_refused(stage: Stage) -> None:
    text = f"""
budget: {{tool_calls: 2}}
tools: {{undo: {{python: "tools:act", effect: idempotent}}}}
steps:
  - {{id: a, {ACT}, compensate: {{call: undo, with: {{value: undone}}}}}}
  - {{id: b, {ACT}}}
  - {{id: c, {ACT}}}
on_error: compensate
finally: [{{id: tidy, {ACT}}}]
"""
    played = stage.simulate(text, order="first")

    assert played.error is not None
    assert played.error["type"] == "BudgetExceeded"
    assert played.started == ["a", "b", "a/compensate", "finally/tidy"]
    assert used(played) == 4


def test_no_lock_is_held_while_people_think_about_a_budget(stage: Stage) -> None:
    text = f"""
budget: {{tool_calls: 1, then: ask}}
steps:
  - {{id: s, next: {{all: [a, b]}}}}
  - {{id: a, {ACT}, next: c}}
  - {{id: c, {ACT}, lock: k, next: end}}
  - {{id: b, lock: k, wait: 1m, next: end}}
"""
    played = stage.simulate(text, order="first")

    assert played.status == "waiting"
    assert "locks" not in played.state
    assert "b succeeded" in played.story()


# Questions


def test_all_that_hit_the_limit_wait_for_one_question(stage: Stage) -> None:
    for seed in range(10):
        played = stage.simulate(ASK, seed=seed)
        assert played.status == "waiting"
        assert len(played.state["budget"]["waiting"]) > 1 or seed
        assert len(questions(played)) == 1

        played.decide("budget", "approve", form={"tool_calls": 5})
        played.run()
        assert len(played.started) == 5
        assert len(questions(played)) == 2

        played.decide("budget", "approve", form={"tool_calls": 100})
        assert played.run().status == "succeeded"
        assert used(played) == 6


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


def test_an_answer_without_a_number_gives_as_much_again(stage: Stage) -> None:
    found = stage.run(ASK)
    [wait] = found.waits
    assert wait["title"] == "'flow' has used up its 3 tool calls; continue?"

    decided = stage.decide("budget", "approve")
    assert decided.result is not None
    assert decided.result.outputs == {"got": [0, 1, 2, 3, 4, 5]}
    assert stage.engine.show(found.execution)["budgets"][0]["tool_calls"] == {
        "used": 6, "running": 0, "limit": 6,
    }  # fmt: skip


@pytest.mark.parametrize("given", [3, 0, -1, "many", 4.5, None, 2**63, 1e300])
def test_an_answer_that_is_no_higher_limit_is_refused(stage: Stage, given: Any) -> None:
    stage.run(ASK)
    with pytest.raises(Exception, match="tool_calls"):
        stage.decide("budget", "approve", form={"tool_calls": given})


def test_a_rejection_lets_all_that_wait_fail_and_nobody_is_asked_again(stage: Stage) -> None:
    stage.run(ASK)
    decided = stage.decide("budget", "reject", comment="too dear")

    assert decided.result is not None
    assert decided.result.outputs == {"got": [0, 1, 2, None, None, None]}
    steps = stage.engine.show(decided.execution)["steps"]
    error: Any = next(step["error"] for step in steps if step["address"] == "each[5]")
    assert error["message"].endswith(", and user:ben did not raise it: too dear")
    assert len(stage.engine.waits(status="all").items) == 1


def test_only_who_is_named_may_raise_it(stage: Stage) -> None:
    stage.run(ASK.replace("then: ask", 'then: ask, assignees: "user:ana"'))

    with pytest.raises(Exception, match="user:ana"):
        stage.decide("budget", "approve")
    stage.decide("budget", "approve", by="user:ana")


def test_a_question_nobody_waits_for_any_more_is_withdrawn(stage: Stage) -> None:
    text = f"""
budget: {{tool_calls: 1, then: ask}}
steps:
  - {{id: a, {ACT}}}
  - {{id: b, {ACT}, deadline: 1m, on_error: continue}}
"""
    played = stage.simulate(text)

    assert played.status == "succeeded"
    [question] = questions(played)
    closed = [c for c in played.commands if isinstance(c, CloseWait) and c.wait == question]
    assert [one.how for one in closed] == ["withdrawn"]


def test_a_subflow_is_asked_about_beside_its_steps(stage: Stage) -> None:
    text = f"""
flows:
  child:
    budget: {{tool_calls: 1, then: ask}}
    steps: [{{id: x, {ACT}}}, {{id: y, {ACT}}}]
steps: [{{id: each, map: {{over: 2}}, flow: child}}]
"""
    stage.run(text)
    asked = [wait["address"] for wait in stage.engine.waits().items]
    assert sorted(asked) == ["each[0]/budget", "each[1]/budget"]

    stage.decide("each[1]/budget", "approve")
    assert "each[1]/y" in stage.world.started
    assert "each[0]/y" not in stage.world.started


def test_why_and_show_tell_of_it(stage: Stage) -> None:
    found = stage.run(ASK)
    reasons = stage.engine.why(found.execution)

    told = {reason["address"]: reason["what"] for reason in reasons}
    assert told["each[3]"] == "its call is waiting, because the budget of 'flow' is used up"
    assert told["budget"].startswith("waiting for a decision by anyone: 'flow' has used up")
    shown = stage.engine.show(found.execution)["budgets"]
    assert shown == [
        {"address": "", "flow": "flow", "then": "ask",
         "tool_calls": {"used": 3, "running": 0, "limit": 3}}
    ]  # fmt: skip


def test_a_detached_flow_is_one_call_and_bounds_itself(stage: Stage) -> None:
    found = stage.run(f"""
budget: {{tool_calls: 2}}
flows:
  apart: {{budget: {{tool_calls: 3}}, steps: [{{id: x, map: {{over: 4, concurrency: 1}}, {ACT}}}]}}
steps:
  - {{id: begin, flow: apart, detach: true}}
  - {{id: a, {ACT}}}
  - {{id: b, {ACT}, on_error: continue}}
""")
    assert found.status == "succeeded"
    [apart] = [e for e in stage.engine.executions().items if e["execution"] != found.execution]

    calls = [stage.engine.show(one)["budgets"] for one in (found.execution, apart["execution"])]
    assert [(one["flow"], one["tool_calls"]["used"]) for [one] in calls] == [
        ("flow", 2),
        ("apart", 3),
    ]
    assert apart["status"] == "failed"


# Time


TIMED = f"""
budget: {{wall_time: 1h, then: THEN}}
steps:
  - {{id: a, {ACT}}}
  - {{id: night, wait: 12h}}
  - {{id: b, {ACT}, on_error: [{{type: BudgetExceeded, output: late}}]}}
  - {{id: c, {ACT}, on_error: continue}}
outputs: {{got: "${{{{ steps.b.output }}}}"}}
"""


def timed(stage: Stage, then: str) -> Simulator:
    """Return an execution that was at work for 50 of 60 minutes and has started a call."""
    played = stage.simulator(TIMED.replace("THEN", then), order="first").start({})
    moved_on(played, "a", 50 * 60_000)
    assert time_used(played) == 50 * 60_000
    played.pass_time()
    assert [run.address for run in played.running.values()] == ["b"]
    assert time_used(played) == 50 * 60_000, "waiting is not counted"
    return played


def test_time_counts_while_calls_run_and_what_runs_is_stopped_when_it_is_over(stage: Stage) -> None:
    played = timed(stage, "stop")
    moved_on(played, "b", NIGHT)

    assert played.status == "succeeded"
    assert played.outputs == {"got": "late"}
    assert played.started == ["a", "b"], "nothing begins any more"
    assert time_used(played) == 3_600_000
    check_over(played)


def test_what_runs_goes_on_while_people_are_asked_for_time(stage: Stage) -> None:
    played = timed(stage, "ask")
    played.pass_time()
    assert [wait["address"] for wait in played.waits()] == ["budget"]
    assert played.running

    moved_on(played, "b", 60_000)
    assert not played.running, "the next call waits for the answer"
    assert time_used(played) == 61 * 60_000
    played.decide("budget", "approve", form={"wall_time": "2h"})
    assert played.run().status == "succeeded"
    assert played.started == ["a", "b", "c"]


def test_what_runs_is_stopped_when_more_time_is_refused(stage: Stage) -> None:
    played = timed(stage, "ask")
    played.pass_time()
    played.decide("budget", "reject")

    assert played.outputs == {"got": "late"}
    check_over(played)


def test_an_answer_about_time_that_is_no_time_asks_again(stage: Stage) -> None:
    played = timed(stage, "ask")
    moved_on(played, "b", NIGHT)
    for given in ("1m", "99999999999999999w", "5s\n", None, 7):
        played.decide("budget", "approve", form={"wall_time": given})
        assert [wait["address"] for wait in played.waits()] == ["budget"]
    assert len(questions(played)) == 6


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


def test_a_call_that_runs_too_long_is_withdrawn_by_the_engine(stage: Stage) -> None:
    stage.world.held = {"a"}
    began = stage.clock.seconds
    found = stage.run(f"budget: {{wall_time: 2h}}\nsteps: [{{id: a, {ACT}}}]")

    assert found.error is not None
    assert found.error["type"] == "BudgetExceeded"
    assert found.error["message"] == "'flow' has used up its 2h of wall time (budget.wall_time)"
    assert stage.world.withdrawn == ["a"]
    assert stage.clock.seconds - began == pytest.approx(7200, abs=1)
    assert stage.engine.show(found.execution)["budgets"][0]["wall_time"] == {
        "used": "2h", "limit": "2h",
    }  # fmt: skip


def test_why_tells_until_when_calls_may_run(stage: Stage) -> None:
    stage.world.held = {"a"}
    text = f"budget: {{wall_time: 2h}}\nsteps: [{{id: a, {ACT}}}]"
    seen: list[Any] = []

    async def look() -> None:
        seen.extend(stage.engine.why("it"))

    stage.run_meanwhile(text, lambda: stage.world.started == ["a"], look)
    assert any("may run until" in reason["what"] and "due" in reason for reason in seen)


# Crashes, forks, changed flows


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


def test_a_fork_takes_along_what_was_used(stage: Stage) -> None:
    text = f"""
budget: {{tool_calls: 3}}
steps: [{{id: a, {ACT}}}, {{id: b, {ACT}}}, {{id: c, {ACT}}}, {{id: d, {ACT}}}]
"""
    first = stage.run(text)
    assert first.error is not None
    assert first.error["step"] == "d"

    forked = stage.do(stage.engine.fork_async(first.execution, from_step="c"))
    assert forked.error is not None
    assert forked.error["step"] == "d", "of the three, a and b are used; c never began in the fork"
    [budget] = stage.engine.show(forked.execution)["budgets"]
    assert budget["tool_calls"]["used"] == 3

    more = stage.flow(text.replace("3}", "9}"))
    assert (
        stage.do(stage.engine.fork_async(first.execution, from_step="c", flow=more)).status
        == "succeeded"
    )


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
