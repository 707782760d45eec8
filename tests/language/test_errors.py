"""Errors: which handler catches them, and how they change on their way out (F21, F88)."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine import FlowFileError
from flowengine.testing.simulator import Fails
from tests.language.stage import Stage

AWAY = "next: {first: [{when: '${{ inputs.n > 99 }}', to: other}, {else: end}]}"
"""Leads to `end`, but keeps the step `other` reachable."""


def _handled(handlers: str, more: str = AWAY) -> str:
    return f"""
inputs: {{n: {{type: integer, default: 0}}}}
state: {{seen: {{type: array, default: [], reducer: append}}}}
steps:
  - id: a
    python: "tools:act"
    on_error: {handlers}
    {more}
  - id: other
    output: ["${{{{ steps.a.status }}}}", "${{{{ default(steps.a.error.type, steps.a.outcome) }}}}"]
outputs:
  a: ${{{{ steps.a.output }}}}
  other: ${{{{ steps.other.output }}}}
  seen: ${{{{ state.seen }}}}
"""


OUT = Fails("shop.OutOfStock", "none left", retryable=False, data={"item": 7, "left": 0})


@pytest.mark.parametrize(
    ("handlers", "expected"),
    [
        ("[{output: 1}]", {"a": 1}),
        ("[{type: Timeout, output: 1}, {type: shop.OutOfStock, output: 2}, {output: 3}]", {"a": 2}),
        ("[{type: shop.OutOfStock, output: 2}, {type: shop.*, output: 3}]", {"a": 2}),
        ("[{type: [Timeout, shop.*], output: 1}, {next: other}]", {"a": 1}),
        ("[{type: shop, output: 1}, {next: other}]", {"other": ["failed", "shop.OutOfStock"]}),
        ("[{type: sho.*, output: 1}, {next: other}]", {"other": ["failed", "shop.OutOfStock"]}),
        (
            '[{when: "${{ error.data.left > 0 }}", output: 1}, {output: "${{ error.data.item }}"}, '
            "{type: Cancelled, next: other}]",
            {"a": 7},
        ),
        (
            '[{set: {seen: "${{ error.message }}"}, next: other}]',
            {"other": ["failed", "shop.OutOfStock"], "seen": ["none left"]},
        ),
        (
            '[{set: {seen: "${{ error.step }}"}, output: "${{ error.attempt }}"}]',
            {"a": 1, "seen": ["a"]},
        ),
    ],
)
def test_first_handler_that_fits_is_taken(
    stage: Stage, handlers: str, expected: dict[str, Any]
) -> None:
    text = _handled(handlers)
    outcome = stage.play(text, {"a": OUT})
    assert outcome.outputs == {"a": None, "other": None, "seen": [], **expected}


def test_step_that_went_on_with_another_output_has_succeeded(stage: Stage) -> None:
    text = _handled("[{output: none}]", "next: other")
    assert stage.play(text, {"a": OUT}).outputs == {
        "a": "none", "other": ["succeeded", "ok"], "seen": [],
    }  # fmt: skip


def test_continue_goes_the_ordinary_way_without_an_output(stage: Stage) -> None:
    way = "next: {first: [{when: \"${{ outcome == 'failed' }}\", to: other}, {else: end}]}"
    text = _handled("continue", way)
    assert stage.play(text, {"a": OUT}).outputs["other"] == ["failed", "shop.OutOfStock"]
    assert stage.play(text, {"a": 1}).outputs["other"] is None


def test_outcome_failed_of_a_step_that_continues_can_be_routed(stage: Stage) -> None:
    text = _handled("continue", "next: {outcome: {ok: end, failed: other}}")
    assert stage.play(text, {"a": OUT}).outputs["other"] == ["failed", "shop.OutOfStock"]


def test_error_raised_in_place_of_another_has_it_as_cause(stage: Stage) -> None:
    text = """
steps:
  - id: outer
    group:
      - id: inner
        group:
          - id: a
            python: "tools:act"
            on_error:
              - fail:
                  type: shop.Sold
                  message: "Sold: ${{ error.message }}"
                  data: ${{ error.data.item }}
        on_error: [{type: shop.*, fail: {type: Closed, message: closed}}]
    on_error: [{output: "${{ error }}"}]
