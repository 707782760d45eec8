"""Waits and timers: for time, for messages, for any or all of several (F21, F23)."""

from __future__ import annotations

import pytest

from flowengine import NotFound
from flowengine.kernel.notation.times import format_time
from flowengine.testing.simulator import Simulator
from tests.language.stage import START, Stage, statuses

SIGNALS = """
inputs: {total: {type: integer, default: 0}, order: {type: string, default: o1}}
signals:
  paid: {data: {type: object, properties: {amount: {type: integer}}, required: [amount]}}
  note: {}
  keyed: {key: "${{ inputs.order }}"}
"""


def fire(simulator: Simulator, seconds: float = 0) -> None:
    """Advance to the next timer, which is due in that many seconds."""
    number = min(simulator.state["timers"], key=lambda n: simulator.state["timers"][n]["due"])
    due = simulator.state["timers"][number]["due"]
    assert due - simulator.now == seconds * 1000
    simulator.apply({"type": "timer", "at": due, "timer": number})


# Time


@pytest.mark.parametrize(
    ("wait", "seconds"),
    [
        ("90s", 90),
        ("{for: 1h30m}", 5400),
        ("\"${{ string(inputs.total + 2) + 'd' }}\"", 2 * 86_400),
        ("{for: 0s}", 0),
        ('{until: "2023-11-14T22:13:30Z"}', 10),
        ('{until: "2023-11-14T23:13:30+01:00"}', 10),
        ('{until: "1999-01-01T00:00:00Z"}', 0),
    ],
)
def test_wait_for_time_ends_when_it_has_come(stage: Stage, wait: str, seconds: int) -> None:
    text = _waiting(wait)
    if seconds:
        simulator = stage.simulator(text).start({"total": 0, "order": ""}, at=START)
        fire(simulator, seconds)
        assert simulator.status == "succeeded"
    result = stage.run(text)
    if not result.ended:
        assert result.due == START + seconds * 1000
        assert stage.later(result.execution, seconds - 61).status == "waiting"
        result = stage.later(result.execution, 61)
    assert result.outputs is not None
    assert result.outputs["w"]["id"] == "ok"
    assert result.outputs["w"]["at"] >= format_time(START + seconds * 1000)


@pytest.mark.parametrize(
    "wait",
    [
        "{for: \"${{ 'tomorrow' }}\"}",
        "{until: \"${{ 'tomorrow' }}\"}",
        "{until: \"${{ '2026-01-01' }}\"}",
        '{for: "${{ string(1 / inputs.total) }}"}',
        '{signal: note, count: "${{ inputs.total }}"}',
    ],
)
def test_computed_time_or_count_that_is_none_fails_the_step(stage: Stage, wait: str) -> None:
    outcome = stage.play(f"{SIGNALS}steps:\n  - {{id: w, wait: {wait}}}\n")
    assert outcome.error_type in {"ValidationError", "ExpressionError"}
    assert outcome.error is not None
    assert outcome.error["step"] == "w"


def test_now_is_the_time_that_was_recorded(stage: Stage) -> None:
    text = """
steps:
  - {id: a, output: "${{ now }}"}
  - {id: w, wait: 10s}
  - {id: b, output: "${{ now }}"}
outputs: {a: "${{ steps.a.output }}", b: "${{ steps.b.output }}"}
"""
    outputs = stage.run(text).outputs
    assert outputs is not None
    assert outputs["a"] < outputs["b"]


# Messages


def _waiting(wait: str, more: str = "title: w") -> str:
    return f"""{SIGNALS}
steps:
  - id: w
    wait: {wait}
    {more}
outputs: {{w: "${{{{ steps.w.output }}}}"}}
"""


def test_message_wakes_the_step_that_waits_for_it(stage: Stage) -> None:
    execution = stage.run(_waiting("{signal: paid}")).execution
    sent = stage.signal("paid", {"amount": 5}, execution=execution, by="user:ana")
    assert sent.result is not None
    assert sent.result.outputs is not None
    output = sent.result.outputs["w"]
    assert (output["id"], output["signal"], output["data"]) == ("ok", "paid", {"amount": 5})


