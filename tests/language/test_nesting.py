"""Nested constructs: each stays within its own scope (F21)."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine.testing.simulator import Fails
from tests.language.stage import Call, Stage, statuses

BROKEN = Fails("Broken", "no", retryable=False)


def test_end_all_in_an_item_ends_that_item_only(stage: Stage) -> None:
    text = """
steps:
  - id: m
    map: 3
    group:
      - {id: s, next: {all: [a, b]}}
      - {id: a, python: "tools:act", with: {value: "${{ item }}"}, next: way}
      - {id: way, next: {first: [{when: "${{ item == 1 }}", to: end_all}, {else: end}]}}
      - {id: b, python: "tools:act", next: end}
    output: ["${{ steps.a.output }}", "${{ steps.b.status }}"]
outputs: {m: "${{ steps.m.output }}"}
"""
    stage.world.order = ["m[1]/a", "m[0]/b", "m[2]/b", "m[0]/a", "m[2]/a"]
    stage.world.held = {"m[1]/b"}
    result = stage.run(text)
    assert result.outputs == {"m": [[0, "succeeded"], [1, "none"], [2, "succeeded"]]}
    assert stage.world.withdrawn == ["m[1]/b"]


def test_item_that_withdraws_its_whole_map(stage: Stage) -> None:
    text = """
steps:
  - id: m
    map: 4
    group:
      - {id: a, python: "tools:act", with: {value: "${{ item }}"}}
      - {id: way, next: {first: [{when: "${{ item == 2 }}", to: stop}, {else: end}]}}
      - {id: stop, cancel: {targets: [m], as: succeeded}}
    output: ${{ steps.a.output }}
    next: after
  - {id: after, output: "${{ steps.m.items.map(i, i.status) }}"}
outputs: {m: "${{ steps.m.output }}", items: "${{ steps.after.output }}"}
"""
    stage.world.order = ["m[1]/a", "m[2]/a"]
    stage.world.held = {"m[0]/a", "m[3]/a"}
    result = stage.run(text)
    assert result.outputs == {
        "m": [None, 1, None, None],
        "items": ["cancelled", "succeeded", "cancelled", "cancelled"],
    }
    assert sorted(stage.world.withdrawn) == ["m[0]/a", "m[3]/a"]


def test_branch_that_finds_no_way_fails_its_item_only(stage: Stage) -> None:
    text = """
steps:
  - id: m
    map: {over: 3, on_item_error: continue}
    group:
      - {id: a, next: {first: [{when: "${{ item != 1 }}", to: b}]}}
      - {id: b, output: "${{ item }}"}
    next: after
  - {id: after, output: "${{ steps.m.items.map(i, i.error == null ? '-' : i.error.type) }}"}
outputs: {m: "${{ steps.m.output }}", after: "${{ steps.after.output }}"}
"""
    outcome = stage.play(text)
    assert outcome.outputs == {"m": [0, None, 2], "after": ["-", "NoBranch", "-"]}


def test_retry_of_a_group_begins_everything_in_it_again(stage: Stage) -> None:
    text = """
steps:
  - id: g
    retry: {attempts: 3, delay: 1m, jitter: none, only: [Rejected]}
    group:
      - {id: m, map: 2, approval: "Item ${{ item }}"}
      - {id: ask, approval: Good?}
    output: ${{ steps.ask.output.comment }}
outputs: {g: "${{ steps.g.output }}", attempts: "${{ steps.g.attempts }}"}
"""
    simulator = stage.simulator(text).start()
    for _ in range(2):
        simulator.decide("g/m[1]", "approve")
        simulator.decide("g/m[0]", "approve")
        simulator.decide("g/ask", "reject")
        assert simulator.waits() == []
        [timer] = simulator.state["timers"]
        simulator.apply({"type": "timer", "at": simulator.now + 60_000, "timer": timer})
    for address in ("g/m[0]", "g/m[1]", "g/ask"):
        simulator.decide(address, "approve", comment="yes")
    assert simulator.state["outputs"] == {"g": "yes", "attempts": 3}


def test_deadline_of_a_step_in_an_item_moves_the_item_on_from_its_wait(stage: Stage) -> None:
    text = """
