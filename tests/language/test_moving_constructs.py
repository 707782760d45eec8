# Shows F75
"""Each construct is migrated to a changed flow midway, or the migration is refused (F75)."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine.engines.interventions.obstacles import obstacles
from flowengine.kernel import Graph
from tests.language.stage import Stage
from tests.simulation.invariants import check_now
from tests.simulation.simulator import Simulator, unpacked

ACT = 'python: "tools:act"'
NEW_STEP = "  - {id: new, output: 1}\n"
"""A leading step that changes the numbers of all others."""


def begun(stage: Stage, text: str, *ends: str, inputs: Any = None) -> Simulator:
    """Start an execution, and end the tasks at these addresses."""
    simulator = stage.simulator(stage.compile(text), order="first").start(inputs or {})
    for address in ends:
        simulator.finish(address)
    return simulator


def form(stage: Stage, text: str, *changes: tuple[str, str], shift: bool = True) -> Graph:
    """Return a changed flow whose steps have other numbers."""
    changes = (("\nsteps:\n", f"\nsteps:\n{NEW_STEP}"), *changes) if shift else changes
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    return stage.simulator(stage.compile(text)).graph


def move(simulator: Simulator, graph: Graph, mapping: Any = None) -> None:
    """Migrate an execution after checking that no obstacle was found."""
    found = obstacles(simulator.graph, graph, simulator.state, mapping or {})
    assert not found, found
    simulator.upgrade(graph, mapping)
    check_now(simulator)


def ended(simulator: Simulator) -> Any:
    """Run to the end, and return the outputs."""
    simulator.run()
    assert simulator.status == "succeeded", simulator.error
    assert unpacked(simulator.replayed()) == unpacked(simulator.state)
    return simulator.outputs


def why_not(simulator: Simulator, graph: Graph) -> dict[str, str]:
    """Return name → reason for each obstacle to a migration."""
    return {one.name: one.why for one in obstacles(simulator.graph, graph, simulator.state, {})}


JOIN = f"""
steps:
  - id: fork
    next: {{all: [a, b, c]}}
  - {{id: a, {ACT}, with: {{value: 1}}, next: meet}}
  - {{id: b, {ACT}, with: {{value: 2}}, next: meet}}
  - {{id: c, {ACT}, with: {{value: 3}}, next: JOINED}}
  - id: meet
    join: KIND
    output: ${{{{ join.from }}}}
