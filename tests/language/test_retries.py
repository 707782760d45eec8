"""Repetition and its limits: retries, timeouts, loops, limits (F21, F90, F91)."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine import FlowFileError
from flowengine.testing.simulator import Fails, Simulator
from tests.language.stage import Call, Stage

# Retry


def _retrying(retry: str, more: str = "") -> str:
    return f"""
steps:
  - id: a
    python: "tools:act"
    effect: idempotent
    retry: {retry}
    {more or "title: a"}
outputs: {{a: "${{{{ steps.a.output }}}}", attempts: "${{{{ steps.a.attempts }}}}"}}
"""


def _failing(times: int, **error: Any) -> dict[str, Any]:
    """Return a script where step `a` fails a number of times, then returns the attempt number."""

    def give(call: Call) -> int:
        if call.attempt <= times:
            raise Fails(error.get("type", "ToolError"), f"try {call.attempt}", **_rest(error))
        return call.attempt

    return {"a": give}


def _rest(error: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in error.items() if key != "type"}


def _pauses(simulator: Simulator) -> list[int]:
    """Return the milliseconds between each attempt's end and the next attempt's event."""
    ends = [event["at"] for event in simulator.journal if event["type"] == "failed"]
    fired = [event["at"] for event in simulator.journal if event["type"] == "timer"]
    return [fire - end for end, fire in zip(ends, fired, strict=False)]


@pytest.mark.parametrize("failures", range(4))
def test_attempts_are_all_tries_together(stage: Stage, failures: int) -> None:
    outcome = stage.play(_retrying("3"), _failing(failures))
    if failures < 3:
        assert outcome.outputs == {"a": failures + 1, "attempts": failures + 1}
    else:
        assert outcome.error is not None
        assert (outcome.error["type"], outcome.error["message"]) == ("ToolError", "try 3")
    assert len(stage.world.started) == min(failures + 1, 3)


@pytest.mark.parametrize(
    ("retry", "pauses"),
    [
        ("{attempts: 5, jitter: none}", [1000, 2000, 4000, 8000]),
        ("{attempts: 5, jitter: none, delay: 250ms, backoff: 1}", [250] * 4),
        (
            "{attempts: 5, jitter: none, delay: 10s, max_delay: 25s}",
            [10_000, 20_000, 25_000, 25_000],
        ),
        ("{attempts: 5, jitter: none, delay: 1s, backoff: 1.5}", [1000, 1500, 2250, 3375]),
        ("{attempts: 4, jitter: none, delay: 0s}", [0, 0, 0]),
    ],
)
def test_pauses_grow_up_to_the_longest(stage: Stage, retry: str, pauses: list[int]) -> None:
    simulator = stage.simulate(_retrying(retry), _failing(99))
    assert _pauses(simulator) == pauses
    stage.world.script = _failing(99)
    before = stage.clock.now()
    assert stage.run(_retrying(retry)).status == "failed"
    assert 0 <= stage.clock.now() - before - sum(pauses) <= 100


def test_backoff_of_many_attempts_stays_at_the_longest_pause(stage: Stage) -> None:
    retry = "{attempts: 2000, jitter: none, delay: 1s, backoff: 10, max_delay: 1m}"
    simulator = stage.simulate(_retrying(retry), _failing(1500))
    assert set(_pauses(simulator)[2:]) == {60_000}
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


def test_pause_lasts_as_long_as_the_server_asks(stage: Stage) -> None:
    simulator = stage.simulator(_retrying("{attempts: 2, jitter: none}")).start()
    [run] = simulator.running.values()
    simulator.running.clear()
    error: Any = {"type": "RateLimited", "message": "slow down", "retry_after": 30_000}
    simulator.apply(
        {"type": "failed", "at": simulator.now, "unit": run.unit, "attempt": 1, "error": error}
    )
    [timer] = simulator.state["timers"].values()
    assert timer["due"] - simulator.now == 30_000


@pytest.mark.parametrize(
    ("more", "error", "again"),
    [
        ("", {"type": "ToolError"}, True),
        ("", {"type": "shop.OutOfStock"}, True),
        ("", {"type": "shop.OutOfStock", "retryable": False}, False),
        ("", {"type": "ValidationError"}, False),
        ("", {"type": "HttpError"}, False),
        ("", {"type": "HttpError", "retryable": True}, True),
        ("only: [ToolError]", {"type": "ToolError"}, True),
        ("only: [Timeout]", {"type": "ToolError"}, False),
        ("only: [ValidationError]", {"type": "ValidationError"}, True),
        ("only: [shop.*]", {"type": "shop.OutOfStock", "retryable": False}, True),
        ("only: [shop.*]", {"type": "shopping.OutOfStock"}, False),
        ('only: "*"', {"type": "ValidationError"}, True),
        ("except: [ToolError]", {"type": "ToolError"}, False),
        ("except: [shop.*]", {"type": "shop.OutOfStock"}, False),
        ("except: [Timeout]", {"type": "ToolError"}, True),
        ("except: [Timeout]", {"type": "ValidationError"}, False),
        ('only: "*", except: [shop.*]', {"type": "shop.A"}, False),
        ('when: "${{ error.data.status == 503 }}"', {"data": {"status": 503}}, True),
        ('when: "${{ error.data.status == 503 }}"', {"data": {"status": 500}}, False),
        ('when: "${{ error.attempt < 1 }}"', {}, False),
        ('when: "${{ error.data.nothing }}"', {}, False),
    ],
)
def test_only_errors_that_may_pass_are_tried_again(
    stage: Stage, more: str, error: dict[str, Any], again: bool
) -> None:
    text = _retrying(f"{{attempts: 2, {more}}}" if more else "2")
    assert stage.play(text, _failing(1, **error), most=3).status == (
        "succeeded" if again else "failed"
    )


def test_retry_of_a_step_whose_effect_is_once_is_an_error(stage: Stage) -> None:
    text = _retrying("2").replace("effect: idempotent\n    ", "")
    with pytest.raises(FlowFileError, match="E404"):
        stage.compile(text)


def test_input_is_evaluated_for_each_attempt_and_output_once(stage: Stage) -> None:
    text = """
