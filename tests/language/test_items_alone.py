"""`map` with `join: none`: each item goes along `next` as a separate token (patterns 12, 42)."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine import FlowFileError
from flowengine.testing.simulator import Fails
from tests.language.stage import Stage


def test_every_item_goes_on_alone_without_waiting_for_the_others(stage: Stage) -> None:
    text = """
state: {seen: {type: array, default: [], reducer: append}}
steps:
  - id: each
    map: {over: [a, b, c], join: none}
    python: "tools:label"
    with: {value: "${{ item }}"}
    next: after
  - id: after
    python: "tools:label"
    with: {value: "${{ steps.each.output + '!' }}"}
    set: {seen: "${{ output }}"}
outputs: {seen: "${{ state.seen }}"}
"""
    simulator = stage.simulator(text, order="first").start()
    simulator.finish("each[1]")
    assert simulator.started[-1] == "after"
    simulator.finish("after")
    assert simulator.state["vars"]["seen"][0] == ["b!"]
    simulator.run()
    for played in stage.orders(text):
        outputs = played.state["outputs"]
        assert outputs is not None
        assert sorted(outputs["seen"]) == ["a!", "b!", "c!"]
    assert sorted((stage.run(text).outputs or {})["seen"]) == ["a!", "b!", "c!"]


@pytest.mark.parametrize("over", [0, 1, 3])
def test_threads_meet_again_at_a_join(stage: Stage, over: int) -> None:
    """Without items, no token leaves: the next step never runs, and the flow still ends."""
    text = f"""
steps:
  - {{id: before, output: 1}}
  - {{id: each, map: {{over: {over}, as: n, join: none}}, python: "tools:count",
     with: {{value: "${{{{ n }}}}"}}, next: after}}
  - {{id: after, join: active, output: "${{{{ join.all.map(a, a.output) }}}}"}}
outputs: {{after: "${{{{ steps.after.output }}}}", before: "${{{{ steps.before.output }}}}"}}
"""
    expected = list(range(over)) or None
    assert stage.play(text).outputs == {"after": expected, "before": 1}


def test_of_what_items_gave_outputs_see_that_of_the_last_one(stage: Stage) -> None:
    text = """
steps:
  - {id: each, map: {over: 4, as: n, join: none}, python: "tools:count", with: {value: "${{ n }}"}}
outputs: {last: "${{ steps.each.output }}"}
"""
    assert stage.play(text).outputs == {"last": 3}


def test_each_item_takes_its_own_way(stage: Stage) -> None:
    """`next` sees the output and the outcome of the item."""
    text = """
state:
  low: {type: array, default: [], reducer: union}
  high: {type: integer, default: 0, reducer: add}
steps:
  - id: each
    map: {over: 5, as: n, join: none}
    python: "tools:count"
    with: {value: "${{ n }}"}
    next: {first: [{when: "${{ output < 2 }}", to: low}, {else: high}]}
  - {id: low, set: {low: "${{ [steps.each.output] }}"}, next: end}
  - {id: high, set: {high: "${{ steps.each.output }}"}, next: end}
outputs: {low: "${{ size(state.low) }}", high: "${{ state.high }}"}
"""
    assert stage.play(text).outputs == {"low": 2, "high": 9}


def test_the_decision_on_an_item_routes_that_item(stage: Stage) -> None:
    text = """
state: {paid: {type: array, default: [], reducer: append}}
steps:
  - id: ask
    map: {over: [x, y, z], key: "${{ item }}", join: none}
    approval: {title: "Pay ${{ item }}?", subject: "${{ item }}"}
    next: {outcome: {approve: pay, reject: end}}
  - {id: pay, set: {paid: "${{ steps.ask.output.subject }}"}, next: end}
outputs: {paid: "${{ state.paid }}"}
"""
    begun = stage.run(text)
    stage.decide("ask[z]", "approve")
    stage.decide("ask[y]", "reject")
    stage.decide("ask[x]", "approve")
    assert stage.later(begun.execution, 0).outputs == {"paid": ["z", "x"]}


def test_writes_of_items_are_made_at_once(stage: Stage) -> None:
    """The token of an item sees what its item wrote."""
    text = """
state:
  n: {type: integer, default: 0, reducer: add}
  seen: {type: array, default: [], reducer: append}
steps:
  - {id: each, map: {over: 3, join: none}, python: "tools:act", set: {n: 1}, next: look}
  - {id: look, set: {seen: "${{ state.n }}"}, next: end}
outputs: {seen: "${{ state.seen }}"}
"""
    assert stage.play(text).outputs == {"seen": [1, 2, 3]}


def failing(policy: str, handler: str = "") -> str:
    return f"""
state: {{done: {{type: integer, default: 0, reducer: add}}}}
steps:
  - id: each
    map: {{over: 4, concurrency: 1, join: none, on_item_error: {policy}}}
    python: "tools:act"
    {handler}
    next: after
  - {{id: after, set: {{done: 1}}, next: end}}
  - {{id: rescue, output: "${{{{ state.done }}}}", next: end}}
