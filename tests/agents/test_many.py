"""Scale: many calls in one reply, many agents in one process, many turns."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowengine.agents.models.port import ModelRequest
from tests.agents.flows import Case, call, flow

AGENT = """
first:
  instructions: You add.
  tools: [add]
"""
TOGETHER = """flowengine: 1
id: f
defaults: {model: scripted/test}
tools: {add: {python: "tools:add"}}
steps:
  - id: each
    map: {over: 100, as: n, concurrency: 100}
    agent: first
    with: {prompt: "${{ string(n) }}"}
outputs: {answers: "${{ steps.each.output }}"}
"""


@pytest.mark.endurance
def test_five_hundred_calls_of_one_reply_are_answered_in_their_order(tmp_path: Path) -> None:
    calls = [call("add", f"c{n}", a=n, b=1) for n in range(500)]
    case = Case(tmp_path, flow(AGENT), [{"calls": calls}, {"text": "many"}])

    assert case.run().outputs == {"answer": "many", "agent": "first"}
    assert case.called == [f"add {n} 1" for n in range(500)]
    answers = [one for one in case.sent(1) if one["role"] == "tool"]
    assert [one["tool_call_id"] for one in answers] == [f"c{n}" for n in range(500)]
    assert [one["content"] for one in answers] == [str(n + 1) for n in range(500)]


@pytest.mark.endurance
def test_a_hundred_agents_at_once_keep_their_conversations_apart(tmp_path: Path) -> None:
    def reply(request: ModelRequest) -> dict[str, object]:
        [_, asked, *more] = request.messages
        number = int(asked["content"])
        if not more:
            return {"calls": [call("add", f"c{number}", a=number, b=1000)]}
        return {"text": f"{number}: {more[-1]['content']}"}

    case = Case(tmp_path, flow(AGENT, "", TOGETHER), [reply] * 200)

    result = case.run()

    assert result.outputs == {"answers": [f"{n}: {n + 1000}" for n in range(100)]}
    assert sorted(case.called) == sorted(f"add {n} 1000" for n in range(100))
    assert len(case.model.requests) == 200
