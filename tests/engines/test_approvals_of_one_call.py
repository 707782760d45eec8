"""An approval covers a single call of a step, for programs and without a terminal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from flowengine import Engine
from flowengine.sdk.tools.tool_calls import ApprovalResponse, ToolCall
from flowengine.tool_environment import CallbackAuthority

FLOW = """
flowengine: 1
id: it
tools: {send: {python: "sending:send", approval: APPROVAL}}
steps:
  - id: a
    call: send
    with: {texts: ["${{ 'round ' + string(round.number) }}"]}
    loop: {until: "${{ round.number >= 2 }}", max: 2}
"""
SEND = """
def send(texts: list[str]) -> str:
    with open("sent.txt", "a") as file:
        file.write(f"{texts[0]};")
    return texts[0]
"""
pytestmark = pytest.mark.usefixtures("folder")
FILES = {"sending.py": SEND}


def write(approval: str) -> str:
    Path("flow.yaml").write_text(FLOW.replace("APPROVAL", approval))
    return "flow.yaml"


def sent() -> str:
    return Path("sent.txt").read_text() if Path("sent.txt").exists() else ""


# Shows T36
def test_what_a_program_approved_runs_whatever_it_changes_and_other_arguments_are_asked_anew() -> (
    None
):
    asked: list[ToolCall] = []

    def callback(call: ToolCall) -> ApprovalResponse:
        asked.append(call)
        call.args["texts"][0] = "something else"
        call.args["more"] = 1
        return ApprovalResponse(approved=True)

    with Engine("store", tool_authority=CallbackAuthority(callback)) as engine:
        result = engine.run(write("ask"))
        assert result.status == "succeeded", result.error
        engine.resume(result.execution)
    assert sent() == "round 1;round 2;"
    assert len(asked) == 2


@pytest.mark.endurance
@pytest.mark.parametrize("approval", ["required", "ask"])
# Shows T47
def test_without_a_terminal_a_call_waits(approval: str) -> None:
    """No setting, rule or missing terminal approves a tool that requires a human decision."""
    Path("config/flowengine").mkdir(parents=True)
    tool = "send" if approval == "required" else "other"
    Path("config/flowengine/rules.yaml").write_text(f"rules: [{{allow: {tool}}}]\n")
    command = [sys.executable, "-m", "flowengine", "--store", "store", "run", write(approval)]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 4, done.stderr
    assert sent() == ""
    assert "Call send?" in done.stderr
    with Engine("store") as engine:
        [wait] = engine.approvals.list().items
        assert wait.get("required", False) is (approval == "required")
        engine.approvals.approve(wait["id"], resume=False)
        engine.resume(wait["execution"])
        assert sent() == "round 1;"