outputs: {error: "${{ steps.outer.output }}"}
"""
    error = stage.play(text, {"a": OUT}).outputs["error"]
    assert (error["type"], error["message"], error["step"]) == ("Closed", "closed", "outer/inner")
    sold = error["cause"]
    assert (sold["type"], sold["message"], sold["data"]) == ("shop.Sold", "Sold: none left", 7)
    assert (sold["step"], sold["cause"]["type"]) == ("outer/inner/a", "shop.OutOfStock")
    assert sold["cause"]["cause"] is None


@pytest.mark.parametrize("depth", [1, 2, 6])
def test_error_keeps_its_type_through_groups(stage: Stage, depth: int) -> None:
    step: dict[str, Any] = {"id": "a", "python": "tools:act"}
    for level in range(depth):
        step = {"id": f"g{level}", "group": [step]}
    step["on_error"] = [{"type": "shop.OutOfStock", "output": "${{ error.step }}"}]
    flow = {"steps": [step], "outputs": {"step": f"${{{{ steps.{step['id']}.output }}}}"}}
    path = "/".join([*(f"g{level}" for level in reversed(range(depth))), "a"])
    assert stage.play(flow, {"a": OUT}).outputs == {"step": path}


def test_group_sees_the_first_error_in_it_and_the_rest_is_withdrawn(stage: Stage) -> None:
    text = """
steps:
  - id: g
    parallel:
      - {id: a, python: "tools:act"}
      - {id: b, python: "tools:act"}
    on_error: [{output: "${{ error.type }}"}]
outputs: {g: "${{ steps.g.output }}"}
"""
    script = {"a": Fails("A", retryable=False), "b": Fails("B", retryable=False)}
    for order, first in ((["g/a", "g/b"], "A"), (["g/b", "g/a"], "B")):
        simulator = stage.simulator(text, script).start()
        simulator.finish(order[0])
        assert not simulator.running
        assert simulator.state["outputs"] == {"g": first}


@pytest.mark.parametrize(
    "handlers",
    [
        '[{output: "${{ error.data.nothing }}"}]',
        '[{when: "${{ error.data.nothing }}", output: 1}]',
        '[{set: {seen: "${{ 1 / inputs.n }}"}, output: 1}]',
        '[{fail: {type: Other, message: "${{ error.data.nothing }}"}}]',
    ],
)
def test_handler_that_fails_itself_keeps_what_it_was_to_handle_as_cause(
    stage: Stage, handlers: str
) -> None:
    text = _handled(handlers, "next: other")
    state = stage.simulate(text, {"a": OUT}, {"n": 0}).state
    assert stage.play(text, {"a": OUT}).error_type == "ExpressionError"
    assert state["error"] is not None
    assert state["error"]["step"] == "a"
    assert state["error"]["cause"] is not None
    assert state["error"]["cause"]["type"] == "shop.OutOfStock"


def test_way_on_that_fails_after_a_handler_does_not_come_back_to_it(stage: Stage) -> None:
    way = 'next: {first: [{when: "${{ inputs.n == 1 }}", to: other}]}'
    text = _handled("[{output: 1}]", way)
    outcome = stage.play(text, {"a": OUT})
    assert outcome.error_type == "NoBranch"
    assert outcome.error is not None
    assert outcome.error["step"] == "a"


def test_handler_that_leads_back_is_a_cycle_that_the_limits_hold(stage: Stage) -> None:
    text = """
limits: {activations: 20}
steps:
  - {id: a, python: "tools:act", on_error: [{next: a}], next: end}
"""
    outcome = stage.play(text, {"a": OUT})
    assert outcome.error_type == "LimitExceeded"
    assert len(stage.world.started) == 20


def test_own_error_of_a_step_is_what_fail_says(stage: Stage) -> None:
    text = """
