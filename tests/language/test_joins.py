"""Joins and parallel steps: how tokens meet, independent of timing (F21, F84-F86)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from flowengine import FlowFileError
from flowengine.testing.simulator import Fails, Simulator
from tests.language.stage import Stage, statuses

ORDERS = [list(order) for order in itertools.permutations("abc")]
THREE = """
steps:
  - {{id: s, next: {{all: [a, b, c]}}}}
  - {{id: a, python: "tools:act", with: {{value: A}}, next: j}}
  - {{id: b, python: "tools:act", with: {{value: B}}, next: j}}
  - {{id: c, python: "tools:act", with: {{value: C}}, next: j}}
  - id: j
    join: {join}
    python: "tools:act"
    with: {{value: {{from: "${{{{ join.from }}}}", outputs: "${{{{ join.outputs }}}}"}}}}
outputs: {{j: "${{{{ steps.j.output }}}}", n: "${{{{ steps.j.activations }}}}"}}
"""


def _in_order(stage: Stage, text: str, order: list[str], script: dict[str, Any]) -> Simulator:
    """Run a flow whose first steps end in the given order, then the rest."""
    simulator = stage.simulator(text, script, order="first").start()
    for address in order:
        simulator.finish(address)
    return simulator.run()


@pytest.mark.parametrize("order", ORDERS)
def test_all_takes_one_of_each_in_the_order_of_the_file(stage: Stage, order: list[str]) -> None:
    stage.world.order = order
    result = stage.run(THREE.format(join="all"))
    arrived = {"from": ["a", "b", "c"], "outputs": {"a": "A", "b": "B", "c": "C"}}
    assert result.outputs == {"j": arrived, "n": 1}
    assert stage.world.ended == [*order, "j"]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("late", ["ignore", "cancel", "queue"])
def test_first_two_of_three_are_those_that_came_first(
    stage: Stage, order: list[str], late: str
) -> None:
    text = THREE.format(join=f"{{need: 2, late: {late}}}")
    stage.world.order = [*order[:2], "j", order[2]]
    stage.world.held = {order[2]} if late == "cancel" else set()
    result = stage.run(text)
    assert result.outputs is not None
    arrived = result.outputs["j"]
    assert arrived["from"] == order[:2]
    assert arrived["outputs"] == {name: name.upper() for name in order[:2]}
    assert result.outputs["n"] == 1
    assert stage.world.withdrawn == ([order[2]] if late == "cancel" else [])


@pytest.mark.parametrize("order", ORDERS)
def test_each_arrival_activates_a_step_that_joins_each(stage: Stage, order: list[str]) -> None:
    text = """
state: {seen: {type: array, default: [], reducer: append}}
steps:
  - {id: s, next: {all: [a, b, c]}}
  - {id: a, python: "tools:act", with: {value: A}, next: j}
  - {id: b, python: "tools:act", with: {value: B}, next: j}
  - {id: c, python: "tools:act", with: {value: C}, next: j}
  - {id: j, join: each, set: {seen: ["${{ join.output }}"]}}
outputs: {seen: "${{ state.seen }}"}
"""
    stage.world.order = order
    result = stage.run(text)
    assert result.outputs == {"seen": [name.upper() for name in order]}
    addresses = [address for address, _, _ in stage.history(result.execution)]
    assert [a for a in addresses if a.startswith("j")] == ["j", "j#2", "j#3"]


@pytest.mark.parametrize("taken", ["", *map("".join, itertools.product("ab", "bc")), "abc", "c"])
def test_active_waits_for_the_branches_that_were_taken_and_no_others(
    stage: Stage, taken: str
) -> None:
    names = sorted(set(taken))
    flow = {
        "inputs": {name: {"type": "boolean"} for name in "abc"},
        "steps": [
            {
                "id": "s",
                "next": {
                    "all": [
                        *({"when": f"${{{{ inputs.{n} }}}}", "to": n} for n in "abc"),
                        {"else": "j"},
                    ]
                },
            },
            *(
                {"id": n, "python": "tools:act", "with": {"value": n.upper()}, "next": "j"}
                for n in "abc"
            ),
            {"id": "j", "join": "active", "output": "${{ [join.from, values(join.outputs)] }}"},
        ],
        "outputs": {"j": "${{ steps.j.output }}", "n": "${{ steps.j.activations }}"},
    }
    inputs = {name: name in names for name in "abc"}
    outcome = stage.play(flow, inputs=inputs, most=10)
    wanted = [names, [n.upper() for n in names]] if names else [["s"], [None]]
    assert outcome.outputs == {"j": wanted, "n": 1}


def test_active_does_not_wait_for_a_branch_that_failed_and_ended(stage: Stage) -> None:
    text = """
