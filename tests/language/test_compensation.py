# Shows F21
"""Compensation under crashes and losses at every event (F21, F87)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.language.stage import Call, Stage
from tests.simulation.simulator import Fails, Simulator

BROKEN = Fails("Broken", "no room", retryable=False)


def undone(simulator: Simulator) -> list[str]:
    """Return the addresses of compensated steps, in order."""
    return [a.removesuffix("/compensate") for a in simulator.started if a.endswith("/compensate")]


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
# Shows F87
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


@pytest.mark.parametrize("acted", [True, False])
@pytest.mark.parametrize("fails", ["hotel", "pay"])
# Shows F87b
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
# Shows F87b
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
