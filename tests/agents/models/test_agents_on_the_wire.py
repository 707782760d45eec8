"""Agents of flows call models of providers: on the wire, with the engine's retries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.agents.agent_specs import RETRY
from flowengine.sdk.texts.untrusted import RULES
from tests.agents.flows import HEAD, flow
from tests.agents.flows import TOOLS as PYTHON
from tests.agents.models.wire import Answer, Wire, failed, inside, replied, written
from tests.language.stage import Stage
from tests.simulation.simulator import Fails


def calling(name: str, arguments: dict[str, Any]) -> Answer:
    function = {"name": name, "arguments": json.dumps(arguments)}
    calls = [{"id": "c1", "type": "function", "function": function}]
    return replied(None, message={"tool_calls": calls})


def run(
    folder: Path,
    wire: Wire,
    model: str,
    retry: str = "{delay: 1ms, max_delay: 2ms}",
    *,
    more: str = "repeats: 3",
    python: str = PYTHON,
) -> Any:
    agent = f"""
        first:
          model: {model}
          instructions: You add.
          tools: [add]
          retry: {retry}
          {more}
          settings: {{api_key: key, api_base: "{wire.url}/v1"}}
        """
    (folder / "flow.yaml").write_text(flow(agent, head=HEAD))
    (folder / "tools.py").write_text(python)
    with Engine(folder / "store.db", workdir=folder) as engine:
        return engine.run(folder / "flow.yaml")


# Shows M54
def test_an_agent_whose_model_writes_its_calls(wire: Wire, tmp_path: Path) -> None:
    wire.answer(
        failed(500),
        lambda body: replied(f"Let me see.\n{written(body, 'add', a=1, b=2)}"),
        replied("It is 3."),
    )

    result = run(tmp_path, wire, "openai/deepseek-r1")

    assert result.outputs == {"answer": "It is 3.", "agent": "first"}
    *_, last = wire.requests
    assert set(last.body) == {"model", "messages"}
    system, user, assistant, told = last.body["messages"]
    assert system["content"].endswith(f"You add.\n\n{RULES}")
    assert user["content"] == "What is 1 + 2?"
    shown = written(wire.requests[-1].body, "add", a=1, b=2)
    assert assistant["content"] == f"Let me see.\n{shown}"
    assert told["role"] == "user"
    assert told["content"].startswith(shown[:14].replace("call", "result"))


# Shows M29, W11
def test_a_model_without_vision_is_told_that_an_image_was_left_out(
    wire: Wire, tmp_path: Path
) -> None:
    wire.answer(calling("add", {"a": 1, "b": 2}), replied("A cat."))
    drawing = """
from flowengine import Result

def add(a: int, b: int):
    "Draw."
    return Result(value="drawn", image=b"\\x89PNG")

def boom(why: str): "Fail."
"""

    result = run(tmp_path, wire, "openai/gpt-3.5-turbo", python=drawing)

    assert result.outputs["answer"] == "A cat."
    *_, drawn, image = wire.requests[-1].body["messages"]
    assert inside(drawn["content"]) == "drawn"
    assert "iVBORw" not in json.dumps(wire.requests[-1].body)
    assert "An image was left out" in json.dumps(image["content"])


def test_the_last_turn_offers_the_same_tools_and_calls_none(wire: Wire, tmp_path: Path) -> None:
    wire.answer(calling("add", {"a": 1, "b": 2}), replied("3"))

    run(tmp_path, wire, "openai/gpt-4o", more="max_turns: {count: 2, then: answer}")

    first, last = (sent.body for sent in wire.requests)
    assert last["tools"] == first["tools"]
    assert last["tool_choice"] == "none"
    assert last["messages"][: len(first["messages"])] == first["messages"]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.close()


# Shows M42
def test_the_pauses_between_attempts_are_those_that_agents_have(stage: Stage) -> None:
    retry = json.dumps(dict(RETRY))
    step = f'{{id: a, python: "tools:act", effect: idempotent, retry: {retry}}}'

    simulator = stage.simulate(f"steps: [{step}]", {"a": Fails("ModelError")})

    ends = [event["at"] for event in simulator.journal if event["type"] == "failed"]
    fired = [event["at"] for event in simulator.journal if event["type"] == "timer"]
    assert len(ends) == 3
    first, second = (later - before for before, later in zip(ends, fired, strict=False))
    assert 4_000 <= first <= 5_000
    assert 8_000 <= second <= 10_000


# Shows M45
def test_ten_agents_do_not_wait_alike(stage: Stage) -> None:
    text = f"""
steps:
  - id: a
    map: {{over: 10, concurrency: 10}}
    python: "tools:act"
    effect: idempotent
    retry: {json.dumps(dict(RETRY))}
"""
    simulator = stage.simulator(text, {"a": Fails("RateLimited")}, order="first").start()
    while simulator.running:
        simulator.step()

    due = {timer["due"] - simulator.now for timer in simulator.state["timers"].values()}
    assert len(due) > 5
    assert 4_000 <= min(due) <= max(due) <= 5_000