state: {tries: {type: integer, default: 0, reducer: add}}
steps:
  - id: g
    retry: {attempts: 3, delay: 0s}
    effect: idempotent
    group:
      - {id: note, set: {tries: 1}}
      - {id: a, python: "tools:act", with: {value: "${{ state.tries }}"}}
    output: ${{ result * 10 }}
outputs: {g: "${{ steps.g.output }}", tries: "${{ state.tries }}"}
"""

    def give(call: Call) -> int:
        if call.value < 3:
            raise Fails("ToolError")
        return int(call.value)

    assert stage.play(text, {"a": give}).outputs == {"g": 30, "tries": 3}


def test_error_in_output_or_set_is_not_tried_again_for_the_step_has_acted(stage: Stage) -> None:
    for where in ('output: "${{ 1 / result }}"', 'set: {n: "${{ 1 / output }}"}'):
        text = "state: {n: {type: integer, default: 0}}" + _retrying(
            '{attempts: 3, only: "*"}', where
        )
        stage.world.started.clear()
        assert stage.play(text, {"a": 0}, most=3).error_type == "ExpressionError"
        assert stage.world.started == ["a"]


def test_each_item_and_round_has_its_own_attempts(stage: Stage) -> None:
    text = """
steps:
  - id: m
    map: 2
    loop: {until: "${{ round.number == 2 }}", max: 2}
    python: "tools:act"
    effect: idempotent
    retry: {attempts: 2, delay: 0s}
outputs: {m: "${{ steps.m.output }}"}
"""
    tried: set[str] = set()

    def give(call: Call) -> str:
        if call.address not in tried:
            tried.add(call.address)
            raise Fails("ToolError")
        tried.remove(call.address)
        return call.address

    outcome = stage.play(text, {"m": give})
    assert outcome.outputs == {"m": ["m[0]@2", "m[1]@2"]}
    assert len(stage.world.started) == 8


# Timeout and deadline


def test_attempt_that_takes_too_long_is_withdrawn_and_may_be_tried_again(stage: Stage) -> None:
    text = _retrying("{attempts: 3, jitter: none}", "timeout: 10s")
    stage.world.held = {"a"}
    before = stage.clock.now()
    result = stage.run(text)
    assert result.error is not None
    assert (result.error["type"], result.error["step"]) == ("Timeout", "a")
    assert stage.world.withdrawn == ["a"] * 3
    assert 33_000 <= stage.clock.now() - before <= 33_500


def test_result_in_time_clears_the_timeout(stage: Stage) -> None:
    text = """
steps:
  - {id: a, python: "tools:act", timeout: 10s}
  - {id: b, wait: 1h}