inputs: {n: {type: integer}}
steps:
  - id: stop
    fail: {type: shop.Closed, message: "Closed ${{ inputs.n }} days", data: {n: "${{ inputs.n }}"}}
"""
    error = stage.play(text, inputs={"n": 3}).error
    assert error == {
        "type": "shop.Closed", "message": "Closed 3 days", "data": {"n": 3}, "step": "stop",
    }  # fmt: skip
    assert stage.play("\nsteps:\n  - {id: stop, fail: That is all.}\n").error == {
        "type": "Failed", "message": "That is all.", "data": None, "step": "stop",
    }  # fmt: skip


def test_fail_can_be_tried_again_if_it_says_so(stage: Stage) -> None:
    text = """
state: {tries: {type: integer, default: 0, reducer: add}}
steps:
  - id: g
    retry: {attempts: 3, delay: 0s}
    group:
      - id: count
        set: {tries: 1}
        next: {first: [{when: "${{ state.tries < 3 }}", to: stop}, {else: end}]}
      - {id: stop, fail: {type: NotYet, message: no, retryable: RETRYABLE}}
outputs: {tries: "${{ state.tries }}"}
"""
    assert stage.play(text.replace("RETRYABLE", "true")).outputs == {"tries": 3}
    assert stage.play(text.replace("RETRYABLE", "false")).error_type == "NotYet"


def test_exceptions_of_functions_are_named_after_their_class(stage: Stage) -> None:
    (stage.folder / "shop.py").write_text("""
class OutOfStock(Exception):
    retryable = False

def sell(item: str) -> str:
    if item == "missing":
        raise KeyError(item)
    raise OutOfStock(f"no {item} left")
""")
    text = """
inputs: {item: {type: string}}
steps:
  - id: sell
    python: "shop:sell"
    with: {item: "${{ inputs.item }}"}
    on_error: [{type: shop.*, output: "${{ error.type + ': ' + error.message }}"}]
outputs: {sold: "${{ steps.sell.output }}"}
"""
    assert stage.run(text, {"item": "tea"}).outputs == {"sold": "shop.OutOfStock: no tea left"}
    error = stage.run(text, {"item": "missing"}).error
    assert error is not None
    assert error["type"].endswith("KeyError")


# The flow's own handlers


def _flow_handled(handlers: str, after: str = "${{ steps.a.output + 1 }}") -> str:
    return f"""
state: {{seen: {{type: array, default: [], reducer: append}}}}
steps:
  - {{id: a, output: 5}}
  - {{id: b, python: "tools:act", next: end}}
  - {{id: after, output: "{after}"}}
on_error: {handlers}
outputs: {{after: "${{{{ steps.after.output }}}}", seen: "${{{{ state.seen }}}}"}}
"""


def test_handler_of_the_flow_leads_to_a_step_that_sees_what_has_been_done(stage: Stage) -> None:
    handlers = '[{type: shop.*, set: {seen: "${{ error.step }}"}, next: after}]'
    outcome = stage.play(_flow_handled(handlers), {"b": OUT})
    assert outcome.outputs == {"after": 6, "seen": ["b"]}


def test_handler_of_the_flow_raises_in_place_of_the_error(stage: Stage) -> None:
    text = """
steps:
  - {id: b, python: "tools:act"}
on_error: [{fail: {type: Sorry, message: "${{ error.type }}"}}]
"""
    outcome = stage.play(text, {"b": OUT})
    assert outcome.error is not None
    assert (outcome.error["type"], outcome.error["message"]) == ("Sorry", "shop.OutOfStock")


def test_second_error_behind_a_handler_of_the_flow_ends_it(stage: Stage) -> None:
    text = _flow_handled("[{next: after}]", "${{ 1 / (steps.a.output - 5) }}")
    assert stage.play(text, {"b": OUT}).error_type == "ExpressionError"


def test_error_in_the_outputs_fails_the_flow(stage: Stage) -> None:
    text = """
steps:
  - {id: a, python: "tools:act"}
outputs: {a: "${{ steps.a.output.nothing }}"}
"""
    outcome = stage.play(text, {"a": {}})
    assert outcome.error_type == "ExpressionError"


def test_output_that_does_not_fit_its_type_fails_the_flow(stage: Stage) -> None:
    text = """
