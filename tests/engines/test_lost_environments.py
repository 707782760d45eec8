"""Environments that cannot be reopened, or end during a step: no progress is lost (E99, F87)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.engines.results import ExecutionResult
from flowengine.errors import InputError
from flowengine.sdk import EnvironmentStartFailed, EnvironmentUnavailable
from tests.execution_environment.toy import Toy

FUNCTIONS = """
from flowengine.sdk import EnvironmentLost, StepContext

def note(text):
    with open("done", "a") as file:
        file.write(text)

def use(box, context: StepContext, text="x"):
    had = context.environment("box")
    note(text)
    return [had.generation, had.fresh, box.echo(text)]

def work(box, context: StepContext):
    note(f"try {context.environment('box').generation} {context.idempotency_key[:4]}\\n")
    if box.request.generation == 1:
        box.healthy = False
        raise EnvironmentLost("the box fell off the table")
    return context.environment("box").fresh

def undo(value=None):
    note("undone\\n")
"""
WAITS = """
flowengine: 1
id: it
environments: {box: {kind: toy, on_wait: release}}
steps:
  - {id: a, python: "things:use", with: {text: a}, environments: [box]}
  - {id: ask, approval: Go on?}
  - {id: b, python: "things:use", with: {text: b}, environments: [box]MORE}
outputs: {b: "${{ steps.b.output }}"}
"""
LOST = """
flowengine: 1
id: it
environments: {box: {kind: toy}}
steps:
  - {id: a, python: "things:work", environments: [box], MORE}
