# Shows G9
"""What agents see of those that they have started in the background, and what becomes of them."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import time
from pathlib import Path
from threading import Barrier, Event
from typing import Any

import pytest

from flowengine import Agent, Engine
from flowengine.agents.models.registry import using
from flowengine.agents.models.scripted import ScriptedModel
from flowengine.testing import call, scripted
from flowengine.testing.recording import record
from tests.agents.test_steering import said


def agent(name: str, **more: Any) -> Agent:
    return Agent(name=name, instructions=f"You are {name}.", model="scripted/x", **more)


pytestmark = pytest.mark.wherever("engine")  # stores are compared in the tests of the journal


@pytest.fixture(params=["folder", "memory"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    store = tmp_path / "store" if request.param == "folder" else None
    with Engine(store, durability="none") as engine:
        yield engine


def play(replies: Any) -> Any:
    """Return a reply to any request: the one of the agent for its turn."""

    def reply(request: Any) -> Any:
        name = re.search(r"You are (\w+)", request.messages[0]["content"])
        assert name is not None
        turn = sum(one["role"] == "assistant" for one in request.messages)
        made = replies[name[1]][turn]
        return made(request.messages) if callable(made) else made

    return reply


def ids(messages: Any) -> list[str]:
    """Return the ids that the tools in the background have answered with."""
    texts = [one["content"] for one in messages if one["role"] == "tool"]
    return re.findall(r'execution_id": ?"(\w+)', " ".join(texts))


def both(tool: str, *prompts: str) -> dict[str, Any]:
    return {"calls": [{"name": tool, "arguments": {"prompt": prompt}} for prompt in prompts]}


def statuses(engine: Engine, flow: str = "agents.") -> list[str]:
    items = engine.executions.list().items
    return sorted(one["status"] for one in items if one["flow"].startswith(flow))


class Busy:
    """An agent that is at work until the one that started it gives a certain reply."""

    def __init__(self) -> None:
        self._event = Event()

        def work() -> str:
            """Work."""
            assert self._event.wait(60)
            return "worked"

        self.agent = agent("Helper", tools=[work])
        self.replies = [call("work"), "found"]

    def end(self, reply: Any) -> Any:
        """Return the reply that it works until."""

        def give(messages: Any) -> Any:
            self._event.set()
            return reply

        return give


def test_the_model_hears_of_each_end_once_after_it_has_waited(engine: Engine) -> None:
    busy = Busy()
    lead = agent("Lead", tools=[busy.agent.as_tool(background=True)])
    waits = busy.end(call("wait_for_agents"))
    replies = {
        "Lead": [both("helper", "A", "B"), waits, call("list_agents"), "done"],
        "Helper": busy.replies,
    }
    with scripted(*[play(replies)] * 8):
        response = lead.run("Go.", engine=engine)
    assert response.output == "done"
    messages = said(response.history)
    told = [text for role, text in messages if role == "user"][1:]
    assert len(told) == 1
    started = ids(response.history)
    assert len(started) == 2
    assert all(
        told[0].count(f"[The agent helper in the background, {id}, has ended") for id in started
    )
    assert told[0].count("found") == 2
    tools = [text for role, text in messages if role == "tool"]
    assert [text.count("resolved") for text in tools] == [0, 0, 0, 2]
    assert [tools[-1].count(f'{{"prompt": "{prompt}"}}') for prompt in "AB"] == [1, 1]
    items = engine.executions.list(flow="agents.Helper").items
    assert sorted(one["key_inputs"]["prompt"] for one in items) == ["A", "B"]
    [difference] = record(engine, response.execution, "started two").differences[:1]
    assert "cannot express agents in the background, such as of 'helper'" in difference
    assert statuses(engine) == ["succeeded", "succeeded"]


def test_an_answer_waits_for_those_that_run(engine: Engine) -> None:
    busy = Busy()
    lead = agent("Lead", tools=[busy.agent.as_tool(background=True)])
    replies = {
        "Lead": [both("helper", "A"), busy.end("early"), "late"],
        "Helper": busy.replies,
    }
    with scripted(*[play(replies)] * 5):
        response = lead.run("Go.", engine=engine)
    assert response.output == "late"
    assert "found" in said(response.history)[-2][1]


def test_an_agent_is_sent_messages_and_cancelled_by_the_one_that_started_it(
    engine: Engine,
) -> None:
    begun: list[int] = []

    def work() -> str:
        """Work."""
        begun.append(1)
        time.sleep(0.2)
        return "worked"

    def rest() -> str:
        """Rest until both work."""
        while len(begun) < 2:
            time.sleep(0.01)
        return "rested"

    helper = agent("Helper", tools=[work])
    lead = agent("Lead", tools=[rest, helper.as_tool(background=True)])

    def ask(tool: str, number: int, **more: Any) -> Any:
        return lambda messages: call(tool, id=ids(messages)[number], **more)

    def helped(messages: Any) -> Any:
        heard = [one["content"] for one in messages if one["role"] == "user"]
        return "stopped early" if "Stop." in heard else call("work")

    replies = {
        "Lead": [
            both("helper", "A", "B"),
            call("rest"),
            ask("message_agent", 0, message="Stop."),
            ask("cancel_agent", 1),
            call("wait_for_agents"),
            {"calls": [{"name": "cancel_agent", "arguments": {"id": "it"}}]},
            "done",
        ],
        "Helper": [helped] * 100,
    }
    with using(ScriptedModel([play(replies)] * 300)):
        response = lead.run("Go.", engine=engine)
    assert response.output == "done"
    told = "".join(text for role, text in said(response.history) if role == "user")
    assert "stopped early" in told
    assert "has ended: cancelled" in told
    assert "no agent with this id runs" in said(response.history)[-2][1]
    assert statuses(engine) == ["cancelled", "succeeded"]


class Meeting:
    """A place where three have to be at the same time."""

    def __init__(self) -> None:
        self.barrier = Barrier(3, timeout=60)


def meet(meeting: Meeting) -> str:
    """Meet the others."""
    meeting.barrier.wait()
    return "met"


def test_they_work_at_the_same_time_with_what_the_caller_has_given(engine: Engine) -> None:
    helper = agent("Helper", tools=[meet], deps=Meeting)
    lead = agent("Lead", tools=[meet, helper.as_tool(background=True)], deps=Meeting)
    replies = {
        "Lead": [both("helper", "A", "B"), call("meet"), "done", "done"],
        "Helper": [call("meet"), "found"],
    }
    with using(ScriptedModel([play(replies)] * 8)):
        response = lead.run("Go.", engine=engine, deps=Meeting())
    assert response.output == "done"
    assert statuses(engine) == ["succeeded", "succeeded"]


def test_what_exceeds_a_bound_is_an_error_for_the_model(engine: Engine) -> None:
    busy = Busy()
    helper = busy.agent.as_tool(background={"max": 2, "count": 3})
    replies = {
        "Lead": [both("helper", *"ABC"), busy.end("early"), both("helper", *"DE"), "late", "done"],
        "Helper": busy.replies,
    }
    with using(ScriptedModel([play(replies)] * 11)):
        response = agent("Lead", tools=[helper]).run("Go.", engine=engine)
    refused = [text for _, text in said(response.history) if text.startswith("Error: ")]
    assert len(refused) == 2
    assert "LimitExceeded: 2 run in the background already" in refused[0]
    assert "LimitExceeded: 3 were started in the background already" in refused[1]
    assert len(statuses(engine)) == 3


def test_nested_agents_in_the_background_are_bounded(engine: Engine) -> None:
    helper = agent("Helper")
    helper.use_tools(helper.as_tool("deeper", background=True))
    replies = {"Helper": [both("deeper", "A"), "early", "late"]}
    with using(ScriptedModel([play(replies)] * 100)):
        helper.run("Go.", engine=engine)
    assert statuses(engine) == ["succeeded"] * 8


TEAM = """
flowengine: 1
id: team
defaults: {model: scripted/script.json}
tools:
  look: {python: "tools:look", effect: idempotent}
  note: {python: "tools:note", effect: idempotent}
  help: {agent: helper, background: 50}
