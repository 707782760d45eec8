"""Arguments that arrive in parts."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine.tool_environment import CallError, Tool
from tests.tool_environment.world import (
    Asked,
    Seen,
    call,
    echo,
    made,
    until,
)


class Write(Tool):
    """Shows the text that it will write."""

    shown: list[dict[str, Any]]

    async def load_ui(self, partial: dict[str, Any]) -> dict[str, Any]:
        Write.shown.append(partial)
        return {"title": partial.get("path")}

    def execute(self, path: str, text: str = "") -> str:
        return f"{path}: {text}"


@pytest.fixture(autouse=True)
def fresh() -> None:
    Write.shown = []


# Shows T21
async def test_the_tool_sees_what_has_arrived_and_the_client_what_it_makes_of_it() -> None:
    async with await made(Write) as env:
        seen = Seen(env)
        await env.register_request_tool_call(call("write", "1"))
        await env.update_request_tool_params(call("write", "1", path="a"))
        last = call("write", "1", path="a", text="b")
        await env.update_request_tool_params(last)
        await env.update_request_tool_params(last, is_final=True)
        response = await env.execute_tool(last)
        assert response.tool_result is not None
        assert response.tool_result.content == "a: b"
        await until(lambda: "result" in seen.types())
        assert Write.shown == [{"path": "a"}, {"path": "a", "text": "b"}]
        assert [each["view"] for each in seen.of("view")] == [{"title": "a"}] * 2


# Shows T22
async def test_nobody_is_asked_before_the_arguments_are_final() -> None:
    asked = Asked()
    async with await made(echo, callback=asked) as env:
        one = call("echo", text="a")
        await env.register_request_tool_call(one)
        loading = await env.update_request_tool_params(one)
        assert loading.is_loading
        assert asked.calls == []
        final = await env.update_request_tool_params(one, is_final=True)
        assert not final.is_loading
        assert asked.calls == []  # its approval is requested when it is to run
        await env.execute_tool(one)
        assert len(asked.calls) == 1
        assert not asked.calls[0].is_loading


# Shows T23
async def test_parts_of_two_calls_interleave_character_by_character() -> None:
    async with await made(echo) as env:
        texts = {"a": "ä" * 50, "b": "b{}" * 40}
        for name in texts:
            await env.register_request_tool_call(call("echo", name))
        for at in range(max(map(len, texts.values()))):
            for name, text in texts.items():
                await env.update_request_tool_params(call("echo", name, text=text[: at + 1]))
        for name, text in texts.items():
            await env.update_request_tool_params(call("echo", name, text=text), is_final=True)
        one, other = await env.execute_tools(["a", "b"])
        assert one.tool_result is not None
        assert other.tool_result is not None
        assert one.tool_result.content == "ä" * 50
        assert other.tool_result.content == "b{}" * 40


# Shows T25
async def test_final_arguments_cannot_change() -> None:
    asked = Asked()
    async with await made(echo, callback=asked) as env:
        one = call("echo", "1", text="a")
        await env.register_request_tool_call(one)
        await env.update_request_tool_params(one, is_final=True)
        with pytest.raises(CallError) as raised:
            await env.update_request_tool_params(call("echo", "1", text="b"))
        assert raised.value.code == "late_update"
        other = await env.execute_tool(call("echo", "1", text="b"))
        assert other.error is not None
        assert other.error.code == "duplicate_call"
        response = await env.execute_tool(one)
        assert asked.calls[0].args == {"text": "a"}
        assert response.tool_result is not None
        assert response.tool_result.content == "a"
        with pytest.raises(CallError) as raised:
            await env.update_request_tool_params(call("echo", "nope"))
        assert raised.value.code == "unknown_call"
