"""`trigger`: messages and writes start tokens in a running execution (F21, patterns 23 and 24)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine, FlowFileError
from flowengine.testing.simulator import unpacked
from tests.language.stage import Call, Stage, Text

PAGES = """
signals: {page: {data: {type: object, properties: {n: {type: integer}}, required: [n]}}}
state: {stored: {type: array, default: [], reducer: append}}
steps:
  - id: crawl
    map: {over: 3, as: n}
    python: "tools:count"
    with: {value: "${{ n }}"}
    emit: {signal: page, data: {n: "${{ output }}"}}
    next: end
  - {id: store, trigger: page, python: "tools:count", with: {value: "${{ signal.data.n }}"}}
  - {id: note, set: {stored: "${{ signal.data.n + steps.store.output }}"}}
outputs: {stored: "${{ sort(state.stored) }}"}
"""
WAITS = """
signals: {go: {}, done: {}}
state: {got: {type: array, default: [], reducer: append}}
limits: {idle: 1h}
steps:
  - {id: begin, next: end}
  - {id: each, trigger: go, set: {got: "${{ signal.data }}"}, next: end}
  - {id: over, trigger: done, next: end_all}
outputs: {got: "${{ state.got }}"}
"""


def refused(stage: Stage, text: Text) -> list[str]:
    """Return the errors of a rejected flow, without their positions."""
    with pytest.raises(FlowFileError) as caught:
        stage.compile(text)
    return [f"{one.code} {one.message}" for one in caught.value.diagnostics]


def test_every_message_begins_a_token_that_sees_it(stage: Stage) -> None:
    assert stage.play(PAGES).outputs == {"stored": [0, 2, 4]}
    addresses = [address for address, _, _ in stage.history(stage.run(PAGES).execution)]
    assert [a for a in addresses if a.startswith("store")] == ["store", "store#2", "store#3"]


def test_a_trigger_keeps_nothing_open_but_idle_does(stage: Stage) -> None:
    at_once = WAITS.replace("limits: {idle: 1h}", "")
    assert stage.play(at_once).outputs == {"got": []}
    result = stage.run(WAITS, id="it")
    assert result.status == "waiting"
    stage.signal("go", 1, execution="it")
    assert stage.later("it", 3500).status == "waiting", "it counts from when the last token ended"
    stage.signal("go", 2, execution="it")
    assert stage.later("it", 3500).status == "waiting"
    ended = stage.later("it", 50)
    assert (ended.status, ended.outputs) == ("succeeded", {"got": [1, 2]})


def test_idle_in_the_simulator_is_a_timer_among_others(stage: Stage) -> None:
    simulator = stage.simulator(WAITS).start()
    assert (simulator.status, len(simulator.state["timers"])) == ("waiting", 1)
    simulator.send("go", 1)
    assert len(simulator.state["timers"]) == 1, "the time begins anew"
    simulator.crash()
    simulator.send("done")
    assert (simulator.status, simulator.state["outputs"]) == ("succeeded", {"got": [1]})
    assert unpacked(simulator.replayed()) == unpacked(simulator.state)


def test_what_a_long_idle_execution_keeps_does_not_grow(stage: Stage) -> None:
    text = """
signals: {go: {}}
limits: {idle: 1h}
steps: [{id: t, trigger: go, output: "${{ signal.data }}"}]
outputs: {last: "${{ steps.t.output }}"}
"""
    simulator = stage.simulator(text).start()
    for number in range(1500):
        simulator.send("go", number)
    assert simulator.status == "waiting", "a message that comes is waited for: it is no hot cycle"
    assert len(simulator.state["layers"]) <= 1
    assert len(simulator.state["scopes"][1]["ended"]) <= 1
    simulator.run()
    assert simulator.state["outputs"] == {"last": 1499}


def test_a_triggered_token_has_no_past(stage: Stage) -> None:
    text = """
signals: {go: {}}
steps:
  - {id: a, emit: go, output: 1, next: end}
  - {id: t, trigger: go, output: "${{ steps.a.status }}"}
outputs: {t: "${{ steps.t.output }}"}
"""
    [error] = refused(stage, text)
    assert error.startswith("E304 'steps.a' cannot have run yet")


def test_a_message_goes_to_a_wait_before_a_trigger_and_to_one_only(stage: Stage) -> None:
    text = """
