"""Cleanup: `finally` runs once per scope, however the scope ended (F92, S10, S15)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from flowengine import FlowFileError
from flowengine.kernel import ENDED
from flowengine.testing.simulator import Fails, Simulator, unpacked
from tests.language.stage import Outcome, Script, Stage, outcome_of, statuses

GROUP = """
inputs: {{how: {{type: string, default: well}}}}
signals: {{never: {{}}}}
steps:
  - id: g
    {more}
    group:
      - {{id: a, python: "tools:act", next: {{all: [b, c]}}}}
      - {{id: b, python: "tools:act", next: end}}
      - {{id: c, wait: {{for: 1s}}, next: {{first: [{{when: "${{{{ inputs.how == 'end_all' }}}}", to: end_all}}, {{else: d}}]}}}}
      - {{id: d, python: "tools:act"}}
    finally:
      - {{id: tidy, python: "tools:act", with: {{value: "${{{{ [error == null ? 'fine' : error.type, steps.a.status, steps.b.status] }}}}"}}}}
      - {{id: sweep, python: "tools:act"}}
  - {{id: after, python: "tools:act"}}
outputs: {{g: "${{{{ steps.g.status }}}}"}}
"""  # noqa: E501


def rest(
    stage: Stage, text: str, script: Script | None = None, *, seed: int = 0, **given: Any
) -> Simulator:
    """Run a flow where time advances only while no task runs."""
    played = stage.simulator(text, script).start({"how": "well", "bad": False, **given})
    draws = random.Random(seed)
    while played.status not in ENDED:
        if played.running:
            played.end(draws.choice(list(played.running.values())))
        else:
            assert played.step()
    assert unpacked(played.replayed()) == unpacked(played.state)
    return played


def play(stage: Stage, text: str, script: Script | None = None) -> Outcome:
    """Return the outcome of a flow, the same in the engine and in all simulated orders."""
    stage.world.script = script or {}
    result = stage.run(text)
    found = outcome_of(result.status, result.outputs, result.error)
    for seed in range(8):
        state = rest(stage, text, script, seed=seed).state
        assert outcome_of(state["status"], state["outputs"], state["error"]) == found
    return found


def seen(stage: Stage, text: str, script: Script | None = None, **given: Any) -> list[Any]:
    """Return the inputs of each `tidy` in order of their runs, the same in all simulated orders."""
    found: list[list[Any]] = []
    for seed in range(8):
        told: list[Any] = []
        listening = {**(script or {}), "tidy": lambda call, told=told: told.append(call.value)}
        rest(stage, text, listening, seed=seed, **given)
        found.append(told)
    assert all(one == found[0] for one in found)
    return found[0]


def order(played: Simulator) -> list[str]:
    """Return the steps whose tasks were started, in order."""
    return [address.split("/")[-1] for address in played.started]


def test_after_a_success_it_runs_before_the_next_step(stage: Stage) -> None:
    text = GROUP.format(more="title: G")
    played = rest(stage, text)

    assert (played.status, order(played)[-3:]) == ("succeeded", ["tidy", "sweep", "after"])
    assert seen(stage, text) == [["fine", "succeeded", "succeeded"]]
    assert play(stage, text).outputs == {"g": "succeeded"}


def test_after_an_error_it_runs_before_the_handler_and_sees_the_error(stage: Stage) -> None:
    text = GROUP.format(more="on_error: [{type: Bad, next: after}]")
    script = {"d": Fails("Bad")}

    assert seen(stage, text, script)[0][:2] == ["Bad", "succeeded"]
    assert play(stage, text, script).outputs == {"g": "failed"}


def test_an_unhandled_error_keeps_its_type(stage: Stage) -> None:
    text = GROUP.format(more="title: G")

    outcome = play(stage, text, {"d": Fails("Bad"), "tidy": None})

    assert (outcome.status, outcome.error_type) == ("failed", "Bad")


def test_after_end_all_there_is_no_error(stage: Stage) -> None:
    text = GROUP.format(more="title: G")

    assert seen(stage, text, how="end_all")[0][0] == "fine"


@pytest.mark.parametrize(
    ("more", "error"),
    [("timeout: 100ms", "Timeout"), ("deadline: 100ms", "Deadline")],
)
def test_a_group_that_takes_too_long_is_cleaned_up(stage: Stage, more: str, error: str) -> None:
    text = GROUP.format(more=f"{more}\n    on_error: [{{type: {error}, next: after}}]")

    told = seen(stage, text)

    assert [one[:2] for one in told] == [[error, "succeeded"]] or told[0][1] is None
    assert play(stage, text, {"tidy": None}).outputs == {"g": "failed"}


def test_each_attempt_is_cleaned_up_before_the_next(stage: Stage) -> None:
    text = GROUP.format(more="retry: {attempts: 3, delay: 0s}\n    effect: idempotent")
    script = {"d": Fails("Bad", retryable=True)}

    assert [one[0] for one in seen(stage, text, script)] == ["Bad"] * 3
    played = rest(stage, text, script, seed=3)
    starts = [s for s in order(played) if s in ("a", "sweep")]
    assert starts == ["a", "sweep"] * 3


def test_each_item_and_round_is_cleaned_up_with_its_names(stage: Stage) -> None:
    text = """