"""
    result = stage.run(text)
    assert stage.later(result.execution, 3600).status == "succeeded"


def test_late_result_of_an_attempt_that_timed_out_changes_nothing(stage: Stage) -> None:
    text = _retrying("{attempts: 2, delay: 1s, jitter: none}", "timeout: 1s")
    simulator = stage.simulator(text, order="first").start()
    [first] = simulator.running.values()
    [timer] = simulator.state["timers"]
    simulator.apply({"type": "timer", "at": simulator.now + 1000, "timer": timer})
    simulator.apply(
        {"type": "succeeded", "at": simulator.now, "unit": first.unit, "attempt": 1, "value": 1}
    )
    simulator.run()
    assert simulator.state["outputs"] == {"a": None, "attempts": 2}


@pytest.mark.parametrize("what", ["timeout", "deadline"])
@pytest.mark.parametrize("value", ["${{ 'soon' }}", "${{ string(1 / 0) }}", "${{ '-1s' }}"])
def test_computed_bound_that_is_no_duration_fails_the_step(
    stage: Stage, what: str, value: str
) -> None:
    text = f"""
steps:
  - {{id: a, python: "tools:act", {what}: "{value}"}}
"""
    assert stage.play(text).error_type in {"ValidationError", "ExpressionError"}
    assert stage.world.started == []


def test_timeout_of_a_group_withdraws_all_that_is_in_it(stage: Stage) -> None:
    text = """
steps:
  - id: g
    timeout: 10s
    group:
      - {id: s, next: {all: [a, b, c]}}
      - {id: a, python: "tools:act", next: end}
      - {id: b, map: 2, approval: Sure?, next: end}
      - {id: c, loop: {until: "${{ false }}", max: 100, every: 1m}, next: end}
    on_error: [{type: Timeout, next: after}]
    next: end
  - {id: after, output: "${{ steps.g.error.message }}"}
outputs: {after: "${{ steps.after.output }}"}
"""
    stage.world.held = {"g/a"}
    result = stage.run(text)
    assert result.outputs == {"after": "g did not end within its timeout"}
    assert stage.world.withdrawn == ["g/a"]
    assert stage.engine.waits().items == []


@pytest.mark.parametrize(
    "more",
    [
        "retry: {attempts: 9, delay: 20s, jitter: none}",
        'loop: {until: "${{ false }}", max: 9, every: 20s}',
        "map: {over: 9, concurrency: 1}",
    ],
)
def test_deadline_counts_over_attempts_pauses_items_and_rounds(stage: Stage, more: str) -> None:
    text = f"""
steps:
  - id: a
    python: "tools:act"
    effect: idempotent
    deadline: 50s
    {more}
    next: end
    on_error: [{{type: Deadline, next: after}}]
  - {{id: after, output: "${{{{ steps.a.error.type }}}}"}}
outputs: {{after: "${{{{ steps.after.output }}}}"}}
"""
    stage.world.script = {"a": Fails("ToolError")} if more.startswith("retry") else {}
    stage.world.held = {"a[2]"}
    before = stage.clock.now()
    assert stage.run(text).outputs == {"after": "Deadline"}
    assert 50_000 <= stage.clock.now() - before <= 50_500


def test_deadline_cannot_be_tried_again(stage: Stage) -> None:
    stage.world.held = {"a"}
    text = _retrying('{attempts: 9, only: "*"}', "deadline: 10s")
    result = stage.run(text)
    assert result.error is not None
    assert result.error["type"] == "Deadline"
    assert stage.world.started == ["a"]


def test_duration_of_the_execution_ends_it_wherever_it_is(stage: Stage) -> None:
    text = """
limits: {duration: 1d}
steps:
  - {id: ask, map: 3, approval: Sure?}
"""
    execution = stage.run(text).execution
    assert stage.later(execution, 86_300).status == "waiting"
    result = stage.later(execution, 100)
    assert result.error is not None
    assert (result.status, result.error["type"], result.waits) == ("failed", "LimitExceeded", [])


def test_duration_that_is_over_can_be_handled_by_the_flow(stage: Stage) -> None:
    text = """
limits: {duration: 1d}
steps:
  - {id: ask, approval: Sure?, next: end}
  - {id: after, output: gave up}
on_error: [{type: LimitExceeded, next: after}]
outputs: {after: "${{ steps.after.output }}"}
"""
    execution = stage.run(text).execution
    assert stage.later(execution, 86_400).outputs == {"after": "gave up"}


# Loops (F91)


def test_loop_without_a_bound_is_an_error(stage: Stage) -> None:
    text = """