signals: {go: {}}
limits: {idle: 1h}
steps:
  - {id: w, wait: {signal: go}, next: end}
  - {id: first, trigger: {signal: go, match: "${{ signal.data > 1 }}"}, output: "${{ signal.data }}"
     , next: end}
  - {id: second, trigger: go, output: "${{ signal.data }}", next: end}
"""
    simulator = stage.simulator(text).start()
    for number in (5, 1, 2):
        simulator.send("go", number)
    ended = [s for s in simulator.story() if s.endswith("succeeded")]
    assert ended == ["w succeeded", "second succeeded", "first succeeded"]


def test_persistent_is_kept_for_a_wait_that_comes_later_and_transient_is_not(stage: Stage) -> None:
    """A transient trigger alone keeps no messages: those that it rejects are gone."""
    text = """
signals: {go: {}}
limits: {idle: 1h}
steps:
  - {id: begin, wait: 1h, next: end}
  - {id: t, trigger: {signal: go, match: "${{ signal.data == 1 }}", KIND}}
"""
    for kind, kept in (("transient: true", 0), ("transient: false", 1)):
        simulator = stage.simulator(text.replace("KIND", kind)).start()
        simulator.send("go", 2)
        assert len(simulator.state["kept"].get("go", ())) == kept
        simulator.send("go", 1)
        assert "t succeeded" in simulator.story()


def test_what_came_while_the_flow_was_ending_is_offered_when_it_goes_on(stage: Stage) -> None:
    """A message sent during a compensation goes to a persistent trigger, not to a transient one."""
    text = """
signals: {go: {}}
steps:
  - {id: a, python: "tools:act", compensate: {python: "tools:act"}}
  - {id: b, fail: {type: Odd, message: no}}
  - {id: c, wait: 1h, next: end}
  - {id: t, trigger: {signal: go, transient: true}, next: end}
  - {id: u, trigger: go}
on_error: [{type: Odd, compensate: true, next: c}]
"""
    simulator = stage.simulator(text).start()
    while not any(run.address.endswith("compensate") for run in simulator.running.values()):
        assert simulator.step()
    simulator.send("go")
    simulator.run()
    story = simulator.story()
    assert "u succeeded" in story
    assert "t succeeded" not in story


def test_all_fires_when_each_has_one_unconsumed_message(stage: Stage) -> None:
    text = """
signals: {a: {data: {type: integer}}, b: {data: {type: string}}}
state: {got: {type: array, default: [], reducer: append}}
limits: {idle: 1h}
steps:
  - {id: t, trigger: {all: [a, b]}, set: {got: "${{ string(signal.data.a) + signal.data.b }}"}}
outputs: {got: "${{ state.got }}"}
"""
    simulator = stage.simulator(text).start()
    for number in range(3):
        simulator.send("a", number)
    assert simulator.state["triggered"] == 0
    for letter in "xy":
        simulator.send("b", letter)
    assert {name: len(kept) for name, kept in simulator.state["kept"].items() if kept} == {"a": 1}
    simulator.run()
    assert simulator.state["outputs"] == {"got": ["0x", "1y"]}


def test_any_fires_for_every_message_of_one_of_them(stage: Stage) -> None:
    text = """
signals: {a: {data: {type: integer}}, b: {data: {type: integer}}, c: {data: {type: integer}}}
state: {got: {type: array, default: [], reducer: append}}
limits: {idle: 1h}
steps:
  - id: t
    trigger: {any: [a, b], match: "${{ signal.data > 0 }}"}
    set: {got: "${{ signal.name + string(signal.data + 1) }}"}
outputs: {got: "${{ state.got }}"}
"""
    simulator = stage.simulator(text).start()
    for signal, number in (("a", 1), ("a", 2), ("b", 0), ("c", 3), ("b", 4)):
        simulator.send(signal, number)
    simulator.run()
    assert simulator.state["outputs"] == {"got": ["a2", "a3", "b5"]}


def test_all_of_one_signal_still_names_its_data(stage: Stage) -> None:
    text = """
signals: {a: {data: {type: integer}}}
limits: {idle: 1h}
steps:
  - {id: t, trigger: {all: [a]}, output: "${{ signal.data.a + 1 }}"}
outputs: {t: "${{ steps.t.output }}"}
"""
    simulator = stage.simulator(text).start()
    simulator.send("a", 1)
    simulator.run()
    assert simulator.state["outputs"] == {"t": 2}


def test_a_write_to_state_fires_once_an_event(stage: Stage) -> None:
    text = """
