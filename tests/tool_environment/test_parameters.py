"""Arguments that arrive in parts."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from flowengine.tool_environment import CallError, Tool, tool, tool_message
from flowengine.tool_environment.parameters import PER_SECOND
from tests.tool_environment.world import (
    Asked,
    Counting,
    FakeClock,
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
        await until(lambda: "disposal" in seen.types())
        assert Write.shown == [{"path": "a"}, {"path": "a", "text": "b"}]
        assert [each["view"] for each in seen.of("view")] == [{"title": "a"}] * 2


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


async def test_parts_of_two_calls_interleave_character_by_character() -> None:
    async with await made(echo) as env:
        texts = {"a": json.dumps({"text": "ä" * 50}), "b": json.dumps({"text": "b{}" * 40})}
        for name in texts:
            await env.register_request_tool_call(call("echo", name))
        for at in range(max(map(len, texts.values()))):
            for name, text in texts.items():
                await env.update_request_tool_params(name, text=text[at : at + 1])
        for name in texts:
            await env.update_request_tool_params(name, is_final=True, text="")
        one, other = await env.execute_tools(["a", "b"])
        assert one.tool_result is not None
        assert other.tool_result is not None
        assert one.tool_result.content == "ä" * 50
        assert other.tool_result.content == "b{}" * 40


async def test_text_that_happens_to_parse_is_not_final() -> None:
    ran: list[int | None] = []

    @tool
    def query(q: int | None = None) -> None:
        """Query."""
        ran.append(q)

    asked = Asked()
    async with await made(query, callback=asked) as env:
        await env.register_request_tool_call(call("query", "1"))
        await env.update_request_tool_params("1", text="{}")
        await env.update_request_tool_params(call("query", "1", q=1), is_final=True)
        await env.execute_tool("1")
        assert ran == [1]
        assert len(asked.calls) == 1


async def test_text_that_was_cut_does_not_run_and_the_model_is_told(tmp_path: Path) -> None:
    @tool
    def write(path: str, mode: str = "w") -> None:
        """Write."""
        raise AssertionError

    asked = Asked()
    async with await made(write, callback=asked) as env:
        one = call("write", "1")
        await env.register_request_tool_call(one)
        await env.update_request_tool_params("1", text='{"path":"a","mode":"w', is_final=True)
        response = await env.execute_tool("1")
        assert response.status == "invalid"
        assert response.ran == "no"
        assert asked.calls == []
        told = tool_message(one, response)["content"]
        assert '"mode":"w' in told
        assert "not complete JSON" in told


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
            await env.update_request_tool_params("nope", text="{}")
        assert raised.value.code == "unknown_call"


async def test_ten_thousand_updates_in_a_second_show_twenty_views_and_the_last_is_final() -> None:
    clock = FakeClock()
    async with await made(Write) as env:
        seen = Seen(env)
        await env.register_request_tool_call(call("write", "1"))
        for number in range(10_000):
            await env.update_request_tool_params(call("write", "1", path=str(number)))
            clock.advance(0.99 / 10_000)
        last = call("write", "1", path="end")
        await env.update_request_tool_params(last, is_final=True)
        assert (await env.execute_tool(last)).status == "ok"
        await until(lambda: "disposal" in seen.types())
        assert len(Write.shown) == PER_SECOND + 1 == 20
        assert Write.shown[-1] == {"path": "end"}


async def test_a_pause_shows_what_was_held_back() -> None:
    clock = FakeClock()
    async with await made(Write) as env:
        await env.register_request_tool_call(call("write", "1"))
        for number in range(100):
            await env.update_request_tool_params(call("write", "1", path=str(number)))
        await clock.until(lambda: Write.shown and Write.shown[-1] == {"path": "99"})
        assert len(Write.shown) == PER_SECOND + 1


@pytest.mark.parametrize("kind", ["raises", "exits", "hangs", "blocks"])
async def test_a_view_that_fails_is_one_event_and_changes_nothing(kind: str) -> None:
    never = threading.Event()

    class Viewed(Tool):
        def execute(self, text: str) -> str:
            return text

    if kind == "hangs":

        async def load_ui(self: Any, partial: Any) -> None:
            await asyncio.Event().wait()

    else:

        def load_ui(self: Any, partial: Any) -> None:  # type: ignore[misc]
            if kind == "blocks":
                never.wait()
            raise SystemExit if kind == "exits" else ValueError("x")

    Viewed.load_ui = load_ui  # type: ignore[method-assign]

    clock = FakeClock()
    env = await made(Viewed)
    seen = Seen(env)
    await env.register_request_tool_call(call("viewed", "1"))
    for number in range(5):
        await env.update_request_tool_params(call("viewed", "1", text=str(number)))
    response = await env.execute_tool(call("viewed", "1", text="end"))
    assert response.status == "ok"
    await clock.until(lambda: "disposal" in seen.types())
    await clock.until(seen.codes)
    assert seen.codes().count("load_ui") == 1
    await env.dispose()
    never.set()


@pytest.mark.parametrize("view", [object(), b"bytes", "x" * 10_000_000, [1]])
async def test_an_odd_view_is_cut_or_noted(view: Any) -> None:
    class Odd(Tool):
        def load_ui(self, partial: dict[str, Any]) -> Any:
            return view

        def execute(self) -> str:
            return "done"

    async with await made(Odd) as env:
        seen = Seen(env)
        response = await env.execute_tool(call("odd"))
        assert response.status == "ok"
        await until(lambda: "disposal" in seen.types())
        [shown] = seen.of("view")
        assert shown["note"]
        assert len(str(shown["view"])) < 100_000


async def test_arguments_that_would_fill_the_memory_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("flowengine.tool_environment.parameters.LARGEST", 1000)

    count = Counting(tmp_path)
    async with await made(count.tool) as env:
        await env.register_request_tool_call(call("count", "1"))
        for _ in range(50):
            await env.update_request_tool_params("1", text=" " * 100)
        await env.update_request_tool_params("1", text="{}", is_final=True)
        response = await env.execute_tool("1")
        assert response.status == "invalid"
        assert count.n == 0