steps:
  - {id: a, loop: {until: "${{ true }}"}, python: "tools:act"}
"""
    with pytest.raises(FlowFileError, match=r"E104.*'max'"):
        stage.compile(text)


def _looping(loop: str, more: str = "") -> str:
    return f"""
inputs: {{max: {{type: integer, default: 5}}}}
steps:
  - id: a
    loop: {loop}
    python: "tools:act"
    with: {{value: "${{{{ [round.number, round.last == null ? 0 : round.last[0]] }}}}"}}
    {more or "title: a"}
outputs: {{a: "${{{{ steps.a.output }}}}", rounds: "${{{{ steps.a.rounds }}}}"}}
"""


@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_until_is_tested_after_each_round(stage: Stage, rounds: int) -> None:
    text = _looping(f'{{until: "${{{{ output[0] >= {rounds} }}}}", max: "${{{{ inputs.max }}}}"}}')
    assert stage.play(text).outputs == {"a": [rounds, rounds - 1], "rounds": rounds}


@pytest.mark.parametrize("rounds", [0, 1, 5])
def test_while_is_tested_before_each_round(stage: Stage, rounds: int) -> None:
    condition = f"${{{{ output == null ? {rounds} > 0 : output[0] < {rounds} }}}}"
    text = _looping(f'{{while: "{condition}", max: 5}}')
    last = [rounds, rounds - 1] if rounds else None
    assert stage.play(text).outputs == {"a": last, "rounds": rounds}


@pytest.mark.parametrize("kind", ["until", "while"])
@pytest.mark.parametrize("bound", [0, 1, 3])
def test_one_round_too_many_raises_and_keeps_the_last_one(
    stage: Stage, kind: str, bound: int
) -> None:
    condition = "${{ false }}" if kind == "until" else "${{ true }}"
    handler = 'on_error: [{type: LoopLimit, output: "${{ error.data.last }}"}]'
    text = _looping(f'{{{kind}: "{condition}", max: "${{{{ inputs.max }}}}"}}', handler)
    last = [bound, bound - 1] if bound else None
    assert stage.play(text, inputs={"max": bound}).outputs["a"] == last


def test_deadline_of_a_loop_keeps_the_last_round(stage: Stage) -> None:
    handler = 'deadline: 25s\n    on_error: [{type: Deadline, output: "${{ error.data.last }}"}]'
    text = _looping('{until: "${{ false }}", max: 9, every: 10s}', handler)
    before = stage.clock.now()
    result = stage.run(text)
    assert result.outputs is not None
    assert result.outputs["a"] == [3, 2]
    assert 25_000 <= stage.clock.now() - before <= 25_500


@pytest.mark.parametrize(
    ("every", "pauses"),
    [
        ("10s", [10_000] * 4),
        ("{delay: 1s, backoff: 3}", [1000, 3000, 9000, 27_000]),
        ("{delay: 1s, backoff: 3, max_delay: 5s}", [1000, 3000, 5000, 5000]),
        ("\"${{ string(round.number) + 's' }}\"", [1000, 2000, 3000, 4000]),
    ],
)
def test_pauses_between_rounds(stage: Stage, every: str, pauses: list[int]) -> None:
    text = _looping(f'{{until: "${{{{ output[0] == 5 }}}}", max: 5, every: {every}}}')
    simulator = stage.simulate(text, order="first")
    fired = [event["at"] for event in simulator.journal if event["type"] == "timer"]
    ends = [event["at"] for event in simulator.journal if event["type"] == "succeeded"]
    assert [fire - end for end, fire in zip(ends, fired, strict=False)] == pauses


def test_error_of_a_round_ends_the_loop_and_one_handled_inside_does_not(stage: Stage) -> None:
    text = """
steps:
  - id: rounds
    loop: {until: "${{ round.number == 3 }}", max: 3}
    group:
      - id: a
        python: "tools:act"
        with: {value: "${{ round.number }}"}
        on_error: [{type: Broken, output: none}]
