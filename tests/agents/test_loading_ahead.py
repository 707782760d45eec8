"""Model libraries are loaded while earlier steps run, only in the process that runs the flow."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from flowengine import Engine
from flowengine.agents.models import ModelFacts, ModelReply, ModelRequest, register, unregister
from flowengine.agents.models.port import Listener
from flowengine.agents.models.replies import SentReply, read_sent
from flowengine.agents.text_calls.marked_form import ModelCall
from flowengine.engines.attempts import runner
from flowengine.registry import kind_class

SECONDS = 60
"""A limit that only guards against a hang."""
FLOW = """\
flowengine: 1
id: f
agents: {first: {instructions: Answer., model: slow/one}}
steps:
  - {id: before, python: "waiting:wait"}
  - {id: ask, agent: first, with: {prompt: Hi.}}
"""
ASKING = """\
flowengine: 1
id: f
agents: {first: {instructions: Answer., model: slow/one}}
steps:
  - {id: talk, agent: {name: first, chat: true}, with: {prompt: Hi.}}
"""
APPROVED = """\
flowengine: 1
id: f
tools: {wait: {python: "waiting:wait", approval: ask}}
agents: {first: {instructions: Answer., model: slow/one, tools: [wait]}}
steps:
  - {id: talk, agent: first, with: {prompt: Hi.}}
"""
WAITING = f"""\
from flowengine.agents.models import resolve

def wait() -> bool:
    return resolve("slow/one").loading.wait({SECONDS})
"""


class Slow:
    """A model whose library takes long to load."""

    def __init__(self) -> None:
        self.loading = threading.Event()
        self.asked = 0

    def begin_loading(self) -> None:
        self.loading.set()

    async def complete(self, request: ModelRequest, listen: Listener | None = None) -> ModelReply:
        self.asked += 1
        sent = SentReply("Hello.")
        if request.tools and self.asked == 1:
            sent.calls = [ModelCall("wait", "{}", id) for id in ("one", "two")]
        return read_sent(sent, request, "native")

    async def facts(self, model: str) -> ModelFacts:
        return ModelFacts()


@pytest.fixture
def slow() -> Iterator[Slow]:
    model = Slow()
    for name in ("slow", "other"):
        register(name, model)
    yield model
    for name in ("slow", "other"):
        unregister(name)


FILES = {"f.yaml": FLOW, "waiting.py": WAITING}


def test_models_are_loaded_while_the_steps_before_run(folder: Path, slow: Slow) -> None:
    with Engine(None, workdir=folder) as engine:
        result = engine.run(folder / "f.yaml")
        (before,) = [
            one
            for one in engine.executions.show(result.execution)["steps"]
            if one["step"] == "before"
        ]

    assert result.status == "succeeded"
    assert before["output"] is True


def test_who_goes_on_inside_of_an_agent_loads_them_too(folder: Path, slow: Slow) -> None:
    (folder / "f.yaml").write_text(ASKING)
    with Engine("store") as engine:
        id = engine.run("f.yaml").execution
    slow.loading.clear()

    with Engine("store") as engine:
        engine.resume(id)

    assert slow.loading.wait(SECONDS)
    assert slow.asked == 1


def test_nothing_is_loaded_before_the_last_call_of_a_reply_is_approved(
    folder: Path, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "f.yaml").write_text(APPROVED)
    with Engine("store") as engine:
        id = engine.run("f.yaml").execution
    calls: list[object] = []
    monkeypatch.setattr(runner, "load_ahead", lambda *call: calls.append(call))
    loads = []

    for _ in range(2):
        with Engine("store") as engine:
            (wait, *_) = engine.approvals.list().items
            engine.approvals.approve(wait["id"])
            engine.resume(id)
        loads.append(len(calls))

    assert loads[0] == 0
    assert loads[1] > 0
    assert slow.asked == 2


def test_the_model_of_the_execution_is_loaded_in_place_of_the_others(slow: Slow) -> None:
    loaded: list[str] = []

    class Other(Slow):
        def begin_loading(self) -> None:
            loaded.append("other")

    register("other", Other())
    models = {"first": {"model": "slow/one", "fallbacks": ["slow/two"]}}
    task = {"agent": {"offers": models}}

    kind_class("agent_turn").ahead(task, {"model": "other/one"})
    kind_class("agent_turn").ahead(task, {"model": "scripted/missing.yaml"})

    assert loaded == ["other"]
    assert not slow.loading.is_set()
