"""Conversations as steps: model errors, instructions, and further messages of the user."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from flowengine.agents.models.failures import ModelError
from flowengine.agents.models.registry import register, unregister
from flowengine.agents.rounds.agent_round import FAILED, HELLO
from tests.agents.flows import NAME, Case, call, flow, told

HEAD = """
flowengine: 1
id: f
defaults: {model: scripted/test}
tools: {add: {python: "tools:add"}}
"""
STEPS = """
steps:
  - {id: talk, agent: {name: first, chat: true}}
outputs: {answer: "${{ steps.talk.output }}"}
"""
FIRST = "first: {instructions: Help., retry: {attempts: 1}}"


def talk(case: Case, *said: str) -> list[str]:
    """Send messages, each in a new engine, and return the prompts shown."""
    shown = []
    if not case.id:
        case.run()
    for text in [*said, None]:
        with case.engine_open() as engine:
            waits = engine.approvals.list(execution=case.id, kinds=["ask"]).items
            shown += [str(one["title"]) for one in waits]
            if text is not None:
                engine.approvals.decide(waits[0]["id"], "answer", form={"answer": text})
    return shown


def asked(case: Case, number: int) -> list[tuple[str, str]]:
    return told(case.sent(number)[1:])


REFUSED = ModelError("the key is not valid", retryable=False)
SHOWN = f"ModelError: the key is not valid\n{FAILED}"


@pytest.mark.parametrize("again", ["/retry", "hi"])
def test_the_person_reads_the_error_of_a_model_and_asks_again(tmp_path: Path, again: str) -> None:
    script: Sequence[Any] = [{"text": "Hello."}, REFUSED, REFUSED, {"text": "Once more."}]
    case = Case(tmp_path, flow(FIRST, STEPS, HEAD), script)

    shown = talk(case, "hello", "hi", again, "/retry", "")

    assert shown == [HELLO, "Hello.", SHOWN, SHOWN, "Once more."]
    words = [("user", "hello"), ("assistant", "Hello."), ("user", "hi")]
    assert [asked(case, n) for n in (1, 2, 3)] == [words] * 3  # the message is in there once
    with case.engine_open() as engine:
        record = engine.executions.show(case.id)
        assert (record["status"], record["outputs"]) == ("succeeded", {"answer": "Once more."})
        errors = [one["error"] for one in record["steps"] if one["status"] == "failed"]
        assert [one and one["message"] for one in errors] == [REFUSED.message] * 2


def test_instructions_are_those_of_the_moment_in_each_turn(tmp_path: Path) -> None:
    head = (
        HEAD
        + """
state: {mood: {type: string, default: calm}}
inputs: {name: {type: string, default: Ana}}
signals: {mood: {data: {type: string}}}
"""
    )
    steps = """
    steps:
      - id: both
        parallel:
          - {id: talk, agent: {name: first, chat: true}}
          - {id: mood, wait: {signal: mood}, set: {mood: "${{ output.data }}"}}
    """
    agent = "first: {instructions: '${{ inputs.name }}, ${{ state.mood }}, ${{ now }}'}"
    case = Case(tmp_path, flow(agent, steps, head), [{"text": "One."}, {"text": "Two."}])
    talk(case, "hello")
    with case.engine_open() as engine:
        engine.signal("mood", "glad", execution=case.id)
    talk(case, "hi")

    first, second = [case.sent(n)[0]["content"].split(", ") for n in (0, 1)]
    assert (first[:2], second[:2]) == (["Ana", "calm"], ["Ana", "glad"])
    assert first[2] < second[2]


def test_something_else_may_be_said_after_an_error(tmp_path: Path) -> None:
    case = Case(tmp_path, flow(FIRST, STEPS, HEAD), [REFUSED, {"text": "Hello."}])

    assert talk(case, "hi", "never mind") == [HELLO, SHOWN, "Hello."]
    assert asked(case, 1) == [("user", "hi"), ("user", "never mind")]


def test_retries_that_are_used_up_leave_the_conversation_open(tmp_path: Path) -> None:
    agent = "first: {instructions: Help., retry: {attempts: 2, delay: 0s}}"
    limited = {"raise": "RateLimited", "message": "slow down"}
    script = [{"calls": [call("add", a=1, b=2)]}, limited, limited, {"text": "It is 3."}]
    with_tool = agent.replace("Help.,", "Help., tools: [add],")
    case = Case(tmp_path, flow(with_tool, STEPS, HEAD), script)

    shown = talk(case, "1 + 2?", "/retry")

    assert shown == [HELLO, f"RateLimited: slow down\n{FAILED}", "It is 3."]
    assert case.called == ["add 1 2"]
    assert [role for role, _ in asked(case, 3)] == ["user", "assistant", "tool"]


def test_the_first_model_is_asked_again_after_all_have_failed(tmp_path: Path) -> None:
    agent = FIRST.replace("Help.,", f"Help., model: [{NAME}, scripted/spare],")
    case = Case(tmp_path, flow(agent, STEPS, HEAD), [REFUSED, REFUSED, {"text": "Hello."}])
    register("scripted/spare", case.model)
    try:
        assert talk(case, "hi", "/retry") == [HELLO, SHOWN, "Hello."]
    finally:
        unregister("scripted/spare")
    names = [one.model.removeprefix("scripted/") for one in case.model.requests]
    assert names == ["test", "spare", "test"]


def test_the_agent_that_was_handed_to_is_the_one_that_is_asked_again(tmp_path: Path) -> None:
    agents = """
    first: {instructions: Help., handoffs: [other]}
    other: {instructions: Know., retry: {attempts: 1}}
    """
    script = [{"calls": [call("transfer_to_other")]}, REFUSED, {"text": "I know."}]
    case = Case(tmp_path, flow(agents, STEPS, HEAD), script)

    assert talk(case, "hi", "/retry") == [HELLO, SHOWN, "I know."]
    assert case.model.requests[2].agent == "other"


CHECKED = """
from pathlib import Path
def polite(prompt: str) -> None:
    if "damn" in prompt:
        raise ValueError("mind your words")