agents:
  lead:
    instructions: Lead.
    tools: [help]
    model: scripted/lead.json
    hooks: [{before: turn, call: note}]
  helper: {instructions: Help., description: Helps, tools: [look]}
steps: [{id: work, agent: lead, with: {prompt: Go.}}]
"""
TOOLS = """
import json

def look() -> str:
    "Look."
    with open("looks.txt", "a") as file:
        file.write("1")
    return "looked"

def note(messages: list) -> None:
    "Keep what the model is about to read."
    with open("read.json", "w") as file:
        json.dump([one["content"] for one in messages], file)
"""


@pytest.mark.endurance
@pytest.mark.parametrize("seed", range(3))
def test_fifty_agents_end_once_across_kills(tmp_path: Path, seed: int) -> None:
    """What the model of the first agent reads has the end of each, once."""
    chance = random.Random(seed)
    (tmp_path / "team.yaml").write_text(TEAM)
    (tmp_path / "tools.py").write_text(TOOLS)
    look = {"calls": [{"name": "look", "arguments": {}}]}
    prompts = [str(number) for number in range(50)]
    (tmp_path / "script.json").write_text(json.dumps([look, look, {"text": "found"}]))
    (tmp_path / "lead.json").write_text(json.dumps([both("help", *prompts), *[{"text": "so"}] * 2]))
    command = [sys.executable, "-m", "flowengine", "--store", str(tmp_path / "store")]
    words = [*command, "run", str(tmp_path / "team.yaml"), "--id", "it", "--quiet"]
    looks = tmp_path / "looks.txt"
    looks.write_text("")
    for kill_at in sorted(chance.sample(range(1, 100), 8)):
        if looks.stat().st_size >= kill_at:
            continue  # looks that a kill has cut off are repeated
        driver = subprocess.Popen(
            words, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while looks.stat().st_size < kill_at:
            assert driver.poll() is None
            time.sleep(0.001)
        driver.kill()
        driver.wait()
        words = [*command, "resume", "it", "--quiet"]
    subprocess.run(words, cwd=tmp_path, capture_output=True, timeout=300, check=True)
    read = " ".join(map(str, json.loads((tmp_path / "read.json").read_text())))
    told = re.findall(r"in the background, (\w+), has ended: resolved", read)
    assert len(told) == 50
    with Engine(tmp_path / "store") as engine:
        page = engine.executions.list(limit=100).items
        children = [one for one in page if one["flow"] == "agents.helper"]
        assert sorted(told) == sorted(one["execution"] for one in children)
        assert {one["status"] for one in children} == {"succeeded"}
