# Shows F21, F90, F91
"""Repetition and its limits, as far as `retries.cases.yaml` does not show it (F21, F90)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.language.stage import Call, Stage
from tests.simulation.simulator import Fails

RETRYING = """
steps:
  - id: a
    python: "tools:act"
    effect: idempotent
    retry: {attempts: 2000, delay: 1s, jitter: none, backoff: 10, max_delay: 1m}
    timeout: 1s
outputs: {a: "${{ steps.a.output }}", attempts: "${{ steps.a.attempts }}"}
"""


def test_backoff_of_many_attempts_stays_at_the_longest_pause(stage: Stage) -> None:
    def give(call: Call) -> None:
        if call.attempt <= 1500:
            raise Fails("ToolError")

    simulator = stage.simulate(RETRYING.replace("    timeout: 1s\n", ""), {"a": give})
    ends = [event["at"] for event in simulator.journal if event["type"] == "failed"]
    fired = [event["at"] for event in simulator.journal if event["type"] == "timer"]
    pauses = [fire - end for end, fire in zip(ends, fired, strict=True)]
    assert set(pauses[2:]) == {60_000}
    assert simulator.status == "succeeded"


@pytest.mark.parametrize(("jitter", "least"), [("full", 0), ("0.25", 750), ("none", 1000)])
def test_jitter_shortens_a_pause_by_at_most_its_share(
    stage: Stage, jitter: str, least: int
) -> None:
    text = f"""
steps:
  - id: m
    map: {{over: 40, concurrency: 40}}
    python: "tools:act"
    effect: idempotent
    retry: {{attempts: 2, jitter: {jitter}}}
"""
    simulator = stage.simulator(text, {"m": Fails("ToolError")}, order="first").start()
    while simulator.running:
        simulator.step()
    due = {timer["due"] - simulator.now for timer in simulator.state["timers"].values()}
    assert least <= min(due) <= max(due) <= 1000
    assert len(due) > 20 if jitter != "none" else due == {1000}


def test_late_result_of_an_attempt_that_timed_out_changes_nothing(stage: Stage) -> None:
    simulator = stage.simulator(RETRYING, order="first").start()
    [first] = simulator.running.values()
    [timer] = simulator.state["timers"]
    simulator.apply({"type": "timer", "at": simulator.now + 1000, "timer": timer})
    simulator.apply(
        {"type": "succeeded", "at": simulator.now, "unit": first.unit, "attempt": 1, "value": 1}
    )
    simulator.run()
    assert simulator.state["outputs"] == {"a": None, "attempts": 2}


def test_default_stops_a_cycle_at_a_thousand(stage: Stage) -> None:
    text = """
steps:
  - {id: a, python: "tools:act", next: b}
  - {id: b, next: {first: [{when: "${{ steps.a.activations > 2000 }}", to: end}, {else: a}]}}
"""
    simulator = stage.simulate(text)
    assert len(simulator.started) == 1000
    assert simulator.state["error"] is not None
    assert simulator.state["error"]["type"] == "LimitExceeded"


@pytest.mark.endurance
def test_a_chat_of_five_thousand_messages_is_no_hot_cycle(stage: Stage) -> None:
    text = """
signals: {message: {}}
state: {count: {type: integer, default: 0, reducer: add}}
steps:
  - {id: listen, wait: {signal: message}}
  - id: answer
    set: {count: 1}
    next: {first: [{when: "${{ state.count < 5000 }}", to: listen}, {else: end}]}
outputs: {count: "${{ state.count }}"}
"""
    simulator = stage.simulator(text).start()
    for n in range(5000):
        simulator.send("message", id=str(n))
    assert simulator.state["outputs"] == {"count": 5000}


@pytest.mark.endurance
def test_long_lists_are_no_hot_cycles(stage: Stage) -> None:
    text = """
limits: {steps: 100}
steps:
  - id: m
    map: {over: 5000, concurrency: 50}
    group:
      - {id: a}
      - {id: b}
      - {id: c, output: "${{ item }}"}
    output: ${{ steps.c.output }}
outputs: {n: "${{ size(steps.m.output) }}"}
"""
    assert stage.run(text).outputs == {"n": 5000}


LATE = """
steps:
  - {id: pay, python: "tools:act", effect: once}
  - {id: after, output: "${{ steps.pay.output }}"}
outputs: {paid: "${{ steps.after.output }}"}
"""


@pytest.mark.parametrize(
    ("late", "answer", "status", "attempt"),
    [
        ({"type": "succeeded", "value": 7}, None, "succeeded", 1),
        ({"type": "failed", "error": {"type": "Broken", "message": "no"}}, None, "failed", 1),
        ({"type": "succeeded", "value": 7}, "retry", "running", 2),  # another one is at work
        ({"type": "succeeded", "value": 7}, "fail", "failed", 1),
    ],
)
def test_late_outcome_of_an_interrupted_attempt_answers_the_question_about_it(
    late: Any, answer: str | None, status: str, attempt: int, stage: Stage
) -> None:
    simulator = stage.simulator(LATE, {}).start()
    [run] = simulator.running.values()
    process: Any = {"pid": 12, "host": "one"}
    of: Any = {"at": simulator.now, "unit": run.unit, "attempt": 1}
    cut: Any = {"type": "cut", **of, "process": process}
    simulator.running.clear()
    simulator.apply(cut)
    [question] = simulator.waits()
    assert simulator.status == "stalled"
    assert "Process 12 on one may still be at work on it" in question["body"]
    if answer is not None:
        simulator.decide("pay", answer)
    ended: Any = {**of, **late}
    simulator.apply(ended)

    assert simulator.waits() == []
    assert simulator.status == status
    assert [unit["attempt"] for unit in simulator.state["units"].values()] in ([], [attempt])
    assert simulator.outputs == ({"paid": 7} if status == "succeeded" else None)