steps:
  - id: g
    map: {over: [x, y], concurrency: 1}
    loop: {until: "${{ round.number == 2 }}", max: 3}
    group:
      - {id: a, python: "tools:act", with: {value: "${{ item }}"}}
    finally:
      - id: tidy
        python: "tools:act"
        with: {value: "${{ [item, round.number, steps.a.output] }}"}
"""
    assert seen(stage, text) == [["x", 1, "x"], ["x", 2, "x"], ["y", 1, "y"], ["y", 2, "y"]]


NESTED = """
steps:
  - id: outer
    group:
      - id: inner
        group: [{id: w, wait: {for: 1h}}]
        finally: [{id: tidy, python: "tools:act", with: {value: "inner ${{ error.type }}"}}]
    finally: [{id: tidy_outer, python: "tools:act"}]
    next: end
finally: [{id: last, python: "tools:act", with: {value: "${{ error.type }}"}}]
"""


def cancelled(stage: Stage, *, now: bool = False) -> Simulator:
    played = stage.simulator(NESTED).start()
    played.apply({"type": "cancel", "at": played.now, "reason": "no", "by": "user:a", "now": now})
    return played


def test_cancelling_the_execution_cleans_up_from_the_inside_outwards(stage: Stage) -> None:
    played = cancelled(stage).run()

    assert played.status == "cancelled"
    assert order(played) == ["tidy", "tidy_outer", "last"]
    assert played.replayed() == played.state


def test_cancelling_at_once_does_not_clean_up(stage: Stage) -> None:
    played = cancelled(stage, now=True)

    assert (played.status, played.started) == ("cancelled", [])


def test_cancelling_at_once_ends_a_cleanup_that_is_under_way(stage: Stage) -> None:
    played = cancelled(stage)
    assert played.status == "running"

    played.apply({"type": "cancel", "at": played.now, "reason": "no", "by": "user:a", "now": True})

    assert (played.status, order(played)) == ("cancelled", ["tidy"])


def test_a_crash_in_the_middle_goes_on(stage: Stage) -> None:
    played = cancelled(stage)
    played.crash()
    while played.waits():
        played.decide(played.waits()[0]["address"], "retry")
    played.run()

    assert (played.status, order(played)[-2:]) == ("cancelled", ["tidy_outer", "last"])


def test_a_group_that_a_step_cancels_is_cleaned_up_and_keeps_the_scope_open(stage: Stage) -> None:
    text = """