outputs: {{came: "${{{{ steps.meet.output }}}}"}}
"""


@pytest.mark.parametrize(
    ("kind", "came"), [("all", ["a", "b"]), ("active", ["a", "b"]), ("2", ["a", "b"])]
)
def test_tokens_held_at_a_join_go_on_waiting_for_the_others(
    stage: Stage, kind: str, came: list[str]
) -> None:
    text = JOIN.replace("KIND", kind).replace("JOINED", "end")
    simulator = begun(stage, text, "a")
    move(simulator, form(stage, text, ("id: a,", "id: a, title: moved,")))
    assert ended(simulator) == {"came": came}


@pytest.mark.parametrize("kind", ["all", "active"])
def test_a_way_to_a_join_that_is_gone_is_told(stage: Stage, kind: str) -> None:
    text = JOIN.replace("KIND", kind).replace("JOINED", "end")
    simulator = begun(stage, text, "a")
    faults = why_not(simulator, form(stage, text, ("value: 1}, next: meet", "value: 1}, next: c"),
                                     ("id: c,", "id: c, join: active,")))  # fmt: skip
    assert faults == {
        "meet": "its join holds a branch that came from 'a', and no such edge leads to it"
    }


def test_a_held_token_that_came_from_a_renamed_step_needs_its_new_name(stage: Stage) -> None:
    text = JOIN.replace("KIND", "all").replace("JOINED", "end")
    simulator = begun(stage, text, "a")
    graph = form(stage, text, ("id: a,", "id: aa,"), ("all: [a, b, c]", "all: [aa, b, c]"))
    [one] = obstacles(simulator.graph, graph, simulator.state, {})
    assert (one.name, one.write, one.fits) == ("a", {"steps": {"a": "NEW"}}, ["aa"])
    assert one.why == "the join of 'meet' holds a branch that came from it"
    move(simulator, graph, {"steps": {"a": "aa"}})
    assert ended(simulator) == {"came": ["aa", "b"]}


def test_a_join_waits_for_a_way_that_is_new(stage: Stage) -> None:
    """The new flow determines which tokens can still reach a join."""
    text = JOIN.replace("KIND", "active").replace("JOINED", "end")
    simulator = begun(stage, text, "a", "b")
    assert simulator.state["status"] == "running"
    late = begun(stage, text, "a")
    move(late, form(stage, text, ("value: 3}, next: end", "value: 3}, next: meet")))
    late.finish("b")
    assert not any(seen.address == "meet" for seen in late.observations)
    assert ended(late) == {"came": ["a", "b", "c"]}


def test_a_join_that_nobody_can_reach_any_more_acts_at_once(stage: Stage) -> None:
    text = JOIN.replace("KIND", "active").replace("JOINED", "meet")
    simulator = begun(stage, text, "a", "b")
    move(simulator, form(stage, text, ("value: 3}, next: meet", "value: 3}, next: end")))
    assert any(seen.address == "meet" and seen.status == "succeeded"
               for seen in simulator.observations)  # fmt: skip
    assert ended(simulator) == {"came": ["a", "b"]}


STATE = f"""
state: {{n: {{type: integer, default: 0}}, m: {{type: integer, default: 3}}}}
steps:
  - id: both
    next: {{all: [work, watch]}}
  - {{id: work, {ACT}, with: {{value: 1}}, set: {{n: 1, m: 4}}, next: end}}
  - id: watch
    wait: {{when: "${{{{ state.n > 4 }}}}"}}
outputs: {{m: "${{{{ state.m }}}}"}}
"""


def test_a_condition_is_that_of_the_new_flow(stage: Stage) -> None:
    simulator = begun(stage, STATE)
    move(simulator, form(stage, STATE, ("state.n > 4", "state.m == 4")))
    assert ended(simulator) == {"m": 4}
    already = begun(stage, STATE)
    move(already, form(stage, STATE, ("state.n > 4", "state.m == 3")))
    assert any(seen.address == "watch" and seen.status == "succeeded"
               for seen in already.observations)  # fmt: skip
    assert ended(already) == {"m": 4}


WRITTEN = """
state: {a: {type: integer, default: 0}, b: {type: integer, default: 0, reducer: add}}
signals: {go: {}, never: {}}
steps:
  - id: g
    group:
      - {id: w, set: {a: 1, b: 1}}
      - {id: wait_, wait: {signal: go}}
      - {id: x, fail: {type: Oops, message: m}}
    on_error: continue
  - {id: h, set: {a: "${{ state.a + 1 }}"}}
outputs: {a: "${{ state.a }}"}
"""


def test_who_may_replace_a_key_is_moved_with_it(stage: Stage) -> None:
    simulator = begun(stage, WRITTEN)
    graph = form(
        stage,
        WRITTEN,
        ("state: {a:", "state: {c: {type: integer, default: 7}, k:"),
        ("set: {a: 1, b: 1}", "set: {k: 1, b: 1}"),
        ('set: {a: "${{ state.a + 1 }}"}', 'set: {k: "${{ state.k + 1 }}"}'),
        ('outputs: {a: "${{ state.a }}"}', 'outputs: {a: "${{ state.k }}"}'),
    )
    move(simulator, graph, {"state": {"a": "k"}})
    simulator.send("go")
    assert ended(simulator) == {"a": 2}


def test_a_key_that_is_replaced_from_now_on_may_be_replaced_by_anybody(stage: Stage) -> None:
    simulator = begun(stage, WRITTEN)
    graph = form(stage, WRITTEN, (", reducer: add", ""), ('set: {a: "${{', 'set: {b: "${{'))
    move(simulator, graph)
    simulator.send("go")
    assert ended(simulator) == {"a": 1}
    assert simulator.state["vars"]["b"][0] == 2


def test_a_value_that_the_move_gives_may_be_replaced_by_anybody(stage: Stage) -> None:
    simulator = begun(stage, WRITTEN)
    move(simulator, form(stage, WRITTEN), {"values": {"state": {"a": 40}}})
    simulator.send("go")
    assert ended(simulator) == {"a": 41}


MAP = f"""
steps:
  - id: each
    map: {{over: 3, concurrency: 2}}
    group:
      - {{id: one, {ACT}, with: {{value: "${{{{ item }}}}"}}}}
      - {{id: two, {ACT}, with: {{value: "${{{{ steps.one.output }}}}"}}}}
