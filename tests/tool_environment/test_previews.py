"""Previews of calls, shown with the approval."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from flowengine import Engine
from flowengine.sdk.tools.tool_calls import ApprovalResponse
from flowengine.tool_environment import RegistrationError, Tool, tool
from flowengine.tool_environment.tools import define
from tests.tool_environment.world import Asked, Seen, call, made, until


def told(args: dict[str, Any]) -> str:
    return f"+{args['text']}"


class Put(Tool):
    """Puts a text."""

    def execute(self, text: str) -> str:
        """Put a text."""
        return text

    def preview(self, args: dict[str, Any]) -> str:
        """Return the preview."""
        return f"+{args['text']}"


def with_preview(preview: Any) -> Any:
    @tool(name="put", preview=preview)
    def put(text: str) -> str:
        """Put a text."""
        return text

    return put


@pytest.mark.parametrize("source", [with_preview(told), Put])
# Shows T50
async def test_whoever_is_asked_sees_it_and_so_do_clients(source: Any) -> None:
    asked = Asked()
    async with await made(source, callback=asked) as env:
        seen = Seen(env)
        one = call("put", text="hello")
        assert (await env.execute_tool(one)).status == "ok"
        [question] = asked.calls
        assert question.preview == "+hello"
        [message] = seen.of("preview")
        assert (message["preview"], message["note"]) == ("+hello", None)
        types = seen.types(one.tool_call_id)
        assert types.index("approval") < types.index("preview") < types.index("decided")


async def test_approvers_in_other_processes_see_it_with_secrets_masked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TOKEN", "c4n4ry")
    defer = Asked({"approved": False, "decision": "defer"})
    options: Any = {"callback": defer, "secrets": {"TOKEN": {"env": "TOKEN"}}}

    with Engine(None) as engine:
        source = with_preview(lambda args: f"+{args['text']} by c4n4ry")
        async with await made(source, engine=engine, execution_id="x", **options) as env:
            working = asyncio.ensure_future(env.execute_tool(call("put", text="hello")))
            await until(lambda: defer.calls)
            [wait] = engine.approvals.list().items
            assert wait["preview"] == defer.calls[0].preview == "+hello by ***"
        assert (await working).error is not None


async def test_one_that_hangs_delays_no_decision_of_a_client() -> None:
    begun, over = threading.Event(), threading.Event()

    def hangs(args: dict[str, Any]) -> str:
        begun.set()
        over.wait()
        return ""

    asked = Asked()
    async with await made(with_preview(hangs), callback=asked) as env:
        one = call("put", text="hello")
        working = asyncio.ensure_future(env.execute_tool(one))
        await until(begun.is_set)
        env.decide(one.tool_call_id, ApprovalResponse(approved=True), by="client")
        assert (await working).status == "ok"
        assert asked.calls == []
    over.set()


async def test_calls_that_nobody_is_asked_about_make_none() -> None:
    asked: list[Any] = []

    source = tool(name="put", approval="none", preview=asked.append)(told)
    async with await made(source) as env:
        assert (await env.execute_tool(call("put", args={"text": "hello"}))).status == "ok"
    assert asked == []


def test_what_is_no_preview_is_refused() -> None:
    with pytest.raises(RegistrationError, match="'preview' must be a function"):
        define(with_preview("x"))
