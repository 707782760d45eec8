"""Compensation: completed steps are undone, newest first, without exception (F21, F87)."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine.testing.simulator import Fails, Simulator
from tests.language.stage import Call, Stage, statuses

BROKEN = Fails("Broken", "no room", retryable=False)


def undone(simulator: Simulator) -> list[str]:
    """Return the addresses of compensated steps, in order."""
    return [a.removesuffix("/compensate") for a in simulator.started if a.endswith("/compensate")]


# A step fails while a request of another one is in flight

TRIP = """
tools:
  undo: {{python: "tools:act", effect: idempotent}}
steps:
  - id: book
    group:
      - id: reserve
        parallel:
          - id: flight
            python: "tools:act"
            effect: {effect}
            {more}
            compensate: {{call: undo, with: {{value: "${{{{ output }}}}"}}}}
          - {{id: hotel, python: "tools:act", effect: idempotent}}
      - {{id: pay, python: "tools:act", effect: idempotent}}
    on_error:
      - {{type: Broken, compensate: true, next: sorry}}
    next: end
  - {{id: sorry, output: "${{{{ steps.book.error.step }}}}"}}
outputs: {{sorry: "${{{{ steps.sorry.output }}}}"}}
"""
FLIGHT = "book/reserve/flight"


class Airline:
    """An external system: reservations by address. Answers to requests may get lost."""

    def __init__(self) -> None:
        self.reserved: set[str] = set()
        self.requests = 0

    def reserve(self, call: Call) -> str:
        self.requests += 1
        if call.address.endswith("/compensate"):
            self.reserved.discard(call.value)
            return "released"
        self.reserved.add(call.address)
        return call.address

    def script(self, fails: str) -> dict[str, Any]:
        return {"flight": self.reserve, "compensate": self.reserve, fails: BROKEN}


@pytest.mark.parametrize("acted", [True, False])
@pytest.mark.parametrize("fails", ["hotel", "pay"])
def test_nothing_stays_reserved_at_whatever_event_it_fails_or_crashes(
    stage: Stage, fails: str, acted: bool
) -> None:
    compiled = stage.compile(TRIP.format(effect="idempotent", more=""))
    settled = 0
    for seed in range(12):
        for crash in range(8):
            airline = Airline()
            simulator = stage.simulator(compiled, airline.script(fails), seed=seed).start()
            if acted:  # the request has arrived, with or without an answer
                airline.reserved.add(FLIGHT)
            for _ in range(crash):
                simulator.step()
            if simulator.status == "running":
                simulator.crash()
            simulator.run()
            assert simulator.state["outputs"] == {"sorry": "book/" + (
                "reserve/hotel" if fails == "hotel" else "pay"
            )}  # fmt: skip
            assert airline.reserved == set(), (seed, crash)
            settled += simulator.started.count(FLIGHT) > 1
    assert settled


def test_cut_off_request_is_settled_under_its_key_and_undone_by_the_engine(stage: Stage) -> None:
    stage.world.held = {FLIGHT}
    stage.world.script = {"hotel": BROKEN}

    async def let_it_end() -> None:
        stage.world.held.clear()

    result = stage.run_meanwhile(
        TRIP.format(effect="idempotent", more=""),
        lambda: FLIGHT in stage.world.withdrawn,
        let_it_end,
    )
    assert result.outputs == {"sorry": "book/reserve/hotel"}
    assert stage.world.started.count(FLIGHT) == 2
    assert len(stage.world.keys[FLIGHT]) == 1
    assert stage.world.started[-1] == f"{FLIGHT}/compensate"


@pytest.mark.parametrize(
    ("answer", "value", "gone"),
    [("result", FLIGHT, True), ("retry", None, True), ("fail", None, False)],
)
def test_request_that_must_not_be_repeated_is_a_question(
    stage: Stage, answer: str, value: Any, gone: bool
) -> None:
    airline = Airline()
    text = TRIP.format(effect="once", more="")
    simulator = stage.simulator(text, airline.script("hotel"), order="first").start()
    airline.reserved.add(FLIGHT)
    simulator.finish("book/reserve/hotel")
    [question] = simulator.waits()
    assert (question["kind"], question["address"]) == ("question", FLIGHT)
    assert "Did it take effect?" in str(question["title"])
    assert simulator.status == "stalled"
    simulator.decide(FLIGHT, answer, value=value)
    simulator.run()
    assert simulator.state["outputs"] == {"sorry": "book/reserve/hotel"}
    assert airline.reserved == (set() if gone else {FLIGHT})


@pytest.mark.parametrize(
    ("answer", "value", "gone"),
    [("result", FLIGHT, True), ("retry", None, True), ("fail", None, False)],
)
@pytest.mark.parametrize("how", ["a neighbour fails", "the group's time is over"])
def test_a_crash_leaves_a_question_that_is_asked_again_if_the_group_ends(
    stage: Stage, how: str, answer: str, value: Any, gone: bool
) -> None:
    """Ending the group does not answer whether the request took effect."""
    airline = Airline()
    text = TRIP.format(effect="once", more="")
    if how == "a neighbour fails":
        script = airline.script("hotel")
    else:
        text = text.replace("id: book", "id: book\n    timeout: 1h").replace("Broken", "Timeout")
        script = airline.script("pay")
    simulator = stage.simulator(text, script, order="first").start()
    airline.reserved.add(FLIGHT)
    simulator.crash()
    [before] = simulator.waits()
    assert before["address"] == FLIGHT
    if how == "a neighbour fails":
        simulator.finish("book/reserve/hotel")
    else:
        [timer] = simulator.state["timers"]
        simulator.apply({"type": "timer", "at": simulator.now + 3_600_000, "timer": timer})
    [after] = simulator.waits()
    assert after["id"] != before["id"]
    assert (after["address"], after["title"]) == (FLIGHT, before["title"])
    assert undone(simulator) == []
    simulator.decide(FLIGHT, answer, value=value)
    simulator.run()
    assert simulator.status == "succeeded"
    assert airline.reserved == (set() if gone else {FLIGHT})


def test_what_a_crash_left_open_is_not_taken_for_undone(stage: Stage) -> None:
    """With `on_crash: fail` the step may have taken effect, which compensation cannot know."""
    text = TRIP.format(effect="once", more="on_crash: fail").replace("Broken", "Uncertain")
    simulator = stage.simulator(text, Airline().script("-"), order="first").start()
    simulator.crash()
    simulator.run()
    error = simulator.state["error"]
    assert error is not None
    assert error["type"] == "CompensationFailed"
    [failure] = error["data"]["failures"]
    assert (failure["type"], failure["step"]) == ("Uncertain", FLIGHT)


def test_question_is_answered_through_the_engine(stage: Stage) -> None:
    stage.world.held = {FLIGHT}
    stage.world.script = {"hotel": BROKEN}
    result = stage.run(TRIP.format(effect="once", more=""))
    assert result.status == "stalled"
    [wait] = result.waits
    assert wait["kind"] == "question"
    ended = stage.decide(FLIGHT, "result", value="F1").result
    assert ended is not None
    assert ended.outputs == {"sorry": "book/reserve/hotel"}
    assert stage.world.started[-1] == f"{FLIGHT}/compensate"


def test_what_on_crash_says_is_done_without_asking(stage: Stage) -> None:
    airline = Airline()
    text = TRIP.format(effect="once", more="on_crash: retry")
    simulator = stage.simulator(text, airline.script("hotel"), order="first").start()
    simulator.finish("book/reserve/hotel")
    simulator.run()
    assert simulator.started.count(FLIGHT) == 2
    assert simulator.state["outputs"] is not None

    text = TRIP.format(effect="once", more="on_crash: fail")
    simulator = stage.simulator(text, Airline().script("hotel"), order="first").start()
    simulator.finish("book/reserve/hotel")
    simulator.run()
    error = simulator.state["error"]
    assert error is not None
    assert error["type"] == "CompensationFailed"
    [failure] = error["data"]["failures"]
    assert (failure["type"], failure["step"]) == ("Uncertain", FLIGHT)
    assert error["cause"] is not None
    assert error["cause"]["type"] == "Broken"


def test_late_result_of_a_withdrawn_request_settles_it_without_asking_again(stage: Stage) -> None:
    airline = Airline()
    text = TRIP.format(effect="once", more="")
    simulator = stage.simulator(text, airline.script("hotel"), order="first").start()
    run = next(r for r in simulator.running.values() if r.address == FLIGHT)
    simulator.finish("book/reserve/hotel")
    assert len(simulator.waits()) == 1
    airline.reserved.add(FLIGHT)
    simulator.apply(
        {"type": "succeeded", "at": simulator.now, "unit": run.unit, "attempt": 1, "value": FLIGHT}
    )
    assert simulator.waits() == []
    simulator.run()
    assert airline.reserved == set()
    assert simulator.status == "succeeded"


def test_timed_out_attempt_is_settled_too(stage: Stage) -> None:
    airline = Airline()
    text = TRIP.format(effect="idempotent", more="timeout: 1s")
    text = text.replace("type: Broken", "type: Timeout")
    simulator = stage.simulator(text, {**airline.script("-"), "hotel": 1}, order="first").start()
    simulator.finish("book/reserve/hotel")
    airline.reserved.add(FLIGHT)
    [timer] = simulator.state["timers"]
    simulator.apply({"type": "timer", "at": simulator.now + 1000, "timer": timer})
    simulator.run()
    assert simulator.state["outputs"] == {"sorry": FLIGHT}
    assert airline.reserved == set()
    assert simulator.started.count(FLIGHT) == 2


@pytest.mark.parametrize("acted", [True, False])
@pytest.mark.parametrize("fails", ["hotel", "pay"])
def test_nothing_stays_reserved_where_its_environment_is_lost_at_whatever_event(
    stage: Stage, fails: str, acted: bool
) -> None:
    """It is lost before the failure, while the scope settles it, or never, at every event."""
    compiled = stage.compile(
        TRIP.format(effect="idempotent", more="retry: {attempts: 2, delay: 1ms}")
    )
    lost = 0
    for seed in range(6):
        for event in range(8):
            airline = Airline()
            simulator = stage.simulator(compiled, airline.script(fails), seed=seed).start()
            if acted:
                airline.reserved.add(FLIGHT)
            for _ in range(event):
                simulator.step()
            lost += lose(simulator, FLIGHT)
            simulator.run()
            if simulator.status == "stalled":  # it was lost while it was settled
                simulator.decide(FLIGHT, "retry")
                simulator.run()
            assert simulator.state["outputs"] is not None
            assert airline.reserved == set(), (seed, event)
    assert lost


def test_one_whose_environment_is_lost_while_it_is_settled_is_a_question(stage: Stage) -> None:
    airline = Airline()
    text = TRIP.format(effect="idempotent", more="")
    simulator = stage.simulator(text, airline.script("hotel"), order="first").start()
    airline.reserved.add(FLIGHT)
    simulator.finish("book/reserve/hotel")
    assert lose(simulator, FLIGHT)

    [question] = simulator.waits()
    assert (question["kind"], question["address"], simulator.status) == (
        "question",
        FLIGHT,
        "stalled",
    )
    assert question["error"]["message"] == "its box fell off"
    simulator.decide(FLIGHT, "retry")
    simulator.run()
    assert airline.reserved == set()
    assert simulator.state["outputs"] == {"sorry": "book/reserve/hotel"}


@pytest.mark.parametrize("answer", ["result", "fail"])
def test_one_that_must_not_be_repeated_and_lost_its_environment_is_a_question(
    stage: Stage, answer: str
) -> None:
    airline = Airline()
    text = TRIP.format(effect="once", more="")
    simulator = stage.simulator(text, airline.script("pay"), order="first").start()
    airline.reserved.add(FLIGHT)
    assert lose(simulator, FLIGHT)
    simulator.run()
    [question] = simulator.waits()
    assert (question["address"], question["ran"], simulator.status) == (FLIGHT, "maybe", "stalled")

    simulator.decide(FLIGHT, answer, value=FLIGHT)
    simulator.run()

    if answer == "result":
        assert airline.reserved == set()
        assert simulator.state["outputs"] == {"sorry": "book/pay"}
    else:
        error = simulator.state["error"]
        assert error is not None
        assert error["type"] == "Uncertain"


def lose(simulator: Simulator, address: str) -> bool:
    """Lose the environment of a running attempt, and return whether there was one."""
    for key, run in simulator.running.items():
        if run.address == address:
            del simulator.running[key]
            error: Any = {"type": "EnvironmentLost", "message": "its box fell off"}
            simulator.apply(
                {
                    "type": "lost",
                    "at": simulator.now,
                    "unit": run.unit,
                    "attempt": run.attempt,
                    "ran": "maybe",
                    "error": error,
                }
            )
            return True
    return False


# Order


def _scope(steps: list[Any], how: Any = "compensate", **more: Any) -> dict[str, Any]:
    """Return a flow whose steps are compensated when its last one fails."""
    return {
        "defaults": {"effect": "idempotent"},
        "tools": {"undo": {"python": "tools:act"}},
        "steps": [*steps, {"id": "last", "python": "tools:act"}],
        **({"on_error": how} if how else {}),
        **more,
    }


def _step(name: str, **more: Any) -> dict[str, Any]:
    undo = {"call": "undo", "with": {"value": "${{ output }}"}}
    return {"id": name, "python": "tools:act", "compensate": undo, **more}


LAST = {"last": BROKEN}


def test_steps_are_undone_newest_first_one_at_a_time(stage: Stage) -> None:
    flow = _scope([_step("a"), {"id": "b", "parallel": [_step("c"), _step("d")]}, _step("e")])
    for order in (["b/c", "b/d"], ["b/d", "b/c"]):
        simulator = stage.simulator(flow, LAST).start()
        for address in ("a", *order, "e", "last"):
            simulator.finish(address)
        while simulator.running:
            assert len(simulator.running) == 1
            simulator.step()
        assert undone(simulator) == ["e", *reversed(order), "a"]
        assert simulator.state["error"] is not None
        assert simulator.state["error"]["type"] == "Broken"


def test_each_item_and_each_round_is_undone_with_its_own_names(stage: Stage) -> None:
    undo = {"call": "undo", "with": {"value": "${{ [output, item, round.number, error.type] }}"}}
    step = _step("a", compensate=undo)
    step["map"] = ["x", "y"]
    step["loop"] = {"until": "${{ round.number == 2 }}", "max": 2}
    step["with"] = {"value": "${{ item + string(round.number) }}"}
    calls: list[Any] = []
    script = {**LAST, "compensate": lambda call: calls.append(call.value)}
    simulator = stage.simulator(_scope([step]), script, order="first").start()
    for address in ("a[0]@1", "a[1]@1", "a[1]@2", "a[0]@2", "last"):
        simulator.finish(address)
    simulator.run()
    assert undone(simulator) == ["a[0]@2", "a[1]@2", "a[1]@1", "a[0]@1"]
    assert calls == [
        [f"{i}{n}", i, n, "Broken"] for i, n in (("x", 2), ("y", 2), ("y", 1), ("x", 1))
    ]


def test_failed_skipped_and_unfinished_steps_are_not_undone(stage: Stage) -> None:
    flow = _scope(
        [
            _step("a", when="${{ false }}"),
            _step("b", on_error="continue"),
            _step("c", on_error=[{"output": 1}]),
            _step("d"),
        ]
    )
    script = {**LAST, "b": BROKEN, "c": BROKEN}
    assert undone(stage.simulate(flow, script)) == ["d"]


def test_step_whose_output_or_set_failed_has_acted_and_is_undone_with_what_it_gave(
    stage: Stage,
) -> None:
    for where in ({"output": "${{ 1 / 0 + result }}"}, {"set": {"n": "${{ output / 0 }}"}}):
        calls: list[Any] = []
        script = {"a": 7, "compensate": lambda call, calls=calls: calls.append(call.value)}
        flow = _scope([_step("a", **where)], state={"n": {"type": "integer", "default": 0}})
        simulator = stage.simulate(flow, script)
        assert simulator.state["error"] is not None
        assert simulator.state["error"]["type"] == "ExpressionError"
        assert calls == [7], where


def test_group_that_says_itself_how_it_is_undone_is_undone_by_that(stage: Stage) -> None:
    undo = {"call": "undo", "with": {"value": "${{ output }}"}}
    group = {"id": "g", "group": [_step("a"), _step("b")], "compensate": undo}
    simulator = stage.simulate(_scope([group]), LAST)
    assert undone(simulator) == ["g"]


def test_group_that_did_not_succeed_is_undone_by_its_steps(stage: Stage) -> None:
    undo = {"call": "undo", "with": {"value": "${{ output }}"}}
    inner = [_step("a"), _step("b"), {"id": "c", "python": "tools:act"}]
    group = {"id": "g", "group": inner, "compensate": undo, "on_error": "continue"}
    simulator = stage.simulate(_scope([group]), {**LAST, "c": BROKEN})
    assert undone(simulator) == ["g/b", "g/a"]


def test_what_each_attempt_of_a_group_completed_is_undone(stage: Stage) -> None:
    group = {
        "id": "g",
        "retry": {"attempts": 2, "delay": "0s", "only": ["Broken"]},
        "group": [_step("a", **{"with": {"value": 1}}), {"id": "b", "python": "tools:act"}],
        "on_error": [{"compensate": True, "next": "end"}],
    }
    simulator = stage.simulate(_scope([group], how=None), {"b": BROKEN})
    assert undone(simulator) == ["g/a", "g/a"]
    assert simulator.status == "succeeded"


def test_handler_of_a_step_undoes_what_completed_around_it_so_far(stage: Stage) -> None:
    text = """
