"""Programs that decide on calls in place of a human. Undecided calls wait."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.sdk.tools.tool_calls import ToolCall
from flowengine.tool_environment import CallbackAuthority

FLOW = """
flowengine: 1
id: it
secrets: {KEY: {env: SOME_KEY}}
tools:
  send:
    python: "sending:send"
    with: {key: "${{ secrets.KEY }}"}
    approval: APPROVAL
steps: [{id: a, call: send, with: {text: hello}}]
outputs: {o: "${{ steps.a.output }}"}
"""
SEND = """
def send(text: str, key: str) -> str:
    with open("sent.txt", "a") as file:
        file.write(text)
    return text.upper()
"""
pytestmark = pytest.mark.usefixtures("folder")
FILES = {"sending.py": SEND}
VARIABLES = {"SOME_KEY": "c4n4ry"}


def sent() -> str:
    return Path("sent.txt").read_text() if Path("sent.txt").exists() else ""


def test_an_execution_may_have_one_of_its_own_which_learns_what_does_not_count() -> None:
    Path("flow.yaml").write_text(FLOW.replace("APPROVAL", "{edit: true}"))
    wrong = {"approved": True, "decision": "edit", "args": {"text": 7, "key": "***"}}
    refused: list[str] = []

    def asked(answer: Any) -> Any:
        return lambda call, preview: CallbackAuthority(lambda call: answer).approve_tool(call)

    nobody = CallbackAuthority(lambda call: False)
    with Engine("store", tool_authority=nobody) as engine:
        with engine.approvals.consulting("own", asked(True)):
            assert engine.run("flow.yaml", id="own").status == "succeeded"
            assert engine.run("flow.yaml", id="other").status == "failed"
        with engine.approvals.consulting(
            "third", asked(wrong), lambda error: refused.append(str(error))
        ):
            assert engine.run("flow.yaml", id="third").status == "waiting"
        assert engine.run("flow.yaml", id="fourth").status == "failed"
    assert sent() == "hello"
    [why] = refused
    assert "'text'" in why


def test_one_of_an_execution_is_asked_again_and_is_ended_when_somebody_else_decides() -> None:
    Path("flow.yaml").write_text(FLOW.replace("APPROVAL", "ask"))
    with Engine("store") as engine:
        [wait] = engine.run("flow.yaml", id="it").waits
    ended: list[str] = []

    async def hangs(call: ToolCall, preview: Any) -> Any:
        try:
            with Engine("store") as other:
                await other.approvals.approve_async(call.tool_call_id, resume=False)
            await asyncio.Event().wait()
        finally:
            ended.append(call.tool_call_id)

    async def later() -> None:
        with Engine("store") as engine, engine.approvals.consulting("it", hangs):
            assert (await engine.resume_async("it")).status == "succeeded"

    asyncio.run(later())
    assert ended == [wait["id"]]
    assert sent() == "hello"
