"""Subflows: flows inside other flows, as scopes of the same execution (F15, F21, F88, F92)."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine.kernel import ENDED
from flowengine.testing.simulator import Fails, Simulator
from tests.language.stage import Call, Outcome, Stage

ACT = 'python: "tools:act", effect: idempotent'
BROKEN = Fails("Broken", "no luck", retryable=False, data={"why": "luck"})


def sub(body: str) -> str:
    """Return a flow that runs `child` with `n` as its step `s`, and returns its output."""
    return f"""
inputs: {{n: {{type: integer, default: 3}}}}
flows:
  child:
    inputs: {{n: {{type: integer}}, twice: {{type: integer, default: "${{{{ inputs.n * 2 }}}}"}}}}
{body}
steps:
  - {{id: s, flow: child, with: {{n: "${{{{ inputs.n }}}}"}}}}
outputs: {{got: "${{{{ steps.s.output }}}}"}}
"""


def started(simulator: Simulator) -> list[str]:
    """Return the addresses of the tasks in the order of their start."""
    return simulator.started


# Inputs, outputs, state


def test_a_subflow_has_its_inputs_with_defaults_and_gives_its_outputs(stage: Stage) -> None:
    found = stage.play(
        sub("""
    outputs: {sum: {value: "${{ inputs.n + inputs.twice }}", type: integer}}
    steps: [{id: a, output: 1}]""")
    )

    assert found.outputs == {"got": {"sum": 9}}


def test_a_subflow_has_a_state_of_its_own(stage: Stage) -> None:
    found = stage.play("""
state: {n: {type: integer, default: 1}}
flows:
  count:
    state: {n: {type: integer, default: 10}}
    outputs: {n: "${{ state.n }}"}
    steps: [{id: up, set: {n: "${{ state.n + 1 }}"}}, {id: again, set: {n: "${{ state.n + 1 }}"}}]
steps:
  - {id: up, set: {n: "${{ state.n + 1 }}"}}
  - {id: one, flow: count}
  - {id: two, flow: count}
outputs: {all: "${{ [state.n, steps.one.output.n, steps.two.output.n] }}"}
""")

    assert found.outputs == {"all": [2, 12, 12]}


def test_what_does_not_fit_the_inputs_or_outputs_is_an_error_of_the_step(stage: Stage) -> None:
    text = """
inputs: {n: {default: 3}}
flows:
  child:
    inputs: {n: {type: integer, maximum: 5}}
    outputs: {n: {value: "${{ steps.a.output }}", type: integer}}
    steps: [{id: a, python: "tools:act", with: {value: "${{ inputs.n }}"}}]
steps:
  - id: s
    flow: child
    with: {n: "${{ inputs.n }}"}
    on_error: [{type: ValidationError, output: "${{ error.message }}"}]
outputs: {got: "${{ steps.s.output }}"}
"""

    assert stage.play(text).outputs == {"got": {"n": 3}}
    assert "input 'n' of 'child'" in stage.play(text, inputs={"n": 6}).outputs["got"]
    assert "outputs.n" in stage.play(text, {"a": "text"}).outputs["got"]


def test_a_computed_default_without_value_fails_the_step(stage: Stage) -> None:
    text = sub("    steps: [{id: a, output: 1}]").replace("inputs.n * 2", "1 / (inputs.n - 3)")

    assert stage.play(text).error_type == "ExpressionError"


def test_the_steps_of_a_subflow_may_be_called_like_those_around_it(stage: Stage) -> None:
    found = stage.play("""
flows:
  child:
    outputs: {got: "${{ steps.a.output }}"}
    steps: [{id: a, output: inner}, {id: s, output: "${{ steps.a.output }}"}]
steps:
  - {id: a, output: outer}
  - {id: s, flow: child}