steps:
  - {id: s, next: {all: [a, b]}}
  - {id: a, python: "tools:act", on_error: [{next: end}], next: j}
  - {id: b, python: "tools:act", next: j}
  - {id: j, join: active, output: "${{ join.from }}"}
outputs: {j: "${{ steps.j.output }}"}
"""
    outcome = stage.play(text, {"a": Fails("Broken", retryable=False)})
    assert outcome.outputs == {"j": ["b"]}


def test_active_in_a_cycle_fires_once_a_round(stage: Stage) -> None:
    text = """
state: {rounds: {type: integer, default: 0, reducer: add}}
steps:
  - {id: s, next: {all: [a, {when: "${{ state.rounds == 0 }}", to: b}]}}
  - {id: a, python: "tools:act", next: j}
  - {id: b, python: "tools:act", next: j}
  - id: j
    join: active
    set: {rounds: 1}
    next: {first: [{when: "${{ state.rounds < 3 }}", to: s}, {else: end}]}
outputs: {rounds: "${{ state.rounds }}", n: "${{ steps.j.activations }}"}
"""
    assert stage.play(text, most=20).outputs == {"rounds": 3, "n": 3}


def test_all_in_a_cycle_takes_one_of_each_a_round(stage: Stage) -> None:
    text = """
state: {log: {type: array, default: [], reducer: append}}
steps:
  - {id: s, next: {all: [a, b]}}
  - {id: a, python: "tools:act", with: {value: "${{ size(state.log) }}"}, next: j}
  - {id: b, python: "tools:act", with: {value: "${{ size(state.log) }}"}, next: j}
  - id: j
    join: all
    set: {log: ["${{ values(join.outputs) }}"]}
    next: {first: [{when: "${{ size(state.log) < 4 }}", to: s}, {else: end}]}
outputs: {log: "${{ state.log }}"}
"""
    assert stage.play(text, most=20).outputs == {"log": [[n, n] for n in range(4)]}


def test_queue_keeps_second_arrivals_for_the_next_round(stage: Stage) -> None:
    """Two waves of three: with `queue`, each wave is a round, however the waves interleave."""
    text = """
state: {rounds: {type: integer, default: 0, reducer: add}}
steps:
  - {id: s, next: {all: [again, t]}}
  - {id: again, python: "tools:act", next: t}
  - {id: t, join: each, next: {all: [a, b, c]}}
  - {id: a, join: each, python: "tools:act", next: j}
  - {id: b, join: each, python: "tools:act", next: j}
  - {id: c, join: each, python: "tools:act", next: j}
  - {id: j, join: {need: 2, late: queue}, set: {rounds: 1}}
outputs: {rounds: "${{ state.rounds }}"}
"""
    assert stage.play(text, most=60).outputs == {"rounds": 2}


def test_need_is_computed_once_a_round_and_refused_where_it_is_no_number(stage: Stage) -> None:
    text = THREE.replace("steps:", "inputs: {{need: {{}}}}\nsteps:", 1)
    text = text.format(join='{need: "${{ inputs.need }}"}')
    for need in (1, 2, 3):
        simulator = stage.simulate(text, inputs={"need": need}, seed=need)
        assert simulator.state["outputs"] is not None
        assert len(simulator.state["outputs"]["j"]["from"]) == need
    for wrong in (0, "2", True):
        error = stage.simulate(text, inputs={"need": wrong}).state["error"]
        assert error is not None
        assert (error["type"], error["step"]) == ("ValidationError", "j")
    error = stage.simulate(text, inputs={"need": 4}).state["error"]
    assert error is not None
    assert (error["type"], error["data"]["need"]) == ("TooFew", 4)
    assert sorted(error["data"]["from"]) == ["a", "b", "c"]


@pytest.mark.parametrize("ways", list(itertools.permutations(["a", "b", "j"])))
def test_cancelling_join_withdraws_what_begins_in_the_same_moment(
    stage: Stage, ways: tuple[str, ...]
) -> None:
    """In any order of the entries, `a` could reach the join and never starts, while `b` does."""
    text = f"""