def test_message_that_does_not_match_goes_on_waiting_for_somebody(stage: Stage) -> None:
    text = _waiting('{signal: paid, match: "${{ signal.data.amount >= inputs.total }}"}')
    result = stage.run(text, {"total": 10})
    assert stage.signal("paid", {"amount": 9}, execution=result.execution).result is not None
    assert stage.engine.result(result.execution).status == "waiting"
    sent = stage.signal("paid", {"amount": 10}, execution=result.execution)
    assert sent.result is not None
    assert sent.result.outputs is not None
    assert sent.result.outputs["w"]["data"] == {"amount": 10}


def test_message_without_a_receiver_is_kept_for_the_next_wait_oldest_first(stage: Stage) -> None:
    text = """
signals: {note: {}}
steps:
  - {id: pause, wait: 1h}
  - {id: one, wait: {signal: note}}
  - {id: two, wait: {signal: note}}
outputs: {one: "${{ steps.one.output.data }}", two: "${{ steps.two.output.data }}"}
"""
    execution = stage.run(text).execution
    for data in ("first", "second", "third"):
        stage.signal("note", data, execution=execution)
    assert stage.later(execution, 3600).outputs == {"one": "first", "two": "second"}


def test_transient_wait_takes_no_message_from_before(stage: Stage) -> None:
    text = """
signals: {note: {}}
steps:
  - {id: pause, wait: 1h}
  - {id: one, wait: {signal: note, transient: true}}
  - {id: two, wait: {signal: note}}
outputs: {one: "${{ steps.one.output.data }}", two: "${{ steps.two.output.data }}"}
"""
    execution = stage.run(text).execution
    stage.signal("note", "early", execution=execution)
    assert stage.later(execution, 3600).status == "waiting"
    sent = stage.signal("note", "now", execution=execution)
    assert sent.result is not None
    assert sent.result.outputs == {"one": "now", "two": "early"}


def test_one_message_goes_to_the_oldest_wait_that_fits(stage: Stage) -> None:
    text = """
signals: {note: {}}
steps:
  - id: p
    parallel:
      - {id: a, wait: {signal: note, match: "${{ signal.data != 'b' }}"}}
      - {id: b, wait: {signal: note}}
      - {id: c, wait: {signal: note}}
outputs: {p: "${{ [steps.p.output.a.data, steps.p.output.b.data, steps.p.output.c.data] }}"}
"""
    simulator = stage.simulator(text).start()
    for n, data in enumerate(("b", "x", "y")):
        simulator.send("note", data, id=str(n))
        assert len(simulator.waits()) == 2 - n
    assert simulator.state["outputs"] == {"p": ["x", "b", "y"]}


def test_same_message_twice_is_one(stage: Stage) -> None:
    execution = stage.run(_waiting("{signal: note, count: 2}")).execution
    for _ in range(3):
        stage.signal("note", 1, execution=execution, id="m1")
    assert stage.engine.result(execution).status == "waiting"
    stage.signal("note", 2, execution=execution, id="m2")
    assert stage.engine.result(execution).outputs == {"w": [1, 2]}


def test_count_collects_messages_that_came_before_and_come_then(stage: Stage) -> None:
    text = """
signals: {note: {}}
steps:
  - {id: pause, wait: 1s}
  - {id: w, wait: {signal: note, count: 3, match: "${{ signal.data > 0 }}"}}
outputs: {w: "${{ sum(steps.w.output) }}"}
"""
    simulator = stage.simulator(text).start()
    for n, data in enumerate((1, 0, 2)):
        simulator.send("note", data, id=str(n))
    fire(simulator, 1)
    assert simulator.status == "waiting"
    simulator.send("note", 4, id="last")
    assert simulator.state["outputs"] == {"w": 7}


