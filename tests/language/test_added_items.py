"""`map.more`: messages add items to a running map, and `need` follows (patterns 15, 36)."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine import FlowFileError
from flowengine.testing.simulator import Fails
from tests.language.stage import Stage

SEEDS = range(12)


def adding(over: str, rest: str = "", before: str = "") -> str:
    return f"""
signals: {{extra: {{data: {{type: string}}}}}}
state: {{seen: {{type: array, default: [], reducer: append}}}}
steps:
  {before}
  - id: each
    map: {{over: {over}, as: name, more: extra {rest}}}
    python: "tools:label"
    with: {{value: "${{{{ name }}}}"}}
    set: {{seen: "${{{{ output }}}}"}}
outputs: {{each: "${{{{ steps.each.output }}}}", seen: "${{{{ state.seen }}}}"}}
"""


def test_messages_add_items_while_the_map_runs(stage: Stage) -> None:
    for seed in SEEDS:
        simulator = stage.simulator(adding("[a, b]"), seed=seed).start()
        simulator.send("extra", "c")
        simulator.finish("each[0]")
        simulator.send("extra", "d")
        simulator.crash()
        while simulator.waits():
            address = simulator.waits()[0]["address"]
            simulator.decide(address, "result", value={"1": "b", "2": "c", "3": "d"}[address[5]])
        assert simulator.status == "succeeded"
        found = simulator.state["outputs"]
        assert found == {"each": ["a", "b", "c", "d"], "seen": ["a", "b", "c", "d"]}


def test_the_engine_adds_what_is_sent_to_a_waiting_map(stage: Stage) -> None:
    text = """
signals: {extra: {key: "${{ inputs.order }}"}}
inputs: {order: {type: string}}
steps:
  - id: ask
    map: {over: [a], key: "${{ item }}", more: extra}
    approval: {title: "Pay ${{ item }}?"}
    output: "${{ item }}"
outputs: {paid: "${{ steps.ask.output }}"}
"""
    begun = stage.run(text, {"order": "7"})
    stage.signal("extra", "b", key="7")
    stage.later(begun.execution, 0)
    stage.decide("ask[a]", "approve")
    stage.decide("ask[b]", "approve")
    assert stage.later(begun.execution, 0).outputs == {"paid": ["a", "b"]}


def test_messages_sent_before_the_map_begins_count(stage: Stage) -> None:
    text = adding("[]", before='- {id: first, python: "tools:act"}')
    simulator = stage.simulator(text).start()
    simulator.send("extra", "x")
    simulator.send("extra", "y")
    simulator.run()
    assert simulator.state["outputs"] == {"each": ["x", "y"], "seen": ["x", "y"]}


def test_over_nothing_the_map_ends_at_once(stage: Stage) -> None:
    assert stage.play(adding("[]")).outputs == {"each": [], "seen": []}


def test_a_message_for_another_key_is_no_item(stage: Stage) -> None:
    text = adding("[a]").replace("{extra: {", '{extra: {key: "mine", ')
    simulator = stage.simulator(text).start()
    simulator.send("extra", "no", key="other")
    simulator.send("extra", "yes", key="mine")
    assert simulator.run().state["outputs"] == {"each": ["a", "yes"], "seen": ["a", "yes"]}


def test_a_message_goes_to_one_receiver_the_oldest(stage: Stage) -> None:
    """A wait and a map listen to the same signal, and each message is consumed once (S19)."""
    text = """
signals: {go: {}}
steps:
  - {id: begin, next: {all: [w, first]}}
  - {id: w, wait: {signal: go}, next: end}
  - {id: first, python: "tools:act", next: each}
  - {id: each, map: {over: [a], more: go}, python: "tools:act", with: {value: "${{ item }}"},
     next: end}
outputs: {w: "${{ steps.w.output.data }}", each: "${{ steps.each.output }}"}
"""
    simulator = stage.simulator(text).start()
    simulator.finish("first")
    simulator.send("go", "one")
    simulator.send("go", "two")
    assert simulator.run().state["outputs"] == {"w": "one", "each": ["a", "two"]}


def test_a_map_that_has_gone_on_takes_no_more(stage: Stage) -> None:
    """Later messages stay available for other receivers."""
    text = adding("[a, b]", ", join: {need: 1}")
    simulator = stage.simulator(text).start()
    simulator.finish("each[0]")
    simulator.send("extra", "c")
    assert simulator.run().state["outputs"]["each"] == ["a", None]  # type: ignore[index]
    assert simulator.started == ["each[0]", "each[1]"]


def test_what_was_added_may_replace_what_failed(stage: Stage) -> None:
    text = adding("[a]", ", join: {need: 2}")
    script: dict[str, Any] = {"each[0]": Fails("Broken")}
    simulator = stage.simulator(text, script).start()
    simulator.send("extra", "b")
    simulator.send("extra", "c")
    assert simulator.run().status == "succeeded"
    assert stage.simulate(text, script).state["error"]["type"] == "TooFew"  # type: ignore[index]


def test_two_items_of_one_key_fail_the_map(stage: Stage) -> None:
    text = adding("[a]", ', key: "${{ name }}"')
    simulator = stage.simulator(text).start()
    simulator.send("extra", "a")
    error = simulator.state["error"]
    assert error is not None
    assert "have the same key 'a'" in error["message"]


# `need`, evaluated for the current items

QUORUM = """
state: {quorum: {type: integer, default: 3}}
steps:
  - {id: begin, next: {all: [each, lower]}}
  - id: each
    map: {over: 3, as: n, join: {need: "${{ state.quorum }}", late: cancel}}
    python: "tools:count"
    with: {value: "${{ n }}"}
    next: after
  - {id: after, python: "tools:act", next: end}
  - {id: lower, python: "tools:act", set: {quorum: 1}, next: end}
"""


def test_a_lowered_need_lets_the_map_go_on_at_once(stage: Stage) -> None:
    simulator = stage.simulator(QUORUM).start()
    simulator.finish("each[1]")
    assert "after" not in simulator.started
    simulator.finish("lower")
    assert simulator.started[-1] == "after"
    assert simulator.run().status == "succeeded"


def test_a_lowered_need_counts_at_the_next_item_too(stage: Stage) -> None:
    simulator = stage.simulator(QUORUM).start()
    simulator.finish("lower")
    assert "after" not in simulator.started
    simulator.finish("each[2]")
    assert simulator.started[-1] == "after"


def test_a_need_on_state_ends_well_in_every_order(stage: Stage) -> None:
    assert {played.status for played in stage.orders(QUORUM)} == {"succeeded"}


def test_a_need_that_is_no_number_fails_the_map(stage: Stage) -> None:
    text = QUORUM.replace("quorum: 1}", "quorum: 0}")
    simulator = stage.simulator(text).start()
    simulator.finish("lower")
    error = simulator.state["error"]
    assert error is not None
    assert (error["type"], error["step"]) == ("ValidationError", "each")


def test_the_signal_must_be_declared_and_items_have_its_type(stage: Stage) -> None:
    with pytest.raises(FlowFileError) as refused:
        stage.compile(adding("[a]").replace("more: extra", "more: extras"))
    assert [one.code for one in refused.value.diagnostics] == ["E401"]
    with pytest.raises(FlowFileError) as refused:
        stage.compile(adding("[a]").replace('"${{ name }}"}\n', '"${{ name + 1 }}"}\n', 1))
    assert [one.code for one in refused.value.diagnostics] == ["E311"]