outputs: {a: "${{ steps.a.output }}"}
"""


async def gone(_: Any) -> None:
    raise EnvironmentUnavailable("the table is gone; bring it back")


def begin(flow: str, more: str = "") -> ExecutionResult:
    """Run a flow until it waits, in a new engine."""
    Path("flow.yaml").write_text(flow.replace("MORE", more))
    with Engine("store") as engine:
        return engine.run("flow.yaml", id="it")


def approve() -> ExecutionResult:
    """Approve in another engine."""
    with Engine("store") as engine:
        [wait] = engine.waits(kinds=["approval"]).items
        result = engine.approve(wait["id"]).result
        assert result is not None
        return result


def resume() -> ExecutionResult:
    with Engine("store") as engine:
        return engine.resume("it")


def done() -> str:
    return Path("done").read_text()


def test_what_cannot_be_had_again_is_waited_for_and_nothing_is_repeated(toy: Toy) -> None:
    begin(WAITS)
    toy.look = gone

    stalled = approve()

    assert stalled.status == "stalled"
    [wait] = stalled.waits
    assert (wait["kind"], wait["address"], wait["ran"]) == ("question", "b", "no")
    assert wait["title"] == "b cannot continue: the table is gone; bring it back"
    assert wait["error"]["type"] == "EnvironmentUnavailable"
    which = wait["error"]["data"]["environment"]
    assert (which["kind"], which["resource_key"], which["scope"]) == ("toy", "box", "execution")
    assert resume().status == "stalled"
    with Engine("store") as engine:
        [reason] = engine.why("it")
        [a, ask, b] = engine.show("it")["steps"]
    assert reason["what"] == wait["title"]
    assert reason["command"] == "flowengine resume it"
    assert (a["attempts"], ask["status"], b["status"]) == (1, "succeeded", "waiting")
    assert done() == "a"

    toy.behave()
    ended = resume()

    assert ended.status == "succeeded"
    assert ended.outputs is not None
    generation, fresh, text = ended.outputs["b"]
    assert generation >= 2
    assert (fresh, text) == (True, "b")
    assert done() == "ab"
    with Engine("store") as engine:
        kinds = [event["type"] for event in engine.events("it")]
        assert kinds.count("lost") == 2
        assert not engine.waits().items


def test_the_first_opening_fails_its_step(toy: Toy) -> None:
    begin(WAITS.replace("id: a, python", 'id: a, when: "${{ false }}", python'))
    toy.look = gone

    ended = approve()

    assert ended.status == "failed"
    assert ended.error is not None
    assert ended.error["type"] == "EnvironmentUnavailable"


@pytest.mark.parametrize("how", ["probe", "start", "secret"])
def test_whatever_the_reason_is(toy: Toy, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    async def refuse(_: Any) -> None:
        raise EnvironmentStartFailed("no power")

    monkeypatch.setenv("KEY", "SEKRET")
    flow = WAITS.replace(
        "on_wait: release", 'on_wait: release, config: {token: "${{ secrets.KEY }}"}'
    )
    begin(flow.replace("environments:", "secrets: {KEY: {env: KEY}}\nenvironments:", 1))
    if how == "probe":
        toy.look = gone
    elif how == "start":
        toy.open = refuse
    else:
        monkeypatch.delenv("KEY")

    assert approve().status == "stalled"

    toy.behave()
    monkeypatch.setenv("KEY", "SEKRET")
    assert resume().status == "succeeded"


def test_an_operator_may_give_it_up(toy: Toy) -> None:
    begin(WAITS)
    toy.look = gone
    [wait] = approve().waits
    with Engine("store") as engine:
        ended = engine.decide(wait["id"], "fail").result

    assert ended is not None
    assert ended.error is not None
    assert (ended.status, ended.error["type"]) == ("failed", "EnvironmentUnavailable")


def test_an_operator_may_give_the_result(toy: Toy) -> None:
    begin(WAITS)
    toy.look = gone
    [wait] = approve().waits
    with Engine("store") as engine:
        ended = engine.decide(wait["id"], "result", value=[0, False, "mine"]).result

    assert ended is not None
    assert ended.outputs == {"b": [0, False, "mine"]}
    assert done() == "a"


def test_a_decision_that_was_recorded_meanwhile_counts(toy: Toy) -> None:
    begin(WAITS)
    toy.look = gone
    stalled = approve()
    toy.behave()
    with Engine("store") as engine:
        engine.decide(stalled.waits[0]["id"], "fail", resume=False)

    assert resume().status == "failed"
    assert done() == "a"


def test_a_step_that_says_what_is_to_be_done_does_that(toy: Toy) -> None:
    begin(WAITS, ", on_error: [{type: EnvironmentUnavailable, output: [0, false, without]}]")
    toy.look = gone

    assert approve().outputs == {"b": [0, False, "without"]}


def test_a_handler_for_anything_does_not_take_the_place(toy: Toy) -> None:
    begin(WAITS, ", on_error: [{output: [0, false, without]}]")
    toy.look = gone

    assert approve().status == "stalled"


def test_it_is_tried_as_often_as_the_step_says_before_that(toy: Toy) -> None:
    tries = 0

    async def refuse(_: Any) -> None:
        nonlocal tries
        tries += 1
        raise EnvironmentStartFailed("no power")

    begin(WAITS, ", effect: idempotent, retry: {attempts: 3, delay: 1ms}")
    toy.open = refuse

    assert approve().status == "stalled"
    assert tries == 3


def test_on_crash_does_not_answer_for_an_environment(toy: Toy) -> None:
    begin(WAITS)
    toy.look = gone
    approve()

    with Engine("store") as engine:
        assert engine.resume("it", on_crash="retry").status == "stalled"
        assert engine.resume("it", on_crash="fail").status == "stalled"


def test_branches_that_stopped_for_one_environment_go_on_with_one_opening(toy: Toy) -> None:
    begin(
        """
flowengine: 1
id: it
environments: {box: {kind: toy, on_wait: release}}
steps:
  - {id: a, python: "things:use", environments: [box]}
  - {id: ask, approval: Go on?}
  - {id: each, map: 3, python: "things:use", environments: [box]}