steps:
  - {id: a, python: "tools:act"}
outputs: {n: {value: "${{ steps.a.output }}", type: integer, minimum: 3}}
"""
    assert stage.play(text, {"a": 3}).outputs == {"n": 3}
    for wrong in (2, "3", None, 3.5):
        outcome = stage.play(text, {"a": wrong})
        assert outcome.error_type == "ValidationError"
        assert outcome.error is not None
        assert "outputs.n" in outcome.error["message"]


# Unreachable handlers


@pytest.mark.parametrize(
    ("step", "handler"),
    [
        ("output: 1", "HttpError"),
        ("wait: 1h", "Rejected"),
        ("approval: Sure?", "Expired"),
        ("approval: {title: Sure?, expires: 1h}", "Timeout"),
        ("fail: {type: Mine, message: no}", "Yours"),
        ('map: 3\n    python: "tools:act"', "tools.Broken"),
        ('loop: {until: "${{ true }}", max: 1}', "Deadline"),
    ],
)
def test_handler_for_a_type_that_cannot_come_is_an_error(
    stage: Stage, step: str, handler: str
) -> None:
    text = f"""
steps:
  - id: a
    {step}
    on_error: [{{type: {handler}, output: 1}}]
"""
    with pytest.raises(FlowFileError, match=rf"E210.*'{handler}' cannot occur at 'a'"):
        stage.compile(text)


def test_handler_behind_one_that_takes_everything_is_an_error(stage: Stage) -> None:
    text = _handled("[{output: 1}, {type: shop.OutOfStock, next: other}]")
    with pytest.raises(FlowFileError, match="E210"):
        stage.compile(text)


def test_outcome_of_a_handler_that_gives_an_output_has_to_be_routed(stage: Stage) -> None:
    text = """
steps:
  - id: ask
    approval: {title: Sure?, expires: 1h}
    on_error: [{type: Expired, output: "${{ 'nobody' }}"}]
    next: {outcome: {WAYS}}
  - {id: told, output: "${{ steps.ask.output }}"}
outputs: {told: "${{ steps.told.output }}"}
"""
    with pytest.raises(FlowFileError, match=r"E209.*ok"):
        stage.compile(text.replace("WAYS", "approve: end, reject: told"))
    result = stage.run(text.replace("WAYS", "approve: end, ok: told"))
    assert stage.later(result.execution, 3600).outputs == {"told": "nobody"}


AGAIN = """
state: {seen: {type: array, default: [], reducer: append}}
steps:
  - id: g
    group:
      - id: a
        python: "tools:act"
        on_error: [{type: shop.OutOfStock, set: {seen: "${{ error.message }}"}, fail: HOW}]
    on_error: [{set: {seen: "${{ error.type }}"}, fail: "${{ error }}"}]
on_error: [{set: {seen: "${{ error.step }}"}, fail: {error: "${{ error }}"}}]
outputs: {seen: "${{ state.seen }}"}
"""


@pytest.mark.parametrize("how", ['"${{ error }}"', '{error: "${{ error }}"}'])
def test_a_caught_error_is_raised_again_as_it_is(stage: Stage, how: str) -> None:
    text = AGAIN.replace("HOW", how)
    alone = stage.simulate('steps: [{id: g, group: [{id: a, python: "tools:act"}]}]', {"a": OUT})
    played = stage.simulate(text, {"a": OUT})
    assert played.error == alone.error
    assert played.state["vars"]["seen"][0] == ["none left", "shop.OutOfStock", "g/a"]
    stage.world.script = {"a": OUT}
    error = stage.run(text).error
    assert error is not None
    assert (error["type"], error["data"], error["step"]) == (
        "shop.OutOfStock", {"item": 7, "left": 0}, "g/a",
    )  # fmt: skip


def test_an_error_that_is_raised_again_may_be_tried_again_as_before(stage: Stage) -> None:
    text = """
