"""Calls that discover a target needing approval while they run: it is shown and decided on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.cli import main
from flowengine.sdk.tool_calls import ApprovalResponse, ToolCall
from flowengine.tool_environment.observers import CallbackAuthority

ACTS = """
from pathlib import Path
from flowengine.sdk import NeedsApproval

def act(n: int) -> str:
    to = Path("to.txt").read_text()
    if Path("ask.txt").exists():
        Path("ask.txt").unlink()
        raise NeedsApproval({"action": "send a letter", "target": {"to": to}})
    Path("sent.txt").write_text(to)
    return to

def wrong(n: int) -> str:
    error = NeedsApproval({"action": "x", "target": {}})
    error.data = {"found": "nothing"}
    raise error
"""
FLOW = """
flowengine: 1
id: it
tools: {act: {python: "acts:FUNCTION", effect: EFFECTAPPROVAL}}
steps: [{id: a, call: act, with: {n: 1}}]
outputs: {o: "${{ steps.a.output }}"}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    Path("acts.py").write_text(ACTS)
    Path("to.txt").write_text("ana")


def flow(function: str = "act", effect: str = "once", approval: str = "") -> str:
    text = FLOW.replace("FUNCTION", function).replace("EFFECT", effect)
    Path("flow.yaml").write_text(text.replace("APPROVAL", approval))
    Path("ask.txt").touch()
    return "flow.yaml"


def approved(engine: Engine, wait: Any, **how: Any) -> Any:
    result = engine.approve(wait["id"], **how).result
    assert result is not None
    return result


@pytest.mark.parametrize("effect", ["once", "pure"])
def test_people_see_action_and_target_and_their_yes_runs_it(
    effect: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with Engine("store") as engine:
        [wait] = engine.run(flow(effect=effect)).waits
        assert wait["found"] == {"action": "send a letter", "target": {"to": "ana"}}
        assert wait["title"] == "Call 'act': send a letter?"
        assert not Path("sent.txt").exists()
        digest = wait["digest"]
    assert main(["--store", "store", "approvals", "show", wait["id"]]) == 0
    shown = capsys.readouterr().out
    assert "would do" in shown
    assert "send a letter" in shown
    with Engine("store") as engine:
        result = approved(engine, wait)
        assert result.outputs == {"o": "ana"}
        [yes] = [one for one in engine.events(result.execution) if one["type"] == "asked"]
        assert yes["found"]["target"] == {"to": "ana"}
        Path("to.txt").write_text("ben")
        Path("ask.txt").touch()
        [other] = engine.run("flow.yaml").waits
        assert other["digest"] != digest


def test_a_no_to_it_is_one() -> None:
    with Engine("store") as engine:
        [wait] = engine.run(flow()).waits
        result = engine.reject(wait["id"]).result
    assert result is not None
    assert result.error is not None
    assert result.error["type"] == "Rejected"
    assert not Path("sent.txt").exists()


def test_a_grant_answers_for_the_call_and_never_for_what_it_finds() -> None:
    with Engine("store") as engine:
        path = flow(approval=", approval: ask")
        Path("ask.txt").unlink()
        [wait] = engine.run(path).waits
        assert "found" not in wait
        assert approved(engine, wait, grant={"scope": "flow", "uses": 9}).status == "succeeded"
        assert engine.run(path).status == "succeeded"
        Path("ask.txt").touch()
        [found] = engine.run(path).waits
        assert found["found"]["action"] == "send a letter"
        assert approved(engine, found).status == "succeeded"


@pytest.mark.parametrize("rule", ["allow", "ask"])
def test_a_rule_of_the_host_decides_about_the_call_and_people_about_what_it_finds(
    rule: str,
) -> None:
    Path("config/flowengine").mkdir(parents=True)
    Path("config/flowengine/policies.yaml").write_text(f"policies:\n  - {{{rule}: '*'}}\n")
    with Engine("store") as engine:
        [wait] = engine.run(flow()).waits
        if rule == "ask":
            assert "found" not in wait
            [wait] = approved(engine, wait).waits
        assert wait["found"]["target"] == {"to": "ana"}
        assert approved(engine, wait).outputs == {"o": "ana"}


def test_a_program_that_decides_sees_it() -> None:
    asked: list[ToolCall] = []

    def callback(call: ToolCall) -> ApprovalResponse:
        asked.append(call)
        return ApprovalResponse(approved=call.found is not None)

    with Engine("store", tool_authority=CallbackAuthority(callback)) as engine:
        result = engine.run(flow())
    assert result.outputs == {"o": "ana"}
    [call] = asked
    assert call.found == {"action": "send a letter", "target": {"to": "ana"}}


def test_what_is_no_finding_is_an_error_of_the_step() -> None:
    with Engine("store") as engine:
        result = engine.run(flow("wrong"))
    assert result.error is not None
    assert result.error["type"] == "NeedsApproval"
