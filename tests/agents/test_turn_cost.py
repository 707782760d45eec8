"""What a turn costs does not depend on how long the conversation is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from flowengine import Engine
from flowengine.agents.models import ModelFacts, ModelReply, ModelRequest, register, unregister
from flowengine.agents.models.port import Listener
from flowengine.agents.models.replies import SentCall, SentReply, read_sent
from tests.agents.flows import NAME, TOOLS, flow

TURNS = 150


class Counting:
    """A model that calls a tool in each reply, and notes how many calls of functions came before.

    It reads its own replies as every model does, and looks at no message.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.at: list[int] = []

    async def complete(self, request: ModelRequest, listen: Listener | None = None) -> ModelReply:
        self.at.append(self.calls)
        number = len(self.at)
        sent = SentReply("x")
        if number < TURNS:
            sent.calls = [SentCall(f"call_{number}", "add", '{"a": 1, "b": 2}')]
        return read_sent(sent, request, "native")

    async def facts(self, model: str) -> ModelFacts:
        return ModelFacts()

    def count(self, _frame: object, event: str, _argument: object) -> None:
        self.calls += event in ("call", "c_call")


def test_a_late_turn_makes_as_many_calls_as_an_early_one(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(TOOLS)
    path = tmp_path / "flow.yaml"
    path.write_text(flow("first: {instructions: Add., tools: [add], max_turns: 1000}"))
    model: Any = Counting()
    register(NAME, model)
    before = sys.getprofile()
    try:
        with Engine(None, workdir=tmp_path) as engine:
            sys.setprofile(model.count)
            result = engine.run(path)
    finally:
        sys.setprofile(before)
        unregister(NAME)

    assert result.status == "succeeded", result.error
    early, late = _turn(model.at[10:40]), _turn(model.at[-30:])
    assert late < early * 1.05


def _turn(calls: list[int]) -> float:
    return (calls[-1] - calls[0]) / (len(calls) - 1)
