"""A deeply nested question shows its path, and its answer goes only there (T90)."""

from __future__ import annotations

from pathlib import Path

from flowengine.agents.models.port import ModelRequest
from flowengine.sdk.texts.untrusted import unmarked
from tests.agents.flows import HEAD, Case, call, flow

AGENTS = """
first:
  instructions: You ask.
  tools: [ask_expert]
expert:
  description: Adds
  instructions: You add.
  tools: [add]
"""
ASKING = HEAD.replace('add: {python: "tools:add"}', 'add: {python: "tools:add", approval: ask}')
DEEP = ASKING + "  ask_expert: {agent: expert, parallel: true}\n"


def reply(request: ModelRequest) -> dict[str, object]:
    if request.agent == "first":
        answers = [one["content"] for one in request.messages if one["role"] == "tool"]
        if answers:
            return {"text": " and ".join(answers)}
        return {"calls": [call("ask_expert", f"q{n}", prompt=str(n)) for n in (1, 2)]}
    last = request.messages[-1]
    if last["role"] == "user":
        return {"calls": [call("add", "sum", a=int(last["content"]), b=10)]}
    return {"text": f"it is {last['content']}"}


# Shows T90
def test_a_question_from_deep_inside_shows_its_way_up(tmp_path: Path) -> None:
    case = Case(tmp_path, flow(AGENTS, head=DEEP), [reply] * 10)
    waits = {wait["address"]: wait for wait in case.run().waits}

    two, one = sorted(waits)
    assert one == "ask/first@1/ask_expert/expert@1/add"
    assert two == "ask/first@1/ask_expert#2/expert@1/add"
    assert [waits[one]["subject"]["a"], waits[two]["subject"]["a"]] == [1, 2]

    with case.engine_open() as engine:
        result = engine.approvals.approve(waits[two]["id"]).result
        assert result is not None
        assert [wait["address"] for wait in result.waits] == [one]
        assert case.called == ["add 2 10"]
        result = engine.approvals.reject(waits[one]["id"], comment="no").result

    assert result is not None
    assert result.status == "succeeded"
    assert result.outputs is not None
    answer = result.outputs["answer"]
    assert unmarked(answer).endswith(" and it is 12")
    assert "no" in answer
    assert case.called == ["add 2 10"]
