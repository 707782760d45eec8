"""The assistant with memory: notes of one execution are available to the same user's next one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from flowengine import Engine
from flowengine.agents.models import using
from flowengine.agents.models.scripted import ScriptedModel
from flowengine.sdk.texts.untrusted import unmarked
from tests.examples.conftest import EXAMPLES, Shell

HERE = EXAMPLES / "memory"


@pytest.fixture(autouse=True)
def folder(flowengine: Shell) -> Path:
    shutil.copytree(HERE, flowengine.folder, dirs_exist_ok=True)
    return flowengine.folder


def test_one_execution_finds_what_another_kept(flowengine: Shell) -> None:
    def say(user: str, message: str) -> str:
        given = ("-i", f"user={user}", "-i", f"message={message}")
        return flowengine("-q", "run", "memory.yaml", *given).out

    said = say("ada", "I am allergic to nuts.")
    said += say("ada", "What may I eat?")
    said += say("bob", "What may I eat?")

    assert said == (HERE / "output.txt").read_text()


def test_a_model_can_only_reach_the_notes_of_the_person(folder: Path) -> None:
    """Models cannot choose a database or an owner, and removals need an approval."""
    script = [
        {"calls": [{"name": "remember", "arguments": {"note": "Likes figs."}}]},
        {"calls": [{"name": "recall", "arguments": {"word": "' or 1=1 --"}}]},
        {"calls": [{"name": "recall", "arguments": {"word": "FIGS", "db": "bob.db"}}]},
        {"calls": [{"name": "forget", "arguments": {"note": "Likes figs."}}]},
    ]
    model = ScriptedModel(script)
    with using(model), Engine(None, workdir=folder) as engine:
        path = folder / "memory.yaml"
        result = engine.run(path, {"user": "ada"}, labels={"model": "scripted/test"})

    assert result.status == "waiting"
    assert all("db" not in one.parameters["properties"] for one in model.requests[0].tools)
    told = [unmarked(str(request.messages[-1]["content"])) for request in model.requests]
    assert told[1:3] == ["kept", "[]"]
    assert told[3].startswith("Error: ")
