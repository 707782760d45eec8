"""`show` displays the outcome of a model's calls, and the limit that ended an agent's work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.agents.flows import HEAD, Case, call, flow
from tests.command_line import flowengine

AGENT = "first: {instructions: You add., tools: [add, boom]}"
ASKED = HEAD.replace('"tools:add"}', '"tools:add", approval: {expires: 1h}}')
CALLS = [call("add", "c1", a=1, b=2), call("boom", "c2", why="x")]


def shown(case: Case) -> dict[str, Any]:
    with case.engine_open() as engine:
        return dict(engine.executions.show(case.id))


def statuses(case: Case) -> dict[str, str]:
    return {one["address"]: one["status"] for one in shown(case)["steps"]}


@pytest.mark.parametrize(
    ("ends", "status", "error"),
    [("reject", "rejected", "Rejected"), ("resume", "expired", "Expired")],
)
def test_a_call_that_was_not_made_did_not_succeed(
    tmp_path: Path, time_is: Callable[[float], None], ends: str, status: str, error: str
) -> None:
    case = Case(tmp_path, flow(AGENT, head=ASKED), [{"calls": CALLS}, {"text": "so"}], by_turn=True)
    case.run()
    before = statuses(case)
    with case.engine_open() as engine:
        if ends == "reject":
            engine.approvals.reject(engine.approvals.list().items[0]["id"], comment="no")
        else:
            time_is(4e9)
            engine.resume(case.id)

    assert before["ask"] == before["ask/first@1/add"] == "waiting"
    found = shown(case)
    made = {one["address"]: one for one in found["steps"]}
    assert found["status"] == "succeeded"
    one, other = made["ask/first@1/add"], made["ask/first@1/boom"]
    assert (one["status"], one["error"]["type"]) == (status, error)
    assert (other["status"], other["error"]["type"]) == ("failed", "ZeroDivisionError")
    said = flowengine("--store", tmp_path / "store.db", "show", case.id).out
    assert f"{status}" in said
    assert "succeeded   approved by" not in said


def test_a_call_that_the_budget_refused_says_so_and_so_does_the_end(tmp_path: Path) -> None:
    head = HEAD.replace("tools:\n", "budget: {tool_calls: 1}\ntools:\n", 1)
    case = Case(tmp_path, flow(AGENT, head=head), [{"calls": CALLS}, {"text": "so"}], by_turn=True)

    result = case.run()

    assert result.status == "failed"
    assert statuses(case)["ask/first@1/boom"] == "refused"
    assert case.called == ["add 1 2"]
    assert "used up its 1 tool call" in result.error["message"]
    assert shown(case)["command"].endswith(" --file FILE")


def test_a_call_over_the_limit_of_its_tool_is_refused(tmp_path: Path) -> None:
    head = HEAD.replace('"tools:add"}', '"tools:add", limits: {calls: 1}}')
    twice = [CALLS[0], call("add", "c2", a=3, b=4)]
    case = Case(tmp_path, flow(AGENT, head=head), [{"calls": twice}, {"text": "so"}], by_turn=True)

    assert case.run().status == "succeeded"

    made = statuses(case)
    assert made["ask/first@1/add"] == "succeeded"
    assert made["ask/first@1/add#2"] == "refused"
    assert case.called == ["add 1 2"]


def test_a_step_over_the_limit_of_its_tool_is_tried_again_with_another_file(tmp_path: Path) -> None:
    head = HEAD.replace('"tools:add"}', '"tools:add", limits: {calls: 1}}')
    steps = """
steps:
  - {id: one, call: add, with: {a: 1, b: 2}}
  - {id: two, call: add, with: {a: 3, b: 4}}
"""
    case = Case(tmp_path, flow(AGENT, steps, head), [], by_turn=True)

    assert case.run().error["type"] == "LimitExceeded"

    assert shown(case)["command"].endswith(" --file FILE")


def test_the_end_of_the_turns_says_how_many_there_were(tmp_path: Path) -> None:
    agent = "first: {instructions: You add., tools: [add], max_turns: 2}"
    case = Case(tmp_path, flow(agent), [{"calls": CALLS[:1]}] * 3, by_turn=True)

    result = case.run()

    assert result.error["type"] == "MaxTurns"
    assert "its 2 turns are used up: give it more with max_turns" in result.error["message"]


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (call("fly", "c1"), "'fly' was not called: There is no tool 'fly'."),
        (call("add", "c1", a="one", b=2), "'add' was not called: The arguments of add do not fit"),
    ],
)
def test_a_call_that_cannot_be_made_is_shown_with_its_reason(
    tmp_path: Path, sent: dict[str, Any], reason: str
) -> None:
    case = Case(tmp_path, flow(AGENT), [{"calls": [sent, CALLS[0]]}, {"text": "so"}], by_turn=True)

    result = case.run()

    assert result.status == "succeeded"
    made = {one["address"]: one for one in shown(case)["steps"]}
    turn = ["ask/first@1", "ask/first@1/add"]
    assert sorted(made) == ["ask", "ask/first", *turn, "ask/first@2"]
    assert reason in made["ask/first@1"]["summary"]
    said = flowengine("--store", tmp_path / "store.db", "show", case.id).out
    assert reason in said


def test_a_call_in_text_that_cannot_be_read_is_shown(tmp_path: Path) -> None:
    agent = "first: {instructions: You add., tools: [add], function_calling: text}"
    script = [{"text": '```tool_call\n{"tool": "add", "a": }\n```'}, {"text": "so"}]
    case = Case(tmp_path, flow(agent), script, by_turn=True)

    case.run()

    [turn, *_] = [one for one in shown(case)["steps"] if one["address"] == "ask/first@1"]
    assert "'add' was not called: " in turn["summary"]