outputs: {all: "${{ [steps.a.output, steps.s.output.got] }}"}
""")

    assert found.outputs == {"all": ["outer", "inner"]}


# Recursion

SUM = """
inputs: {n: {type: integer, default: 3}}
limits: {depth: 5}
outputs: {sum: {value: "${{ steps.last.output }}", type: integer}}
steps:
  - {id: test, next: {first: [{when: "${{ inputs.n <= 0 }}", to: last}, {else: down}]}}
  - {id: down, flow: flow, with: {n: "${{ inputs.n - 1 }}"}, next: last}
  - {id: last, output: "${{ inputs.n + default(steps.down.output.sum, 0) }}"}
"""


def test_a_flow_runs_itself(stage: Stage) -> None:
    assert stage.play(SUM, inputs={"n": 5}).outputs == {"sum": 15}


def test_too_deep_says_so(stage: Stage) -> None:
    found = stage.play(SUM, inputs={"n": 6})

    assert found.error_type == "LimitExceeded"
    assert found.error is not None
    assert "5 other subflows" in found.error["message"]
    assert "limits.depth" in found.error["message"]


def test_what_is_compiled_does_not_grow_with_the_depth(stage: Stage) -> None:
    few = stage.compile(SUM).flow
    many = stage.compile(SUM.replace("depth: 5", "depth: 100")).flow

    assert len(few["steps"]) == len(many["steps"]) <= 6
    assert stage.play(SUM.replace("depth: 5", "depth: 100"), inputs={"n": 60}, most=1).outputs == {
        "sum": 1830
    }


def test_a_subflow_may_allow_less_depth_than_the_flow_around_it(stage: Stage) -> None:
    text = """
inputs: {n: {type: integer}}
limits: {depth: 50}
flows:
  down:
    inputs: {n: {type: integer}}
    limits: {depth: 2}
    steps:
      - {id: more, when: "${{ inputs.n > 0 }}", flow: down, with: {n: "${{ inputs.n - 1 }}"}}
steps:
  - {id: s, flow: down, with: {n: "${{ inputs.n }}"}}
"""

    assert stage.play(text, inputs={"n": 2}).status == "succeeded"
    assert stage.play(text, inputs={"n": 3}).error_type == "LimitExceeded"


def test_a_tree_of_calls_of_itself(stage: Stage) -> None:
    found = stage.play(
        """
inputs: {n: {type: integer, default: 5}}
outputs: {fib: {value: "${{ steps.last.output }}", type: integer}}
steps:
  - {id: test, next: {first: [{when: "${{ inputs.n < 2 }}", to: last}, {else: both}]}}
  - id: both
    parallel:
      - {id: one, flow: flow, with: {n: "${{ inputs.n - 1 }}"}}
      - {id: two, flow: flow, with: {n: "${{ inputs.n - 2 }}"}}
    next: last
  - id: last
    output: "${{ steps.both.output == null ? inputs.n
      : int(default(steps.both.output.one.fib, 0)) + int(default(steps.both.output.two.fib, 0)) }}"
""",
        most=4,
    )

    assert found.outputs == {"fib": 5}


# Errors


def test_an_error_keeps_its_type_and_tells_where_it_came_from(stage: Stage) -> None:
    text = """
flows:
  inner: {steps: [{id: group, group: [{id: a, python: "tools:act"}]}]}
  outer: {steps: [{id: call, flow: inner}]}
steps:
  - id: s
    flow: outer
    on_error: [{type: Broken, output: "${{ error }}"}]
outputs: {error: "${{ steps.s.output }}"}
"""
    error = stage.play(text, {"a": BROKEN}).outputs["error"]

    told = []
    while error is not None:
        told.append((error["type"], error["message"], error["data"], error["step"]))
        error = error["cause"]
    assert told == [
        ("Broken", "no luck", {"why": "luck"}, "s"),
        ("Broken", "no luck", {"why": "luck"}, "s/call"),
        ("Broken", "no luck", {"why": "luck"}, "s/call/group/a"),
    ]


def test_a_handler_of_a_group_takes_an_error_by_type_from_a_flow_in_a_flow(stage: Stage) -> None:
    text = """