def test_match_that_has_no_value_fails_the_step_and_keeps_the_message(stage: Stage) -> None:
    text = """
signals: {note: {}}
steps:
  - id: one
    wait: {signal: note, match: "${{ signal.data.amount > 0 }}"}
    on_error: [{type: ExpressionError, next: two}]
    next: two
  - {id: two, wait: {signal: note}}
outputs: {one: "${{ steps.one.status }}", two: "${{ steps.two.output.data }}"}
"""
    for early in (True, False):
        simulator = stage.simulator(text.replace("steps:", "steps:\n  - {id: pause, wait: 1s}"))
        simulator.start()
        if not early:
            fire(simulator, 1)
        simulator.send("note", "no map")
        if early:
            fire(simulator, 1)
        assert simulator.state["outputs"] == {"one": "failed", "two": "no map"}


def test_key_finds_the_execution(stage: Stage) -> None:
    text = _waiting("{signal: keyed}")
    for order in ("o1", "o2"):
        stage.run(text, {"order": order}, id=order)
    sent = stage.signal("keyed", "hello", key="o2")
    assert sent.execution == "o2"
    assert stage.engine.result("o1").status == "waiting"
    with pytest.raises(NotFound):
        stage.signal("keyed", "hello", key="o3")


# Several


RACE = """
    first:
      - {id: paid, signal: paid, match: "${{ signal.data.amount > 0 }}"}
      - {id: noted, signal: note}
      - {id: late, for: 1h}
"""


@pytest.mark.parametrize("winner", ["paid", "noted", "late"])
def test_first_that_occurs_wins_and_the_others_are_withdrawn(stage: Stage, winner: str) -> None:
    text = f"""{SIGNALS}
steps:
  - id: w
    wait:{RACE.replace("    ", "      ")}
    next: {{outcome: {{paid: a, noted: b, late: c}}}}
  - {{id: a, output: paid, next: end}}
  - {{id: b, output: noted, next: end}}
  - {{id: c, output: late, next: end}}
outputs: {{way: "${{{{ default(steps.a.output, steps.b.output, steps.c.output) }}}}"}}
"""
    simulator = stage.simulator(text).start({"total": 0, "order": "x"})
    [wait] = simulator.waits()
    assert [s["signal"] for s in wait["signals"]] == ["paid", "note"]
    if winner == "late":
        fire(simulator, 3600)
    else:
        name = {"paid": "paid", "noted": "note"}[winner]
        simulator.send("paid", {"amount": 0}, id="too little")
        simulator.send(name, {"amount": 1}, id="m")
    assert simulator.state["outputs"] == {"way": winner}
    assert not simulator.state["timers"]
    assert not simulator.state["waits"]


def test_oldest_message_that_fits_any_alternative_wins(stage: Stage) -> None:
    text = f"""{SIGNALS}
steps:
  - {{id: pause, wait: 1s}}
  - id: w
    wait: {{first: [{{id: x, signal: paid}}, {{id: y, signal: note}}, {{id: z, for: 0s}}]}}
outputs: {{w: "${{{{ steps.w.output.id }}}}"}}
"""
    for first, winner in (("note", "y"), ("paid", "x"), (None, "z")):
        simulator = stage.simulator(text).start({"total": 0, "order": "x"})
        if first:
            simulator.send(first, id="1")
            simulator.send({"note": "paid", "paid": "note"}[first], id="2")
        fire(simulator, 1)
        assert simulator.state["outputs"] == {"w": winner}


def test_all_waits_for_every_alternative_in_any_order(stage: Stage) -> None:
    text = f"""{SIGNALS}
steps:
  - id: w
    wait:
      all: [{{id: x, signal: paid}}, {{id: y, signal: note}}, {{id: z, for: 1h}}]
outputs: {{w: "${{{{ steps.w.output.map(o, o.id) }}}}"}}
"""
    for order in (["paid", "note", "time"], ["time", "note", "paid"], ["note", "time", "paid"]):
        simulator = stage.simulator(text).start({"total": 0, "order": "x"})
        for what in order:
            assert simulator.status == "waiting"
            if what == "time":
                fire(simulator, 3600)
            else:
                simulator.send(what, id=what)
        assert simulator.state["outputs"] == {"w": ["x", "y", "z"]}