steps:
  - {id: s, next: {all: [g, x]}}
  - id: g
    group: [{id: w, wait: {for: 1h}}]
    finally: [{id: tidy, python: "tools:act", with: {value: "${{ error.type }}"}}]
    next: end
  - {id: x, cancel: [g], next: end}
finally: [{id: last, python: "tools:act"}]
"""
    assert seen(stage, text) == ["Cancelled"]
    played = rest(stage, text)
    assert (played.status, order(played)) == ("succeeded", ["tidy", "last"])


def test_a_group_that_a_step_cancels_is_cleaned_up_at_once(stage: Stage) -> None:
    """It does not wait for the end of the surrounding scope, and the cancelling step continues."""
    text = """
steps:
  - {id: s, next: {all: [g, v]}}
  - id: g
    group: [{id: inner, group: [{id: w, wait: 1h}], finally: [{id: tidy, python: "tools:act"}]}]
    next: end
  - {id: v, wait: 1m}
  - {id: x, cancel: [g], next: after}
  - {id: after, python: "tools:act"}
"""
    played = stage.simulator(text, order="first").start()
    played.pass_time()
    assert sorted(played.started) == ["after", "g/inner/finally/tidy"]


def test_compensation_comes_first(stage: Stage) -> None:
    text = """
tools:
  undo: {python: "tools:act", effect: idempotent}
steps:
  - id: g
    group:
      - {id: a, python: "tools:act", compensate: {call: undo}}
      - {id: b, fail: {type: Bad}}
    finally: [{id: tidy, python: "tools:act"}]
    on_error: [{compensate: true, next: end}]
"""
    for seed in range(6):
        played = rest(stage, text, seed=seed)
        assert played.started == ["g/a", "g/a/compensate", "g/finally/tidy"]


@pytest.mark.parametrize("bad", ["b", "nothing"])
def test_a_cleanup_that_fails_is_the_error_of_the_scope(stage: Stage, bad: str) -> None:
    text = """
steps:
  - id: g
    group: [{id: b, python: "tools:act"}]
    finally: [{id: tidy, python: "tools:act"}]
    on_error: [{type: Untidy, output: "${{ error.cause == null ? 'none' : error.cause.type }}"}]
outputs: {g: "${{ steps.g.output }}"}
"""
    script = {"tidy": Fails("Untidy"), bad: Fails("Bad")}

    assert play(stage, text, script).outputs == {"g": "Bad" if bad == "b" else "none"}


def test_a_cleanup_that_takes_too_long_is_cut_off(stage: Stage) -> None:
    text = """
limits: {finally: 2m}
steps: [{id: a}]
finally: [{id: tidy, wait: {for: 1h}}]
"""
    state = rest(stage, text).state

    assert state["error"] is not None
    assert (state["error"]["type"], state["now"]) == ("Timeout", 1_000_000 + 120_000)


def test_the_flow_cleans_up_after_its_own_error_and_after_its_outputs(stage: Stage) -> None:
    text = """
inputs: {bad: {type: boolean, default: false}}
steps: [{id: a, when: "${{ inputs.bad }}", fail: {type: Bad}}]
outputs: {n: "${{ 1 / (inputs.bad ? 1 : 1) }}"}
finally:
  - id: tidy
    python: "tools:act"
    with: {value: "${{ error == null ? 'fine' : error.type }}"}
"""
    assert seen(stage, text) == ["fine"]
    assert seen(stage, text, bad=True) == ["Bad"]
    assert play(stage, text).outputs == {"n": 1}


def test_the_limit_of_steps_does_not_stop_the_cleanup(stage: Stage) -> None:
    text = """