flows:
  inner: {steps: [{id: a, python: "tools:act"}]}
  outer: {steps: [{id: call, flow: inner}]}
steps:
  - id: g
    group: [{id: s, flow: outer}]
    on_error:
      - {type: Other, output: null}
      - {type: Broken, output: "${{ [error.step, error.cause.step, error.cause.cause.step, error.cause.cause.type] }}"}
outputs: {told: "${{ steps.g.output }}"}
"""  # noqa: E501
    told = stage.play(text, {"a": BROKEN}).outputs["told"]

    assert told == ["g/s", "g/s/call", "g/s/call/a", "Broken"]


@pytest.mark.parametrize(
    ("handler", "expected"),
    [
        ("{next: mend}", {"got": {"how": "mended"}}),
        ('{output: {how: "${{ error.type }}"}}', {"got": {"how": "Broken"}}),
        ('{fail: {type: Other, message: "${{ error.message }}"}}', "Other"),
        ("{type: Nothing, next: mend}", "Broken"),
    ],
)
def test_a_subflow_has_handlers_of_its_own(stage: Stage, handler: str, expected: Any) -> None:
    found = stage.play(
        sub(f"""
    outputs: {{how: "${{{{ steps.mend.output }}}}"}}
    on_error: [{handler}]
    steps:
      - {{id: a, {ACT}, next: {{first: [{{when: "${{{{ inputs.n > 9 }}}}", to: mend}}, {{else: end}}]}}}}
      - {{id: mend, output: mended}}"""),  # noqa: E501
        {"a": BROKEN},
    )

    assert (found.outputs or found.error_type) == expected


def test_a_step_that_runs_a_flow_tries_again_with_a_fresh_one(stage: Stage) -> None:
    text = """
flows:
  child:
    state: {n: {type: integer, default: 0}}
    outputs: {n: "${{ state.n }}"}
    steps:
      - {id: up, set: {n: "${{ state.n + 1 }}"}}
      - {id: a, python: "tools:act", effect: idempotent}
steps:
  - {id: s, flow: child, retry: {attempts: 3, delay: 1s, only: "*"}}
outputs: {n: "${{ steps.s.output.n }}", attempts: "${{ steps.s.attempts }}"}
"""

    def twice() -> Any:
        calls: list[Call] = []

        def act(call: Call) -> int:
            calls.append(call)
            if len(calls) < 3:
                raise BROKEN
            return 1

        return {"a": act}

    stage.world.script = twice()
    assert stage.run(text).outputs == {"n": 1, "attempts": 3}
    played = stage.simulate(text, twice())
    assert played.state["outputs"] == {"n": 1, "attempts": 3}


@pytest.mark.parametrize("bound", ["timeout", "deadline"])
def test_a_subflow_that_takes_too_long_is_withdrawn_with_its_finally(
    stage: Stage, bound: str
) -> None:
    text = f"""
flows:
  child:
    steps: [{{id: a, wait: 1h}}]
    finally: [{{id: tidy, {ACT}, with: {{value: "${{{{ error.type }}}}"}}}}]
steps:
  - id: s
    flow: child
    {bound}: 10s
    on_error: [{{type: [Timeout, Deadline], output: "${{{{ error.type }}}}"}}]
outputs: {{how: "${{{{ steps.s.output }}}}"}}
"""
    played = stage.simulate(text, order="first")

    assert played.state["outputs"] == {"how": bound.capitalize()}
    assert started(played) == ["s/finally/tidy"]


def test_a_subflow_has_limits_of_its_own(stage: Stage) -> None:
    def limited(limits: str) -> Outcome:
        return stage.play(
            sub(f"""
    limits: {limits}
    steps:
      - {{id: a, wait: "${{{{ '10s' }}}}", next: b}}
      - {{id: b, next: {{first: [{{when: "${{{{ steps.b.activations < 20 }}}}", to: b}}, {{else: end}}]}}}}
