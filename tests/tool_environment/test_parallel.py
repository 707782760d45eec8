"""Concurrency of calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from flowengine.tool_environment import CallBounds, ToolContext, tool
from tests.tool_environment.world import Slow, call, made, until


class Beside:
    """Tools that record which of them run concurrently, and continue when the test permits."""

    def __init__(self) -> None:
        self.running: set[str] = set()
        self.most = 0
        self.started: list[str] = []
        self.beside: dict[str, set[str]] = {}
        self.parallel: dict[str, bool] = {}
        self.go_on: dict[str, asyncio.Event] = {}

    def tool(self, name: str, **options: Any) -> Callable[..., Any]:
        @tool(name=name, **options)
        async def work(ctx: ToolContext, fails: bool = False) -> str:
            """Work."""
            own = ctx.tool_call_id
            self.started.append(own)
            self.parallel[own] = ctx.parallel
            self.running.add(own)
            self.most = max(self.most, len(self.running))
            for each in self.running:
                self.beside.setdefault(each, set()).update(self.running - {each})
            try:
                await self.go_on.setdefault(own, asyncio.Event()).wait()
                if fails:
                    raise ValueError
            finally:
                self.running.discard(own)
            return own

        return work

    async def until(self, *running: str) -> None:
        """Wait until exactly these run."""
        await until(lambda: self.running == set(running))
        for _ in range(20):  # no other one starts
            await asyncio.sleep(0)
        assert self.running == set(running)

    def end(self, *names: str) -> None:
        for name in names:
            self.go_on.setdefault(name, asyncio.Event()).set()


# Shows T62
async def test_parallel_tools_run_beside_each_other_and_others_one_by_one() -> None:
    world = Beside()
    both = [world.tool("p", supports_parallel_execution=True), world.tool("s")]
    async with await made(*both) as env:
        running = asyncio.ensure_future(env.execute_tools([call("p", "1"), call("p", "2")]))
        await world.until("1", "2")
        world.end("1", "2")
        await running
        running = asyncio.ensure_future(env.execute_tools([call("s", "3"), call("s", "4")]))
        await world.until("3")
        world.end("3")
        await world.until("4")
        world.end("4")
        await running
    assert world.parallel == {"1": True, "2": True, "3": False, "4": False}


# Shows T62
async def test_a_mixed_reply_keeps_both_rules_and_the_order_of_results() -> None:
    world = Beside()
    both = [world.tool("p", supports_parallel_execution=True), world.tool("s")]
    async with await made(*both) as env:
        running = asyncio.ensure_future(
            env.execute_tools([call("p", "1"), call("s", "2"), call("p", "3")])
        )
        await world.until("1")  # the third does not overtake the second
        world.end("1")
        await world.until("2")
        world.end("2")
        await world.until("3")
        world.end("3")
        responses = await running
        contents = [each.tool_result and each.tool_result.content for each in responses]
        assert contents == ["1", "2", "3"]
        assert world.beside["2"] == set()


# Shows T64
async def test_each_call_is_aborted_by_itself() -> None:
    world = Beside()
    async with await made(
        world.tool("p", supports_parallel_execution=True), bounds=CallBounds(grace=0.01)
    ) as env:
        running = asyncio.ensure_future(env.execute_tools([call("p", "1"), call("p", "2")]))
        await world.until("1", "2")
        assert env.abort_call("1")
        await world.until("2")
        world.end("2")
        one, other = await running
        assert (one.status, other.status) == ("aborted", "ok")
        assert not env.abort_call("1")
        assert not env.abort_call("nope")


@pytest.mark.parametrize("how", ["abort", "cancel"])
async def test_who_leaves_the_queue_keeps_nobody_waiting(how: str) -> None:
    world = Beside()
    async with await made(world.tool("s")) as env:
        tasks = [
            asyncio.ensure_future(env.execute_tool(call("s", name))) for name in ("1", "2", "3")
        ]
        await world.until("1")
        if how == "abort":
            env.abort_call("2")
            response = await tasks[1]
            assert (response.status, response.ran) == ("aborted", "no")
        else:
            tasks[1].cancel()
            await asyncio.wait([tasks[1]])
        world.end("1")
        await world.until("3")
        world.end("3")
        assert (await tasks[2]).status == "ok"
        assert "2" not in world.started


async def test_a_tool_that_makes_calls_does_not_wait_for_itself() -> None:
    world = Beside()
    env = await made(world.tool("s"))

    @tool
    async def outer() -> list[str]:
        """Make two calls."""
        responses = await env.execute_tools([call("s", "1"), call("s", "2")])
        return [str(each.status) for each in responses]

    @tool
    def on_a_thread() -> str:
        """Make a call on another loop."""
        return str(asyncio.run(env.execute_tool(call("s", "3"))).status)

    await env.register_tool(outer)
    await env.register_tool(on_a_thread)
    running = asyncio.ensure_future(env.execute_tools([call("outer"), call("s", "last")]))
    for name in ("1", "2", "last"):  # one by one, within the slot of the calling tool
        await world.until(name)
        world.end(name)
    responses = await running
    assert responses[0].tool_result is not None
    assert responses[0].tool_result.content == ["ok", "ok"]
    world.go_on["3"] = asyncio.Event()
    world.go_on["3"].set()
    assert (await env.execute_tool(call("on_a_thread"))).tool_result is not None
    assert "3" in world.started
    await env.dispose()


async def test_a_tool_that_is_aborted_takes_its_own_calls_with_it() -> None:
    slow = Slow()
    env = await made(slow.tool, bounds=CallBounds(grace=0.2))

    @tool
    async def outer() -> None:
        """Make a call."""
        await env.execute_tool(call("slow", "inner"))

    await env.register_tool(outer)
    running = asyncio.ensure_future(env.execute_tool(call("outer", "outer")))
    await slow.began.wait()
    env.abort_call("outer")
    assert (await running).status == "aborted"
    assert (await env.execute_tool(call("slow", "inner"))).status == "aborted"
    await env.dispose()
