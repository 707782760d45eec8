"""Agents of flows for clients of OpenAI's API, called by its own package."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flowengine.agents.models.port import ReplyPart
from flowengine.agents.models.registry import register, unregister
from flowengine.agents.models.scripted import ScriptedModel
from flowengine.server.protocol import ProtocolLimits
from tests.agents.flows import HEAD, NAME, TOOLS, call, flow
from tests.server.api import LOCAL, Api
from tests.server.mcp import drive
from tests.server.served import Served

ASKING = HEAD.replace('{python: "tools:add"}', '{python: "tools:add", approval: ask}')
CHAT = """
steps: [{id: talk, agent: {name: first, chat: true}}]
outputs: {said: "${{ steps.talk.output }}"}
"""
LONG = "It is 3, and that is all that there is to say about one and two, which are numbers."
MORE = "I have added them with the tool, after a person had approved the call, as asked for."
WRONG = "Something else"
SCRIPT: list[Any] = [
    {"text": "I add.", "calls": [call("add", "c1", a=1, b=2)]},
    {"text": LONG, "usage": {"input_tokens": 7, "output_tokens": 5}},
    {"text": MORE},
    {"text": "Bye"},
]


class Waiting(ScriptedModel):
    """Pauses after each piece of a text."""

    async def complete(self, request: Any, listen: Any = None) -> Any:
        parts: list[Any] = []
        reply = await super().complete(request, parts.append)
        for part in parts if listen is not None else ():
            listen(part)
            await asyncio.sleep(0.1 if part.kind == "text" else 0)
        return reply


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tools.py").write_text(TOOLS)
    register(NAME, Waiting(SCRIPT))
    api = Api(tmp_path, (flow("first: {instructions: You add., tools: [add]}", CHAT, ASKING),))
    ended = threading.Event()

    async def work() -> None:
        working = asyncio.create_task(drive(api))
        await asyncio.to_thread(ended.wait)
        working.cancel()

    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    yield api
    ended.set()
    thread.join(60)
    api.engine.close()
    unregister(NAME)


class Chat:
    """A client with a server of its own."""

    def __init__(self, api: Api, token: str = LOCAL) -> None:
        import openai  # here, so that other processes do not load it

        self.served = Served(api, ProtocolLimits())
        self.client = openai.OpenAI(
            base_url=f"{self.served.url}/openai/v1",
            api_key=token,
            max_retries=0,
            default_headers={"X-Conversation": "one"},
        )

    def __enter__(self) -> Any:
        return self.client

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.served.server.should_exit = True
        self.served._thread.join(60)


def asked(text: str) -> Any:
    return [{"role": "user", "content": text}]


@pytest.mark.endurance
def test_a_conversation_with_tools_and_approvals_across_a_restart(api: Api) -> None:
    with Chat(api) as client:
        assert [model.id for model in client.models.list()] == ["f"]
        first = client.chat.completions.create(model="f", messages=asked("What is 1 + 2?"))
        text = first.choices[0].message.content
        [wait] = api.engine.approvals.list(status="pending").items
        assert text.startswith("I add.")
        assert f"/approvals/{wait['id']}" in text
        assert first.choices[0].finish_reason == "stop"
        again = client.chat.completions.create(model="f", messages=asked("And?"))
        assert wait["id"] in again.choices[0].message.content

    api.engine.approvals.approve(wait["id"])
    with Chat(api) as client:  # another server
        chunks = list(
            client.chat.completions.create(
                model="f",
                messages=[*asked("?"), {"role": "assistant", "content": text}, *asked("How?")],
                stream=True,
                stream_options={"include_usage": True},
            )
        )
        pieces = [one.choices[0].delta.content or "" for one in chunks if one.choices]
        assert "".join(pieces) == f"{LONG}\n\n{MORE}"
        deltas = [one.choices[0].delta.to_dict() for one in chunks if one.choices]
        [executed] = [tool for one in deltas for tool in one.get("executed_tools", ())]
        assert (executed["id"], executed["name"], executed["output"]) == ("c1", "add", "3")
        assert json.loads(executed["arguments"]) == {"a": 1, "b": 2}
        assert not any("tool_calls" in one for one in deltas)
        assert len([piece for piece in pieces if piece and piece in MORE]) > 1
        assert chunks[-2].choices[0].finish_reason == "stop"
        assert chunks[-1].usage.completion_tokens >= 5
        third = client.chat.completions.create(model="f", messages=asked("Thanks"))
        assert third.choices[0].message.content == "Bye"
    assert len(api.engine.executions.list().items) == 1


class Other(ScriptedModel):
    """Writes one thing, and its reply has another."""

    def __init__(self) -> None:
        super().__init__([{"text": LONG}])
        self.seen = threading.Event()

    async def complete(self, request: Any, listen: Any = None) -> Any:
        for part in (ReplyPart("start"), ReplyPart("text", WRONG), ReplyPart("end")):
            listen(part)
        assert await asyncio.to_thread(self.seen.wait, 60)
        return await super().complete(request)


@pytest.mark.endurance
def test_a_reply_that_differs_from_what_arrived_is_sent_whole(api: Api) -> None:
    unregister(NAME)
    model = Other()
    register(NAME, model)
    pieces = []
    with Chat(api) as client:
        for one in client.chat.completions.create(model="f", messages=asked("Hi"), stream=True):
            pieces.append(one.choices[0].delta.content or "")
            if WRONG in pieces[-1]:
                model.seen.set()
    assert "".join(pieces) == f"{WRONG}\n\n{LONG}"


def test_rights_and_requests_are_checked(api: Api) -> None:
    import openai

    with Chat(api, "fe_wrong") as client, pytest.raises(openai.AuthenticationError):
        client.models.list()
    viewer = api.token("user:owner", "viewer", content=True)
    refused = pytest.raises(openai.PermissionDeniedError, match="does not have the right")
    with Chat(api, viewer) as client, refused:
        client.chat.completions.create(model="f", messages=asked("Hi"))
    with Chat(api) as client:
        with pytest.raises(openai.NotFoundError, match="no flow 'none' is deployed"):
            client.chat.completions.create(model="none", messages=asked("Hi"))
        with pytest.raises(openai.UnprocessableEntityError, match="names no conversation"):
            client.chat.completions.create(
                model="f", messages=asked("Hi"), extra_headers={"X-Conversation": ""}
            )
        with pytest.raises(openai.UnprocessableEntityError, match="messages"):
            client.chat.completions.create(model="f", messages=[])
    assert api.engine.executions.list().items == []