outputs: {{done: "${{{{ state.done }}}}"}}
"""


def unhandled(policy: str) -> str:
    text = failing(policy)
    return text[: text.index("  - {id: rescue")] + 'outputs: {done: "${{ state.done }}"}\n'


@pytest.mark.parametrize(("policy", "done"), [("stop", 1), ("wait", 3)])
def test_a_failed_item_fails_the_map_and_the_items_that_have_left_stay(
    stage: Stage, policy: str, done: int
) -> None:
    script = {"each[1]": Fails("Broken")}
    handled = failing(policy, "on_error: [{type: MapFailed, next: rescue}]")
    for played in stage.orders(handled, script):
        outputs = played.state["outputs"]
        assert outputs is not None
        assert outputs["done"] == done
    assert stage.play(unhandled(policy), script).error_type == "MapFailed"


def test_a_failed_item_may_just_not_go_on(stage: Stage) -> None:
    assert stage.play(unhandled("continue"), {"each[1]": Fails("Broken")}).outputs == {"done": 3}


def test_no_way_for_an_item_is_its_error(stage: Stage) -> None:
    text = """
steps:
  - id: each
    map: {over: 3, as: n, join: none}
    python: "tools:count"
    with: {value: "${{ n }}"}
    next: {first: [{when: "${{ output > 0 }}", to: end}]}
"""
    error = stage.simulate(text, order="first").state["error"]
    assert error is not None
    assert error["type"] == "MapFailed"
    assert [f["error"]["type"] for f in error["data"]["failed"]] == ["NoBranch"]


@pytest.mark.parametrize("how", ["cancelled", "succeeded"])
def test_cancelling_the_map_lets_no_further_item_go(stage: Stage, how: str) -> None:
    text = f"""
state: {{done: {{type: integer, default: 0, reducer: add}}}}
steps:
  - {{id: begin, next: {{all: [each, stop]}}}}
  - {{id: each, map: {{over: 4, join: none}}, python: "tools:act", next: after}}
  - {{id: after, set: {{done: 1}}, next: end}}
  - {{id: stop, python: "tools:act", next: withdraw}}
  - {{id: withdraw, cancel: {{targets: [each], as: {how}}}, next: end}}
outputs: {{done: "${{{{ state.done }}}}"}}
"""
    simulator = stage.simulator(text).start()
    for address in ("each[2]", "each[0]", "stop"):
        simulator.finish(address)
    assert simulator.status == "succeeded"
    assert simulator.state["outputs"] == {"done": 2}


def test_two_maps_in_a_row_split_every_thread_again(stage: Stage) -> None:
    text = """
state: {done: {type: array, default: [], reducer: append}}
steps:
  - {id: outer, map: {over: 2, as: n, join: none}, output: "${{ n }}", next: inner}
  - {id: inner, map: {over: 3, as: n, join: none}, output: "${{ steps.outer.output * 10 + n }}",
     next: note}
  - {id: note, set: {done: "${{ steps.inner.output }}"}, next: end}
outputs: {done: "${{ state.done }}"}
"""
    outputs = stage.simulate(text).state["outputs"]
    assert outputs is not None
    assert sorted(outputs["done"]) == [0, 1, 2, 10, 11, 12]


# The checker: zero, one or two tokens, and items that race with each other


def codes(stage: Stage, text: str) -> list[str]:
    with pytest.raises(FlowFileError) as refused:
        stage.compile(text)
    return [one.code for one in refused.value.diagnostics]


def test_items_that_meet_where_nothing_merges_them_are_refused(stage: Stage) -> None:
    text = """
steps:
  - {id: each, map: {over: 3, join: none}, next: {first: [{when: "${{ true }}", to: a}, {else: b}]}}
  - {id: a, next: b}
  - {id: b, next: end}
"""
    assert codes(stage, text) == ["E202"]
    assert stage.compile(text.replace("id: b,", "id: b, join: each,"))


def test_a_join_of_all_that_items_may_not_come_to_is_refused(stage: Stage) -> None:
    """With an empty list no token arrives, and with two items one is left over."""
    text = """
steps:
  - {id: begin, next: {all: [each, other]}}
  - {id: each, map: {over: 3, join: none}, next: both}
  - {id: other, next: both}
  - {id: both, join: all}
"""
    found = codes(stage, text)
    assert set(found) == {"E207"}
    assert stage.compile(text.replace("join: all", "join: active"))


def test_what_lies_behind_items_may_not_have_run(stage: Stage) -> None:
    text = """
steps:
  - {id: each, map: {over: 3, join: none}, output: {a: 1}, next: after}
  - {id: after, output: "${{ steps.each.output.a }}", next: end}
outputs: {a: "${{ steps.after.output + 1 }}", b: "${{ steps.each.output.a }}"}
"""
    assert stage.warnings(text) == ["W305"]


def test_an_item_has_no_list_of_items(stage: Stage) -> None:
    text: Any = """
steps:
  - {id: each, map: {over: 3, join: none}, output: 1, next: after}
  - {id: after, output: "${{ size(steps.each.output) }}", next: end}
"""
    assert codes(stage, text) == ["E311"]