""")  # noqa: E501
        )

    assert limited("{}").status == "succeeded"
    for limits, word in (
        ("{duration: 5s}", "limits.duration"),
        ("{steps: 5}", "limits.steps"),
        ("{activations: 3}", "limits.activations"),
    ):
        found = limited(limits)
        assert found.error_type == "LimitExceeded"
        assert word in (found.error or {})["message"]


# Cancellation, cleanup, compensation

CLEANS = f"""
state: {{told: {{type: array, default: [], reducer: append}}}}
flows:
  child:
    steps:
      - id: g
        group: [{{id: a, {ACT}}}, {{id: w, wait: 1h}}]
        finally: [{{id: inner, {ACT}}}]
    finally: [{{id: tidy, {ACT}, with: {{value: "${{{{ error.type }}}}"}}}}]
"""


def test_cancelling_the_step_cancels_the_subflow_with_its_finally(stage: Stage) -> None:
    text = f"""{CLEANS}
steps:
  - {{id: both, next: {{all: [s, stop]}}}}
  - {{id: s, flow: child, next: end}}
  - {{id: stop, wait: 10s}}
  - {{id: now, cancel: [s]}}
"""
    played = stage.simulate(text, order="first")

    assert played.status == "succeeded"
    assert started(played) == ["s/g/a", "s/g/finally/inner", "s/finally/tidy"]


def test_cancelling_the_execution_cancels_subflows_in_subflows(stage: Stage) -> None:
    text = f"""{CLEANS}
  outer:
    steps: [{{id: s, flow: child}}]
    finally: [{{id: last, {ACT}}}]
steps: [{{id: top, flow: outer}}]
"""
    played = stage.simulator(text).start()
    while played.running:
        played.end(next(iter(played.running.values())))
    played.apply({"type": "cancel", "at": 2_000_000, "reason": "no more", "by": "x", "now": False})
    played.run()

    assert played.status == "cancelled"
    assert started(played)[1:] == [
        "top/s/g/finally/inner",
        "top/s/finally/tidy",
        "top/finally/last",
    ]


UNDO = """
tools:
  undo: {{python: "tools:act", effect: idempotent}}
flows:
  order:
    inputs: {{name: {{type: string}}}}
    state: {{seen: {{type: string, default: none}}}}
    outputs: {{name: "${{{{ inputs.name }}}}"}}
    steps:
      - id: pay
        python: "tools:act"
        with: {{value: "${{{{ inputs.name }}}}"}}
        set: {{seen: "${{{{ inputs.name }}}}"}}
        compensate: {{call: undo, with: {{value: "${{{{ inputs.name + state.seen }}}}"}}}}
      - id: send
        python: "tools:act"
        compensate: {{call: undo, with: {{value: "${{{{ steps.pay.output }}}}"}}}}
steps:
  - {{id: one, flow: order, with: {{name: a}}, {more}}}
  - {{id: two, flow: order, with: {{name: b}}}}
  - {{id: last, python: "tools:act", effect: pure}}
