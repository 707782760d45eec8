"""Agents whose calls go through an environment, and `Client`, which runs one task."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from flowengine import Agent, Engine, Response
from flowengine.agents.models import using
from flowengine.agents.models.scripted import ScriptedModel
from flowengine.runner import MetaChain, function_to_json
from flowengine.runner.work import Work
from flowengine.tool_environment import (
    ApprovalResponse,
    Client,
    ToolCall,
    execute_command,
    through,
    tool,
)
from tests.agents.flows import without_marks
from tests.tool_environment.world import PNG, Asked, Slow, TwoMethods, Watching, made, until

ASK = [{"role": "user", "content": "Do it."}]


def calls(*made: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    return {
        "calls": [
            {"name": name, "arguments": arguments, "id": f"m{number}"}
            for number, (name, arguments) in enumerate(made)
        ]
    }


def told(model: ScriptedModel, number: int = -1) -> list[dict[str, Any]]:
    messages = without_marks(model.requests[number].messages)
    return [each for each in messages if each["role"] == "tool"]


@tool
def find(query: str, limit: int = 3) -> str:
    """Find something."""
    return f"{query} {limit}"


# Shows T1
async def test_a_fake_environment_serves_a_run_of_an_agent() -> None:
    fake, model = TwoMethods(), ScriptedModel([calls(("find", {"query": "a"})), {"text": "done"}])
    with using(model):
        agent = Agent(functions=through(fake, [find]))
        response = await MetaChain().run_async(agent, ASK)
    assert response.output == "done"
    assert [(one.tool_name, one.args) for one in fake.calls] == [("find", {"query": "a"})]
    assert told(model)[0]["content"] == "from the fake"


# Shows T30
async def test_the_calls_of_an_agent_are_approved_observed_and_told() -> None:
    def answer(one: ToolCall) -> Any:
        if one.args["query"] == "b":
            return ApprovalResponse(approved=False, feedback="not b")
        return ApprovalResponse(approved=True, feedback="fine", images=[PNG])  # type: ignore[list-item]

    reply = calls(("find", {"query": "a"}), ("find", {"query": "b"}))
    model = ScriptedModel([reply, {"text": "done"}])
    asked = Asked(answer)
    async with await made(find, callback=asked) as env:
        env.register_observer(Watching("silent", says="not for you"))
        with using(model):
            agent = Agent(functions=through(env, [find]))
            await MetaChain().run_async(agent, ASK)
    assert len(asked.calls) == 2
    assert len({one.tool_call_id for one in asked.calls}) == 2
    text = json.dumps(told(model))
    assert [each["tool_call_id"] for each in told(model)][:2] == ["m0", "m1"]
    assert "a 3" in text
    assert "fine" in text
    assert "not b" in text
    assert "Nothing was done" in text
    assert "not for you" not in text
    everything = json.dumps([dict(each) for each in model.requests[-1].messages])
    assert "data:image/png;base64," in everything


# Client


# Shows T85
async def test_a_task_runs_with_tools_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path
    kept: list[Any] = []
    original = Work.run

    async def watched(self: Work, engine: Engine) -> Response:
        response = await original(self, engine)
        kept.append(list(engine.executions.events(self.id)))
        return response

    monkeypatch.setattr(Work, "run", watched)
    (folder / "hello.txt").write_text("hello")
    asked: list[Any] = []

    def approve(name: str, call_id: str, args: dict[str, Any]) -> ApprovalResponse:
        asked.append((name, call_id, args))
        return ApprovalResponse(approved=True)

    command = "ls; cat hello.txt; echo new > made.txt"
    model = ScriptedModel([calls(("execute_command", {"command": command})), {"text": "done"}])
    with using(model):
        response = await Client(folder).execute_task(
            model="scripted/x",
            tools=[execute_command],
            task="Look around.",
            on_tool_approval=approve,
            api_key="sk-c4n4ry-k3y",
        )
    assert response.output == "done"
    [(name, call_id, args)] = asked
    assert (name, bool(call_id), args) == ("execute_command", True, {"command": command})
    assert model.requests[0].settings["api_key"] == "sk-c4n4ry-k3y"
    assert kept[0]
    assert "c4n4ry" not in str(kept)
    assert "hello.txt" in told(model)[0]["content"]
    assert (folder / "made.txt").read_text() == "new\n"


# Shows T10
async def test_a_function_keeps_what_its_tool_says_of_its_calls(tmp_path: Path) -> None:
    @tool(effect="idempotent", supports_parallel_execution=True)
    def look() -> str:
        """Look."""
        return "seen"

    with Engine(tmp_path / "store") as engine:
        async with await made(look, find, engine=engine, execution_id="x") as env:
            [shown] = through(env, [find])
            assert function_to_json(shown) == function_to_json(find)
            chain = MetaChain(engine)
            agents = [Agent(name="A", model="scripted/x", functions=through(env, [look]))]
            steps = chain.compile(agents).compiled["steps"]
    [step] = [one for one in steps if one.get("tool") == "look"]
    assert (step["effect"], step["on_crash"]) == ("idempotent", "retry")  # calls are kept
    assert step["lock"]["shared"] == ["const", True]


# Shows T89, T73
async def test_the_calls_of_an_agent_are_aborted_and_the_model_is_told() -> None:
    slow = Slow()
    model = ScriptedModel([calls(("slow", {})), {"text": "so be it"}])
    async with await made(slow.tool) as env:
        log = Watching("log")
        env.register_observer(log)
        with using(model):
            agent = Agent(functions=through(env, [slow.tool]))
            running = asyncio.ensure_future(MetaChain().run_async(agent, ASK))
            await until(slow.began.is_set)
            env.abort_step()
            assert (await running).output == "so be it"
    assert "The call was aborted. It may have acted in part." in told(model)[0]["content"]
    assert [result.status for _, result in log.seen] == ["aborted"]