outputs: {{all: "${{{{ steps.each.output }}}}"}}
"""


def test_items_of_a_map_go_on_where_they_are(stage: Stage) -> None:
    simulator = begun(stage, MAP, "each[0]/one")
    graph = form(stage, MAP, ("- {id: two,", "- {id: between, output: 1}\n      - {id: two,"))
    move(simulator, graph)
    ended(simulator)
    addresses = [seen.address for seen in simulator.observations if seen.status == "succeeded"]
    assert "each[1]/between" in addresses
    assert "each[0]/between" not in addresses  # the item was past that place


def test_a_renamed_group_takes_its_steps_along(stage: Stage) -> None:
    simulator = begun(stage, MAP, "each[0]/one")
    graph = form(stage, MAP, ("id: each", "id: every"), ("steps.each", "steps.every"))
    faults = why_not(simulator, graph)
    assert list(faults) == ["each"]
    move(simulator, graph, {"steps": {"each": "every"}})
    assert ended(simulator) is not None
    assert {a.split("[")[0] for a in simulator.started} == {"each"}  # the addresses are unchanged


LOOP = f"""
steps:
  - {{id: a, {ACT}, with: {{value: 1}}}}
  - {{id: b, {ACT}, with: {{value: 2}}, next: NEXT}}
  - {{id: c, {ACT}, with: {{value: 3}}}}
"""


def test_addresses_are_never_used_twice(stage: Stage) -> None:
    """A new cycle leads back to a step that has run, which therefore needs another key."""
    text = LOOP.replace("NEXT", "c")
    back = "{first: [{when: '${{ steps.a.activations < 2 }}', to: a}, {else: c}]}"
    simulator = begun(stage, text, "a")
    changes = ("next: c", f"next: {back}"), ("id: a,", "id: a, join: each,")
    graph = form(stage, text, *changes, shift=False)
    simulator.upgrade(graph)
    ended(simulator)
    assert len(simulator.started) == len(set(simulator.started)), simulator.started


UNDO = f"""
tools: {{undo: {{python: "tools:act"}}}}
steps:
  - id: trip
    group:
      - {{id: book, {ACT}, with: {{value: 1}}, compensate: {{call: undo, with: {{value: 2}}}}}}
      - {{id: pay, {ACT}, with: {{value: 3}}}}
    on_error: [{{compensate: true, next: after}}]
    finally:
      - {{id: tidy, {ACT}, with: {{value: 4}}}}
    next: after
  - id: after
    output: "${{{{ steps.trip.status }}}}"