steps:
  - {{id: s, next: {{all: [{", ".join(ways)}]}}}}
  - {{id: a, python: "tools:act", next: j}}
  - {{id: b, python: "tools:act", next: end}}
  - {{id: j, join: {{need: 1, late: cancel}}, python: "tools:act"}}
"""
    simulator = stage.simulate(text)
    assert sorted(simulator.started) == ["b", "j"]


@pytest.mark.parametrize("last", ["next: end_all", "fail: no"])
def test_all_that_would_end_the_scope_does_not_keep_its_own_promise(
    stage: Stage, last: str
) -> None:
    """After the join, no wait remains, but the join itself can wait forever."""
    text = f"""
inputs: {{p: {{type: boolean}}}}
steps:
  - {{id: s, next: {{all: [a, b]}}}}
  - {{id: a, next: {{first: [{{when: "${{{{ inputs.p }}}}", to: j}}, {{else: b}}]}}}}
  - {{id: b, join: active, next: j}}
  - {{id: j, join: all, {last}}}
"""
    with pytest.raises(FlowFileError, match=r"E207.*'join: all' of 'j' can wait forever"):
        stage.compile(text)


def test_withdrawn_arrival_does_not_count(stage: Stage) -> None:
    """`late: cancel` of one join withdraws a token that another join had counted already."""
    text = """
steps:
  - {id: s, next: {all: [a, b, c]}}
  - {id: a, python: "tools:act", next: k}
  - {id: b, python: "tools:act", next: k}
  - {id: c, python: "tools:act", next: j}
  - {id: k, join: 2, python: "tools:act", next: j}
  - {id: j, join: {need: 1, late: cancel}, output: "${{ join.from }}"}
outputs: {j: "${{ steps.j.output }}"}
"""
    for order in (["a", "c"], ["b", "c"], ["c"]):
        simulator = _in_order(stage, text, order, {})
        assert simulator.state["outputs"] == {"j": ["c"]}
        assert "k" not in statuses(simulator)


# `arrived` (F84)

REVIEW = """
steps:
  - {id: write, output: draft, next: review}
  - id: review
    approval:
      title: Good?
      subject: ${{ join.output }}
      choices: [approve, shorten, rewrite]
    next: {outcome: {approve: end, shorten: shorten, rewrite: rewrite}}
  - {id: shorten, output: "${{ steps.review.output.subject + ' shortened' }}", next: review}
  - {id: rewrite, output: "${{ steps.review.output.subject + ' rewritten' }}", next: review}
outputs:
  text: ${{ steps.review.output.subject }}
  seen: ${{ steps.review.activations }}
"""


@pytest.mark.parametrize(
    "arms", [["shorten", "rewrite"], ["rewrite", "shorten"], ["shorten", "shorten", "rewrite"]]
)
def test_review_that_comes_back_sees_what_came_just_now(stage: Stage, arms: list[str]) -> None:
    stage.run(REVIEW)
    text = "draft"
    for number, arm in enumerate(arms, 1):
        address = "review" if number == 1 else f"review#{number}"
        [wait] = stage.engine.waits().items
        assert (wait["address"], wait["subject"]) == (address, text)
        stage.decide(address, arm)
        text += {"shorten": " shortened", "rewrite": " rewritten"}[arm]
    result = stage.decide(f"review#{len(arms) + 1}", "approve").result
    assert result is not None
    assert result.outputs == {"text": text, "seen": len(arms) + 1}


def test_token_that_starts_a_scope_brings_null_and_no_id(stage: Stage) -> None:
    text = """
state: {seen: {type: array, default: [], reducer: append}}
steps:
  - id: a
    set: {seen: ["${{ [join.output, join.from] }}"]}
    output: ${{ size(state.seen) }}
    next: {first: [{when: "${{ output < 2 }}", to: a}, {else: end}]}
outputs: {seen: "${{ state.seen }}"}
"""
    assert stage.play(text).outputs == {"seen": [[None, []], [0, ["a"]], [1, ["a"]]]}


@pytest.mark.parametrize("join", ["all", "active", "2"])
def test_one_output_of_several_merged_arrivals_is_an_error(stage: Stage, join: str) -> None:
    text = THREE.format(join=join).replace('"${{ join.from }}"', '"${{ join.output }}"')
    with pytest.raises(FlowFileError, match=r"E308.*'join.output' of 'j'"):
        stage.compile(text)


def test_arrival_over_the_way_of_a_handler_brings_null(stage: Stage) -> None:
    text = """
