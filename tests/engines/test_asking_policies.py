"""Handlers that decide on approvals before a human is asked, or later."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.errors import Conflict, InputError
from flowengine.execution_environment.policy_approval import (
    Question,
    configure_policy_approval,
    register_handler,
    unregister_handler,
)
from tests.engines.world import Clock
from tests.execution_environment.toy import Toy

FUNCTIONS = """
def use(toy):
    with open("used.txt", "a") as file:
        file.write("x")
    return toy.echo("x")

def plain():
    return 1
"""
Answers = Callable[[Callable[[Question], Any]], list[Question]]


@pytest.fixture
def handler() -> Iterator[Answers]:
    """Configure a handler, and return the list of questions that it receives."""

    def configure(answer: Callable[[Question], Any]) -> list[Question]:
        asked: list[Question] = []

        def handle(question: Question) -> Any:
            asked.append(question)
            return answer(question)

        register_handler("host", handle)
        configure_policy_approval("host")
        return asked

    yield configure
    unregister_handler("host")


def write(approval: str = "ask", more: str = "", key: str = "") -> str:
    Path("flow.yaml").write_text(
        f"""
flowengine: 1
id: it
inputs: {{who: {{type: string, default: ana}}}}
environments: {{toy: {{kind: toy, {key}policy: {{allow: [a, b]}}, approval: {approval}}}}}
steps:
  - id: a
    python: "things:use"
    environments: [toy]
    {more}