outputs: {{trip: "${{{{ steps.after.output }}}}"}}
"""


def fail(simulator: Simulator, address: str) -> None:
    """Fail the task at an address."""
    run = next(run for run in simulator.running.values() if run.address == address)
    del simulator.running[run.unit, run.attempt]
    simulator.apply(
        {"type": "failed", "at": simulator.now, "unit": run.unit, "attempt": run.attempt,
         "error": {"type": "Broken", "message": "b"}}
    )  # fmt: skip


@pytest.mark.parametrize("moment", range(4))
def test_undoing_and_cleaning_up_are_moved_at_any_moment(stage: Stage, moment: int) -> None:
    simulator = begun(stage, UNDO, "trip/book")
    if moment:
        fail(simulator, "trip/pay")
    for _ in range(moment - 1):
        assert simulator.step()
    move(
        simulator, form(stage, UNDO, ("- {id: pay,", "- {id: more, output: 1}\n      - {id: pay,"))
    )
    if not moment:
        fail(simulator, "trip/pay")
    assert ended(simulator) == {"trip": "failed"}
    assert sorted(simulator.started) == [
        "trip/book", "trip/book/compensate", "trip/finally/tidy", "trip/pay"
    ]  # fmt: skip


def test_what_can_be_undone_must_stay_so(stage: Stage) -> None:
    simulator = begun(stage, UNDO, "trip/book")
    graph = form(stage, UNDO, (", compensate: {call: undo, with: {value: 2}}", ""),
                 ("[{compensate: true, next: after}]", "[{next: after}]"),
                 ("tools: {undo: {python: \"tools:act\"}}\n", ""))  # fmt: skip
    assert why_not(simulator, graph) == {
        "book": "it has acted and can be undone, and 'compensate' was removed"
    }


def test_a_handler_that_is_being_followed_must_stay(stage: Stage) -> None:
    simulator = begun(stage, UNDO, "trip/book")
    fail(simulator, "trip/pay")
    text = UNDO.replace("[{compensate: true, next: after}]", "[{output: 1}]")
    faults = why_not(simulator, form(stage, text))
    assert "'on_error' is being followed" in faults["trip"]


def test_the_bound_of_time_is_that_of_the_new_flow(stage: Stage) -> None:
    text = f"limits: {{duration: 1h}}\nsteps:\n  - {{id: a, {ACT}, with: {{value: 1}}}}\n"
    simulator = begun(stage, text)
    due = [timer["due"] for timer in simulator.state["timers"].values()]
    graph = form(stage, text, ("1h", "3h"))
    simulator.upgrade(graph)
    [later] = [timer["due"] for timer in simulator.state["timers"].values()]
    assert later - due[0] == 2 * 3_600_000
    simulator.upgrade(form(stage, text, ("limits: {duration: 1h}\n", "")))
    assert simulator.state["timers"] == {}


SUBFLOW = f"""
flows:
  child:
    inputs: {{n: {{type: integer}}}}
    state: {{seen: {{type: integer, default: 0}}}}
    outputs: {{sum: "${{{{ state.seen + inputs.n }}}}"}}
    steps:
      - {{id: a, {ACT}, with: {{value: 1}}, set: {{seen: 5}}}}
      - {{id: b, {ACT}, with: {{value: 2}}}}
steps:
  - {{id: s, flow: child, with: {{n: 3}}}}
outputs: {{got: "${{{{ steps.s.output.sum }}}}"}}
"""


def test_a_subflow_at_work_is_moved_with_what_it_has_of_its_own(stage: Stage) -> None:
    simulator = begun(stage, SUBFLOW, "s/a")
    graph = form(
        stage, SUBFLOW,
        ("state: {seen:", "state: {x: {default: 1}, known:"), ("seen: 5", "known: 5"),
        ("state.seen", "state.known + inputs.m"),
        ("inputs: {n: {type: integer}}", "inputs: {m: {default: 10}, n: {type: integer}}"),
        ("- {id: b,", "- {id: c, output: 1}\n      - {id: d,"),
    )  # fmt: skip
    assert set(why_not(simulator, graph)) == {"child:b", "child:seen"}
    move(simulator, graph, {"steps": {"child:b": "d"}, "state": {"child:seen": "known"}})
    assert ended(simulator) == {"got": 18}
    assert simulator.started == ["s/a", "s/b"]


def test_a_subflow_at_work_is_not_taken_for_another(stage: Stage) -> None:
    simulator = begun(stage, SUBFLOW, "s/a")
    other = form(stage, SUBFLOW, ("  child:", "  other:"), ("flow: child", "flow: other"))
    assert why_not(simulator, other)["s"] == "it is running, and runs another subflow"
    needs = form(stage, SUBFLOW, ("inputs: {n: {type: integer}}",
                                  "inputs: {n: {type: integer}, m: {type: integer}}"),
                 ("with: {n: 3}", "with: {n: 3, m: 4}"))  # fmt: skip
    assert why_not(simulator, needs) == {"child:m": "the running subflow has none with this name"}