steps:
  - {id: a, python: "tools:act", on_error: [{next: j}], next: b}
  - {id: b, next: j}
  - {id: j, output: "${{ [join.output, join.from, steps.a.error.type] }}"}
outputs: {j: "${{ steps.j.output }}"}
"""
    outcome = stage.play(text, {"a": Fails("Broken", retryable=False)})
    assert outcome.outputs == {"j": [None, ["a"], "Broken"]}


# Missing arrivals (F85)

TWO_OF_THREE = """
steps:
  - {{id: s, next: {{all: [a, b, c]}}}}
  - {{id: a, python: "tools:act", on_error: {arm}, next: j}}
  - {{id: b, python: "tools:act", on_error: {arm}, next: j}}
  - {{id: c, python: "tools:act", on_error: {arm}, next: j}}
  - id: j
    join: 2
    on_error: [{{type: TooFew, output: "${{{{ error.data.from }}}}"}}]
outputs: {{j: "${{{{ steps.j.output }}}}"}}
"""


@pytest.mark.parametrize("came", list("abc"))
def test_handler_of_too_few_sees_who_came(stage: Stage, came: str) -> None:
    text = TWO_OF_THREE.format(arm="[{next: end}]")
    script = {name: Fails("Broken", retryable=False) for name in "abc" if name != came}
    assert stage.play(text, script, most=20).outputs == {"j": [came]}


def test_handler_of_too_few_sees_the_first_step_of_the_flow(stage: Stage) -> None:
    text = """
steps:
  - {id: a, next: {all: [j, b]}}
  - {id: b, python: "tools:act", on_error: [{next: end}], next: j}
  - {id: j, join: 2, on_error: [{type: TooFew, output: "${{ error.data.from }}"}]}
outputs: {j: "${{ steps.j.output }}"}
"""
    assert stage.play(text, {"b": Fails("Broken", retryable=False)}).outputs == {"j": ["a"]}


def test_nobody_who_comes_is_no_round_at_all(stage: Stage) -> None:
    text = TWO_OF_THREE.format(arm="[{next: end}]")
    script = {name: Fails("Broken", retryable=False) for name in "abc"}
    assert stage.play(text, script).outputs == {"j": None}


def test_a_null_that_would_count_as_an_answer_is_warned_of(stage: Stage) -> None:
    assert "W208" in stage.warnings(TWO_OF_THREE.format(arm="continue"))
    assert "W208" not in stage.warnings(TWO_OF_THREE.format(arm="[{next: end}]"))


def test_too_few_without_a_handler_fails_the_scope_under_its_own_type(stage: Stage) -> None:
    text = """
steps:
  - id: g
    group:
      - {id: s, next: {all: [a, b]}}
      - {id: a, python: "tools:act", next: j}
      - {id: b, python: "tools:act", on_error: [{next: end}], next: j}
      - {id: j, join: 2}
    on_error: [{type: TooFew, output: "${{ [error.step, error.data.from[0]] }}"}]
outputs: {g: "${{ steps.g.output }}"}
"""
    outcome = stage.play(text, {"b": Fails("Broken", retryable=False)}, most=20)
    assert outcome.outputs == {"g": ["g/j", "a"]}


# Parallel (F86)

PARALLEL = """
steps:
  - id: p
    parallel:
      - {{id: a, python: "tools:act", with: {{value: 1}}, next: {a}}}
      - {{id: b, python: "tools:act", with: {{value: 2}}}}
      - {{id: c, when: "${{{{ false }}}}", python: "tools:act"}}
      - id: d
        group:
          - {{id: d1, python: "tools:act", with: {{value: 3}}}}
          - {{id: d2, python: "tools:act", with: {{value: "${{{{ steps.d1.output }}}}"}}}}
outputs: {{p: "${{{{ steps.p.output }}}}"}}
"""
WRITTEN_OUT = """
steps:
  - id: p
    group:
      - {{id: s, next: {{all: [a, b, c, d]}}}}
      - {{id: a, python: "tools:act", with: {{value: 1}}, next: {a}}}
      - {{id: b, python: "tools:act", with: {{value: 2}}, next: end}}
      - {{id: c, when: "${{{{ false }}}}", python: "tools:act", next: end}}
      - id: d
        group:
          - {{id: d1, python: "tools:act", with: {{value: 3}}}}
          - {{id: d2, python: "tools:act", with: {{value: "${{{{ steps.d1.output }}}}"}}}}
        next: end
    output:
      a: ${{{{ steps.a.output }}}}
      b: ${{{{ steps.b.output }}}}
      c: ${{{{ steps.c.output }}}}
      d: ${{{{ steps.d.output }}}}