steps:
  - id: g
    retry: {attempts: 2, delay: 1s}
    group: [{id: a, python: "tools:act", effect: pure, on_error: [{fail: "${{ error }}"}]}]
"""
    for retryable in (True, False):
        played = stage.simulate(text, {"a": Fails("Bad", retryable=retryable)})
        assert played.started == ["g/a"] * (2 if retryable else 1)


def test_the_cause_and_the_error_of_another_step_can_be_raised(stage: Stage) -> None:
    text = """
steps:
  - {id: a, python: "tools:act", on_error: [{fail: {type: Mine, message: m}}]}
on_error: [{fail: "${{ error.cause }}"}]
"""
    error = stage.simulate(text, {"a": OUT}).error
    assert error is not None
    assert (error["type"], error["step"], error["cause"]) == ("shop.OutOfStock", "a", None)
    text = """
steps:
  - {id: a, python: "tools:act", on_error: continue}
  - {id: b, output: 1}
  - {id: c, when: "${{ steps.a.status == 'failed' }}", fail: "${{ steps.a.error }}"}
"""
    error = stage.simulate(text, {"a": OUT}).error
    assert error is not None
    assert (error["type"], error["step"]) == ("shop.OutOfStock", "a")


@pytest.mark.parametrize(
    ("value", "told"),
    [("null", "null"), ("{'type': 'X'}", "a map without 'type' and 'message'"), ("3", "3"),
     ("'text'", "text"), ("[1]", "a list")],
)  # fmt: skip
def test_what_is_no_error_cannot_be_raised_again(stage: Stage, value: str, told: str) -> None:
    text = f"""
steps:
  - {{id: a, output: "${{{{ {value} }}}}"}}
  - {{id: b, fail: {{error: "${{{{ dyn(steps.a.output) }}}}"}}}}
"""
    error = stage.simulate(text).error
    assert error is not None
    assert error["type"] == "ValidationError"
    assert error["message"] == f"'fail' can only raise an error again, but this is {told}"


def test_the_checker_knows_what_can_be_raised_again(stage: Stage) -> None:
    with pytest.raises(FlowFileError, match=r"expected an error, got text.*\n.*\n.*message"):
        stage.compile('steps: [{id: a, fail: "${{ execution.id }}"}]')
    with pytest.raises(FlowFileError, match="'fail' has 'error' and 'type'"):
        stage.compile('steps: [{id: a, fail: {error: "${{ steps.b.error }}", type: X}}]')
    with pytest.raises(FlowFileError, match=r"E306.*name of an error"):
        stage.compile('steps: [{id: a, fail: {type: "${{ execution.id }}", message: m}}]')
    text = """
flows:
  f:
    steps: [{id: x, python: "tools:act", on_error: continue}, {id: y, fail: "${{ steps.x.error }}"}]
steps:
  - {id: a, flow: f, on_error: [{type: Whatever, output: 1}]}
"""
    stage.compile(text)


def test_a_handler_whose_condition_fails_keeps_what_it_was_about_as_the_cause(stage: Stage) -> None:
    text = """
steps:
  - {id: a, python: "tools:act", on_error: [{when: "${{ error.data.none > 1 }}", output: 1}]}
"""
    error = stage.simulate(text, {"a": OUT}).error
    assert error is not None
    assert error["cause"] is not None
    assert (error["type"], error["cause"]["type"]) == ("ExpressionError", "shop.OutOfStock")


@pytest.mark.parametrize(
    ("handler", "expected"), [("", "ExpressionError"), (", on_error: [{output: caught}]", "caught")]
)
def test_the_output_of_a_group_fails_the_group(stage: Stage, handler: str, expected: str) -> None:
    text = f"""
steps:
  - {{id: g, group: [{{id: a, output: 5}}], output: "${{{{ [1][steps.a.output] }}}}"{handler}}}
outputs: {{g: "${{{{ steps.g.output }}}}"}}
"""
    ended = stage.simulate(text)

    if handler:
        assert ended.outputs == {"g": expected}
    else:
        assert ended.error is not None
        assert (ended.error["type"], ended.error["step"]) == (expected, "g")
