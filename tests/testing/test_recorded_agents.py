"""Runs of agents in Python become cases that reproduce their history."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from flowengine import Agent, AgentRunFailed, Engine, Result, Runner
from flowengine.agents.models import using
from flowengine.agents.models.scripted import ScriptedModel
from flowengine.testing.recording import record, text_of
from tests.agents.flows import call

DOWN = {"raise": "ModelError", "message": "down", "retryable": False}
DONE = {"text": "done"}
SERVER = Path(__file__).parents[1] / "agents" / "mcp_server.py"
OFFER = '[{"name": "add", "description": "Adds.", "inputSchema": {"type": "object"}}]'


def find(number: int) -> str:
    """Find an order."""
    return f"{number} chairs"


def rows() -> list[Any]:
    return [{"name": "Ana", "age": 41}, None]


def as_json() -> str:
    return '{"a": 1}'


def long_data() -> list[int]:
    return list(range(40_000))


def long_text() -> str:
    return "ab " * 9_000


def remember() -> Result:
    return Result(value="noted", context_variables={"k": 2})


def picture() -> Result:
    return Result(value="see", image=b"\x89PNG\r\n\x1a\n" + bytes(20))


def fails() -> None:
    raise ValueError("no such order")


def pay(amount: int) -> str:
    return f"paid {amount}"


def polite(prompt: str) -> None:
    if "idiot" in prompt:
        raise ValueError("mind your words")


def clerk(*tools: Any, **more: Any) -> Agent:
    return Agent(name="Clerk", model="scripted/x", tools=[*tools], **more)


def nested() -> Any:
    def inner(number: int) -> str:
        return f"inner {number}"

    return inner


BILLING = Agent(name="Billing", model="scripted/x", tools=[rows])
FIND = {"calls": [call("find", number=7)]}
EVERY = [find, rows, as_json, long_data, long_text, remember, picture, fails]
CALLS = [call(tool.__name__, **({"number": 7} if tool is find else {})) for tool in EVERY]
RUNS: dict[str, tuple[Agent, list[Any], dict[str, Any]]] = {
    "every result": (clerk(*EVERY), [{"calls": [*CALLS, call("nope"), call("find")]}, DONE], {}),
    "nested": (clerk(nested()), [{"calls": [call("inner", number=7)]}, DONE], {}),
    "instructions": (clerk(find, instructions=lambda: "Be brief."), [FIND, FIND, DONE], {}),
    "handoff": (
        clerk(find, handoffs=[BILLING]),
        [{"calls": [call("find", number=1), call("transfer_to_Billing")]},
         {"calls": [call("rows")]}, DONE], {},
    ),
    "as a tool": (
        clerk(BILLING.as_tool("ask")),
        [{"calls": [call("ask", prompt="?")]}, {"calls": [call("rows")]}, DONE, DONE], {},
    ),
    "session": (
        clerk(find, checks=[{"before": polite}]), [FIND, DONE, FIND, DONE],
        {"session": "s", "said": ["hi", "you idiot", "again"]},
    ),
    "edited": (
        clerk(pay, approvals={"pay": {"edit": True}}), [{"calls": [call("pay", amount=9)]}, DONE],
        {"answer": {"edit": {"amount": 5}, "comment": "less"}},
    ),
    "turns": (clerk(find), [FIND, FIND], {"max_turns": 2}),
    "budget": (clerk(find), [FIND, FIND, DONE], {"budget": {"tool_calls": 1}}),
    "retried": (clerk(find), [DOWN, FIND, DOWN, DOWN, DONE], {"retries": 3}),
}  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
def test_a_run_of_agents_becomes_a_case(name: str, tmp_path: Path) -> None:
    agent, script, given = RUNS[name]
    options = {**given}
    said, answer = options.pop("said", ["hi"]), options.pop("answer", None)
    retries = options.pop("retries", 0)
    with using(ScriptedModel(script)), Engine(tmp_path) as engine:
        runner = Runner(engine)
        for retry in range(retries):
            with pytest.raises(AgentRunFailed):
                runner.resume("it", agent) if retry else runner.run(agent, "hi", id="it")
        for text in said if not retries else ():
            options |= {} if "session" in options else {"id": "it"}
            response = runner.run(agent, text, **options)
        if answer is not None:
            engine.approvals.approve(response.waits[0]["id"], **answer, resume=False)
        if answer is not None or retries:
            response = runner.resume("it", agent)
        case = record(engine, response.execution, "recorded")
        assert case.differences == [], text_of(case.case)
        assert "<content" not in text_of(case.case)


def test_a_run_whose_server_did_not_start_becomes_a_case_without_that(tmp_path: Path) -> None:
    """A case cannot express the retry, so its rounds have other numbers. All else is the same."""
    server, offer = tmp_path / "server.py", tmp_path / "offer.json"
    offer.write_text(OFFER)
    command = [sys.executable, str(server), str(offer)]
    agent = clerk().use_mcp({"adds": {"command": command, "provider": "host"}})
    script: list[Any] = [{"calls": [call("adds.add", a=1)]}, DONE]
    with using(ScriptedModel(script)), Engine(tmp_path / "store") as engine:
        with pytest.raises(AgentRunFailed, match="EnvironmentStartFailed"):
            Runner(engine).run(agent, "hi", id="it")
        shutil.copy(SERVER, server)
        assert Runner(engine).resume("it", agent).output == "done"
        case = record(engine, "it", "recorded")
        assert [one.partition("\n")[0] for one in case.differences] == ["path"]
        assert case.case["tools"].keys() == {"Clerk.offer", "adds"}