outputs: {{p: "${{{{ steps.p.output }}}}"}}
"""


@pytest.mark.endurance
@pytest.mark.parametrize("way", ["end", "end_all"])
def test_parallel_has_the_history_of_the_group_and_split_that_it_stands_for(
    stage: Stage, way: str
) -> None:
    short, long = (stage.compile(text.format(a=way)) for text in (PARALLEL, WRITTEN_OUT))
    for failing in (None, "b", "d2"):
        script = {failing: Fails("Broken", retryable=False)} if failing else {}
        for seed in range(25):
            one = stage.simulate(short, script, seed=seed)
            other = stage.simulate(long, script, seed=seed)
            assert one.started == other.started
            assert one.story() == [line for line in other.story() if not line.startswith("p/s ")]
            assert one.state["outputs"] == other.state["outputs"]
            assert one.state["error"] == other.state["error"]


def test_parallel_starts_all_at_once_and_gives_outputs_by_id(stage: Stage) -> None:
    stage.world.order = ["p/d/d1", "p/b", "p/d/d2", "p/a"]
    result = stage.run(PARALLEL.format(a="end"))
    assert sorted(stage.world.started[:3]) == ["p/a", "p/b", "p/d/d1"]
    assert result.outputs == {"p": {"a": 1, "b": 2, "c": None, "d": 3}}


def test_end_all_in_an_arm_cancels_the_others(stage: Stage) -> None:
    stage.world.held = {"p/b", "p/d/d1"}
    result = stage.run(PARALLEL.format(a="end_all"))
    assert result.outputs == {"p": {"a": 1, "b": None, "c": None, "d": None}}
    assert sorted(stage.world.withdrawn) == ["p/b", "p/d/d1"]
    history = {address: how for address, how, _ in stage.history(result.execution)}
    assert history["p/b"] == history["p/d/d1"] == history["p/d"] == "cancelled"


def test_failing_arm_withdraws_the_others_and_leaves_under_its_type(stage: Stage) -> None:
    stage.world.held = {"p/a", "p/d/d1"}
    stage.world.script = {"b": Fails("Broken", "no b", retryable=False)}
    result = stage.run(PARALLEL.format(a="end"))
    assert result.error is not None
    assert (result.error["type"], result.error["step"]) == ("Broken", "p/b")
    assert sorted(stage.world.withdrawn) == ["p/a", "p/d/d1"]


@pytest.mark.parametrize("arms", [1, 2, 30])
def test_parallel_of_any_width(stage: Stage, arms: int) -> None:
    flow = {
        "steps": [
            {
                "id": "p",
                "parallel": [
                    {"id": f"s{n}", "python": "tools:act", "with": {"value": n}}
                    for n in range(arms)
                ],
            }
        ],
        "outputs": {"p": "${{ steps.p.output }}"},
    }
    outcome = stage.play(flow, most=3)
    assert outcome.outputs == {"p": {f"s{n}": n for n in range(arms)}}
    assert stage.world.most == arms


def test_parallel_steps_do_not_see_one_another(stage: Stage) -> None:
    text = """
steps:
  - id: p
    parallel:
      - {id: a, output: 1}
      - {id: b, output: "${{ steps.a.output }}"}
"""
    with pytest.raises(FlowFileError, match=r"E304.*'steps\.a' cannot have run yet"):
        stage.compile(text)


def test_parallel_in_a_map_in_a_loop(stage: Stage) -> None:
    text = """
steps:
  - id: rounds
    loop: {until: "${{ round.number == 2 }}", max: 5}
    group:
      - id: m
        map: 2
        parallel:
          - {id: a, python: "tools:act", with: {value: "${{ item }}"}}
          - {id: b, python: "tools:act", with: {value: "${{ round.number }}"}}
outputs: {all: "${{ steps.rounds.output }}"}
"""
    outcome = stage.play(text)
    assert outcome.outputs == {"all": [{"a": 0, "b": 2}, {"a": 1, "b": 2}]}
    assert len(stage.world.started) == 8
