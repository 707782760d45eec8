"""Observers: their order, their events, and their limits."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.tool_environment import (
    RegistrationError,
    ToolCall,
    ToolResult,
    tool,
    tool_message,
)
from tests.tool_environment.world import Asked, Counting, FakeClock, call, echo, made, run


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


async def test_observers_that_come_and_go_meanwhile_count_from_the_next_call() -> None:
    async with await made(echo) as env:

        def change(one: ToolCall, result: ToolResult) -> str:
            env.observers["late"] = late
            del env.observers["second"]
            return "changed"

        late = Watching("late")
        env.observers["first"] = Watching("first", says=change)
        env.observers["second"] = Watching("second")
        first = (await env.execute_tool(call("echo", text="a"))).tool_result
        env.observers["first"].says = "no more"  # type: ignore[attr-defined]
        second = (await env.execute_tool(call("echo", text="b"))).tool_result
        assert first is not None
        assert second is not None
        assert list(first.observer_results) == ["first", "second"]
        assert list(second.observer_results) == ["first", "late"]


async def test_only_a_marked_observer_speaks_to_the_model() -> None:
    class Marked(Watching):
        in_conversation = True

    async with await made(echo) as env:
        env.register_observer(Watching("silent", says="not for the model"))
        env.register_observer(Marked("speaks", says="for the model"))
        env.register_observer(Marked("fails", says=raising))
        one = call("echo", text="a")
        told = tool_message(one, await env.execute_tool(one))["content"]
        assert told == "a\n\nspeaks: for the model"


def test_a_death_between_tool_and_observers_does_not_repeat_the_tool(tmp_path: Path) -> None:
    class Dying(Watching):
        async def execute(self, one: ToolCall, result: ToolResult) -> Any:
            raise_in_caller.set()
            await asyncio.Event().wait()

    raise_in_caller = asyncio.Event()

    async def first(count: Counting) -> None:
        """Exit while the observer runs, like a killed process."""
        engine = Engine(tmp_path / "calls")
        env = await made(count.tool, engine=engine, execution_id="x")
        env.register_observer(Dying("log"))
        asyncio.ensure_future(env.execute_tool(call("count", "1")))  # noqa: RUF006 - it dies
        await raise_in_caller.wait()
        engine.close()

    async def second(count: Counting) -> None:
        engine = Engine(tmp_path / "calls")
        async with await made(count.tool, engine=engine, execution_id="x") as env:
            log = Watching("log")
            env.register_observer(log)
            for _ in range(2):
                result = (await env.execute_tool(call("count", "1"))).tool_result
                assert result is not None
                assert result.content == "1"
                assert result.observer_results["log"].observer_result == "seen"
            assert [result.replayed for _, result in log.seen] == [True]
            assert count.n == 1
        engine.close()

    counting = Counting(tmp_path)
    run(first(counting))
    assert counting.n == 1
    run(second(counting))


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


@pytest.mark.parametrize(
    ("says", "told"),
    [
        (None, "nothing"),
        ([1, 2], "list"),
        (object(), "object"),
        (b"\x00" * 10, "10 bytes"),
        ("x" * 1_000_000, "cut"),
    ],
)
async def test_odd_words_of_an_observer_are_told_and_cut(says: Any, told: str) -> None:
    async with await made(echo) as env:
        env.observers["odd"] = Watching("odd", says=says)
        result = (await env.execute_tool(call("echo", text="a"))).tool_result
        assert result is not None
        entry = result.observer_results["odd"]
        assert entry.error is not None
        assert told in entry.error
        assert len(str(entry.observer_result)) < 70_000
        assert (result.content, result.status) == ("a", "ok")
