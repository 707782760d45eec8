# Shows G8
"""What agents see of messages that people send while they run, and how their calls are stopped."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from flowengine import Agent, Conflict, Engine, Sessions
from flowengine.testing import call, scripted
from flowengine.testing.recording import record

RUN = "run"
"""The step that runs the agents."""


def clerk(**more: Any) -> Agent:
    return Agent(name="Clerk", model="scripted/x", **more)


def newest(engine: Engine) -> str:
    return str(engine.executions.list().items[0]["execution"])


def heard(engine: Engine, name: str, data: Any, **more: Any) -> None:
    """Send a signal to the newest execution, and wait until it is in its journal."""
    id = newest(engine)
    sent = engine.signal(name, data, execution=id, resume=False, **more)
    while sent.id not in [one.get("id") for one in engine.executions.events(id)]:
        time.sleep(0.01)


def said(messages: Any) -> list[tuple[str, str]]:
    return [(one["role"], one["content"]) for one in messages if one["role"] != "system"]


pytestmark = pytest.mark.wherever("engine")  # stores are compared in the tests of the journal


@pytest.fixture(params=["folder", "memory"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    store = tmp_path / "store" if request.param == "folder" else None
    with Engine(store, durability="none") as engine:
        yield engine


def test_messages_join_the_conversation_after_the_results_and_after_the_answer(
    engine: Engine,
) -> None:
    def look() -> str:
        """Look."""
        heard(engine, "agent.follow_up", "And then?")
        heard(engine, "agent.steer", "Be quick.")
        heard(engine, "agent.steer", "Look once.")
        return "looked"

    with scripted(call("look"), "first", "second") as model:
        response = clerk(tools=[look]).run("Look.", engine=engine)
    assert said(response.history) == [
        *[("user", "Look."), ("assistant", ""), ("tool", "looked")],
        *[("user", "Be quick.\n\nLook once."), ("assistant", "first")],
        *[("user", "And then?"), ("assistant", "second")],
    ]
    assert response.output == "second"
    requests = [said(request.messages) for request in model.requests]
    assert [len(request) for request in requests] == [1, 4, 6]
    case, differences = record(engine, response.execution, "steered")
    assert differences == []
    names = [one["name"] for one in case["signals"]]
    assert names == ["agent.follow_up", "agent.steer", "agent.steer"]
    assert all(later[: len(one)] == one for one, later in pairwise(requests))


def test_a_message_to_a_session_that_waits_is_heard_with_the_next_one(engine: Engine) -> None:
    with scripted("hello", "sure"):
        clerk().run("hi", session="ana", engine=engine)
        engine.signal("agent.steer", "In short.", execution=newest(engine), resume=False)
        clerk().run("again", session="ana", engine=engine)
    assert said(Sessions(engine).read("ana").messages)[2:] == [
        ("user", "In short.\n\nagain"),
        ("assistant", "sure"),
    ]


def test_checks_of_a_prompt_hold_for_messages(engine: Engine) -> None:
    def polite(prompt: str) -> None:
        """Check it."""
        if "now!" in prompt:
            raise ValueError("rude")

    def look() -> str:
        """Look."""
        heard(engine, "agent.steer", "Answer now!")
        return "looked"

    agent = clerk(tools=[look], checks=[{"before": polite}])
    with scripted(call("look")):
        response = agent.run("Look.", engine=engine)
    assert response.termination == "not_resolved"
    assert "rude" in str(response.reason)


def test_the_agent_that_was_handed_off_to_hears_messages(engine: Engine) -> None:
    billing = Agent(name="Billing", model="scripted/x")

    def look() -> str:
        """Look."""
        heard(engine, "agent.follow_up", "How much?")
        return "looked"

    agent = clerk(tools=[look], handoffs=[billing])
    with scripted(call("look"), call("transfer_to_Billing"), "Here.", "42.") as model:
        response = agent.run("Look.", engine=engine)
    assert (response.output, response.agent) == ("42.", billing)
    assert [request.agent for request in model.requests] == ["Clerk", "Clerk", "Billing", "Billing"]


def test_a_call_is_stopped_and_the_model_is_told(engine: Engine) -> None:
    begun, stopped = threading.Event(), threading.Event()
    address = f"{RUN}/Clerk@1/slow"

    def slow() -> str:
        """Take long."""
        begun.set()
        stopped.wait(60)
        return "late"

    def stop() -> None:
        begun.wait(60)
        id = newest(engine)
        with pytest.raises(Conflict, match="step 'other' of execution"):
            engine.executions.cancel(id, step="other")
        engine.executions.cancel(id, step=address, reason="too slow", resume=False)

    other = threading.Thread(target=stop)
    other.start()
    try:
        with scripted(call("slow"), "sorry"):
            response = clerk(tools=[slow]).run("Go.", engine=engine)
    finally:
        stopped.set()
        other.join()
    assert response.output == "sorry"
    assert said(response.history)[2] == (
        *("tool", f"Error: Stopped: it was stopped by {engine.user}: too slow"),
    )
    with pytest.raises(Conflict, match="not running"):
        engine.executions.cancel(newest(engine), step=address)


RACED = """
flowengine: 1
id: raced
defaults: {model: scripted/script.json}
tools:
  look: {python: "tools:look", effect: pure}
  note: {python: "tools:note", effect: idempotent}
