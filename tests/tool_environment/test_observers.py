"""Observers: their order, their events, and their limits."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from flowengine.tool_environment import (
    RegistrationError,
    ToolCall,
    ToolResult,
    tool,
)
from tests.tool_environment.world import Asked, Counting, FakeClock, call, echo, made


class Watching:
    description = "Watches."

    def __init__(self, name: str, says: Any = "seen") -> None:
        self.name = name
        self.says = says
        self.seen: list[tuple[ToolCall, ToolResult]] = []

    async def execute(self, one: ToolCall, result: ToolResult) -> Any:
        self.seen.append((one, result))
        return self.says(one, result) if callable(self.says) else self.says


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
        response = await env.execute_tool(call("join", a="1", b="2"))
        result = response.tool_result
        assert result is not None
        assert list(result.observer_results) == ["log", "argument-counter"]
        assert result.observer_results["log"].observer_result == "join: ok"
        assert result.observer_results["argument-counter"].observer_result == {"argsCount": 2}
        [(one, seen)] = log.seen
        assert one.args == {"a": "1", "b": "2"}
        assert seen.content == "12"


# Shows T77
async def test_they_see_failures_and_no_call_that_never_ran(tmp_path: Path) -> None:
    @tool
    def broken() -> None:
        """Break."""
        raise ValueError

    count = Counting(tmp_path)
    async with await made(
        broken, count.tool, echo, callback=Asked(lambda one: one.tool_name != "count")
    ) as env:
        log = Watching("log")
        env.register_observer(log)
        await env.execute_tool(call("broken"))
        await env.execute_tool(call("count"))
        await env.execute_tool(call("echo", text=1))
        assert [(one.tool_name, result.success) for one, result in log.seen] == [("broken", False)]


def raising(one: Any, result: Any) -> None:
    raise SystemExit("no")


# Shows T78
async def test_one_that_raises_or_hangs_changes_no_result() -> None:
    class Hanging(Watching):
        async def execute(self, one: ToolCall, result: ToolResult) -> Any:
            await asyncio.Event().wait()

    clock = FakeClock()
    async with await made(join) as env:
        plain = await env.execute_tool(call("join", "1", a="1", b="2"))
        env.register_observer(Watching("raises", says=raising))
        env.register_observer(Hanging("hangs"))
        env.register_observer(Watching("works"))
        running = asyncio.ensure_future(env.execute_tool(call("join", "2", a="1", b="2")))
        await clock.until(running.done)
        result = (await running).tool_result
        assert result is not None
        assert plain.tool_result is not None
        found = result.observer_results
        assert [each.error is not None for each in found.values()] == [True, True, False]
        bare = {"observer_results": {}, "tool_call_id": "1"}
        assert result.model_copy(update=bare) == plain.tool_result


# Shows T79
async def test_they_run_beside_each_other_on_copies_and_their_results_keep_their_order() -> None:
    together = asyncio.Barrier(3)

    class Meeting(Watching):
        async def execute(self, one: ToolCall, result: ToolResult) -> str:
            await together.wait()
            for _ in range({"a": 9, "b": 5, "c": 0}[self.name]):
                await asyncio.sleep(0)
            one.args["a"] = "changed"
            result.content = "changed"
            result.observer_results["x"] = "changed"  # type: ignore[assignment]
            return self.name

    async with await made(join) as env:
        for name in "abc":
            env.register_observer(Meeting(name))
        given = call("join", a="1", b="2")
        result = (await env.execute_tool(given)).tool_result
        assert result is not None
        assert result.content == "12"
        assert given.args["a"] == "1"
        assert list(result.observer_results) == ["a", "b", "c"]


class Nameless:
    description = "Has no name."

    async def execute(self, one: ToolCall, result: ToolResult) -> None:
        return None


class Idle:
    name = "idle"
    description = "Does nothing."


class Narrow(Idle):
    async def execute(self, one: ToolCall) -> None:
        return None


@pytest.mark.parametrize("wrong", [None, 7, Nameless(), Idle(), Narrow(), Watching("log")])
# Shows T96
async def test_what_is_no_observer_is_refused_and_the_others_stay(wrong: Any) -> None:
    async with await made(echo) as env:
        log = Watching("log")
        env.register_observer(log)
        with pytest.raises(RegistrationError):
            env.register_observer(wrong)
        with pytest.raises(RegistrationError):
            env.observers["other"] = wrong
        assert dict(env.observers) == {"log": log}
        await env.execute_tool(call("echo", text="a"))
        assert len(log.seen) == 1