on_error: [{{compensate: true}}]
"""


def test_what_subflows_did_is_undone_newest_first_with_what_they_knew(stage: Stage) -> None:
    values: list[Any] = []

    def undo(call: Call) -> None:
        values.append(call.value)

    played = stage.simulate(UNDO.format(more="title: T"), {"last": BROKEN, "compensate": undo})

    assert played.status == "failed"
    undone = [a for a in started(played) if a.endswith("/compensate")]
    assert undone == [
        "two/send/compensate",
        "two/pay/compensate",
        "one/send/compensate",
        "one/pay/compensate",
    ]
    assert played.state.get("frames") is None
    result = stage.run_script(UNDO.format(more="title: T"), {"last": BROKEN, "compensate": undo})
    assert result.status == "failed"
    assert values[-4:] == ["b", "bb", "a", "aa"]


def test_a_subflow_that_says_how_it_is_undone_is_undone_by_that(stage: Stage) -> None:
    more = 'compensate: {call: undo, with: {value: "${{ output.name }}"}}'
    values: list[Any] = []
    script = {"last": BROKEN, "compensate": lambda call: values.append((call.address, call.value))}

    stage.simulate(UNDO.format(more=more), script)

    assert [one for one in values if one[0].startswith("one")] == [("one/compensate", "a")]


def test_a_subflow_that_was_cut_short_undoes_what_it_had_done(stage: Stage) -> None:
    played = stage.simulate(UNDO.format(more="title: T"), {"send": BROKEN})

    assert [a for a in started(played) if a.endswith("/compensate")] == ["one/pay/compensate"]


def test_a_handler_of_a_subflow_undoes_what_it_did_and_no_more(stage: Stage) -> None:
    text = UNDO.format(more="title: T").replace(
        "    outputs: {name:", "    on_error: [{compensate: true}]\n    outputs: {name:"
    )
    sends = iter([1])

    def second(call: Call) -> int:
        if next(sends, None) is None:
            raise BROKEN
        return 1

    played = stage.simulate(text, {"send": second})

    undone = [a for a in started(played) if a.endswith("/compensate")]
    assert undone == ["two/pay/compensate", "one/send/compensate", "one/pay/compensate"]


def test_a_flow_can_be_what_undoes_a_step(stage: Stage) -> None:
    found = stage.simulate("""
flows:
  take_back:
    inputs: {what: {type: string}}
    steps: [{id: ask, python: "tools:act", with: {value: "${{ inputs.what }}"}}]
steps:
  - id: a
    python: "tools:act"
    compensate: {flow: take_back, with: {what: "${{ json(output) }}"}}
  - {id: b, fail: {type: Broken, message: no}}
on_error: compensate
""")

    assert started(found) == ["a", "a/compensate/ask"]


# Combinations


def test_items_of_a_map_are_subflows(stage: Stage) -> None:
    found = stage.play("""
flows:
  child:
    inputs: {n: {type: integer}}
    outputs: {twice: {value: "${{ steps.a.output }}", type: integer}}
    steps: [{id: a, python: "tools:count", with: {value: "${{ inputs.n * 2 }}"}}]
steps:
  - id: s
    map: {over: 5, concurrency: 2}
    flow: child
    with: {n: "${{ item }}"}
    output: "${{ result.twice }}"
outputs: {all: "${{ steps.s.output }}"}
""")

    assert found.outputs == {"all": [0, 2, 4, 6, 8]}


def test_rounds_of_a_loop_are_subflows(stage: Stage) -> None:
    found = stage.play("""
flows:
  child:
    inputs: {n: {type: integer}}
    outputs: {next: {value: "${{ inputs.n + 1 }}", type: integer}}
    steps: [{id: a, python: "tools:act"}]
steps:
  - id: s
    loop: {until: "${{ output.next >= 4 }}", max: 9}
    flow: child
    with: {n: "${{ round.number }}"}
outputs: {all: "${{ [steps.s.output.next, steps.s.rounds] }}"}
""")

    assert found.outputs == {"all": [4, 3]}


def test_people_are_asked_from_the_depth_on_the_one_execution(stage: Stage) -> None:
    stage.run(
        """
flows:
  ask:
    inputs: {what: {type: string}}
    outputs: {by: "${{ steps.sign.output.by }}"}
    steps: [{id: sign, approval: "Pay ${{ inputs.what }}?"}, {id: paid, python: "tools:act"}]
  outer: {outputs: {by: "${{ steps.inner.output.by }}"}, steps: [{id: inner, flow: ask, with: {what: rent}}]}