agents:
  clerk: {instructions: Look., tools: [look], max_turns: 1000, hooks: [{before: turn, call: note}]}
steps: [{id: ask, agent: clerk, with: {prompt: Look.}}]
"""
TOOLS = """
import json, time

def look() -> str:
    "Look."
    time.sleep(0.02)
    return "looked"

def note(messages: list) -> None:
    "Keep what the model is about to read."
    said = [one["content"] for one in messages if one["role"] == "user"]
    with open("read.json", "a") as file:
        file.write(json.dumps(said) + "\\n")
"""


@pytest.mark.endurance
@pytest.mark.parametrize("seed", range(3))
def test_two_hundred_messages_are_heard_once_across_kills(tmp_path: Path, seed: int) -> None:
    """Two people steer at once. What was accepted is read once, in the order of each sender."""
    chance, accepted = random.Random(seed), [list[str](), list[str]()]
    (tmp_path / "raced.yaml").write_text(RACED)
    (tmp_path / "tools.py").write_text(TOOLS)
    turns = [{"calls": [{"name": "look", "arguments": {}}]}] * 40 + [{"text": "so"}] * 400
    (tmp_path / "script.json").write_text(json.dumps(turns))
    command = [sys.executable, "-m", "flowengine", "--store", str(tmp_path / "store")]
    run = [*command, "run", str(tmp_path / "raced.yaml"), "--id", "it", "--quiet"]

    def start(*words: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            words, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def steer(who: int) -> None:
        with Engine(tmp_path / "store") as engine:
            for number in range(100):
                name = ("agent.steer", "agent.follow_up")[number % 3 == 0]
                text = f"{who}-{number}"
                with suppress(Conflict):  # it has ended
                    engine.signal(name, text, execution="it", id=text, resume=False)
                    accepted[who].append(text)

    driver = start(*run)
    with Engine(tmp_path / "store") as engine:
        while not engine.executions.list().items or not (tmp_path / "read.json").exists():
            time.sleep(0.02)
    senders = [threading.Thread(target=steer, args=(who,)) for who in (0, 1)]
    for sender in senders:
        sender.start()
    for _ in range(4):
        time.sleep(chance.uniform(0.2, 0.8))
        driver.kill()
        driver.wait()
        driver = start(*command, "resume", "it", "--quiet")
    for sender in senders:
        sender.join()
    while driver.wait() != 0:
        driver = start(*command, "resume", "it", "--quiet")

    read = [json.loads(line) for line in (tmp_path / "read.json").read_text().splitlines()]
    last = [text for one in read[-1][1:] for text in one.split("\n\n")]
    assert len(last) > 100
    assert sorted(last) == sorted([*accepted[0], *accepted[1]])
    for who in (0, 1):
        for follows in (True, False):
            mine = [text for text in accepted[who] if (int(text[2:]) % 3 == 0) == follows]
            assert [text for text in last if text in mine] == mine
