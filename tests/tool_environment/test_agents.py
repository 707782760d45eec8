"""Agents whose calls go through an environment, and `Client`, which runs one task."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flowengine import Agent, Engine, MetaChain, function_to_json
from flowengine.agents.models import using
from flowengine.agents.models.scripted import ScriptedModel
from flowengine.errors import UsageError
from flowengine.tool_environment import (
    ApprovalResponse,
    Client,
    EnvironmentResponse,
    LocalEnvironment,
    ToolCall,
    ToolResult,
    execute_command,
    through,
    tool,
)
from tests.agents.flows import without_marks
from tests.tool_environment.world import (
    HANG,
    PNG,
    Asked,
    Counting,
    Slow,
    Watching,
    made,
    until,
)

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


class Fake:
    """Twenty lines that replace `LocalEnvironment`."""

    def __init__(self) -> None:
        self.calls: list[ToolCall] = []

    async def approve_tool(self, one: ToolCall) -> EnvironmentResponse:
        return EnvironmentResponse(result=ApprovalResponse(approved=True))

    async def execute_tool(self, one: ToolCall) -> EnvironmentResponse:
        self.calls.append(one)
        return EnvironmentResponse(
            result=ToolResult(
                tool_call_id=one.tool_call_id,
                tool_name=one.tool_name,
                success=True,
                status="ok",
                content="from the fake",
            )
        )


# Shows T1
async def test_a_fake_environment_serves_a_run_of_an_agent() -> None:
    fake, model = Fake(), ScriptedModel([calls(("find", {"query": "a"})), {"text": "done"}])
    with using(model):
        agent = Agent(functions=through(fake, [find]))
        response = await MetaChain().run_async(agent, ASK)
    assert response.result == "done"
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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "hello.txt").write_text("hello")
    return folder


# Shows T85
async def test_a_task_runs_with_tools_in_its_folder(folder: Path) -> None:
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
        )
    assert response.result == "done"
    [(name, call_id, args)] = asked
    assert (name, bool(call_id), args) == ("execute_command", True, {"command": command})
    assert "hello.txt" in told(model)[0]["content"]
    assert (folder / "made.txt").read_text() == "new\n"


async def test_what_is_wrong_is_told_before_the_model_is_asked(folder: Path) -> None:
    with pytest.raises(UsageError, match="nowhere"):
        await Client(folder / "nowhere").execute_task(model="scripted/x", task="x")
    client = Client(folder)
    with pytest.raises(UsageError):
        await client.execute_task(model="scripted/x", task="x", on_tool_approval=7, tools=[42])


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from flowengine import Engine
from flowengine.agents.models import using
from flowengine.agents.models.scripted import ScriptedModel
from flowengine import MetaChain
from tests.tool_environment.test_agents import ASK, agent_of, once
from tests.tool_environment.world import Counting, made

folder, ends = Path(sys.argv[1]), sys.argv[2]

async def main():
    count = Counting(folder)

    async def decide(call):
        if ends == "asking":
            os.kill(os.getpid(), signal.SIGKILL)
        return False

    engine = Engine(folder / "store")
    env = await made(count.tool, callback=decide, engine=engine, execution_id="x")
    execute = env.execute_tool

    async def dies_after(call):
        await execute(call)
        os.kill(os.getpid(), signal.SIGKILL)

    env.execute_tool = dies_after
    with using(once()):
        await MetaChain(engine).run_async(agent_of(env, count), ASK, id="it")

asyncio.run(main())
"""


def once() -> ScriptedModel:
    return ScriptedModel([calls(("count", {})), {"text": "done"}], by_turn=True)


def agent_of(env: LocalEnvironment, count: Counting) -> Agent:
    return Agent(name="Clerk", model="scripted/x", functions=through(env, [count.tool]))


@pytest.mark.endurance
@pytest.mark.parametrize(("ends", "asked", "counted"), [("asking", 1, 1), ("rejected", 0, 0)])
async def test_a_crash_while_somebody_decides_is_no_question_whether_it_took_effect(
    tmp_path: Path, ends: str, asked: int, counted: int
) -> None:
    """Calls that had not started need approval again. A rejection is kept."""
    died = await asyncio.to_thread(lambda: subprocess.run(
        [sys.executable, "-c", KILLED, tmp_path, ends],
        check=False, timeout=HANG, capture_output=True, text=True,
    ))  # fmt: skip
    assert died.returncode == -9, died.stderr

    count, callback = Counting(tmp_path), Asked()
    model = once()
    with Engine(tmp_path / "store") as engine, using(model):
        async with await made(
            count.tool, callback=callback, engine=engine, execution_id="x"
        ) as env:
            response = await MetaChain(engine).resume_async("it", agent_of(env, count))
    assert (response.result, response.waits) == ("done", [])
    assert (len(callback.calls), count.n) == (asked, counted)
    assert ("Nothing was done" in told(model)[0]["content"]) == (ends == "rejected")


# Shows T10
async def test_a_function_keeps_what_its_tool_says_of_its_calls(tmp_path: Path) -> None:
    @tool(effect="idempotent", supports_parallel_execution=True)
    def look() -> str:
        """Look."""
        return "seen"

    async with await made(look, find) as env:
        [shown] = through(env, [find])
        assert function_to_json(shown) == function_to_json(find)
        with Engine(tmp_path / "store") as engine:
            chain = MetaChain(engine)
            agents = [Agent(name="A", model="scripted/x", functions=through(env, [look]))]
            steps = chain.compile(agents).compiled["steps"]
    [step] = [one for one in steps if one.get("tool") == "look"]
    assert step["effect"] == "idempotent"
    assert step["lock"]["shared"] == ["const", True]


# Shows T89
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
            assert (await running).result == "so be it"
    assert "The call was aborted. It may have acted in part." in told(model)[0]["content"]
    assert [result.status for _, result in log.seen] == ["aborted"]