steps:
  - id: m
    map: {over: 3, concurrency: 1}
    group:
      - id: ask
        approval: Sure?
        deadline: 1h
        on_error: [{type: Deadline, next: late}]
        next: end
      - {id: late, python: "tools:act", with: {value: late}}
    output: ${{ default(steps.late.output, 'asked') }}
outputs: {m: "${{ steps.m.output }}"}
"""
    result = stage.run(text)
    assert len(result.waits) == 3
    stage.decide("m[1]/ask", "approve")
    assert stage.later(result.execution, 3600).outputs == {"m": ["late", "asked", "late"]}


def test_item_whose_wait_is_over_takes_its_place_back(stage: Stage) -> None:
    """A handler that starts a step beside a parked approval makes the item active again."""
    text = """
steps:
  - id: m
    map: {over: 3, concurrency: 1}
    group:
      - {id: s, next: {all: [ask, pause]}}
      - {id: ask, approval: Sure?, next: end}
      - {id: pause, wait: {for: "${{ item == 0 ? '1s' : '9h' }}"}, next: work}
      - {id: work, python: "tools:act", next: end}
  - {id: after}
"""
    simulator = stage.simulator(text).start()
    assert len(simulator.waits()) == 6
    timer = min(simulator.state["timers"], key=lambda n: simulator.state["timers"][n]["due"])
    simulator.apply({"type": "timer", "at": simulator.now + 1000, "timer": timer})
    [map_] = [act for act in simulator.state["acts"].values() if "over" in act]
    assert map_["busy"] == 1
    simulator.finish("m[0]/work")
    assert map_["busy"] == 0


@pytest.mark.endurance
@pytest.mark.parametrize("places", [1, 2, 7])
def test_places_are_kept_in_nested_maps_whatever_waits(stage: Stage, places: int) -> None:
    """At most `places` items are at work at any time, and `busy` counts them at both levels."""
    text = f"""
steps:
  - id: outer
    map: {{over: 4, as: x, concurrency: {places}}}
    group:
      - id: inner
        map: {{over: 3, as: y, concurrency: 2}}
        group:
          - {{id: a, python: "tools:act"}}
          - {{id: w, wait: "${{{{ string(y + 1) + 's' }}}}"}}
          - {{id: b, python: "tools:act"}}
"""
    for seed in range(15):
        simulator = stage.simulator(text, seed=seed).start()
        while simulator.step():
            begun = [run.address for run in simulator.running.values() if "/a" in run.address]
            assert len({address.split("]")[0] for address in begun}) <= max(places, 1)
            for act in simulator.state["acts"].values():
                if "over" in act:
                    working = [n for n in act["units"] if _works(simulator.state, n)]
                    assert act["busy"] == len(working), (seed, simulator.now)
        assert simulator.status == "succeeded"


def _works(state: Any, unit: int) -> bool:
    """Return whether part of a unit is at work, without using the kernel's counters."""
    entry = state["units"][unit]
    if entry["phase"] != "scope":
        return entry["phase"] not in ("wait", "ask")
    scope = state["scopes"][entry["scope"]]
    return any(
        _works(state, inner) for act in scope["live"] for inner in state["acts"][act]["units"]
    )