limits: {steps: 2}
steps: [{id: a}, {id: b}, {id: c}]
finally: [{id: tidy, python: "tools:act", with: {value: "${{ error.type }}"}}]
"""
    assert seen(stage, text) == ["LimitExceeded"]


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("steps: [{id: a}]\nfinally: [{id: b, cancel: execution}]\n", "E103", "cleans up"),
        ("steps: [{id: a}]\nfinally: [{id: b, cancel: [a]}]\n", "E205", "not in this scope"),
        ("steps: [{id: a}]\nfinally: [{id: b, next: a}]\n", "E205", "another scope"),
        ("steps: [{id: a}]\nfinally: [{id: b}]\noutputs: {b: '${{ steps.b.output }}'}\n", "E301",
         "inside a 'finally'"),
        ("steps: [{id: a, output: '${{ error }}'}]\n", "E301", "'error' is not visible"),
        ("steps: [{id: a, finally: [{id: b}]}]\n", "E103", "only a group has 'finally'"),
    ],
)  # fmt: skip
def test_what_a_cleanup_cannot_do_is_refused(
    stage: Stage, text: str, code: str, message: str
) -> None:
    with pytest.raises(FlowFileError) as refused:
        stage.compile(text)
    assert any(d.code == code and message in d.message for d in refused.value.diagnostics)


def test_what_it_sees_of_the_scope_may_be_missing(stage: Stage) -> None:
    text = """
steps: [{id: a, python: "tools:act"}]
finally: [{id: b, output: "${{ steps.a.output.n }}"}]
"""
    assert stage.warnings(text) == ["W305"]


def test_the_engine_cleans_up_after_a_cancel(stage: Stage) -> None:
    result = stage.run(NESTED)
    assert result.status == "waiting"

    ended = stage.do(stage.engine.cancel_async(result.execution))

    assert ended.status == "cancelled"
    done = {a: s for a, s, _ in stage.history(result.execution) if s == "succeeded"}
    assert {"outer/inner/finally/tidy", "outer/finally/tidy_outer", "finally/last"} <= done.keys()
    assert statuses(cancelled(stage).run())["finally/last"] == "succeeded"


def test_retry_goes_on_from_what_failed_and_not_from_the_cleanup_after_it(stage: Stage) -> None:
    text = GROUP.format(more="title: G") + "finally: [{id: last, python: 'tools:act'}]\n"
    stage.world.script = {"d": Fails("Bad")}
    result = stage.do(stage.engine.run_async(stage.flow(text), {}))
    if result.status == "waiting":
        result = stage.later(result.execution, 2)
    assert result.status == "failed"
    assert stage.world.started[-4:] == ["g/d", "g/finally/tidy", "g/finally/sweep", "finally/last"]

    stage.world.script = {}
    stage.world.started.clear()
    result = stage.do(stage.engine.retry_async(result.execution))

    assert (result.status, result.outputs) == ("succeeded", {"g": "succeeded"})
    assert stage.world.started == [
        "g/d", "g/finally/tidy", "g/finally/sweep", "after", "finally/last",
    ]  # fmt: skip


def test_retry_of_a_cleanup_that_failed_after_a_success_repeats_only_that(stage: Stage) -> None:
    text = """
steps: [{id: a, python: "tools:act"}]
finally: [{id: tidy, python: "tools:act"}]
"""
    stage.world.script = {"tidy": Fails("Untidy")}
    result = stage.run(text)
    assert (result.status, result.error and result.error["type"]) == ("failed", "Untidy")

    stage.world.script = {}
    stage.world.started.clear()
    result = stage.do(stage.engine.retry_async(result.execution))

    assert (result.status, stage.world.started) == ("succeeded", ["finally/tidy"])


@pytest.mark.parametrize(
    ("script", "status"), [({}, "succeeded"), ({"sweep": Fails("Bad")}, "failed")]
)
def test_how_a_cleanup_ended_is_told(stage: Stage, script: Script, status: str) -> None:
    told = statuses(rest(stage, GROUP.format(more="title: G"), script))
    assert told["g/finally"] == status
    assert told["g/finally/tidy"] == "succeeded"
    assert told["g/finally/sweep"] == status
