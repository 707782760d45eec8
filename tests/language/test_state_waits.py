"""`wait.when`: waiting for a condition on state (pattern 18)."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine.kernel import ENDED
from tests.language.stage import Stage

MILESTONE = """
state: {{open: {{type: boolean, default: false}}}}
steps:
  - {{id: begin, next: {{all: [watch, opening]}}}}
  - id: watch
    wait: {wait}
    next: after
  - {{id: after, python: "tools:act", next: end}}
  - {{id: opening, python: "tools:act", next: opened}}
  - {{id: opened, set: {{open: true}}, next: end}}
outputs: {{way: "${{{{ steps.watch.output.id }}}}", how: "${{{{ steps.watch.outcome }}}}"}}
"""


def test_a_step_waits_until_a_condition_on_state_holds(stage: Stage) -> None:
    text = MILESTONE.format(wait='{when: "${{ state.open }}"}')
    assert stage.play(text).outputs == {"way": "ok", "how": "ok"}
    assert stage.world.ended == ["opening", "after"]
    simulator = stage.simulator(text).start()
    assert [wait["kind"] for wait in simulator.waits()] == ["state"]


@pytest.mark.parametrize(("limit", "way"), [("1s", "late"), ("1d", "open")])
def test_a_condition_is_one_of_several_alternatives(stage: Stage, limit: str, way: str) -> None:
    """The first alternative wins, and the others are withdrawn with their timers."""
    wait = (
        f"""{{first: [{{id: open, when: "${{{{ state.open }}}}"}}, {{id: late, for: {limit}}}]}}"""
    )
    text = MILESTONE.format(wait=wait).replace('opening, python: "tools:act"', "opening, wait: 1h")
    outcome = stage.simulate(text).state
    assert outcome["outputs"] == {"way": way, "how": way}
    assert not outcome["timers"]


def test_a_condition_that_holds_already_ends_the_wait_at_once(stage: Stage) -> None:
    text = """
state: {n: {type: integer, default: 3}}
steps:
  - {id: w, wait: {when: "${{ state.n > 2 }}"}}
outputs: {at: "${{ steps.w.output.at }}"}
"""
    simulator = stage.simulate(text)
    assert simulator.status == "succeeded"
    assert len(simulator.journal) == 1


def test_all_of_several_conditions_may_hold_at_different_times(stage: Stage) -> None:
    text = """
state: {n: {type: integer, default: 0, reducer: add}}
steps:
  - {id: begin, next: {all: [w, count]}}
  - id: w
    wait: {all: [{id: two, when: "${{ state.n == 2 }}"}, {id: one, when: "${{ state.n == 1 }}"}]}
    next: end
  - {id: count, python: "tools:act", set: {n: 1}, next: again}
  - {id: again, python: "tools:act", set: {n: 1}, next: end}
"""
    simulator = stage.simulate(text)
    assert simulator.status == "succeeded"


def test_items_wait_for_what_another_branch_counts(stage: Stage) -> None:
    """Each item continues when the count reaches its number, and on no other occasion."""
    text = """
state:
  done: {type: integer, default: 0, reducer: add}
  order: {type: array, default: [], reducer: append}
steps:
  - {id: begin, next: {all: [each, tick]}}
  - id: each
    map: {over: 3, as: n, concurrency: 1}
    group:
      - {id: turn, wait: {when: "${{ state.done > n }}"}}
      - {id: note, set: {order: "${{ n }}"}}
    next: end
  - {id: tick, python: "tools:act", set: {done: 1}, next: {first: [
      {when: "${{ state.done < 3 }}", to: tick}, {else: end}]}}
outputs: {order: "${{ state.order }}"}
"""
    for played in stage.orders(text):
        assert played.state["outputs"] == {"order": [0, 1, 2]}


def test_a_wait_on_state_survives_a_crash_and_can_be_cancelled(stage: Stage) -> None:
    text = MILESTONE.format(wait='{when: "${{ state.open }}"}')
    simulator = stage.simulator(text).start()
    simulator.crash()  # 'opening' must not be repeated, so a question is asked
    event: Any = {"type": "state", "at": simulator.now, "values": {"open": True}, "by": "user:ana"}
    simulator.apply(event)
    assert simulator.started == ["opening", "after"]
    other = stage.simulator(text).start()
    other.apply({"type": "cancel", "at": 0, "reason": "r", "by": "user:ana", "now": False})
    assert other.run().status == "cancelled"
    assert other.status in ENDED


def test_an_error_in_the_condition_is_the_error_of_the_step(stage: Stage) -> None:
    text = """
state: {n: {type: integer, default: 5}}
steps:
  - {id: begin, next: {all: [w, zero]}}
  - id: w
    wait: {when: "${{ 10 / state.n == 10 }}"}
    on_error: [{type: ExpressionError, output: broken}]
    next: end
  - {id: zero, python: "tools:act", set: {n: 0}, next: end}
outputs: {w: "${{ steps.w.output }}"}
"""
    assert stage.play(text).outputs == {"w": "broken"}