@pytest.mark.parametrize(
    "broken",
    [
        'join: {need: "${{ 1 / inputs.zero }}"}',
        'when: "${{ 1 / inputs.zero == 1 }}"',
        'map: {over: 2, concurrency: "${{ 1 / inputs.zero }}"}',
        'map: {over: 2, max_failures: "${{ 1 / inputs.zero }}", on_item_error: wait}',
        'map: {over: 2, join: {need: "${{ 1 / inputs.zero }}"}}',
        'map: "${{ 1 / inputs.zero }}"',
        'loop: {until: "${{ 1 / inputs.zero == 1 }}", max: 2}',
        'output: "${{ 1 / inputs.zero }}"',
        'set: {n: "${{ 1 / inputs.zero }}"}',
        'approval: "${{ string(1 / inputs.zero) }}"',
        'wait: "${{ string(1 / inputs.zero) }}"',
        'fail: {type: No, message: "${{ string(1 / inputs.zero) }}"}',
        'group: [{id: x, output: "${{ 1 / inputs.zero }}"}]',
        'parallel: [{id: x, output: 1}, {id: y, when: "${{ 1 / inputs.zero == 1 }}"}]',
        'deadline: "${{ string(1 / inputs.zero) }}"',
        'call: undo\n    with: {value: "${{ 1 / inputs.zero }}"}',
    ],
)
def test_expression_without_a_value_fails_its_step_wherever_it_stands(
    stage: Stage, broken: str
) -> None:
    """The step's scope fails with ExpressionError, a handler catches it, and nothing stays open."""
    text = f"""
inputs: {{zero: {{type: integer, default: 0}}}}
state: {{n: {{type: integer, default: 0}}}}
tools: {{undo: {{python: "tools:act", effect: idempotent}}}}
steps:
  - id: g
    group:
      - {{id: s, next: {{all: [a, c]}}}}
      - {{id: a, python: "tools:act", effect: idempotent, compensate: {{call: undo}}, next: b}}
      - id: b
        {broken.replace(chr(10), chr(10) + "    ")}
        next: end
      - {{id: c, approval: Sure?, next: end}}
    on_error:
      - {{type: [ExpressionError, MapFailed], compensate: true, next: after}}
    next: end
  - {{id: after, output: "${{{{ steps.g.error }}}}"}}
outputs: {{error: "${{{{ steps.after.output }}}}"}}
"""
    if "join" in broken and "map" not in broken:
        text = text.replace("{all: [a, c]}", "{all: [a, b, c]}")
    if "fail:" in broken:
        text = text.replace("        next: end\n      - {id: c", "      - {id: c")
    simulator = stage.simulate(text, {"a": "A"}, order="first")
    assert simulator.status == "succeeded", simulator.state["error"]
    assert simulator.state["outputs"] is not None
    error = simulator.state["outputs"]["error"]
    if error["type"] == "MapFailed":
        error = error["data"]["failed"][0]["error"]
    assert error["type"] == "ExpressionError"
    assert error["step"].startswith("g/b")
    if "join" not in broken or "map" in broken:
        assert simulator.started[-1] == "g/a/compensate"
        assert statuses(simulator)["g/c"] == "cancelled"


def test_handler_in_a_cycle_is_a_retry_written_by_hand(stage: Stage) -> None:
    text = """
state: {tries: {type: integer, default: 0, reducer: add}}
steps:
  - id: a
    python: "tools:act"
    with: {value: "${{ state.tries }}"}
    on_error: [{type: Broken, set: {tries: 1}, next: pause}]
    next: end
  - {id: pause, wait: 1s, next: a}
outputs: {a: "${{ steps.a.output }}", n: "${{ steps.a.activations }}"}
"""

    def give(call: Call) -> Any:
        if call.value < 3:
            raise BROKEN
        return call.address

    assert stage.play(text, {"a": give}).outputs == {"a": "a#4", "n": 4}


def test_loop_of_maps_with_a_failing_round_in_a_saga(stage: Stage) -> None:
    text = """
defaults: {effect: idempotent}
tools: {undo: {python: "tools:act"}}
steps:
  - id: rounds
    loop: {until: "${{ round.number == 3 }}", max: 3}
    group:
      - id: m
        map: 2
        python: "tools:act"
        with: {value: "${{ round.number * 10 + item }}"}
        compensate: {call: undo, with: {value: "${{ output }}"}}
      - {id: check, python: "tools:act"}
    on_error: [{type: Broken, compensate: true, next: end}]
"""
    undone: list[int] = []

    def check(call: Call) -> None:
        if call.address == "rounds@3/check":
            raise BROKEN

    script = {"check": check, "compensate": lambda call: undone.append(call.value)}
    simulator = stage.simulate(text, script, order="first")
    assert simulator.status == "succeeded"
    assert undone == [31, 30, 21, 20, 11, 10]