outputs: {each: "${{ steps.each.output }}"}
"""
    )
    toy.look = gone
    stalled = approve()
    assert [wait["address"] for wait in stalled.waits] == ["each[0]", "each[1]", "each[2]"]
    toy.behave()

    ended = resume()

    assert toy.opens == 2
    assert ended.outputs is not None
    assert len({generation for generation, _, _ in ended.outputs["each"]}) == 1
    assert sum(fresh for _, fresh, _ in ended.outputs["each"]) == 1


# In the middle


def test_what_may_be_repeated_is_tried_again_with_a_new_one(toy: Toy) -> None:
    ended = begin(LOST, "effect: idempotent, retry: {attempts: 2, delay: 1ms}")

    assert ended.outputs == {"a": True}
    first, second = done().splitlines()
    assert (first[:5], second[:5]) == ("try 1", "try 2")
    assert first.split()[2] == second.split()[2]
    assert (toy.opens, toy.releases) == (2, 2)


def test_without_retry_it_is_an_error_of_the_step(toy: Toy) -> None:
    ended = begin(LOST, "effect: idempotent")

    assert ended.error is not None
    assert ended.error["type"] == "EnvironmentLost"


@pytest.mark.parametrize(
    ("choice", "value", "expected"),
    [("retry", None, True), ("result", "mine", "mine"), ("fail", None, None)],
)
def test_what_must_not_be_repeated_is_a_question(
    toy: Toy, choice: str, value: Any, expected: Any
) -> None:
    stalled = begin(LOST, "effect: once")

    assert stalled.status == "stalled"
    [wait] = stalled.waits
    assert (wait["ran"], wait["error"]["type"]) == ("maybe", "EnvironmentLost")
    assert wait["title"] == "a lost its environment. Did it take effect?"
    assert resume().status == "stalled"
    assert done().count("try") == 1
    given: Any = {"value": value} if choice == "result" else {}
    with Engine("store") as engine:
        ended = engine.decide(wait["id"], choice, **given).result
    assert ended is not None
    if choice == "fail":
        assert ended.error is not None
        assert ended.error["type"] == "Uncertain"
    else:
        assert ended.outputs == {"a": expected}


TYPED = LOST.replace('python: "things:work"', "call: work").replace(
    "steps:", 'tools: {work: {python: "things:work", returns: {type: integer}}}\nsteps:', 1
)


def test_a_result_must_be_given_and_be_one_that_the_step_returns(toy: Toy) -> None:
    [wait] = begin(TYPED, "effect: once").waits

    with Engine("store") as engine:
        refused: list[tuple[str, dict[str, Any], str]] = [
            ("result", {}, "'result' needs a value: the output to record instead of the attempt's"),
            ("result", {"value": None}, "the result of 'a' must be a whole number, not null"),
            ("result", {"value": "4"}, "the result of 'a' must be a whole number, not \"4\""),
            ("retry", {"value": 4}, "'retry' takes no value"),
            ("fail", {"value": 4}, "'fail' takes no value"),
        ]
        for choice, given, message in refused:
            with pytest.raises(InputError, match=message) as error:
                engine.decide(wait["id"], choice, **given)
            assert error.value.hint == (
                "give what the step returns: value=INTEGER" if choice == "result" else None
            )
        ended = engine.decide(wait["id"], "result", value=4).result
    assert ended is not None
    assert ended.outputs == {"a": 4}


def test_on_crash_answers_beforehand(toy: Toy) -> None:
    ended = begin(LOST, "on_crash: fail")

    assert ended.error is not None
    assert ended.error["type"] == "Uncertain"
    cause = ended.error["cause"]
    assert cause is not None
    assert cause["message"] == "the box fell off the table"


def test_a_handler_that_names_it_takes_it(toy: Toy) -> None:
    ended = begin(LOST, "on_error: [{type: EnvironmentLost, output: handled}]")

    assert ended.outputs == {"a": "handled"}
    assert done().count("try") == 1


def test_a_scope_that_compensates_settles_it_first(toy: Toy) -> None:
    """It may have taken effect, so it is rerun with the same key in a new one, and then undone."""
    ended = begin(
        """
flowengine: 1
id: it
environments: {box: {kind: toy}}
tools: {undo: {python: "things:undo", effect: idempotent}}
steps:
  - id: all
    group:
      - id: a
        python: "things:work"
        environments: [box]
        effect: idempotent
        compensate: {call: undo}
    on_error: [{compensate: true, output: "${{ error.type }}"}]
outputs: {all: "${{ steps.all.output }}"}
"""
    )

    assert ended.outputs == {"all": "EnvironmentLost"}
    first, second, undone = done().splitlines()
    assert (first[:5], second[:5], undone) == ("try 1", "try 2", "undone")
    assert first.split()[2] == second.split()[2]
    assert (toy.opens, toy.releases) == (2, 2)


def test_one_that_ends_under_other_work_is_no_loss(toy: Toy) -> None:
    """The function's own result counts."""
    Path("things.py").write_text(
        FUNCTIONS.replace('raise EnvironmentLost("the box fell off the table")', "return 'well'")
    )

    assert begin(LOST, "effect: once").outputs == {"a": "well"}