state: {score: {type: integer, default: 0, reducer: add}, seen: {type: array, default: [],
  reducer: append}}
steps:
  - {id: a, set: {score: 1}}
  - {id: b, set: {score: 1}}
  - {id: c, python: "tools:act", set: {score: 1}, next: end}
  - {id: t, trigger: {state: score}, set: {seen: "${{ state.score }}"}, next: end}
outputs: {seen: "${{ state.seen }}"}
"""
    assert stage.play(text).outputs == {"seen": [2, 3]}


@pytest.mark.parametrize("end", ["fail: Odd", "cancel: execution"])
def test_a_write_fires_nothing_if_the_flow_ends_in_the_same_moment(stage: Stage, end: str) -> None:
    text = f"""
state: {{score: {{type: integer, default: 0}}}}
steps:
  - {{id: a, set: {{score: 1}}}}
  - {{id: b, {end}}}
  - {{id: t, trigger: {{state: score}}, python: "tools:act", next: end}}
"""
    result = stage.play(text, most=2)
    assert result.status == ("failed" if end.startswith("fail") else "cancelled")
    assert stage.simulator(text).start().run().started == []


def test_a_trigger_that_writes_its_own_key_is_a_hot_cycle(stage: Stage) -> None:
    text = """
state: {n: {type: integer, default: 0, reducer: add}}
steps:
  - {id: a, set: {n: 1}, next: end}
  - {id: t, trigger: {state: n}, set: {n: 1}}
"""
    assert stage.play(text, most=2).error_type == "LimitExceeded"


def test_a_match_that_has_no_value_is_an_error_of_the_step(stage: Stage) -> None:
    text = """
signals: {go: {}}
steps:
  - {id: a, emit: {signal: go, data: 1}, next: end}
  - id: t
    trigger: {signal: go, match: "${{ signal.data.x == 1 }}"}
    on_error: [{type: ExpressionError, next: u}]
    next: end
  - {id: u, output: handled}
outputs: {u: "${{ steps.u.output }}"}
"""
    assert stage.play(text).outputs == {"u": "handled"}
    alone = text.replace("    on_error: [{type: ExpressionError, next: u}]\n    next: end\n", "")
    assert stage.play(alone).error_type == "ExpressionError"


def test_a_trigger_is_an_edge_of_a_join(stage: Stage) -> None:
    """A token held for the trigger makes the execution wait, and keeps its scope open (S9)."""
    text = """
signals: {go: {}}
steps:
  - {id: b, output: 1, next: t}
  - {id: t, trigger: go, join: all, output: "${{ [join.outputs.b, signal.data + 1] }}"}
outputs: {t: "${{ steps.t.output }}"}
"""
    simulator = stage.simulator(text).start()
    simulator.run()
    assert simulator.status == "waiting"
    simulator.crash()
    simulator.send("go", 4)
    assert simulator.state["outputs"] == {"t": [1, 5]}
    early = stage.simulator(text.replace("output: 1", 'python: "tools:act"')).start()
    early.send("go", 4)
    early.run()
    assert early.state["outputs"] == {"t": [None, 5]}


def test_counting_and_active_joins_never_wait_for_a_trigger(stage: Stage) -> None:
    text = """
signals: {go: {}}
state: {n: {type: array, default: [], reducer: append}}
limits: {idle: 1h}
steps:
  - {id: b, next: t}
  - {id: t, trigger: go, join: JOIN, set: {n: "${{ join.from }}"}, next: end}
outputs: {n: "${{ state.n }}"}
"""
    for join in ("active", "{need: 1, late: queue}"):
        simulator = stage.simulator(text.replace("JOIN", join)).start()
        simulator.send("go")
        simulator.run()
        assert simulator.state["outputs"] == {"n": ["b"]}, join
        assert simulator.state["triggered"] == 1


def test_signal_is_seen_in_groups_behind_merges_and_by_compensation(stage: Stage) -> None:
    text = """
signals: {go: {data: {type: object, properties: {n: {type: integer}}, required: [n]}}}
state: {undone: {type: array, default: [], reducer: append}}
tools: {undo: {python: "tools:act"}}
steps:
  - {id: a, emit: {signal: go, data: {n: 7}}, next: end}
  - id: t
    trigger: go
    next: {all: [b, g]}
  - {id: b, python: "tools:count", with: {value: "${{ signal.data.n + 1 }}"}, next: c,
     compensate: {call: undo, with: {value: "${{ signal.data.n }}"}}}
  - id: g
    group:
      - {id: inner, output: "${{ signal.data.n + 2 }}"}
    next: c
  - {id: c, join: all, output: "${{ [signal.data.n, steps.b.output, steps.g.output] }}"}
  - {id: d, fail: "no"}
