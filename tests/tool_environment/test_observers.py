"""Who sees calls: observers, callbacks and listeners, and arguments that arrive in parts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from flowengine.errors import Conflict, NotFound
from flowengine.tool_environment import Tool, ToolCall, ToolResult, local_environment, tool
from tests.tool_environment.world import (
    Asked,
    Counting,
    Seen,
    Slow,
    Watching,
    call,
    echo,
    made,
    result_of,
)


class CountingArguments:
    """The example in the documentation."""

    name = "argument-counter"
    description = "Counts the arguments."

    async def execute(self, one: ToolCall, result: ToolResult) -> dict[str, Any]:
        return {"argsCount": len(one.args)}


@tool
def join(a: str, b: str) -> str:
    """Join two texts."""
    return a + b


# Shows T75
async def test_observers_are_told_once_of_each_call_and_their_words_are_attached() -> None:
    async with await made(join) as env:
        log = Watching("log", says=lambda one, result: f"{one.tool_name}: {result.status}")
        env.observers["log"] = log
        env.register_observer(CountingArguments())
        result = await result_of(env, call("join", a="1", b="2"))
        assert list(result.observer_results) == ["log", "argument-counter"]
        assert result.observer_results["log"].observer_result == "join: ok"
        assert result.observer_results["argument-counter"].observer_result == {"argsCount": 2}
        [(one, seen)] = log.seen
        assert (one.args, seen.content) == ({"a": "1", "b": "2"}, "12")


# Shows T77, T56
async def test_they_see_failures_and_no_call_that_never_ran(tmp_path: Path) -> None:
    order: list[str] = []

    @tool
    def broken() -> None:
        """Break."""
        order.append("tool")
        raise ValueError

    def start(one: ToolCall) -> None:
        order.append(f"start {one.tool_call_id}")
        raise SystemExit

    async def end(one: ToolCall, result: Any) -> None:
        order.append(f"end {one.tool_call_id} {result.status}")
        result.content = "changed"
        raise ValueError

    count, slow = Counting(tmp_path), Slow()
    answer = Asked(lambda one: one.tool_name != "count")
    async with await made(broken, count.tool, echo, slow.tool, callback=answer) as env:
        log = Watching("log")
        env.register_observer(log)
        env.register_execute_callback(start, end)
        await env.execute_tool(call("broken", "1"))
        await env.execute_tool(call("count", "2"))
        await env.execute_tool(call("echo", "3", text=1))
        running = asyncio.ensure_future(env.execute_tool(call("slow", "4")))
        await slow.began.wait()
        env.abort_step()
        await running
        result = await result_of(env, call("echo", "5", text="a"))
        assert result.content == "a"
        env.clear_execute_callback()
        await env.execute_tool(call("broken", "6"))
        assert [one.tool_call_id for one, _ in log.seen] == ["1", "4", "5", "6"]
        assert [result.success for _, result in log.seen] == [False, False, True, False]
        assert order == [
            *("start 1", "tool", "end 1 error"),
            *("start 4", "end 4 aborted"),
            *("start 5", "end 5 ok"),
            "tool",
        ]


def raising(one: Any, result: Any) -> None:
    raise SystemExit("no")


# Shows T78, T79
async def test_one_that_raises_hangs_or_rewrites_changes_no_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local_environment, "BOUND", 0.05)
    together = asyncio.Barrier(2)

    class Hanging(Watching):
        async def execute(self, one: ToolCall, result: ToolResult) -> Any:
            await asyncio.Event().wait()

    class Meeting(Watching):
        async def execute(self, one: ToolCall, result: ToolResult) -> str:
            await together.wait()
            one.args["a"] = result.content = "changed"
            return self.name

    async with await made(join) as env:
        plain = await result_of(env, call("join", "1", a="1", b="2"))
        given = [Watching("raises", says=raising), Hanging("hangs"), Watching("odd", says=object())]
        for each in (*given, Meeting("one"), Meeting("other")):
            env.register_observer(each)
        result = await result_of(env, call("join", "2", a="1", b="2"))
        found = result.observer_results
        assert list(found) == ["raises", "hangs", "odd", "one", "other"]
        assert [each.error is not None for each in found.values()] == [True] * 3 + [False] * 2
        bare = {"observer_results": {}, "tool_call_id": "1"}
        assert result.model_copy(update=bare) == plain


# Shows T83
async def test_a_listener_follows_calls() -> None:
    @tool
    def reports(ctx) -> str:  # type: ignore[no-untyped-def]
        """Report."""
        ctx.report("50%")
        ctx.report({"done": 1.0})
        return "done"

    async with await made(reports) as env:
        seen = Seen(env)

        def fails(_: Any) -> None:
            raise OSError("no screen")

        stop = env.listen(fails)
        await env.execute_tool(call("reports", "1"))
        stop()
    kinds = ["call_registered", "parameters_updated", "approval", "execution"]
    assert seen.types() == [*kinds, "progress", "progress", "result"]
    assert [each["report"] for each in seen.of("progress")] == ["50%", {"done": 1.0}]
    [ended] = seen.of("result")
    assert (ended["tool_call_id"], ended["result"]["content"]) == ("1", "done")


# Arguments that arrive in parts


class Write(Tool):
    """Shows the text that it will write."""

    shown: list[dict[str, Any]]

    async def load_ui(self, partial: dict[str, Any]) -> dict[str, Any]:
        Write.shown.append(partial)
        return {"title": partial.get("path")}

    def execute(self, path: str, text: str = "") -> str:
        return f"{path}: {text}"


# Shows T21, T22, T25
async def test_the_tool_sees_what_has_arrived_and_nobody_is_asked_before_it_is_final() -> None:
    Write.shown, asked = [], Asked()
    async with await made(Write, callback=asked) as env:
        seen = Seen(env)
        assert (await env.register_request_tool_call(call("write", "1"))).is_loading
        with pytest.raises(Conflict):
            await env.register_request_tool_call(call("write", "1"))
        await env.update_request_tool_params(call("write", "1", path="a"))
        last = call("write", "1", path="a", text="b")
        assert (await env.update_request_tool_params(last)).is_loading
        final = await env.update_request_tool_params(last, is_final=True)
        assert not final.is_loading
        with pytest.raises(Conflict, match="final"):
            await env.update_request_tool_params(call("write", "1", path="c"))
        other = await env.execute_tool(call("write", "1", path="c"))
        assert other.status == "invalid"
        assert asked.calls == []
        assert (await result_of(env, last)).content == "a: b"
        assert [(one.args, one.is_loading) for one in asked.calls] == [(last.args, False)]
        assert Write.shown == [{"path": "a"}, {"path": "a", "text": "b"}]
        assert [each["view"] for each in seen.of("view")] == [{"title": "a"}] * 2
        for known in ("1", "nope"):  # it has ended, or there was none
            with pytest.raises(NotFound):
                await env.update_request_tool_params(call("write", known))


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
        responses = await env.execute_tools(["a", "b"])
        contents = [each.tool_result and each.tool_result.content for each in responses]
        assert contents == [*texts.values()]
