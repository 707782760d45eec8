# Shows T84, V35
"""Clients that follow calls of tools over the WebSocket of the server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from flowengine import Engine
from flowengine.agents.models.registry import register, unregister
from flowengine.agents.models.scripted import ScriptedModel
from flowengine.server import rights, running, tool_socket
from flowengine.tool_environment import LocalEnvironment, MemoryClient, ToolContext, tool
from tests.agents.flows import ASKING, NAME, TOOLS, call, flow
from tests.server.api import LOCAL, OWNER, Api
from tests.server.conftest import SETTINGS
from tests.server.served import Served, until
from tests.server.test_arriving_replies import Driving
from tests.tool_environment.world import call as tool_call

AGENT = flow("first: {instructions: x, tools: [add]}", head=ASKING)
JOURNALED = (
    "call_registered", "parameters_final", "approval", "decided", "execution", "result",
)  # fmt: skip
"""Types of messages that the journal has, too."""
ONLY_HERE = ("execution", "address")
ELSEWHERE = ("number", "by", "tool", "auto_approve")
"""Fields that differ, or that only the program has."""


@tool
def work(n: int, ctx: ToolContext) -> int:
    """Work."""
    ctx.report(f"{n} begun")
    return n


@pytest.fixture
def served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Served]:
    """A server. The parameter is the seconds after which it cuts off a reader."""
    monkeypatch.setattr(running, "READER_SECONDS", getattr(request, "param", 60))
    config = tmp_path / "config/flowengine"
    config.mkdir(parents=True)
    (config / "settings.yaml").write_text(SETTINGS)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tools.py").write_text(TOOLS)
    calls = [call("add", "c1", a=1, b=2), call("add", "c2", a=3, b=4)]
    register(NAME, ScriptedModel([{"calls": calls}, {"text": "done"}]))
    served = Served(Api(tmp_path, (AGENT,)))
    yield served
    served.close()
    unregister(NAME)


class Connection:
    """A client, and the messages that it has received."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.messages: list[dict[str, Any]] = []

    async def send(self, **message: Any) -> None:
        await self.socket.send_str(json.dumps(message))

    async def read(self, kind: str) -> dict[str, Any]:
        """Return the next message of a kind. Those before it are noted."""
        while True:
            message: dict[str, Any] = json.loads(await self.socket.receive_str(timeout=60))
            if "number" in message:
                self.messages.append(message)
            if message["type"] == kind:
                return message

    async def decide(self, id: str, decision: Any, **more: Any) -> dict[str, Any]:
        """Decide about a call, and return the answer."""
        await self.send(type="decide", tool_call_id=id, decision=decision, **more)
        while True:
            message: dict[str, Any] = json.loads(await self.socket.receive_str(timeout=60))
            if message["type"] in ("accepted", "refused"):
                return message
            self.messages.append(message)

    async def rest(self) -> int | None:
        """Read all that follows, and return the code with which the connection is closed."""
        async for message in self.socket:
            if message.type is aiohttp.WSMsgType.TEXT:  # the last one may be cut
                self.messages.append(json.loads(message.data))
        return self.socket.close_code


@asynccontextmanager
async def connected(served: Served, token: str = LOCAL, **opened: Any) -> AsyncIterator[Connection]:
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{served.url}/tools", protocols=("flowengine.tools",)) as socket,
    ):
        connection = Connection(socket)
        if opened:
            await connection.send(type="open", token=token, **opened)
        yield connection