on_error: [{compensate: true, output: {}}]
outputs: {}
"""
    called: list[tuple[str, Any]] = []

    def noted(call: Call) -> Any:
        called.append((call.address, call.value))
        return call.value

    stage.play(text, {"b": noted, "compensate": noted})
    assert called == [("b", 8), ("b/compensate", 7)] * 2


def test_signal_may_be_absent_where_ways_meet(stage: Stage) -> None:
    text = """
signals: {go: {data: {type: integer}}}
steps:
  - {id: a, emit: {signal: go, data: 3}, next: c}
  - {id: t, trigger: go, next: c}
  - {id: c, join: each, output: "${{ SEEN }}"}
outputs: {c: "${{ steps.c.activations }}"}
"""
    told = stage.compile(text.replace("SEEN", "signal.data + 1")).diagnostics
    assert [one.code for one in told if "signal" in one.message] == ["W305"]
    stage.play(text.replace("SEEN", "default(signal.data, 0)"))
    assert refused(stage, text.replace("join: each", "join: all").replace("SEEN", "signal.x"))


@pytest.mark.parametrize(
    ("steps", "error"),
    [
        (
            "[{id: a, group: [{id: t, trigger: go}, {id: u}]}]",
            "E208 't' is inside a group: a 'trigger' works only at the top level of a flow",
        ),
        (
            "[{id: a, next: t}, {id: t, trigger: go}]",
            "E208 't' has a 'trigger', and 'a' also leads to it",
        ),
        ("[{id: a}, {id: t, trigger: go}]", "E203 'a' falls through into 't', which has a trigger"),
        ("[{id: t, trigger: gone}]", "E401 there is no signal 'gone'"),
        ("[{id: t, trigger: {all: [go, gone]}}]", "E401 there is no signal 'gone'"),
        ("[{id: t, trigger: {state: gone}}]", "E301 there is no state 'gone'"),
        ("[{id: t, trigger: {all: [go], transient: true}}]", "E103 'transient' has no meaning"),
        ("[{id: t, trigger: {all: [go, go]}}]", "E103 'all' names a signal twice"),
        ("[{id: t, trigger: {any: [go, go]}}]", "E103 'any' names a signal twice"),
        ("[{id: t, trigger: {any: [go, gone]}}]", "E401 there is no signal 'gone'"),
        (
            '[{id: a, output: "${{ signal.data }}", next: end}, {id: t, trigger: go}]',
            "E301 'signal' is not visible here",
        ),
        (
            '[{id: t, trigger: go, output: "${{ signal.dat }}"}]',
            "E301 'signal.dat' is not declared",
        ),
        (
            "[{id: a, next: c}, {id: t, trigger: go, next: c}, {id: c}]",
            "E202 two tokens can meet at 'c', which has no 'join'",
        ),
        (
            "[{id: t, trigger: go, next: {all: [b, c]}}, {id: b, next: d}, {id: c, next: d},"
            " {id: d}]",
            "E202 two tokens can meet at 'd'",
        ),
    ],
)
def test_what_is_refused(stage: Stage, steps: str, error: str) -> None:
    text = f"signals: {{go: {{data: {{type: integer}}}}}}\nsteps: {steps}\n"
    errors = refused(stage, text)
    assert any(one.startswith(error) for one in errors), errors


def test_two_messages_of_one_trigger_are_a_pair(stage: Stage) -> None:
    """There may be any number of tokens, so concurrent writes conflict."""
    text = """
signals: {go: {}}
state: {n: {type: integer, default: 0}}
steps: [{id: t, trigger: go, set: {n: "${{ state.n + 1 }}"}}]
"""
    assert "W306" in stage.warnings(text)


def test_messages_that_nothing_else_comes_for_keep_nothing_open(stage: Stage) -> None:
    """An `all` join consumes one message per token of its other edge."""
    text = """
signals: {go: {}}
steps:
  - {id: b, wait: 1h, next: t}
  - {id: t, trigger: go, join: all, output: "${{ signal.data }}"}
