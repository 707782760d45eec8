# Shows T67, T69
"""Concurrency of calls, and abort: of tools that react to it and of tools that do not."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flowengine.errors import Conflict
from flowengine.sdk.processes import processes
from flowengine.tool_environment import ToolContext, tool
from tests.tool_environment.world import (
    DEFER,
    HANG,
    Asked,
    Counting,
    Seen,
    Slow,
    asked_in,
    call,
    echo,
    made,
    result_of,
    until,
)


# Shows T66, T72, T55b
@pytest.mark.parametrize("how", ["abort", "thread", "cancel", "timeout"])
async def test_running_tools_get_the_signal_and_end_as_aborted(how: str) -> None:
    slow = Slow(timeout=0.05 if how == "timeout" else None)
    async with await made(slow.tool) as env:
        seen = Seen(env)
        running = asyncio.ensure_future(env.execute_tool(call("slow", "1")))
        await slow.began.wait()
        if how == "abort":
            env.abort_step()
        elif how == "thread":
            await asyncio.to_thread(env.abort_step)
        elif how == "cancel":
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        await asyncio.wait([running])
        [ended] = seen.of("result")
        result = ended["result"]
        status = "timed_out" if how == "timeout" else "aborted"
        assert (result["status"], result["ran"], result["content"]) == (status, "maybe", "so far")
        assert not env.abort_call("1")


async def test_a_tool_that_does_not_listen_is_left_behind() -> None:
    began, never = threading.Event(), threading.Event()

    @tool
    def stubborn() -> None:
        """Wait for ever."""
        began.set()
        never.wait()

    @tool
    def polite(ctx: ToolContext) -> str:
        """Wait for the signal."""
        began.set()
        ctx.signal.wait()
        ctx.signal.check()
        return "never"

    async with await made(stubborn, polite, echo) as env:
        for name in ("stubborn", "polite"):
            began.clear()
            running = asyncio.ensure_future(env.execute_tool(call(name)))
            await asyncio.to_thread(began.wait)
            env.abort_step()
            response = await running
            assert (response.status, response.ran) == ("aborted", "maybe")
        assert (await result_of(env, call("echo", text="a"))).status == "ok"
        never.set()


TREE = "sleep 1000 & setsid sleep 1000 & nohup sleep 1000 >/dev/null 2>&1 & echo ready; wait"


def sleeping(mark: str) -> list[int]:
    found = []
    for process in processes():
        try:
            with open(f"/proc/{process.pid}/environ", "rb") as file:
                if f"MARK_OF_TEST={mark}".encode() in file.read().split(b"\0"):
                    found.append(process.pid)
        except OSError:
            continue
    return found


def wait_for(mark: str, number: int) -> None:
    """Wait for at least that many processes, or with 0, until none is left."""
    end = time.monotonic() + HANG
    while len(sleeping(mark)) < number if number else sleeping(mark):
        assert time.monotonic() < end, "it never came to that"


@pytest.mark.parametrize("how", ["abort", "timeout", "dispose"])
# Shows T68
async def test_the_whole_tree_of_processes_is_stopped(how: str) -> None:
    mark = os.urandom(8).hex()
    variables = {"PATH": os.environ["PATH"], "MARK_OF_TEST": mark}

    @tool(timeout=2 if how == "timeout" else 1000)
    async def tree(ctx: ToolContext) -> None:
        """Start processes."""
        await ctx.processes.run(["sh", "-c", TREE], env=variables, cwd=os.getcwd())

    env = await made(tree)
    running = asyncio.ensure_future(env.execute_tool(call("tree")))
    await asyncio.to_thread(wait_for, mark, 4)
    if how == "abort":
        env.abort_step()
    elif how == "dispose":
        await env.dispose()
    assert (await running).status == ("timed_out" if how == "timeout" else "aborted")
    await asyncio.to_thread(wait_for, mark, 0)
    await env.dispose()


# Time of the abort


async def test_abort_while_a_question_is_open_withdraws_it(tmp_path: Path) -> None:
    count = Counting(tmp_path)
    async with await made(count.tool, callback=Asked(DEFER)) as env:
        running = asyncio.ensure_future(env.execute_tool(call("count", "1")))
        [wait] = await asked_in(env.engine)
        env.abort_step()
        response = await running
        assert (response.status, response.ran) == ("aborted", "no")
        assert env.engine.approvals.list().items == []
        with pytest.raises(Conflict):
            await env.engine.approvals.approve_async(wait["id"])
        assert count.n == 0


async def test_an_abort_hits_arriving_calls_and_no_later_ones(tmp_path: Path) -> None:
    count = Counting(tmp_path)
    async with await made(count.tool) as env:
        one, approved = call("count"), call("count")
        await env.register_request_tool_call(one)
        await env.approve_tool(approved)
        env.abort_step()
        env.abort_step()
        response = await env.execute_tool(one)
        assert (response.status, response.ran, count.n) == ("aborted", "no", 0)
        assert (await env.execute_tool(approved)).status == "ok"
        assert (await env.execute_tool(call("count"))).status == "ok"


@pytest.mark.endurance
@pytest.mark.parametrize("kind", ["coroutine", "thread"])
@pytest.mark.parametrize("part", range(10))
# Shows T71
async def test_finish_and_abort_race_a_thousand_times_with_one_outcome(
    part: int, kind: str
) -> None:
    acted: list[str] = []

    @tool(name="act", supports_parallel_execution=True)
    async def on_the_loop(ctx: ToolContext, turns: int) -> None:
        """Act after some turns of the loop."""
        for _ in range(turns):
            await asyncio.sleep(0)
        acted.append(ctx.tool_call_id)

    @tool(name="act", supports_parallel_execution=True)
    def on_a_thread(ctx: ToolContext, turns: int) -> None:
        """Act."""
        acted.append(ctx.tool_call_id)

    chance = random.Random(part)
    statuses: set[str | None] = set()
    form = on_the_loop if kind == "coroutine" else on_a_thread
    async with await made(form) as env:
        for number in range(100):
            name = str(number)
            one = call("act", name, turns=chance.randrange(12))
            running = asyncio.ensure_future(env.execute_tool(one))
            for _ in range(chance.randrange(40)):
                await asyncio.sleep(0)
            env.abort_call(name)
            response = await running
            statuses.add(response.status)
            assert response.status in {"ok", "aborted"}, response
            if response.status == "ok":
                assert acted.count(name) == 1
            elif name in acted:
                assert response.ran == "maybe"
            if response.ran == "no":
                assert name not in acted
            assert acted.count(name) <= 1
            if response.ran != "no":
                assert (await env.execute_tool(one)).status == response.status
    assert statuses == {"ok", "aborted"}


# Concurrency


class Beside:
    """Tools that record which of them run concurrently, and continue when the test permits."""

    def __init__(self) -> None:
        self.running: set[str] = set()
        self.beside: dict[str, set[str]] = {}
        self.parallel: dict[str, bool] = {}
        self.go_on: dict[str, asyncio.Event] = {}

    def tool(self, name: str, **options: Any) -> Callable[..., Any]:
        @tool(name=name, **options)
        async def work(ctx: ToolContext) -> str:
            """Work."""
            own = ctx.tool_call_id
            self.parallel[own] = ctx.parallel
            self.running.add(own)
            for each in self.running:
                self.beside.setdefault(each, set()).update(self.running - {each})
            try:
                await self.go_on.setdefault(own, asyncio.Event()).wait()
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


# Shows T62, T64
async def test_parallel_tools_run_beside_each_other_and_others_alone() -> None:
    world = Beside()
    both = [world.tool("p", supports_parallel_execution=True), world.tool("s")]
    async with await made(*both) as env:
        pair = asyncio.ensure_future(env.execute_tools([call("p", "1"), call("p", "2")]))
        await world.until("1", "2")
        assert env.abort_call("1")
        await world.until("2")
        world.end("2")
        assert [each.status for each in await pair] == ["aborted", "ok"]
        assert not env.abort_call("1")
        mixed = asyncio.ensure_future(
            env.execute_tools([call("p", "3"), call("s", "4"), call("p", "5")])
        )
        for name in ("3", "4", "5"):  # the last one does not overtake the second
            await world.until(name)
            world.end(name)
        contents = [each.tool_result and each.tool_result.content for each in await mixed]
        assert contents == ["3", "4", "5"]
    assert world.beside["4"] == set()
    assert world.parallel == {"1": True, "2": True, "3": True, "4": False, "5": True}


async def test_a_tool_that_makes_calls_does_not_wait_for_itself_and_takes_them_with_it() -> None:
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
    both = asyncio.ensure_future(env.execute_tools([call("outer"), call("s", "last")]))
    for name in ("1", "2", "last"):  # one by one, within the slot of the calling tool
        await world.until(name)
        world.end(name)
    first, _ = await both
    assert first.tool_result is not None
    assert first.tool_result.content == ["ok", "ok"]
    world.end("3")
    assert (await result_of(env, call("on_a_thread"))).content == "ok"
    world.go_on.clear()
    running = asyncio.ensure_future(env.execute_tool(call("outer", "outer")))
    await until(running.done)  # its calls have been made, and are not made again
    assert (await running).status == "ok"
    await env.dispose()
