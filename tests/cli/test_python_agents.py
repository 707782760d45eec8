"""Runs of agents in Python, seen and decided at the command line."""

from __future__ import annotations

from typing import Any

from flowengine import Agent, Engine, Runner
from flowengine.agents.models import using
from flowengine.agents.models.scripted import ScriptedModel
from tests.agents.flows import call
from tests.cli.conftest import CommandLine


def test_only_the_program_with_the_function_continues_it(flowengine: CommandLine) -> None:
    def pay(amount: int) -> str:
        return f"paid {amount}"

    agent = Agent(name="Clerk", model="scripted/x", tools=[pay], approvals={"pay": "required"})
    script: list[Any] = [{"calls": [call("pay", amount=7)]}, {"text": "done"}]
    store = flowengine.folder / ".flowengine"
    with using(ScriptedModel(script)):
        with Engine(store) as engine:
            [wait] = Runner(engine).run(agent, "Pay.", id="it").waits
        done = flowengine("approve", wait["id"], code=5)
        told = done.out + done.err
        assert "stalled: needs the program that started it" in told
        assert "Runner(engine).resume('it', agent)" in told
        assert "_agent_functions" not in told
        assert "flowengine resume" not in told
        why = flowengine("why", "it").out
        assert "Runner(engine).resume('it', agent)" in why
        assert "flowengine resume" not in why
        with Engine(store) as engine:
            assert Runner(engine).resume("it", agent).output == "done"
