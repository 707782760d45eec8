"""Clients that follow calls: in memory, and over WebSocket on this machine."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from flowengine.tool_environment import (
    Link,
    LocalEnvironment,
    MemoryClient,
    RegistrationError,
    ToolContext,
    WebSocketClient,
    tool,
)
from flowengine.tool_environment import clients as feed
from flowengine.tool_environment.clients import Feed
from tests.tool_environment.world import Asked, Calls, Counting, Seen, call, echo, made, until


@tool
def work(n: int, ctx: ToolContext) -> int:
    """Work."""
    ctx.report(f"{n} begun")
    return n


class Answering(MemoryClient):
    """Answers every question."""

    def __init__(self, **decision: Any) -> None:
        super().__init__()
        self.decision = decision
        self.answers: list[dict[str, Any]] = []

    def received(self, message: dict[str, Any]) -> None:
        if message["type"] == "approval" and message["asked"]:
            assert self.link is not None
            answer = {
                "type": "decide",
                "tool_call_id": message["tool_call_id"],
                "decision": self.decision,
            }
            self.answers.append(self.link.receive(answer))


FOLLOWED = [
    "tool_registered",
    "call_registered",
    "parameters_updated",
    "parameters_final",
    "approval",
    "decided",
    "execution",
    "progress",
    "observers",
    "result",
    "disposal",
]


async def test_a_client_follows_a_call_and_answers_the_question() -> None:
    env = LocalEnvironment()
    client = Answering(approved=True, feedback="go")
    env.set_client(client)
    await env.register_tool(work)
    response = await env.execute_tool(call("work", n=1))
    assert response.status == "ok"
    await env.dispose()
    assert [each["type"] for each in client.messages] == FOLLOWED
    numbers = [each["number"] for each in client.messages]
    assert numbers == list(range(1, len(numbers) + 1))
    assert client.answers == [
        {"type": "accepted", "tool_call_id": client.messages[1]["tool_call_id"]}
    ]
    assert client.messages[5]["by"] == "client"
    assert env.client is None


async def test_a_client_that_is_set_before_a_loop_runs_follows_all_the_same() -> None:
    env = LocalEnvironment()
    client = Answering(approved=True)
    env.set_client(client)

    await env.register_tool(work)
    assert (await env.execute_tool(call("work", n=1))).status == "ok"
    await env.dispose()
    assert [each["type"] for each in client.messages] == FOLLOWED


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (None, "invalid_message"),
        ([], "invalid_message"),
        ({}, "invalid_message"),
        ({"type": "decide"}, "invalid_message"),
        ({"type": "decide", "tool_call_id": "1", "decision": {}, "more": 1}, "invalid_message"),
        ({"type": "decide", "tool_call_id": "2", "decision": {"approved": True}}, "unknown_call"),
        ({"type": "decide", "tool_call_id": "1", "decision": {"approved": 1}}, "invalid_decision"),
        ({"type": "abort", "tool_call_id": "2"}, "unknown_call"),
        ({"type": "abort", "tool_call_id": 7}, "unknown_call"),
        ({"type": "execute", "tool_call_id": "1"}, "invalid_message"),
    ],
)
async def test_messages_that_are_wrong_change_nothing(message: Any, code: str) -> None:
    env = LocalEnvironment()
    env.set_client(MemoryClient())
    await env.register_tool(echo)
    running = asyncio.ensure_future(env.execute_tool(call("echo", "1", text="a")))
    await until(env.questions)
    assert Link(env).receive(message)["code"] == code
    assert len(env.questions()) == 1
    assert Link(env).receive({"type": "abort"}) == {"type": "accepted"}
    assert (await running).status == "aborted"
    await env.dispose()


def test_what_cannot_follow_is_no_client() -> None:
    env = LocalEnvironment()

    for wrong in (7, object(), type("Silent", (), {"follow": lambda self: None})()):
        with pytest.raises(RegistrationError):
            env.set_client(wrong)
    assert env.client is None


async def test_a_client_that_fails_is_one_warning_and_changes_nothing() -> None:
    class Failing(MemoryClient):
        async def follow(self, link: Link) -> None:
            raise SystemExit("broken")

    env = await made(echo)
    seen = Seen(env)
    env.set_client(Failing(decides=False))
    for _ in range(3):
        assert (await env.execute_tool(call("echo", text="a"))).status == "ok"
    assert seen.codes() == ["client"]
    await env.dispose()


async def test_a_client_that_never_reads_slows_nothing_and_is_told_what_it_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feed, "MOST", 200)

    class Stuck(MemoryClient):
        def __init__(self) -> None:
            super().__init__(decides=False)
            self.go_on = asyncio.Event()

        async def follow(self, link: Link) -> None:
            await self.go_on.wait()
            await super().follow(link)

    @tool(name="echo", approval="none")
    async def quick_echo(text: str) -> str:
        """Return the text."""
        return text

    async def many(client: MemoryClient | None) -> int:
        env = await made(quick_echo)
        if client is not None:
            env.set_client(client)
        with Calls() as made_calls:
            for number in range(50):  # none waits for the client, which continues only after them
                await env.execute_tool(call("echo", f"{number}", text="x" * 100))
        assert len(env.feed._kept) <= 200
        assert sum(len(each.text) for each in env.feed._kept) <= 8 * 1024 * 1024
        last = env.feed.number
        if isinstance(client, Stuck):
            client.go_on.set()
            await until(lambda: client.messages and client.messages[-1]["number"] >= last)
            dropped, *rest = client.messages
            assert dropped["type"] == "dropped"
            assert dropped["count"] + len(rest) >= last
            assert rest[0]["number"] == dropped["count"] + 1
        await env.dispose()
        return made_calls.count

    without, with_one = await many(None), await many(Stuck())
    assert with_one < 1.1 * without


def test_one_message_is_bounded_whatever_is_in_it() -> None:
    feed = Feed(lambda value: value)

    feed.publish("big", text="x" * 50_000_000, data=b"\x00" * 10_000_000, odd=object())

    assert len(feed._kept[0].text) < 300_000


# WebSocket


class Connected:
    """A connection to the client, and its messages so far."""

    def __init__(self, client: WebSocketClient, after: int = 0) -> None:
        self.client = client
        self.after = after
        self.messages: list[dict[str, Any]] = []

    async def __aenter__(self) -> Connected:
        url = await self.client.url()
        self.session = aiohttp.ClientSession()
        self.socket = await self.session.ws_connect(
            f"{url}?after={self.after}",
            headers={"Authorization": f"Bearer {self.client.token}"},
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.session.close()

    async def read(self, kind: str) -> dict[str, Any]:
        """Read until a message of a kind arrives."""
        while True:
            message: dict[str, Any] = json.loads(await self.socket.receive_str())
            if "number" in message:
                self.messages.append(message)
            if message["type"] == kind:
                return message

    async def rest(self) -> None:
        async for message in self.socket:
            self.messages.append(json.loads(message.data))

    async def send(self, **message: Any) -> None:
        await self.socket.send_str(json.dumps(message))


async def test_over_websocket_come_the_same_messages() -> None:
    env = LocalEnvironment()
    client = WebSocketClient()
    env.set_client(client)
    await env.register_tool(work)
    async with Connected(client) as one, Connected(client) as other:
        running = asyncio.ensure_future(env.execute_tool(call("work", "1", n=1)))
        await one.read("approval")
        await one.socket.send_str("no json")
        assert (await one.read("refused"))["code"] == "invalid_message"
        await one.send(type="decide", tool_call_id="1", decision={"approved": True})
        assert (await running).status == "ok"
        await one.read("disposal")
        seen = asyncio.ensure_future(other.rest())
        await env.dispose()
        await seen
        assert [each["type"] for each in one.messages] == FOLLOWED
        assert other.messages == one.messages
        assert one.messages[5]["by"] == "websocket"


@pytest.mark.parametrize(
    ("headers", "protocols", "status"),
    [
        ({}, (), 401),
        ({"Authorization": "Bearer wrong"}, (), 401),
        ({"Authorization": "Basic right"}, (), 401),
        ({}, ("flowengine.tools", "token.wrong"), 401),
        ({"Authorization": "Bearer right", "Origin": "https://evil.example"}, (), 403),
        ({"Authorization": "Bearer right", "Origin": "null"}, (), 403),
    ],
)
async def test_a_wrong_origin_or_token_is_refused_before_any_message(
    headers: dict[str, str], protocols: tuple[str, ...], status: int
) -> None:
    env = await made(echo)
    client = WebSocketClient(token="right", origins=["https://desk.example"])
    env.set_client(client)
    url = await client.url()
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as raised:
            await session.ws_connect(url, headers=headers, protocols=protocols)
        assert raised.value.status == status
        with pytest.raises(aiohttp.WSServerHandshakeError) as raised:
            await session.ws_connect(f"{url}?after=x", headers={"Authorization": "Bearer right"})
        assert raised.value.status == 400
        page = {"Origin": "https://desk.example"}
        mine = ("flowengine.tools", "token.right")
        async with session.ws_connect(url, headers=page, protocols=mine) as socket:
            assert socket.protocol == "flowengine.tools"
            assert json.loads(await socket.receive_str())["type"] == "tool_registered"
    await env.dispose()


async def test_a_lost_connection_loses_nothing(tmp_path: Path) -> None:
    count = Counting(tmp_path)
    env = LocalEnvironment()
    client = WebSocketClient()
    env.set_client(client)
    await env.register_tool(count.tool)
    async with Connected(client) as first:
        running = asyncio.ensure_future(env.execute_tool(call("count", "1")))
        await first.read("approval")
        assert first.socket._response.connection is not None
        transport = first.socket._response.connection.transport
        assert transport is not None
        transport.abort()  # broken without a close frame
    await env.register_tool(echo)  # sent while disconnected
    assert [each.tool_call_id for each in env.questions()] == ["1"]
    assert count.n == 0
    async with Connected(client, after=first.messages[-1]["number"]) as second:
        assert (await second.read("tool_registered"))["tool_name"] == "echo"
        await second.send(type="decide", tool_call_id="1", decision={"approved": True})
        await second.read("disposal")
        assert (await running).status == "ok"
        numbers = [each["number"] for each in [*first.messages, *second.messages]]
        assert numbers == list(range(1, len(numbers) + 1))
    assert count.n == 1
    await env.dispose()


@pytest.mark.endurance
async def test_a_connection_that_never_reads_slows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "LARGEST", 1024 * 1024)

    env = await made(echo, callback=Asked())
    client = WebSocketClient()
    env.set_client(client)
    async with Connected(client) as stuck:
        for number in range(100):  # more than the buffers of a connection hold
            response = await env.execute_tool(call("echo", f"{number}", text="x" * 50_000))
            assert response.status == "ok"
        await stuck.read("dropped")
        await env.dispose()
