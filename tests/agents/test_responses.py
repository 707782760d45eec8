# Shows G1
"""Responses of runs: their last message, and their JSON."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel, Field, TypeAdapter

from flowengine import Agent, Engine, Runner, StreamPart, case_not_resolved, case_resolved
from flowengine.agents.models import using
from flowengine.agents.models.scripted import ScriptedModel
from tests.agents.flows import call
from tests.rows import each_row


class City(BaseModel):
    name: str


def find(number: int) -> str:
    """Find an order."""
    return f"{number} chairs"


@pytest.mark.parametrize(
    ("reply", "termination", "last", "result"),
    [
        ({"text": "case_resolved: the total is 6"}, "resolved", "the total is 6", None),
        ({"text": "The total is 6.\ncase_resolved"}, "resolved", "The total is 6.", None),
        ({"text": "**case_resolved**: the total\nis 6"}, "resolved", "the total\nis 6", None),
        ({"calls": [call("case_resolved", result="6")]}, "resolved", "6", None),
        ({"calls": [call("case_resolved", result="6"), call("find", number=1)]},
         "resolved", "6", None),
        ({"text": "case_not_resolved: no access"}, "not_resolved", "no access", None),
        ({"calls": [call("case_not_resolved", reason="no access")]},
         "not_resolved", "no access", ""),
    ],
)  # fmt: skip
@pytest.mark.parametrize("session", [None, "s"])
def test_the_last_message_is_the_answer(
    reply: Any, termination: str, last: str, result: str | None, session: str | None,
    folder: Any,
) -> None:  # fmt: skip
    agent = Agent(name="A", model="scripted/x", tools=[find, case_resolved, case_not_resolved])
    options: Any = {} if session is None else {"session": session}
    with using(ScriptedModel([reply, {"text": "case_resolved: too late"}])):
        response = Runner().run(agent, "go", **options)
    assert response.termination == termination
    assert response.messages[-1]["content"] == response.history[-1]["content"] == last
    if session is None or termination == "resolved":
        assert response.output == (last if result is None else result)


def test_for_other_agents_the_words_have_no_effect() -> None:
    with using(ScriptedModel([{"text": "case_resolved: 6"}])):
        response = Runner().run(Agent(name="A", model="scripted/x"), "go")
    assert response.messages[-1]["content"] == response.output == "case_resolved: 6"


class Photo(BaseModel):
    data: bytes = Field(alias="theData")
    price: Decimal = Decimal("1.50")


@each_row(
    ("returns", "answer", "result"),
    [
        (Photo, {"theData": "/w=="}, {"theData": "/w==", "price": "1.50"}),
        (dict[int, bytes], {"1": "/w=="}, {"1": "/w=="}),
        (set[date], ["2026-01-02"], ["2026-01-02"]),
        (bytes, "/w==", "/w=="),
    ],
)
def test_results_of_any_type_are_json(returns: Any, answer: Any, result: Any) -> None:
    with using(ScriptedModel([{"text": json.dumps(answer)}])):
        response = Runner().run(Agent(name="A", model="scripted/x", returns=returns), "go")
    assert json.loads(response.model_dump_json())["output"] == result
    assert response.model_dump(mode="json", by_alias=True)["output"] == result


# Shows G2
def test_responses_and_parts_are_json() -> None:
    billing = Agent(name="Billing", tools=[find])
    agent = Agent(name="A", tools=[find], handoffs=[billing], returns=City)
    billing.handoffs.append(agent)
    script: list[Any] = [{"calls": [call("find", number=1)]}, {"text": '{"name": "Oslo"}'}]
    with using(ScriptedModel(script)):
        parts = list(Runner().stream(agent, "go", {"user": "ana", "db": object()}))
    response = parts[-1].response
    assert response is not None
    data = json.loads(response.model_dump_json())
    assert (data["agent"], data["output"]) == ("A", {"name": "Oslo"})
    assert data["context_variables"] == {"user": "ana"}
    assert data["messages"] == response.messages
    assert response.model_dump(mode="json") == data
    assert response.agent is agent
    assert "agent" in type(response).model_json_schema(mode="serialization")["properties"]
    told = [json.loads(TypeAdapter(StreamPart).dump_json(part)) for part in parts]
    assert [part["kind"] for part in told] == [part.kind for part in parts]
    assert told[-1]["response"]["agent"] == "A"


def test_a_run_that_was_not_resolved_says_why() -> None:
    def look() -> str:
        """Look."""
        return "seen"

    agent = Agent(name="Clerk", model="scripted/x", functions=[look])
    looks = {"calls": [call("look")]}
    model = ScriptedModel([looks, looks, {"text": "Done."}])
    with using(model), Engine(None) as engine:
        used_up = agent.run("Go", id="r1", engine=engine, max_turns=1)
        resolved = agent.run("Go", id="r2", engine=engine, max_turns=2)

    assert (used_up.termination, resolved.termination) == ("max_turns", "resolved")
    assert "max_turns" in used_up.reason
    assert resolved.reason == ""