steps: [{id: outer, flow: outer}]
outputs: {by: "${{ steps.outer.output.by }}"}
""",  # noqa: E501
        id="it",
    )
    [wait] = stage.engine.waits().items
    assert (wait["address"], wait["title"], wait["execution"]) == (
        "outer/inner/sign",
        "Pay rent?",
        "it",
    )

    stage.decide("outer/inner/sign", "approve")

    assert stage.engine.show("it")["outputs"] == {"by": "user:ben"}
    assert ("outer/inner/paid", "succeeded", "ok") in stage.history("it")


def test_messages_reach_the_waits_of_subflows_by_their_keys(stage: Stage) -> None:
    text = """
signals: {paid: {data: {type: integer}}}
flows:
  order:
    inputs: {order: {type: string}}
    outputs: {paid: "${{ steps.w.output.data }}"}
    steps: [{id: w, wait: {signal: paid, key: "${{ inputs.order }}"}}]
steps:
  - id: s
    map: [a, b]
    flow: order
    with: {order: "${{ item }}"}
    output: "${{ result.paid }}"
outputs: {all: "${{ steps.s.output }}"}
"""
    stage.run(text, id="it")

    stage.signal("paid", 2, key="b")
    assert stage.engine.show("it")["status"] == "waiting"
    stage.signal("paid", 1, key="a")
    assert stage.engine.show("it")["outputs"] == {"all": [1, 2]}


def test_a_subflow_waits_for_its_own_state(stage: Stage) -> None:
    found = stage.play("""
state: {open: {type: boolean, default: true}}
flows:
  child:
    state: {open: {type: boolean, default: false}}
    steps:
      - {id: a, next: {all: [w, b]}}
      - {id: w, wait: {when: "${{ state.open }}"}, next: end}
      - {id: b, python: "tools:act", set: {open: true}, next: end}
steps:
  - {id: s, map: 3, flow: child}
outputs: {open: "${{ state.open }}"}
""")

    assert (found.status, found.outputs) == ("succeeded", {"open": True})


def test_a_lock_is_that_of_the_execution_however_deep_it_is_taken(stage: Stage) -> None:
    """A recursion of 31 flows with at most 8 at work at once (F92)."""
    text = """
inputs: {n: {type: integer, default: 4}}
steps:
  - {id: work, lock: {key: cpu, permits: 8}, python: "tools:act"}
  - {id: more, when: "${{ inputs.n > 0 }}", map: 2, flow: flow, with: {n: "${{ inputs.n - 1 }}"}}
"""
    for seed in range(8):
        played = stage.simulator(text, seed=seed).start({"n": 4})
        most = 0
        while played.status not in ENDED:
            most = max(most, len(played.running))
            assert played.step()
        assert (played.status, len(played.started)) == ("succeeded", 31)
        assert 3 < most <= 8
    stage.run(text)
    assert stage.world.most <= 8
    assert len(stage.world.ended) == 31


def test_a_lock_held_around_a_subflow_is_taken_again_inside(stage: Stage) -> None:
    found = stage.play("""
flows:
  child: {steps: [{id: a, lock: one, python: "tools:act"}]}
steps:
  - id: g
    lock: one
    parallel: [{id: s, flow: child}, {id: t, flow: child}]
""")

    assert found.status == "succeeded"


def test_a_subflow_does_not_carry_what_is_known_of_the_state_around_it(stage: Stage) -> None:
    played = stage.simulator("""
state: {x: {type: integer, default: 0}}
flows:
  child: {steps: [{id: pause, wait: 1h}]}
steps:
  - {id: a, set: {x: 1}}
  - {id: g, group: [{id: s, flow: child}]}
""").start({})
    while played.running or "g/s/pause" not in [seen.address for seen in played.observations]:
        assert played.step()

    group, child = list(played.state["scopes"].values())[1:]
    assert group["knows"] == {"x": 1}
    assert "knows" not in child
