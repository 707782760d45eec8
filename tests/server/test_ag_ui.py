# Shows V40
"""Agents of flows for front ends that speak AG-UI, checked with the models of its package."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic import TypeAdapter

from flowengine.agents.models.registry import register, unregister
from flowengine.agents.models.scripted import ScriptedModel
from flowengine.errors import NotAllowed
from flowengine.server import ag_ui, rights
from flowengine.server.talks import Talk
from tests.agents.flows import BEGIN, HEAD, NAME, TOOLS, call, flow
from tests.replacing import Limits
from tests.server.api import HOST, LOCAL, OWNER, Api
from tests.server.mcp import drive

ASKING = HEAD.replace('{python: "tools:add"}', '{python: "tools:add", approval: ask}')
TWO = """
first: {instructions: You add., tools: [add], handoffs: [second]}
second: {instructions: You answer.}
"""
CHAT = """
steps: [{id: talk, agent: {name: first, chat: true}}]
outputs: {said: "${{ steps.talk.output }}"}
"""
SCRIPT: list[Any] = [
    {"text": "I add", "reasoning": "one and two", "calls": [call("add", "c1", a=1, b=2)]},
    {"calls": [call("transfer_to_second", "c2")]},
    {"text": "It is 3"},
    {"text": "Bye"},
]


@pytest.fixture
def flows(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "tools.py").write_text(TOOLS)
    return (flow(TWO, CHAT, ASKING),)


@pytest.fixture
def api(api: Api) -> Iterator[Api]:
    register(NAME, ScriptedModel(SCRIPT))
    yield api
    unregister(NAME)


def response(api: Api, body: Any, token: str = LOCAL, flow: str = "f") -> httpx2.Response:
    """Return the answer of a new server over the store, whose executions are driven."""

    async def send() -> httpx2.Response:
        application = api.new_application(api.records)
        worker = asyncio.create_task(drive(api))
        transport = httpx2.ASGITransport(app=application.asgi)
        headers = {"authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(transport=transport, base_url=f"http://{HOST}") as one:
            answer = await one.post(f"/ag-ui/{flow}", json=body, headers=headers, timeout=60)
        application.close()
        worker.cancel()
        with suppress(asyncio.CancelledError):
            await worker
        return answer

    return asyncio.run(send())


def run(
    api: Api, message: str | None = None, token: str = LOCAL, flow: str = "f", **more: Any
) -> list[Any]:
    """Return the events of a run, which must be valid."""
    from ag_ui.core import Event, RunAgentInput  # here, so that other processes do not load it

    events: TypeAdapter[Any] = TypeAdapter(Event)
    messages = [] if message is None else [{"id": "m", "role": "user", "content": message}]
    body = {"threadId": "t", "runId": "r", "messages": messages, **more}
    RunAgentInput.model_validate(body)
    answer = response(api, body, token, flow)
    assert answer.status_code == 200, answer.text
    lines = [line for line in answer.text.splitlines() if line.startswith("data: ")]
    return [events.validate_json(line.removeprefix("data: ")) for line in lines]


def kinds(events: list[Any]) -> list[str]:
    return [event.type.value for event in events]


@pytest.mark.endurance
def test_a_conversation_with_tools_approvals_and_handoffs(api: Api) -> None:
    first = run(api, "What is 1 + 2?")
    assert kinds(first) == [
        "RUN_STARTED", "REASONING_START", "REASONING_MESSAGE_START", "REASONING_MESSAGE_CONTENT",
        "REASONING_MESSAGE_END", "REASONING_END", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END", "TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "RUN_FINISHED",
    ]  # fmt: skip
    assert (first[3].delta, first[7].delta) == ("one and two", "I add")
    assert json.loads(first[10].delta) == {"a": 1, "b": 2}
    [interrupt] = first[-1].outcome.interrupts
    assert (interrupt.reason, interrupt.tool_call_id) == ("approval", "c1")
    assert interrupt.metadata["flowengine"]["subject"] == {"a": 1, "b": 2}
    assert "approve" in interrupt.response_schema["properties"]["choice"]["enum"]

    # Each run has a server of its own, so this one is after a restart.
    again = run(api)
    assert kinds(again) == ["RUN_STARTED", "RUN_FINISHED"]
    assert again[-1].outcome.interrupts == [interrupt]
    left = run(api, resume=[{"interruptId": interrupt.id, "status": "cancelled"}])
    assert left[-1].outcome.interrupts == [interrupt]
    bad = run(api, resume=[{"interruptId": interrupt.id, "status": "resolved", "payload": "yes"}])
    assert (kinds(bad)[-1], bad[-1].code) == ("RUN_ERROR", "InputError")

    payload = {"choice": "approve"}
    resume = {"interruptId": interrupt.id, "status": "resolved", "payload": payload}
    second = run(api, resume=[resume])
    shown = {event.type.value: event for event in second}
    results = [one for one in second if one.type.value == "TOOL_CALL_RESULT"]
    assert (results[0].tool_call_id, results[0].content) == ("c1", "3")
    assert (shown["CUSTOM"].name, shown["CUSTOM"].value["to"]) == ("handoff", "second")
    assert shown["TEXT_MESSAGE_CONTENT"].delta == "It is 3"
    assert second[-1].outcome.type == "success"
    assert api.engine.approvals.show(interrupt.id)["decision"]["via"] == "ag-ui"

    third = run(api, "Thanks")
    assert [event.delta for event in third if hasattr(event, "delta")] == ["Bye"]
    assert run(api, "")[-1].result == {"said": "Bye"}
    assert len(api.engine.executions.list().items) == 1


def test_a_thread_belongs_to_its_user_and_needs_rights(api: Api) -> None:
    [interrupt] = run(api, "What is 1 + 2?")[-1].outcome.interrupts
    ada = api.token("user:ada")
    run(api, "Hi", ada)  # the same id of a thread is another thread
    assert len(api.engine.executions.list().items) == 2
    resume = {"interruptId": interrupt.id, "status": "resolved", "payload": {"choice": "approve"}}
    stolen = run(api, token=ada, resume=[resume])
    assert "not an open interrupt of this thread" in stolen[-1].message
    assert api.engine.approvals.show(interrupt.id)["status"] == "pending"
    viewer = run(api, "Hi", api.token("user:vera"))
    assert (kinds(viewer)[-1], viewer[-1].code) == ("RUN_ERROR", "NotAllowed")
    assert len(api.engine.executions.list().items) == 2


def test_the_next_message_is_that_of_the_conversations_user_in_every_door(api: Api) -> None:
    register(NAME, ScriptedModel([{"text": "It is 42"}, {"text": "Bye"}]))
    run(api, "Hi", ada := api.token("user:ada"))
    [execution] = api.engine.executions.list().items
    path, ben = f"/v1/executions/{execution['execution']}", api.token("user:ben")
    [wait] = api("GET", path, token=ada)["waits"]
    assert (wait["title"], wait["assignees"]) == ("It is 42", ["user:ada"])
    for answer in (api("GET", path, token=ben), api("GET", "/v1/approvals", token=ben)):
        assert "It is 42" not in str(answer)
    body = {"choice": "answer", "form": {"answer": "Ignore ada"}}
    for token in (ben, LOCAL):
        api("POST", f"/v1/approvals/{wait['id']}/decision", body, token=token, code=403)
    with pytest.raises(NotAllowed, match="assignees are user:ada"):
        api.engine.approvals.decide(wait["id"], "answer", form={"answer": "Ignore ada"})
    operator = api.token("user:otto")  # forks it twice, and remains no part of the conversation
    for _ in range(2):
        copy = api("POST", f"{path}/fork", {"from_step": wait["address"]}, token=operator)
        path = f"/v1/executions/{copy['execution']}"
        [asked] = api("GET", path)["waits"]
        assert asked["assignees"] == ["user:ada"]
    assert [event.delta for event in run(api, "Thanks", ada) if hasattr(event, "delta")] == ["Bye"]


def test_what_is_not_a_run_is_refused(api: Api) -> None:
    body = {"threadId": "t", "runId": "r", "messages": []}
    assert response(api, body, "fe_wrong").status_code == 401
    assert response(api, {"threadId": "t"}).status_code == 422
    assert response(api, [1]).status_code == 422
    marked = ("\ufeff" + json.dumps(body).replace('"r"', '"\\ud83d"')).encode()
    headers = {"content-type": "application/json"}
    read = api.response("POST", "/ag-ui/none", content=marked, headers=headers)
    assert "no flow 'none' is deployed" in read.text
    assert api.response("GET", "/ag-ui/f").status_code == 405
    assert api.response("POST", "/ag-ui/f", content=b"{}").status_code == 415
    refused = api("GET", "/v1/audit?limit=1")["items"][0]
    assert (refused["status"], refused["user"]) == (415, OWNER)
    none = response(api, body, flow="none").text
    assert "RUN_ERROR" in none
    assert "no flow 'none' is deployed" in none
    inputs = run(api, forwardedProps={"inputs": {"q": 7}})
    assert inputs[-1].code == "InputError"


def test_a_missing_package_is_named(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "flowengine.server.ag_ui")
    monkeypatch.setitem(sys.modules, "ag_ui.core", None)
    refused = api("POST", "/ag-ui/f", {}, code=501)
    assert "needs the package ag_ui" in refused["detail"]
    assert refused["hint"] == "pip install 'flowengine[ag-ui]'"


def test_a_run_that_takes_long_ends_and_the_next_one_continues(api: Api, limits: Limits) -> None:
    limits(ag_ui, LONGEST_SECONDS=0.0)
    assert run(api, "What is 1 + 2?")[-1].code == "Late"


def test_a_run_ends_with_its_token(
    api: Api, monkeypatch: pytest.MonkeyPatch, limits: Limits
) -> None:
    token, read = api.token(OWNER), Talk.read

    async def revoked(talk: Talk) -> Any:
        parts = await read(talk)
        limits(rights, CHECKED_EVERY=0.0)
        api.records.revoke_token(api.records.tokens()[-1].name, 1)
        return parts

    monkeypatch.setattr(Talk, "read", revoked)
    events = run(api, "What is 1 + 2?", token)
    assert kinds(events) == ["RUN_STARTED", "RUN_ERROR"]
    assert "revoked" in events[-1].message


class Waiting(ScriptedModel):
    """Sends the first parts of its reply, and completes it only later."""

    async def complete(self, request: Any, listen: Any = None) -> Any:
        parts: list[Any] = []
        reply = await super().complete(request, parts.append)
        if listen is not None:
            for part in parts:
                listen(part)
                await asyncio.sleep(0.2 if part.kind == "text" else 0)
        return reply


def test_text_is_sent_as_it_is_written(api: Api) -> None:
    unregister(NAME)
    text = "A long answer that comes in several pieces, one after the other, and has an end."
    register(NAME, Waiting([{"text": text}]))
    events = run(api, "Tell me")
    pieces = [event.delta for event in events if event.type.value == "TEXT_MESSAGE_CONTENT"]
    assert "".join(pieces) == text
    assert len(pieces) > 1
    assert [kind for kind in kinds(events) if kind != "TEXT_MESSAGE_CONTENT"] == [
        "RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_END", "RUN_FINISHED",
    ]  # fmt: skip


def test_an_answer_is_sent_once_it_has_passed_the_checks_beside_it(
    api: Api, tmp_path: Path
) -> None:
    check = "def polite(answer: str) -> None:\n    assert 'damn' not in answer\n"
    (tmp_path / "tools.py").write_text(check)
    head = f'{BEGIN}tools:\n  polite: {{python: "tools:polite", effect: pure}}\n'
    text = flow("first: {instructions: x, checks: [{after: polite, parallel: true}]}", CHAT, head)
    (tmp_path / "checked.yaml").write_text(text.replace("id: f\n", "id: checked\n"))
    api.engine.flows.deploy(tmp_path / "checked.yaml")
    replies = [{"text": "damn", "reasoning": "dark"}, {"text": "Kind.", "reasoning": "fine"}]
    register(NAME, ScriptedModel(replies))
    assert [event.delta for event in run(api, "Hi", flow="checked") if hasattr(event, "delta")] == [
        "fine", "Kind.",
    ]  # fmt: skip
