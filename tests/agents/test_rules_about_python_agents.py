"""Host rules and tool authorities refer to the tools of agents in Python by their names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from flowengine import Agent, Engine, Response
from flowengine.agents.models import using
from flowengine.agents.models.scripted import ScriptedModel
from flowengine.runner import MetaChain
from flowengine.sdk.tools.tool_calls import ToolCall
from flowengine.tool_environment import CallbackAuthority

paid: list[int] = []


def pay(amount: int) -> str:
    paid.append(amount)
    return "paid"


PATH = f"{pay.__module__}:pay"
ASK = [{"role": "user", "content": "Pay Bo."}]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    paid.clear()
    return tmp_path


def host(rule: str) -> None:
    path = Path("config/flowengine/rules.yaml")
    path.parent.mkdir(parents=True)
    path.write_text(f"rules:\n  - {rule}\n")


def clerk(**approvals: Any) -> Agent:
    def local(amount: int) -> str:
        paid.append(amount)
        return "done"

    made = Agent(name="Clerk", model="scripted/x", functions=[pay, local]).enable_python()
    made.approvals = approvals
    return made


def run(agent: Agent, name: str, args: Mapping[str, Any], engine: Engine) -> Response:
    script: list[dict[str, Any]] = [
        {"calls": [{"name": name, "arguments": dict(args)}]},
        {"text": "so"},
    ]
    with using(ScriptedModel(script)):
        return MetaChain(engine).run(agent, ASK)


@pytest.mark.parametrize(
    ("rule", "tool"),
    [
        ("{deny: pay}", "pay"),
        ("{deny: pay, agent: Clerk}", "pay"),
        (f"{{deny: '{PATH}'}}", "pay"),
        ("{deny: 'python:*'}", "pay"),
        ("{deny: local}", "local"),
        ("{deny: 'python:*'}", "local"),
        ("{deny: run_python}", "run_python"),
        ("{deny: std.run_python}", "run_python"),
        ("{deny: 'std:*'}", "run_python"),
    ],
)
def test_a_rule_of_the_host_holds_for_a_tool_by_each_of_its_names(rule: str, tool: str) -> None:
    host(rule)
    given = {"code": "1"} if tool == "run_python" else {"amount": 80}
    with Engine("store") as engine:
        response = run(clerk(), tool, given, engine)
    [answer] = [one for one in response.messages if one["role"] == "tool"]
    assert f"Refused: '{tool}' was not called: " in answer["content"]
    assert paid == []


@pytest.mark.parametrize("rule", ["{deny: pay, agent: Other}", "{deny: Clerk__pay}"])
def test_a_rule_about_something_else_does_not(rule: str) -> None:
    host(rule)
    with Engine("store") as engine:
        run(clerk(), "pay", {"amount": 80}, engine)
    assert paid == [80]


@pytest.mark.parametrize(
    ("tool", "names"), [("pay", [PATH, f"python:{PATH}"]), ("run_python", ["std.run_python"])]
)
def test_people_and_programs_that_decide_see_the_name_that_the_model_sees(
    tool: str, names: list[str]
) -> None:
    asked: list[ToolCall] = []

    def decide(call: ToolCall) -> dict[str, Any]:
        asked.append(call)
        return {"approved": False, "decision": "defer"}

    agent = clerk(**{tool: "ask"})
    given = {"code": "1"} if tool == "run_python" else {"amount": 80}
    with Engine("store", tool_authority=CallbackAuthority(decide, timeout=60)) as engine:
        response = run(agent, tool, given, engine)
    [wait] = response.waits
    [told] = [f"{name} {value}" for name, value in given.items()]
    assert (wait["tool"], wait["title"]) == (tool, f"Call {tool}: {told}?")
    assert [(one.tool_name, one.names) for one in asked] == [(tool, names)]