defaults: {effect: idempotent}
tools: {undo: {python: "tools:act"}}
steps:
  - {id: outside, python: "tools:act", compensate: {call: undo}}
  - id: g
    group:
      - {id: a, python: "tools:act", compensate: {call: undo}}
      - {id: b, python: "tools:act", on_error: [{compensate: true, next: c}], next: c}
      - {id: c, python: "tools:act", compensate: {call: undo}}
  - {id: last, python: "tools:act"}
"""
    simulator = stage.simulate(text, {"b": BROKEN})
    assert undone(simulator) == ["g/a"]
    assert simulator.status == "succeeded"


def test_handler_that_only_compensates_raises_the_error_again(stage: Stage) -> None:
    text = """
defaults: {effect: idempotent}
tools: {undo: {python: "tools:act"}}
steps:
  - id: g
    group:
      - {id: a, python: "tools:act", compensate: {call: undo}}
      - {id: b, python: "tools:act"}
    on_error: compensate
"""
    simulator = stage.simulate(text, {"b": BROKEN})
    assert undone(simulator) == ["g/a"]
    assert simulator.state["error"] is not None
    assert (simulator.state["error"]["type"], simulator.state["error"]["step"]) == ("Broken", "g/b")


# Failing compensations


def test_compensation_that_fails_does_not_stop_the_others(stage: Stage) -> None:
    script = {**LAST, "b/compensate": Fails("Stuck", "no answer", retryable=False)}
    flow = _scope([_step("a"), _step("b"), _step("c")])
    simulator = stage.simulate(flow, script)
    assert undone(simulator) == ["c", "b", "a"]
    error = simulator.state["error"]
    assert error is not None
    assert error["type"] == "CompensationFailed"
    assert [one["type"] for one in error["data"]["failures"]] == ["Stuck"]
    assert error["data"]["failures"][0]["step"] == "b/compensate"
    assert error["cause"] is not None
    assert error["cause"]["type"] == "Broken"


def test_compensation_is_tried_again(stage: Stage) -> None:
    undo = {
        "call": "undo",
        "with": {"value": "${{ output }}"},
        "retry": {"attempts": 3, "delay": "0s"},
    }

    def stubborn(call: Call) -> None:
        if call.attempt < 3:
            raise Fails("ToolError")

    simulator = stage.simulate(
        _scope([_step("a", compensate=undo)]), {**LAST, "compensate": stubborn}
    )
    assert undone(simulator) == ["a"] * 3
    assert simulator.state["error"] is not None
    assert simulator.state["error"]["type"] == "Broken"


def test_compensation_whose_argument_has_no_value_is_one_that_failed(stage: Stage) -> None:
    undo = {"call": "undo", "with": {"value": "${{ output.nothing }}"}}
    simulator = stage.simulate(_scope([_step("a", compensate=undo), _step("b")]), LAST)
    assert undone(simulator) == ["b"]
    assert simulator.state["error"] is not None
    assert simulator.state["error"]["type"] == "CompensationFailed"


def test_failed_compensation_in_a_group_is_seen_around_it(stage: Stage) -> None:
    text = """