outputs: {all: "${{ steps.rounds.output }}", rounds: "${{ steps.rounds.rounds }}"}
"""
    script = {"rounds@2/a": Fails("Broken", retryable=False)}
    assert stage.play(text, script).outputs == {"all": 3, "rounds": 3}
    script = {"rounds@2/a": Fails("Other", retryable=False)}
    outcome = stage.play(text, script)
    assert outcome.error is not None
    assert (outcome.error["type"], outcome.error["step"]) == ("Other", "rounds@2/a")


@pytest.mark.parametrize(
    "loop",
    [
        '{until: "${{ output[9] == 0 }}", max: 2}',
        '{while: "${{ 1 / size(inputs.none) == 0 }}", max: 2}',
        '{until: "${{ true }}", max: "${{ inputs.none }}"}',
        '{until: "${{ false }}", max: 3, every: "${{ inputs.none }}"}',
    ],
)
def test_conditions_and_bounds_without_a_value_fail_the_step(stage: Stage, loop: str) -> None:
    text = _looping(loop).replace("inputs: {", "inputs: {none: {default: ''}, ")
    outcome = stage.play(text)
    assert outcome.error_type in {"ExpressionError", "ValidationError"}
    assert outcome.error is not None
    assert outcome.error["step"].startswith("a")


def test_rounds_start_from_what_lies_behind_the_loop(stage: Stage) -> None:
    text = """
steps:
  - {id: before, output: 7}
  - id: rounds
    loop: {until: "${{ steps.b.output == 2 }}", max: 3}
    group:
      - {id: s, next: {first: [{when: "${{ round.number == 1 }}", to: a}, {else: b}]}}
      - {id: a, output: 1, next: b}
      - {id: b, output: "${{ steps.a.status == 'none' ? 2 : steps.before.output }}"}
    output: "${{ steps.b.output }}"
outputs: {all: "${{ steps.rounds.output }}", n: "${{ steps.rounds.rounds }}"}
"""
    assert stage.play(text).outputs == {"all": 2, "n": 2}


# Limits (F90)


def test_cycle_without_a_wait_stops(stage: Stage) -> None:
    text = """
limits: {activations: 50}
steps:
  - {id: a, python: "tools:act", next: b}
  - {id: b, next: {first: [{when: "${{ steps.a.activations > 1000 }}", to: end}, {else: a}]}}
"""
    outcome = stage.play(text)
    assert outcome.error is not None
    assert outcome.error["type"] == "LimitExceeded"
    assert outcome.error["data"] == {"limit": "activations"}
    assert len(stage.world.started) == 50


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


def test_message_that_was_there_before_the_wait_resets_no_count(stage: Stage) -> None:
    """A wait that ends at once does not count: steps that send to themselves are hot cycles."""
    text = """
signals: {message: {}}
limits: {activations: 10}
steps:
  - {id: pause, wait: 1s}
  - {id: go, next: listen}
  - id: listen
    wait: {signal: message}
    next: {first: [{when: "${{ output.data == 'stop' }}", to: end}, {else: listen}]}
"""
    simulator = stage.simulator(text).start()
    for n in range(30):
        simulator.send("message", data="more", id=str(n))
    simulator.run()
    assert simulator.state["error"] is not None
    assert simulator.state["error"]["type"] == "LimitExceeded"


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


def test_steps_are_counted_over_all_scopes_but_maps(stage: Stage) -> None:
    text = """
limits: {steps: 10}
steps:
  - id: rounds
    loop: {until: "${{ round.number == 5 }}", max: 5}
    group:
      - {id: a}
      - {id: b, map: 50}
"""
    outcome = stage.play(text)
    assert outcome.error is not None
    assert (outcome.error["type"], outcome.error["data"]) == ("LimitExceeded", {"limit": "steps"})


def test_a_limit_is_not_handled_by_the_step_that_runs_into_it(stage: Stage) -> None:
    text = """
limits: {activations: 20}
steps:
  - id: g
    group:
      - {id: a, next: b}
      - id: b
        python: "tools:act"
        on_error: [{next: c}]
        next: {first: [{when: "${{ steps.a.activations > 99 }}", to: end}, {else: c}]}
      - {id: c, next: a}
    on_error: [{type: LimitExceeded, next: after}]
    next: end
  - {id: after, output: "${{ steps.g.error.step }}"}
outputs: {after: "${{ steps.after.output }}"}
"""
    assert stage.play(text).outputs == {"after": "g/a#21"}


@pytest.mark.parametrize("step", ['python: "tools:act"', "wait: 1h", "group: [{id: b}]"])
@pytest.mark.parametrize("what", ["timeout", "deadline"])
def test_bound_that_can_be_no_duration_is_an_error(stage: Stage, what: str, step: str) -> None:
    text = f"""
steps:
  - id: a
    {step}
    {what}: "${{{{ 1 + 1 }}}}"
"""
    with pytest.raises(FlowFileError, match=r"E103.*expected text, got a whole number"):
        stage.compile(text)


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