def test_timeout_bounds_the_waiting_of_all(stage: Stage) -> None:
    text = f"""{SIGNALS}
steps:
  - id: w
    wait: {{all: [{{id: x, signal: paid}}, {{id: y, signal: note}}]}}
    timeout: 1h
    next: {{outcome: {{ok: end, timeout: late}}}}
  - {{id: late, output: "${{{{ steps.w.outcome }}}}"}}
outputs: {{late: "${{{{ steps.late.output }}}}"}}
"""
    simulator = stage.simulator(text).start({"total": 0, "order": "x"})
    simulator.send("paid", {"amount": 1})
    fire(simulator, 3600)
    assert simulator.state["outputs"] == {"late": "timeout"}


def test_wait_that_timed_out_is_tried_again_by_retry(stage: Stage) -> None:
    text = _waiting(
        "{signal: note}", "timeout: 1h\n    retry: {attempts: 2, delay: 1m, jitter: none}"
    )
    simulator = stage.simulator(text).start({"total": 0, "order": "x"})
    fire(simulator, 3600)
    assert simulator.waits() == []
    fire(simulator, 60)
    assert len(simulator.waits()) == 1
    fire(simulator, 3600)
    assert simulator.state["error"] is not None
    assert simulator.state["error"]["type"] == "Timeout"


def test_waits_of_items_are_withdrawn_with_their_map(stage: Stage) -> None:
    text = f"""{SIGNALS}
steps:
  - id: m
    map: 5
    wait:
      first:
        - {{id: x, signal: note, match: "${{{{ signal.data == item }}}}"}}
        - {{id: y, for: 1h}}
    output: "${{{{ result.id }}}}"
    deadline: 1m
    on_error: [{{type: Deadline, output: "${{{{ error.type }}}}"}}]
outputs: {{m: "${{{{ steps.m.output }}}}"}}
"""
    simulator = stage.simulator(text).start({"total": 0, "order": "x"})
    simulator.send("note", 3)
    assert statuses(simulator)["m[3]"] == "succeeded"
    assert len(simulator.waits()) == 4
    fire(simulator, 60)
    assert simulator.state["outputs"] == {"m": "Deadline"}
    assert simulator.state["timers"] == {}


def test_time_that_passed_while_nobody_drove_counts_in_order(stage: Stage) -> None:
    """A message of day 2 wins over a timer of day 3, although both are processed on day 4."""
    text = f"""{SIGNALS}
steps:
  - id: w
    wait: {{first: [{{id: late, for: 3d}}, {{id: noted, signal: note}}]}}
outputs: {{w: "${{{{ steps.w.output.id }}}}"}}
"""
    day = 86_400
    execution = stage.run(text).execution
    stage.clock.seconds += 2 * day
    stage.engine.signal("note", 1, execution=execution, resume=False)
    assert stage.later(execution, 2 * day).outputs == {"w": "noted"}

    execution = stage.run(text).execution
    stage.clock.seconds += 3.5 * day
    stage.engine.signal("note", 1, execution=execution, resume=False)
    assert stage.later(execution, day).outputs == {"w": "late"}


def test_clock_that_goes_back_neither_fires_early_nor_loses_a_timer(stage: Stage) -> None:
    text = "steps:\n  - {id: w, wait: 1h}\n"
    execution = stage.run(text).execution
    assert stage.later(execution, -7200).status == "waiting"
    assert stage.later(execution, 7200 + 3600).status == "succeeded"


def test_timers_of_many_items_fire_in_order(stage: Stage) -> None:
    text = """
state: {seen: {type: array, default: [], reducer: append}}
steps:
  - id: m
    map: {over: 200, concurrency: 3}
    group:
      - {id: w, wait: "${{ string(60000 - item) + 'ms' }}", set: {seen: ["${{ item }}"]}}
outputs: {seen: "${{ state.seen }}"}
"""
    assert stage.run(text).outputs == {"seen": list(range(199, -1, -1))}