def of_journal(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages without what only a program or only a server has."""
    return [
        {name: value for name, value in one.items() if name not in (*ONLY_HERE, *ELSEWHERE)}
        for one in messages
        if one["type"] in JOURNALED
    ]


def test_a_client_follows_the_calls_of_a_program_and_answers_with_the_same_messages(
    served: Served, tmp_path: Path
) -> None:
    memory = MemoryClient()

    async def main() -> None:
        with Engine(tmp_path / "store", durability="none", user=OWNER) as engine:
            env = LocalEnvironment(engine=engine, execution_id="order-7")
            env.set_client(memory)
            await env.register_tool(work)
            async with connected(served, task="order-7") as client:
                assert client.socket.protocol == "flowengine.tools"
                for number, decision in enumerate(DECISIONS):
                    running = asyncio.ensure_future(
                        env.execute_tool(tool_call("work", f"c{number}", n=number))
                    )
                    asked = await client.read("approval")
                    assert asked["tool_call_id"] == f"c{number}"
                    assert (await decide(client, f"c{number}", decision))["type"] == "accepted"
                    await running
                    await client.read("result")
                known = of_journal(memory.messages)
                told = [one["tool_call_id"] for one in known if one["type"] == "decided"]
                assert told == ["c0"]  # a program is not told what others decide
                assert known == [
                    one
                    for one in of_journal(client.messages)
                    if one["type"] != "decided" or one["tool_call_id"] in told
                ]
                decided = [one for one in client.messages if one["type"] == "decided"]
                assert [one["decision"] for one in decided] == ["approve", "reject", "edit"]
                assert {one["by"] for one in decided} == {OWNER}
                executions = {one["execution"] for one in client.messages}
                assert executions == {f"order-7.c{number}.0000" for number in range(3)}
            await env.dispose()

    async def decide(client: Connection, id: str, decision: Any) -> dict[str, Any]:
        if id != "c0":
            return await client.decide(id, decision)
        assert memory.link is not None
        return memory.link.receive({"type": "decide", "tool_call_id": id, "decision": decision})

    asyncio.run(main())
    [_, first, *_] = reversed(served.api.engine.executions.list().items)
    events = list(served.api.engine.executions.events(first["execution"]))
    assert [one["via"] for one in events if one["type"] == "decided"] == ["websocket"]


DECISIONS: list[Any] = [
    {"approved": True, "feedback": "go"},
    {"approved": False, "feedback": "no"},
    {"approved": True, "decision": "edit", "args": {"n": 5}},
]


def test_a_lost_connection_loses_nothing_and_an_agents_calls_wait_for_their_decisions(
    served: Served, tmp_path: Path
) -> None:
    id = served.api.engine.run("flow0.yaml").execution
    first, second = "ask/first.calls[1]/add", "ask/first.calls[2]/add"

    async def main() -> list[dict[str, Any]]:
        async with connected(served, execution=id) as lost:
            while len([one for one in lost.messages if one["type"] == "approval"]) < 2:
                await lost.read("approval")
            assert not (tmp_path / "called.txt").exists()
            assert (await lost.decide(first, {"approved": False}))["type"] == "accepted"
        await asyncio.to_thread(Driving(tmp_path, id).end)
        after = {id: lost.messages[-1]["number"]}
        async with connected(served, execution=id, after=after) as again:
            await again.read("result")
            assert (await again.decide(second, {"approved": True}))["type"] == "accepted"
            await asyncio.to_thread(Driving(tmp_path, id).end)
            assert await again.rest() == 1000
        return lost.messages + again.messages

    messages = asyncio.run(main())
    assert [one["number"] for one in messages] == list(range(1, len(messages) + 1))
    results = {one["tool_call_id"]: one["result"] for one in messages if one["type"] == "result"}
    assert (results[first]["status"], results[first]["ran"]) == ("rejected", "no")
    assert (results[second]["content"], results[second]["success"]) == (7, True)
    assert (tmp_path / "called.txt").read_text() == "add 3 4\n"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Host": "evil.example"}, 421),
    ],
)
def test_another_origin_is_refused_before_any_message(
    served: Served, headers: dict[str, str], status: int
) -> None:
    async def main() -> None:
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.WSServerHandshakeError) as raised:
                await session.ws_connect(f"{served.url}/tools", headers=headers)
            assert raised.value.status == status
            with pytest.raises(aiohttp.WSServerHandshakeError) as raised:
                await session.ws_connect(f"{served.url}/v1/me")
            assert raised.value.status == 403
            async with session.ws_connect(f"{served.url}/tools", origin=served.url) as own:
                await own.send_str("")
                assert json.loads(await own.receive_str())["type"] == "refused"

    asyncio.run(main())
    audit = served.api("GET", "/v1/audit")["items"]
    assert [one["status"] for one in audit if one["path"] == "/tools"] == [400, status]


OPENED: list[tuple[Any, str]] = [
    ({"type": "open", "token": "fe_wrong", "execution": "x"}, "token"),
    ({"type": "open", "execution": "x"}, "token"),
    ({"type": "open", "token": LOCAL}, "either"),
    ({"type": "open", "token": LOCAL, "execution": "x", "task": "y"}, "either"),
    ({"type": "open", "token": LOCAL, "execution": "nowhere"}, "nowhere"),
    ({"type": "open", "token": LOCAL, "execution": "x", "more": 1}, "not valid"),
    ({"type": "decide", "tool_call_id": "c1", "decision": True}, "not valid"),
    ("[", "not valid"),
]


@pytest.mark.parametrize(("message", "why"), OPENED)
def test_what_begins_otherwise_is_refused_and_sees_nothing(
    served: Served, message: Any, why: str
) -> None:
    async def main() -> None:
        async with connected(served) as client:
            text = message if isinstance(message, str) else json.dumps(message)
            await client.socket.send_str(text)
            assert await client.rest() == 1008
            [refused] = client.messages
            assert refused["type"] == "refused"
            assert why in refused["message"]

    asyncio.run(main())


def test_rights_are_those_of_the_routes(served: Served) -> None:
    api = served.api
    id = api.engine.run("flow0.yaml").execution
    viewer = api.token("user:vera", "viewer")
    reader = api.token(OWNER, "viewer", content=True)
    other = api.token("user:cora")  # sees another flow only

    async def main() -> None:
        for token, code in ((viewer, "not_allowed"), (other, "unknown_call")):
            async with connected(served, token, execution=id) as client:
                assert (await client.read("refused"))["code"] == code
                assert client.messages == []
        async with connected(served, reader, execution=id) as client:
            await client.read("approval")
            first = client.messages[0]["tool_call_id"]
            assert (await client.decide(first, True))["code"] == "not_allowed"
        async with connected(served, execution=id) as client:
            await client.read("approval")
            for message, code in (
                ({"tool_call_id": "none", "decision": True}, "unknown_call"),
                ({"tool_call_id": first, "decision": 7}, "invalid_decision"),
                ({"tool_call_id": first, "decision": True, "execution": "x"}, "unknown_call"),
                ({"tool_call_id": first, "decision": True, "more": 1}, "invalid_message"),
                ({"type": "abort"}, "invalid_message"),
            ):
                await client.send(**{"type": "decide", **message})
                assert (await client.read("refused"))["code"] == code
            assert (await client.decide(first, {"approved": False, "decision": "defer"}))[
                "type"
            ] == "accepted"

    asyncio.run(main())
    assert len(api.engine.approvals.list().items) == 2
    audit = api("GET", "/v1/audit")["items"]
    refused = [(one["user"], one["status"]) for one in audit if one["path"] == "/tools"]
    assert refused == [("user:cora", 404), ("user:vera", 403)]
    assert [one["status"] for one in audit if "/decision" in one["path"]] == [403]


def test_a_revoked_token_decides_and_follows_no_longer(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = served.api
    id = api.engine.run("flow0.yaml").execution

    async def main(message: bool) -> None:
        token = api.token(OWNER)
        async with connected(served, token, execution=id) as client:
            await client.read("approval")
            api.records.revoke_token(api.records.tokens()[-1].name, 1)
            if message:
                call_id = client.messages[0]["tool_call_id"]
                assert (await client.decide(call_id, True))["code"] == "refused"
            assert await client.rest() == 1008

    asyncio.run(main(message=True))
    monkeypatch.setattr(rights, "CHECKED_EVERY", 0.0)
    asyncio.run(main(message=False))
    assert len(api.engine.approvals.list().items) == 2


def test_times_sizes_and_connections_are_bounded(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = served.api.engine.run("flow0.yaml").execution
    monkeypatch.setattr(tool_socket.CONNECTIONS, "of_user", 1)

    async def main() -> None:
        async with connected(served, execution=id) as client:
            await client.read("approval")
            async with connected(served, execution=id) as second:
                assert "has 1 connections" in (await second.read("refused"))["message"]
            await client.socket.send_str("x" * 1_100_000)
            assert await client.rest() == 1009
        monkeypatch.setattr(tool_socket, "FIRST_SECONDS", 0.05)
        async with connected(served) as silent:
            assert "in time" in (await silent.read("refused"))["message"]
            assert await silent.rest() == 1008
        monkeypatch.setattr(tool_socket, "FIRST_SECONDS", 60)
        monkeypatch.setattr(tool_socket, "LONGEST_SECONDS", 0)
        async with connected(served, execution=id) as late:
            assert await late.rest() == 1012

    asyncio.run(main())
    until(lambda: not served.server.server_state.connections)


@pytest.mark.endurance
@pytest.mark.parametrize("served", [1], indirect=True)
def test_a_client_that_does_not_read_is_cut_off(served: Served, tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text("def big(n: int) -> str:\n    return 'x' * 60_000\n")
    (tmp_path / "big.yaml").write_text(BIG)
    id = served.api.engine.run("big.yaml").execution

    async def main() -> None:
        async with connected(served, execution=id) as stuck:
            await stuck.read("call_registered")
            await asyncio.to_thread(until, lambda: not served.server.server_state.connections)
            await stuck.rest()
            assert 0 < len(stuck.messages) < 4 * 200
            assert all(one["tool_call_id"].startswith("all[") for one in stuck.messages)

    asyncio.run(main())


BIG = """
flowengine: 1
id: big
tools: {big: {python: "tools:big", effect: pure}}
steps:
  - {id: all, map: "${{ range(200) }}", call: big, with: {n: "${{ item }}"}}
"""