outputs: {t: "${{ steps.t.output }}"}
"""
    simulator = stage.simulator(text).start()
    for number in range(3):
        simulator.send("go", number)
    assert simulator.status == "waiting"
    simulator.run()
    assert (simulator.status, simulator.state["outputs"]) == ("succeeded", {"t": 0})


def test_a_join_of_two_triggers_waits_for_the_second(stage: Stage) -> None:
    """A token at a join that a message can still complete keeps the scope open (S9)."""
    text = """
signals: {a: {}, b: {}}
limits: {idle: 1h}
steps:
  - {id: s, trigger: a, next: j}
  - {id: t, trigger: b, next: j}
  - {id: j, join: all, output: "${{ join.from }}"}
outputs: {j: "${{ steps.j.output }}"}
"""
    simulator = stage.simulator(text).start()
    simulator.send("a")
    assert (simulator.run().status, simulator.state["timers"]) == ("waiting", {})
    simulator.crash()
    simulator.send("b")
    assert simulator.run().state["outputs"] == {"j": ["s", "t"]}
    assert "W412" in stage.warnings(text)


BOTH = """
state: {score: {type: integer, default: 0}, other: {type: integer, default: 0}}
signals: {go: {}}
limits: {idle: 1h}
steps:
  - {id: a, ADDED next: j}
  MORE
  - {id: j, JOIN join: all, next: end}
"""


def both(added: str = "", more: str = "", join: str = "trigger: {state: score},") -> str:
    return BOTH.replace("ADDED", added).replace("MORE", more).replace("JOIN", join)


SCORED = "- {id: t, trigger: {state: score}, next: j}"


@pytest.mark.parametrize(
    "text",
    [
        both(),
        both("set: {other: 1},"),
        both(more=SCORED, join=""),
        both(more=SCORED, join="set: {score: 1},"),
    ],
)
def test_a_join_that_waits_for_a_write_which_nobody_makes_is_refused(
    stage: Stage, text: str
) -> None:
    [error] = refused(stage, text)
    assert "E207" in error
    assert "only a write to state 'score'" in error or "for a write to state 'score'" in error


@pytest.mark.parametrize(
    ("text", "warned"),
    [
        (both("set: {score: 1},"), False),
        (both("group: [{id: b, set: {score: 1}}],"), True),
        (both(more="- {id: w, trigger: go, set: {score: 1}, next: end}"), True),
        (both("set: {score: 1},", SCORED, join=""), True),
        (
            both(
                "set: {other: 1},", "- {id: t, trigger: {state: other}, set: {score: 1}, next: end}"
            ),
            True,
        ),
    ],
)
def test_a_join_that_may_wait_for_a_write_is_accepted(
    stage: Stage, text: str, warned: bool
) -> None:
    assert ("W412" in stage.warnings(text)) == warned


def test_a_join_that_waits_for_a_write_is_explained_and_stalls(tmp_path: Path) -> None:
    text = """
flowengine: 1
id: it
inputs: {written: {type: boolean, default: false}}
state: {score: {type: integer, default: 0}}
steps:
  - id: g
    group:
      - {id: a, next: {first: [{when: "${{ inputs.written }}", to: w}, {else: end}]}}
      - {id: w, set: {score: 1}}
    next: j
  - {id: j, trigger: {state: score}, join: all, next: end}
"""
    (tmp_path / "it.yaml").write_text(text)
    with Engine(tmp_path / "store") as engine:
        assert engine.run(tmp_path / "it.yaml", {"written": True}).status == "succeeded"
        result = engine.run(tmp_path / "it.yaml")
        [reason] = engine.why(result.execution)
    assert result.status == "stalled"
    assert reason["what"] == "its join is waiting for a write to state 'score'"


def test_a_flow_of_triggers_alone_says_how_long_it_stays_open(stage: Stage) -> None:
    text = """
signals: {go: {}}
LIMITS
steps: [{id: t, trigger: go}]
"""
    assert "W414" in stage.warnings(text.replace("LIMITS", ""))
    assert stage.play(text.replace("LIMITS", "")).status == "succeeded"
    assert not stage.warnings(text.replace("LIMITS", "limits: {idle: 1h}"))


def test_idle_without_a_trigger_means_nothing(stage: Stage) -> None:
    [error] = refused(stage, "limits: {idle: 1h}\nsteps: [{id: a}]")
    assert error.startswith("E103 'idle' has no meaning in a flow without a 'trigger'")
