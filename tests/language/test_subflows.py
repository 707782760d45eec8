"""Subflows, as far as `subflows.cases.yaml` does not show them (F15, F92)."""

from __future__ import annotations

from flowengine.kernel import ENDED
from tests.language.stage import Stage

SUM = """
inputs: {n: {type: integer, default: 3}}
limits: {depth: 5}
outputs: {sum: {value: "${{ steps.last.output }}", type: integer}}
steps:
  - {id: test, next: {first: [{when: "${{ inputs.n <= 0 }}", to: last}, {else: down}]}}
  - {id: down, flow: flow, with: {n: "${{ inputs.n - 1 }}"}, next: last}
  - {id: last, output: "${{ inputs.n + default(steps.down.output.sum, 0) }}"}
"""


def test_what_is_compiled_does_not_grow_with_the_depth(stage: Stage) -> None:
    few = stage.compile(SUM).flow
    many = stage.compile(SUM.replace("depth: 5", "depth: 100")).flow

    assert len(few["steps"]) == len(many["steps"]) <= 6
    assert stage.play(SUM.replace("depth: 5", "depth: 100"), inputs={"n": 60}, most=1).outputs == {
        "sum": 1830
    }


# Shows F92
def test_a_lock_is_that_of_the_execution_however_deep_it_is_taken(stage: Stage) -> None:
    """A recursion of 31 flows with at most 8 at work at once (F92)."""
    text = """
inputs: {n: {type: integer, default: 4}}
steps:
  - {id: work, lock: {key: cpu, max: 8}, python: "tools:act"}
  - {id: more, when: "${{ inputs.n > 0 }}", map: 2, flow: flow, with: {n: "${{ inputs.n - 1 }}"}}
"""
    for seed in range(8):
        played = stage.simulator(text, seed=seed).start({"n": 4})
        most = 0
        while played.status not in ENDED:
            most = max(most, len(played.running))
            assert played.step()
        assert (played.status, len(played.started)) == ("succeeded", 31)
        assert 3 < most <= 8
    stage.run(text)
    assert stage.world.most <= 8
    assert len(stage.world.ended) == 31


def test_a_subflow_does_not_carry_what_is_known_of_the_state_around_it(stage: Stage) -> None:
    played = stage.simulator("""
state: {x: {type: integer, default: 0}}
flows:
  child: {steps: [{id: pause, wait: 1h}]}
steps:
  - {id: a, set: {x: 1}}
  - {id: g, group: [{id: s, flow: child}]}
""").start({})
    while played.running or "g/s/pause" not in [seen.address for seen in played.observations]:
        assert played.step()

    group, child = list(played.state["scopes"].values())[1:]
    assert group["knows"] == {"x": 1}
    assert "knows" not in child
