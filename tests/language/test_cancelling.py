"""Cancellation by steps and users, and the state it leaves behind (F21)."""

from __future__ import annotations

import pytest

from flowengine import Conflict, FlowFileError
from flowengine.testing.simulator import Fails
from tests.language.stage import Stage, statuses

WAITING = """
signals: {{go: {{}}}}
steps:
  - {{id: s, next: {{all: [target, stop]}}}}
  - id: target
    {target}
    next: after
  - {{id: after, output: "${{{{ [steps.target.status, steps.target.outcome] }}}}", next: end}}
  - {{id: stop, wait: {{signal: go}}, next: kill}}
  - {{id: kill, cancel: {cancel}}}
outputs: {{after: "${{{{ steps.after.output }}}}", kill: "${{{{ steps.kill.output }}}}"}}
"""
TARGETS = {
    "a running step": 'python: "tools:act"',
    "an approval": "approval: Sure?",
    "a wait": "wait: {signal: go, match: \"${{ signal.data == 'never' }}\"}",
    "a pause between attempts": (
        'python: "tools:act"\n    effect: idempotent\n    retry: {attempts: 9, delay: 1m}'
    ),
    "a pause between rounds": 'loop: {until: "${{ false }}", max: 99, every: 1m}',
    "items": 'map: {over: 5, concurrency: 2}\n    python: "tools:act"',
    "a group": "group:\n      - {id: g1, approval: Sure?}\n      - {id: g2, output: 1}",
    "a group of groups": (
        "group:\n      - {id: g1, map: 2, parallel: [{id: p1, approval: A?}, {id: p2, wait: 9h}]}"
    ),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("how", ["cancelled", "succeeded", "failed"])
def test_step_is_withdrawn_wherever_it_is(stage: Stage, target: str, how: str) -> None:
    text = WAITING.format(
        target=TARGETS[target], cancel=f"{{targets: [target], as: {how}, reason: enough}}"
    )
    script = {"target": Fails("ToolError")} if "attempts" in target else {}
    simulator = stage.simulator(text, script, order="first").start()
    if "attempts" in target:
        simulator.finish("target")
    simulator.send("go")
    if how == "failed":
        error = simulator.state["error"]
        assert error is not None
        assert (error["type"], error["message"]) == ("Cancelled", "enough")
        assert error["step"] == "target"
    else:
        after = ["succeeded", "ok"] if how == "succeeded" else None
        assert simulator.state["outputs"] == {"after": after, "kill": {"cancelled": ["target"]}}
        assert statuses(simulator)["target"] == how


def test_engine_ends_what_it_withdraws(stage: Stage) -> None:
    stage.world.held = {"target[0]", "target[1]"}
    text = WAITING.format(target=TARGETS["items"], cancel="[target]").replace(
        "wait: {signal: go}", "wait: 1s"
    ).replace("signals: {go: {}}\n", "")  # fmt: skip
    result = stage.run(text)
    assert result.status == "succeeded"
    assert sorted(stage.world.withdrawn) == ["target[0]", "target[1]"]
    assert sorted(stage.world.started) == ["target[0]", "target[1]"]


@pytest.mark.parametrize("how", ["cancelled", "failed"])
def test_handler_that_names_cancelled_is_taken(stage: Stage, how: str) -> None:
    target = 'approval: Sure?\n    on_error: [{type: Cancelled, output: "${{ error.message }}"}]'
    cancel = f"{{targets: [target], as: {how}, reason: enough}}"
    simulator = stage.simulator(WAITING.format(target=target, cancel=cancel)).start()
    simulator.send("go")
    assert simulator.state["outputs"] is not None
    assert simulator.state["outputs"]["after"] == ["succeeded", "ok"]


@pytest.mark.parametrize("handler", ["[{next: after}]", "[{type: Cancel*, next: after}]"])
def test_handler_that_does_not_name_cancelled_is_not_taken(stage: Stage, handler: str) -> None:
    if "*" in handler:
        handler = "[{type: [Expired, Cancelled.*], next: after}, {next: after}]"
    target = f"approval: {{title: Sure?, expires: 9d}}\n    on_error: {handler}"
    simulator = stage.simulator(WAITING.format(target=target, cancel="[target]")).start()
    simulator.send("go")
    assert simulator.state["outputs"] is not None
    assert simulator.state["outputs"]["after"] is None


def test_what_ends_because_something_around_it_ends_takes_no_handler(stage: Stage) -> None:
    text = """
signals: {go: {}}
steps:
  - {id: s, next: {all: [g, stop]}}
  - id: g
    group:
      - id: a
        approval: Sure?
        on_error: [{type: Cancelled, next: b}]
      - {id: b, output: 1}
    next: end
  - {id: stop, wait: {signal: go}, next: kill}
  - {id: kill, KILL}
"""
    for kill in ("cancel: [g], next: end", "next: end_all"):
        simulator = stage.simulator(text.replace("KILL", kill)).start()
        simulator.send("go")
        assert simulator.status == "succeeded"
        assert "g/b" not in statuses(simulator)
        assert statuses(simulator)["g/a"] == "cancelled"


def test_tokens_at_a_join_and_arrivals_to_come_are_not_hit(stage: Stage) -> None:
    text = """
steps:
  - {id: s, next: {all: [a, b, kill]}}
  - {id: a, python: "tools:act", next: j}
  - {id: b, python: "tools:act", next: j}
  - {id: j, join: active, output: "${{ join.from }}", next: end}
  - {id: kill, wait: 1s, next: do_it}
  - {id: do_it, cancel: [j], next: end}
outputs: {j: "${{ steps.j.output }}", none: "${{ steps.do_it.output }}"}
"""
    simulator = stage.simulator(text).start()
    simulator.finish("a")
    [timer] = simulator.state["timers"]
    simulator.apply({"type": "timer", "at": simulator.now + 1000, "timer": timer})
    simulator.run()
    assert simulator.state["outputs"] == {"j": ["a", "b"], "none": {"cancelled": []}}


def test_withdrawing_nothing_is_no_error(stage: Stage) -> None:
    text = """
steps:
  - {id: s, next: {first: [{when: "${{ false }}", to: a}, {else: kill}]}}
  - {id: a, approval: Sure?, next: end}
  - {id: kill, cancel: [a]}
outputs: {kill: "${{ steps.kill.output }}"}
"""
    assert stage.play(text).outputs == {"kill": {"cancelled": []}}


def test_step_that_withdraws_its_own_group_ends_with_it(stage: Stage) -> None:
    text = """
steps:
  - id: g
    group:
      - {id: s, next: {all: [a, kill]}}
      - {id: a, approval: Sure?, next: end}
      - {id: kill, cancel: {targets: [g], as: HOW}}
    next: z
  - {id: z, output: 1}
outputs: {z: "${{ steps.z.output }}"}
"""
    assert stage.play(text.replace("HOW", "cancelled")).outputs == {"z": None}
    assert stage.play(text.replace("HOW", "succeeded")).outputs == {"z": 1}
    outcome = stage.play(text.replace("HOW", "failed"))
    assert outcome.error is not None
    assert (outcome.error_type, outcome.error["step"]) == ("Cancelled", "g")


def test_group_withdrawn_as_succeeded_gives_the_output_so_far(stage: Stage) -> None:
    text = """
signals: {go: {}}
steps:
  - {id: s, next: {all: [g, stop]}}
  - id: g
    group:
      - {id: a, output: 1}
      - {id: b, wait: 9h, output: 2}
      - {id: c, output: "${{ default(steps.b.output, 0) + steps.a.output }}"}
    next: after
  - {id: after, next: end}
  - {id: stop, wait: {signal: go}, next: kill}
  - {id: kill, cancel: {targets: [g], as: succeeded}, next: end}
outputs: {g: "${{ steps.g.output }}"}
"""
    simulator = stage.simulator(text).start()
    simulator.send("go")
    assert simulator.state["outputs"] == {"g": None}


def test_target_whose_ways_are_by_outcome_needs_an_else_to_be_withdrawn_as_succeeded(
    stage: Stage,
) -> None:
    text = """
steps:
  - {id: s, next: {all: [ask, kill]}}
  - {id: ask, approval: Sure?, next: {outcome: {approve: a, WAY}}}
  - {id: a, output: 1, next: end}
  - {id: kill, cancel: {targets: [ask], as: succeeded}, next: end}
outputs: {a: "${{ steps.a.output }}"}
"""
    with pytest.raises(FlowFileError, match="E209"):
        stage.compile(text.replace("WAY", "reject: end"))
    assert stage.play(text.replace("WAY", "else: a")).outputs == {"a": 1}


def test_reason_without_a_value_fails_the_step_that_cancels(stage: Stage) -> None:
    text = WAITING.format(
        target="approval: Sure?", cancel='{targets: [target], reason: "${{ string(1 / 0) }}"}'
    )
    simulator = stage.simulator(text).start()
    simulator.send("go")
    assert simulator.state["error"] is not None
    assert simulator.state["error"]["type"] == "ExpressionError"
    assert simulator.state["error"]["step"] == "kill"


def test_late_result_of_a_withdrawn_step_is_dropped(stage: Stage) -> None:
    text = WAITING.format(target='python: "tools:act"', cancel="[target]")
    simulator = stage.simulator(text).start()
    [run] = simulator.running.values()
    simulator.send("go")
    assert simulator.status == "succeeded"
    before = simulator.state["outputs"]
    simulator.apply(
        {"type": "succeeded", "at": simulator.now, "unit": run.unit, "attempt": 1, "value": 9}
    )
    assert simulator.state["outputs"] == before


# The whole execution


def test_cancel_execution_withdraws_everything_and_is_told_so(stage: Stage) -> None:
    text = """
steps:
  - {id: s, next: {all: [a, ask, work]}}
  - {id: a, wait: 1s, next: kill}
  - {id: ask, map: 3, approval: Sure?, next: end}
  - {id: work, python: "tools:act", next: end}
  - {id: kill, cancel: execution}
outputs: {x: 1}
"""
    stage.world.held = {"work"}
    result = stage.run(text)
    assert (result.status, result.outputs, result.waits) == ("cancelled", None, [])
    assert result.error is not None
    assert result.error["type"] == "Cancelled"
    assert stage.world.withdrawn == ["work"]
    history = {address: how for address, how, _ in stage.history(result.execution)}
    assert (history["kill"], history["work"], history["ask[1]"]) == (
        "succeeded", "cancelled", "cancelled",
    )  # fmt: skip


def test_person_withdraws_an_execution_that_waits_or_runs(stage: Stage) -> None:
    text = """
steps:
  - {id: work, python: "tools:act"}
  - {id: ask, approval: Sure?}
"""
    waiting = stage.run(text, id="waits")
    assert waiting.status == "waiting"
    result = stage.do(stage.engine.cancel_async("waits", reason="changed my mind"))
    assert (result.status, result.waits) == ("cancelled", [])
    assert result.error is not None
    assert result.error["message"] == "changed my mind"
    with pytest.raises(Conflict, match="cancelled"):
        stage.do(stage.engine.cancel_async("waits"))

    stage.world.held = {"work"}
    stage.world.started.clear()
    running = stage.run_meanwhile(
        text, lambda: stage.world.started == ["work"], lambda: stage.engine.cancel_async("it")
    )
    assert running.status == "cancelled"
    assert stage.world.withdrawn == ["work"]


def test_what_nothing_can_withdraw_is_refused(stage: Stage) -> None:
    for target, code in (("nothing", "E201"), ("inner", "E205")):
        text = f"""
steps:
  - {{id: g, group: [{{id: inner, wait: 1h}}]}}
  - {{id: kill, cancel: [{target}]}}
"""
        with pytest.raises(FlowFileError, match=code):
            stage.compile(text)


@pytest.mark.parametrize("target", ["g", "execution"])
@pytest.mark.parametrize("holds", [True, False])
def test_what_follows_a_cancel_that_may_be_skipped_can_be_reached(
    stage: Stage, target: str, holds: bool
) -> None:
    targets = target if target == "execution" else f"[{target}]"
    text = f"""
inputs: {{it: {{type: boolean, default: true}}}}
steps:
  - id: g
    group:
      - {{id: c, when: "${{{{ inputs.it }}}}", cancel: {targets}}}
      - {{id: d, output: reached}}
  - {{id: after, output: "${{{{ steps.g.output }}}}"}}
outputs: {{it: "${{{{ default(steps.after.output, 'not') }}}}"}}
"""
    assert stage.warnings(text) == []
    played = stage.simulate(text, inputs={"it": holds})
    if holds and target == "execution":
        assert played.status == "cancelled"
    else:
        assert played.outputs == {"it": "not" if holds else "reached"}


def test_after_a_group_cancelled_as_succeeded_its_finally_comes_first(stage: Stage) -> None:
    text = """
signals: {never: {}}
steps:
  - {id: s, next: {all: [g, c]}}
  - id: g
    group: [{id: a, wait: {signal: never}}]
    finally: [{id: tidy, python: "tools:act"}]
    next: after
  - {id: after, python: "tools:act", next: end}
  - {id: c, wait: 1m, next: x}
  - {id: x, cancel: {targets: [g], as: succeeded}, next: end}
"""
    assert stage.simulate(text, order="first").started == ["g/finally/tidy", "after"]
    assert stage.run(text).status == "succeeded"
    assert stage.world.started == ["g/finally/tidy", "after"]


def test_cancelling_at_once_ends_a_cleanup_that_is_under_way(stage: Stage) -> None:
    text = """
steps: [{id: w, wait: {for: 1h}}]
finally: [{id: tidy, python: "tools:act"}, {id: last, python: "tools:act"}]
"""
    played = stage.simulator(text).start()
    for now, status in ((False, "running"), (True, "cancelled")):
        played.apply(
            {"type": "cancel", "at": played.now, "reason": "no", "by": "user:a", "now": now}
        )
        assert (played.status, played.started) == (status, ["finally/tidy"])