defaults: {effect: idempotent}
tools: {undo: {python: "tools:act"}}
steps:
  - id: outer
    group:
      - id: g
        group:
          - {id: a, python: "tools:act", compensate: {call: undo}}
          - {id: b, python: "tools:act"}
        on_error: [{compensate: true, next: end}]
    on_error: [{type: CompensationFailed, output: "${{ error.cause.type }}"}]
outputs: {outer: "${{ steps.outer.output }}"}
"""
    script = {"b": BROKEN, "compensate": BROKEN}
    assert stage.play(text, script).outputs == {"outer": "Broken"}


# Cancelling


def test_cancelled_execution_is_undone_if_the_flow_says_so(stage: Stage) -> None:
    flow = _scope([_step("a"), _step("b")], how=[{"type": "Cancelled", "compensate": True}])
    stage.world.held = {"last"}

    result = stage.run_meanwhile(
        flow,
        lambda: "last" in stage.world.started,
        lambda: stage.engine.cancel_async("it", reason="no more"),
    )
    assert result.error is not None
    assert (result.status, result.error["type"]) == ("cancelled", "Cancelled")
    assert result.error["message"] == "no more"
    assert stage.world.withdrawn == ["last"]
    assert stage.world.started[-2:] == ["b/compensate", "a/compensate"]


@pytest.mark.parametrize("how", ["compensate", [{"compensate": True}]])
def test_cancelled_execution_keeps_what_it_did_if_no_handler_names_it(
    stage: Stage, how: Any
) -> None:
    simulator = stage.simulator(_scope([_step("a")], how=how)).start()
    simulator.finish("a")
    simulator.apply({"type": "cancel", "at": simulator.now, "reason": "", "by": "x", "now": False})
    assert simulator.status == "cancelled"
    assert undone(simulator) == []


def test_cancel_now_undoes_nothing(stage: Stage) -> None:
    flow = _scope([_step("a")], how=[{"type": "Cancelled", "compensate": True}])
    simulator = stage.simulator(flow).start()
    simulator.finish("a")
    simulator.apply({"type": "cancel", "at": simulator.now, "reason": "", "by": "x", "now": True})
    assert simulator.status == "cancelled"
    assert undone(simulator) == []


def test_deadline_during_compensation_gives_what_is_left_to_the_scope_around(stage: Stage) -> None:
    text = """