def short(answer: str) -> None:
    if len(answer) > 20:
        raise ValueError("too long")

def shorten(messages: list, summary: str) -> str:
    if not Path(__file__).with_name("room").exists():
        raise OSError("no room")
    return "S"
"""


def checked(folder: Path, checks: str, script: Sequence[Any], **more: Any) -> Case:
    (folder / "tools.py").write_text(CHECKED)
    names = ("polite", "short", "shorten")
    tools = ", ".join(f'{name}: {{python: "tools:{name}"}}' for name in names)
    head = HEAD.replace('tools: {add: {python: "tools:add"}}', f"tools: {{{tools}}}")
    return Case(folder, flow(FIRST.replace("Help.,", f"Help., {checks},"), STEPS, head), script)


def test_what_a_check_refuses_is_told_and_the_conversation_goes_on(tmp_path: Path) -> None:
    checks = "checks: [{before: polite}, {after: short, then: end}]"
    script = [{"text": "Hello."}, {"text": "I know a very long answer."}, {"text": "Yes."}]
    case = checked(tmp_path, checks, script)

    shown = talk(case, "hi", "damn it", "sorry", "shorter?", "")

    assert shown == [
        HELLO,
        "Hello.",
        "polite refused what was asked: ValueError: mind your words",
        "short refused the answer: ValueError: too long",
        "Yes.",
    ]
    words = [one for _, one in asked(case, 2)]
    refused = ["I know a very long answer.", "A check refused your answer: ValueError: too long"]
    assert words == ["hi", "Hello.", "sorry", *refused, "shorter?"]  # the answer was not shown
    with case.engine_open() as engine:
        assert engine.executions.show(case.id)["status"] == "succeeded"


def test_what_a_check_says_to_the_model_follows_the_message(tmp_path: Path) -> None:
    case = checked(tmp_path, "checks: [{before: polite, then: tell}]", [{"text": "Calm down."}])

    assert talk(case, "damn it") == [HELLO, "Calm down."]
    said = "A check of what was asked says: ValueError: mind your words"
    assert asked(case, 0) == [("user", "damn it"), ("user", said)]


def test_a_tool_that_cannot_summarize_is_told_and_nothing_is_left_out(tmp_path: Path) -> None:
    context = "context: {tokens: 500, reduce: shorten}"
    case = checked(tmp_path, context, [{"text": "x" * 900}] * 3)

    first, second = "a" * 900, "b" * 900
    shown = talk(case, first, second, "/retry")

    told_why = f"OSError: no room\n{FAILED}"
    assert shown == [HELLO, "x" * 900, told_why, told_why]
    (tmp_path / "room").touch()
    assert talk(case, "/retry")[-1] == "x" * 900
    assert "S" in asked(case, 1)[0][1]


def test_an_agent_may_be_called_person(tmp_path: Path) -> None:
    agent = FIRST.replace("first:", "person:")
    steps = STEPS.replace("name: first", "name: person")
    case = Case(tmp_path, flow(agent, steps, HEAD), [{"text": "Hello."}])

    case.run()
    with case.engine_open() as engine:
        [wait] = engine.approvals.list(execution=case.id).items
    assert (wait["step"], wait["chat"]) == ("person.person", True)
