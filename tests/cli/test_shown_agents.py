"""What `run` and `show` print about the calls of agents."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import CommandLine

FLOW = """
flowengine: 1
id: looks
inputs: {user: {type: string}}
budget: {shared: [{key: "user:${{ inputs.user }}", tool_calls: 1}]}
tools: {look: {python: "looking:look"}}
agents: {clerk: {model: scripted/looks.replies.yaml, instructions: Look., tools: [look]}}
steps: [{id: answer, agent: clerk, with: {prompt: Look twice.}}]
outputs: {answer: "${{ steps.answer.output }}"}
"""
LOOKING = """
def look() -> str:
    "Look."
    return "first line\\nsecond line"
"""
REPLIES = "- calls: [{name: look}]\n- calls: [{name: look}]\n- Done.\n"


def test_a_refused_call_of_an_agent_names_its_budget_and_a_result_is_printed_once(
    flowengine: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "looks.yaml").write_text(FLOW)
    (tmp_path / "looking.py").write_text(LOOKING)
    (tmp_path / "looks.replies.yaml").write_text(REPLIES)

    run = flowengine("run", "looks.yaml", "-i", "user=ana", "--id", "x1", code=1)
    call = flowengine("show", "x1", "--step", "answer/clerk@1/look")
    turn = flowengine("show", "x1", "--step", "answer/clerk@1")

    assert "usage       flowengine budgets user:ana" in run.err
    assert "usage       flowengine budgets user:ana" in flowengine("show", "x1").out
    assert "output      first line\n  | second line\n" in call.out
    assert call.out.count("second line") == 1
    assert "output      {" in turn.out