outputs: {{a: "${{{{ steps.a.output }}}}"}}
"""
    )
    return "flow.yaml"


def used() -> str:
    file = Path("used.txt")
    return file.read_text() if file.exists() else ""


def pending(_: Question) -> Mapping[str, Any]:
    return {"pending": True}


@pytest.mark.endurance
def test_a_handler_may_answer_pending_and_another_process_goes_on_with_an_answer(
    toy: Toy, handler: Answers
) -> None:
    asked = handler(pending)
    with Engine("store") as engine:
        result = engine.run(write("required"))
        [wait] = result.waits
        assert [listed["id"] for listed in engine.waits().items] == [wait["id"]]
    assert (result.status, toy.opens, used()) == ("waiting", 0, "")
    assert [question.id for question in asked] == [wait["id"]]

    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from flowengine import Engine
from flowengine.execution_environment import register_provider
from tests.execution_environment.toy import Toy
toy = Toy()
register_provider(toy)
with Engine("store") as engine:
    decision = engine.continue_with({wait["id"]!r}, {{"approved": True}})
    print(decision.result.status, decision.result.outputs["a"], toy.opens)
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert told.stdout.split() == ["succeeded", "x", "1"]
    assert used() == "x"


def test_a_no_that_comes_later_is_an_error_that_the_step_routes(toy: Toy, handler: Answers) -> None:
    handler(pending)
    more = "on_error: [{type: Rejected, output: without}]"
    with Engine("store") as engine:
        [wait] = engine.run(write("ask", more)).waits
        answer = {"approved": False, "reason": "too late"}
        result = engine.continue_with(wait["id"], answer).result

    assert result is not None
    assert (result.outputs, toy.opens) == ({"a": "without"}, 0)


@pytest.mark.parametrize(
    "answer", [{}, {"approved": "yes"}, {"approved": True, "policy": {}}, {"approved": 1}]
)
def test_an_answer_that_is_none_changes_nothing(toy: Toy, answer: dict[str, Any]) -> None:
    with Engine("store") as engine:
        [wait] = engine.run(write()).waits
        with pytest.raises(InputError, match="approved"):
            engine.continue_with(wait["id"], answer)
        assert engine.waits().items
    assert toy.opens == 0


def test_a_second_answer_is_refused_and_the_first_stands(toy: Toy) -> None:
    with Engine("store") as engine:
        [wait] = engine.run(write()).waits
        engine.continue_with(wait["id"], {"approved": True})
        with pytest.raises(Conflict, match="already approved"):
            engine.continue_with(wait["id"], {"approved": False})


def test_a_handler_gets_what_is_asked_and_its_yes_opens(toy: Toy, handler: Answers) -> None:
    asked = handler(lambda question: {"approved": True, "reason": "tests may"})
    with Engine("store") as engine:
        result = engine.run(write("{body: For the tests}"))
        shown = [e for e in engine.events(result.execution) if e["type"] == "decided"]

    assert (result.outputs, toy.opens) == ({"a": "x"}, 1)
    [question] = asked
    assert (question.kind, question.scope, question.resource_key) == ("toy", "execution", "toy")
    assert (question.owner_id, question.reason) == (result.execution, "For the tests")
    assert question.policy["allow"] == ["a", "b"]
    assert (shown[0]["by"], shown[0]["via"], shown[0]["comment"]) == (
        "handler:host",
        "policy",
        "tests may",
    )


def test_what_people_are_required_for_no_handler_allows_but_it_may_refuse(
    toy: Toy, handler: Answers
) -> None:
    asked = handler(lambda question: {"approved": True})
    with Engine("store") as engine:
        result = engine.run(write("required"))

    assert (result.status, toy.opens, len(asked)) == ("waiting", 0, 1)


def test_a_policy_that_says_no_refuses(toy: Toy, handler: Answers) -> None:
    handler(lambda question: {"approved": False, "by": "policy", "reason": "never here"})
    with Engine("store") as engine:
        result = engine.run(write("required"))

    assert result.error is not None
    assert result.error["type"] == "Refused"
    assert "refused by handler:host: never here" in result.error["message"]
    assert toy.opens == 0


def test_a_handler_may_narrow_the_policy(toy: Toy, handler: Answers) -> None:
    handler(lambda question: {"approved": True, "policy": {"allow": ["a"]}})
    with Engine("store") as engine:
        engine.run(write())

    assert toy.things[0].request.policy.allow == ["a"]


@pytest.mark.parametrize(
    "answer",
    [None, "yes", {"approved": "true"}, {"approved": True, "policy": {"allow": ["a", "b", "c"]}}],
)
def test_what_a_handler_answers_badly_is_left_to_people(
    toy: Toy, handler: Answers, answer: Any
) -> None:
    handler(lambda question: answer)
    with Engine("store") as engine:
        [wait] = engine.run(write()).waits
        assert toy.opens == 0
        result = engine.approve(wait["id"]).result

    assert result is not None
    assert result.outputs == {"a": "x"}


def test_an_answer_about_a_session_counts_for_the_executions_that_share_it_here(toy: Toy) -> None:
    flow = write("required", key="scope: session, key: '${{ inputs.who }}', ")
    with Engine("store") as engine:
        [wait] = engine.run(flow).waits
        engine.approve(wait["id"], by="user:ana")
        second = engine.run(flow)
        other = engine.run(flow, {"who": "ben"})
        shown = [e for e in engine.events(second.execution) if e["type"] == "decided"]

    assert (second.status, other.status) == ("succeeded", "waiting")
    assert shown[0]["by"] == "user:ana"
    assert (toy.opens, used()) == (1, "xx")


def test_on_an_event_loop_it_is_the_same(toy: Toy, handler: Answers) -> None:
    answers = iter([{"approved": True}, {"pending": True}])
    handler(lambda question: next(answers))

    async def go() -> None:
        async with Engine("store") as engine:
            first = await engine.run_async(write())
            [wait] = (await engine.run_async(write())).waits
            decision = await engine.continue_with_async(wait["id"], {"approved": True})

        assert first.status == "succeeded"
        assert decision.result is not None
        assert decision.result.status == "succeeded"

    asyncio.run(go())
    assert toy.opens == 2


def test_subscribers_of_the_manager_are_told_that_somebody_is_asked(toy: Toy) -> None:
    told: list[tuple[str, str]] = []
    with Engine("store") as engine:
        engine.environments.subscribe(lambda event: told.append((event.event, event.resource_key)))
        [wait] = engine.run(write()).waits
        engine.approve(wait["id"])

    names = [name.removeprefix("execution_environment.") for name, _ in told]
    assert names == [
        "declared",
        "approval_required",
        "ensuring",
        "ready",
        "releasing",
        "released",
    ]


def test_a_person_who_answers_while_a_handler_thinks_is_first(toy: Toy, handler: Answers) -> None:
    def slow(question: Question) -> Mapping[str, Any]:
        with Engine("store") as other:
            other.approve(question.id, by="user:ana", resume=False)
        return {"approved": False, "reason": "too late"}

    handler(slow)
    with Engine("store") as engine:
        result = engine.run(write())
        decided = [e for e in engine.events(result.execution) if e["type"] == "decided"]

    assert result.outputs == {"a": "x"}
    assert [event["by"] for event in decided] == ["user:ana"]


@pytest.mark.parametrize("approved", [True, False])
def test_a_handler_that_answers_after_the_expiry_is_too_late(
    toy: Toy, handler: Answers, approved: bool
) -> None:
    clock = Clock()

    def late(_: Question) -> Mapping[str, Any]:
        clock.time += 1_000
        return {"approved": approved, "reason": "too late"}

    handler(late)
    with Engine("store", linger=0, clock=clock) as engine:
        result = engine.run(write("{expires: 1s}"), id="it")
        if result.status == "waiting":
            result = engine.resume("it")
        decided = [e for e in engine.events("it") if e["type"] == "decided"]

    assert decided == []
    assert result.error is not None
    assert (result.error["type"], toy.opens) == ("Expired", 0)
