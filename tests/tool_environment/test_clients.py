"""Clients that follow calls."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from flowengine.tool_environment import (
    Link,
    LocalEnvironment,
    MemoryClient,
    RegistrationError,
    ToolContext,
    tool,
)
from tests.tool_environment.world import Seen, call, echo, made, until


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


# Shows T83
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
        ({"type": "decide", "tool_call_id": 7, "decision": {"approved": True}}, "unknown_call"),
        ({"type": "abort"}, "invalid_message"),
        ({"type": "execute", "tool_call_id": "1"}, "invalid_message"),
    ],
)
# Shows T83
async def test_messages_that_are_wrong_change_nothing(message: Any, code: str) -> None:
    env = LocalEnvironment()
    env.set_client(MemoryClient())
    await env.register_tool(echo)
    running = asyncio.ensure_future(env.execute_tool(call("echo", "1", text="a")))
    await until(env.questions)
    assert Link(env).receive(message)["code"] == code
    assert len(env.questions()) == 1
    env.abort_step()
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
