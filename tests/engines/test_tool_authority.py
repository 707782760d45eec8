"""Programs that decide on calls in place of a human. Undecided calls wait."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.engines.results import ExecutionResult
from flowengine.errors import Conflict
from flowengine.sdk.tool_calls import ToolCall
from flowengine.tool_environment.observers import CallbackAuthority

FLOW = """
flowengine: 1
id: it
secrets: {KEY: {env: SOME_KEY}}
tools:
  send:
    python: "sending:send"
    bind: {key: "${{ secrets.KEY }}"}
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


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SOME_KEY", "c4n4ry")
    Path("sending.py").write_text(SEND)


def run(answer: Any, approval: str = "{edit: true}") -> tuple[ExecutionResult, list[ToolCall]]:
    """Run the flow. The authority returns `answer`, or raises it if it is an exception."""
    Path("flow.yaml").write_text(FLOW.replace("APPROVAL", approval))
    asked: list[ToolCall] = []

    def callback(call: ToolCall) -> Any:
        asked.append(call)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    with Engine("store", user="user:ana", tool_authority=CallbackAuthority(callback)) as engine:
        return engine.run("flow.yaml"), asked


def sent() -> str:
    return Path("sent.txt").read_text() if Path("sent.txt").exists() else ""


def test_what_it_approves_runs_once_and_it_sees_no_secret() -> None:
    result, asked = run(True)
    assert result.outputs == {"o": "HELLO"}
    assert sent() == "hello"
    assert [(call.tool_name, call.args) for call in asked] == [
        ("send", {"text": "hello", "key": "***"})
    ]
    with Engine("store") as engine:
        decision = engine.wait(asked[0].tool_call_id)["decision"]
    assert (decision["by"], decision["via"]) == ("user:ana", "callback")


def test_an_asynchronous_callback_is_asked_as_well() -> None:
    Path("flow.yaml").write_text(FLOW.replace("APPROVAL", "ask"))

    async def callback(call: ToolCall) -> bool:
        return bool(call.args["text"] == "hello")

    with Engine("store", tool_authority=CallbackAuthority(callback)) as engine:
        assert engine.run("flow.yaml").status == "succeeded"


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (None, "NoneType is not a decision"),
        ("yes", "str is not a decision"),
        (1, "int is not a decision"),
        ({}, "'approved'"),
        ({"approved": "true"}, "'approved' must be true or false"),
        (ValueError("no"), "raised ValueError: no"),
        ({"approved": True, "args": {}}, "belongs to the decision 'edit'"),
        ({"approved": True, "decision": "reject"}, "contradicts"),
        ({"approved": True, "images": [b"no image"]}, "'images.0'"),
    ],
)
def test_doubt_means_no(answer: Any, cause: str) -> None:
    result, asked = run(answer)
    assert result.error is not None
    assert result.error["type"] == "Rejected"
    assert cause in result.error["message"]
    assert (sent(), len(asked)) == ("", 1)


def test_it_edits_and_responds_within_what_people_could() -> None:
    edit = {"approved": True, "decision": "edit", "args": {"text": "bye", "key": "***"}}
    assert run(edit)[0].outputs == {"o": "BYE"}
    respond = {"approved": False, "decision": "respond", "content": "mine"}
    assert run(respond)[0].outputs == {"o": "mine"}
    assert sent() == "bye"


@pytest.mark.parametrize(
    ("answer", "approval"),
    [
        ({"approved": False, "decision": "defer"}, "ask"),
        (True, '{assignees: ["user:ben"]}'),
        (
            {"approved": True, "decision": "edit", "args": {"text": "bye", "key": "x"}},
            "{edit: true}",
        ),
        ({"approved": True, "decision": "edit", "args": {"text": 7, "key": "***"}}, "{edit: true}"),
        ({"approved": True, "decision": "edit", "args": {"text": "x"}}, "{edit: true}"),
        ({"approved": True, "decision": "edit", "args": {"text": "x", "key": "***"}}, "ask"),
    ],
)
def test_what_it_defers_or_may_not_decide_waits_for_people(answer: Any, approval: str) -> None:
    result, asked = run(answer, approval)
    assert (result.status, sent(), len(asked)) == ("waiting", "", 1)
    with Engine("store") as other:
        done = other.approve(result.waits[0]["id"], by="user:ben").result
        with pytest.raises(Conflict):
            other.reject(result.waits[0]["id"], by="user:ben")
    assert done is not None
    assert (done.status, sent()) == ("succeeded", "hello")


def test_an_execution_may_have_one_of_its_own_which_learns_what_does_not_count() -> None:
    Path("flow.yaml").write_text(FLOW.replace("APPROVAL", "{edit: true}"))
    wrong = {"approved": True, "decision": "edit", "args": {"text": 7, "key": "***"}}
    refused: list[str] = []

    def asked(answer: Any) -> Any:
        return lambda call, preview: CallbackAuthority(lambda call: answer).approve_tool(call)

    nobody = CallbackAuthority(lambda call: False)
    with Engine("store", tool_authority=nobody) as engine:
        with engine.consulting("own", asked(True)):
            assert engine.run("flow.yaml", id="own").status == "succeeded"
            assert engine.run("flow.yaml", id="other").status == "failed"
        with engine.consulting("third", asked(wrong), lambda error: refused.append(str(error))):
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
                await other.approve_async(call.tool_call_id, resume=False)
            await asyncio.Event().wait()
        finally:
            ended.append(call.tool_call_id)

    async def later() -> None:
        with Engine("store") as engine, engine.consulting("it", hangs):
            assert (await engine.resume_async("it")).status == "succeeded"

    asyncio.run(later())
    assert ended == [wait["id"]]
    assert sent() == "hello"