defaults: {effect: idempotent}
tools: {undo: {python: "tools:act"}}
steps:
  - id: outer
    deadline: 1m
    group:
      - id: g
        group:
          - {id: a, python: "tools:act", compensate: {call: undo}}
          - {id: b, python: "tools:act", compensate: {call: undo}}
          - {id: c, python: "tools:act"}
        on_error: compensate
    on_error: [{type: Deadline, compensate: true, next: end}]
"""
    simulator = stage.simulator(text, {"c": BROKEN}, order="first").start()
    for address in ("outer/g/a", "outer/g/b", "outer/g/c", "outer/g/b/compensate"):
        simulator.finish(address)
    assert [run.address for run in simulator.running.values()] == ["outer/g/a/compensate"]
    [timer] = simulator.state["timers"]
    simulator.apply({"type": "timer", "at": simulator.now + 60_000, "timer": timer})
    simulator.run()
    assert simulator.status == "succeeded"
    assert undone(simulator) == ["outer/g/b", "outer/g/a", "outer/g/a"]
    assert statuses(simulator)["outer"] == "failed"


def test_step_that_is_tried_again_is_not_settled_meanwhile(stage: Stage) -> None:
    """The first attempt timed out, and the second one, in flight, will reveal the outcome."""
    text = """
defaults: {effect: idempotent}
tools: {undo: {python: "tools:act"}}
steps:
  - id: p
    parallel:
      - id: a
        python: "tools:act"
        timeout: 1s
        retry: {attempts: 3, delay: 1s, jitter: none}
        compensate: {call: undo}
      - {id: b, python: "tools:act", on_error: [{compensate: true, next: end}]}
    on_error: compensate
  - {id: last, python: "tools:act"}
on_error: compensate
"""
    simulator = stage.simulator(text, {"b": BROKEN, "last": BROKEN}, order="first").start()
    [timer] = simulator.state["timers"]
    simulator.apply({"type": "timer", "at": simulator.now + 1000, "timer": timer})
    simulator.finish("p/b")
    assert not simulator.running
    [timer] = simulator.state["timers"]
    simulator.apply({"type": "timer", "at": simulator.now + 1000, "timer": timer})
    assert [run.address for run in simulator.running.values()] == ["p/a"]
    simulator.finish("p/a")
    simulator.finish("last")
    simulator.run()
    assert simulator.started == ["p/a", "p/b", "p/a", "last", "p/a/compensate"]
