"""A call from its registration to its disposal, and the end of an environment."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, ClassVar

import pytest

from flowengine.tool_environment import (
    RegistrationError,
    Tool,
    ToolCall,
    ToolContext,
    ToolEnvironmentClosed,
)
from tests.tool_environment.world import (
    Asked,
    Counting,
    FakeClock,
    Seen,
    Slow,
    call,
    echo,
    made,
    until,
)


# Shows T13
async def test_init_runs_once_before_the_first_call() -> None:
    order: list[str] = []

    class Prepared(Tool):
        async def init(self, environment: Any) -> None:
            self.connection = object()
            self.mine = environment
            order.append("init")

        def execute(self) -> bool:
            order.append("execute")
            return self.connection is not None and self.mine is self.environment

    async with await made(Prepared) as env:
        for _ in range(2):
            response = await env.execute_tool(call("prepared"))
            assert response.tool_result is not None
            assert response.tool_result.content is True
    assert order == ["init", "execute", "execute"]


@pytest.mark.parametrize("fault", [ValueError("no key"), SystemExit(3)])
# Shows T13
async def test_a_tool_whose_init_raises_is_not_registered(fault: BaseException) -> None:
    class Broken(Tool):
        def init(self, environment: Any) -> None:
            raise fault

        def execute(self) -> None:
            return None

    async with await made(echo) as env:
        with pytest.raises(RegistrationError, match=r"broken.*init.*" + type(fault).__name__):
            await env.register_tool(Broken)
        assert (await env.execute_tool(call("echo", text="a"))).status == "ok"


# Shows T15
async def test_registering_a_call_makes_an_instance_of_its_own() -> None:
    class Mine(Tool):
        made: ClassVar[list[Tool]] = []

        def __init__(self) -> None:
            self.made.append(self)

        def execute(self, text: str) -> str:
            return text

    async with await made(Mine) as env:
        before = len(Mine.made)
        one = await env.register_request_tool_call(call("mine", "a"))
        other = await env.register_request_tool_call(call("mine", "b"))
        assert one.is_loading
        assert other.is_loading
        assert len(Mine.made) == before + 2


class Ended(Tool):
    """Is disposed of."""

    count = 0
    mode = "ok"

    async def execute(self, n: int, ctx: ToolContext) -> int:
        if Ended.mode == "raise":
            raise ValueError("x")
        if Ended.mode in {"abort", "timeout"}:
            ctx.report("began")
            await ctx.signal.async_wait()
        return n

    def dispose(self) -> None:
        Ended.count += 1


@pytest.mark.parametrize(
    ("mode", "status"),
    [
        ("ok", "ok"),
        ("raise", "error"),
        ("reject", "rejected"),
        ("abort", "aborted"),
        ("timeout", "timed_out"),
        ("invalid", "invalid"),
    ],
)
# Shows T16
async def test_an_instance_is_disposed_of_once_whatever_came_of_the_call(
    mode: str, status: str
) -> None:
    Ended.count, Ended.mode = 0, mode
    Ended.timeout = 5.0 if mode == "timeout" else None

    clock = FakeClock()
    env = await made(Ended, callback=Asked(mode != "reject"))
    seen = Seen(env)
    args: dict[str, Any] = {"n": "x" if mode == "invalid" else 1}
    running = asyncio.ensure_future(env.execute_tool(call("ended", **args)))
    if mode in {"abort", "timeout"}:
        await until(lambda: "progress" in seen.types())
    if mode == "abort":
        env.abort_step()
    clock.advance(5.0 if mode == "timeout" else 0)
    response = await running
    assert response.status == status
    await until(lambda: "result" in seen.types())
    assert Ended.count == 1
    await env.dispose()
    assert Ended.count == 2  # that of the environment


# Shows T17
async def test_what_a_call_sets_is_gone_in_the_next_one_and_state_stays() -> None:
    class Keeper(Tool):
        def execute(self, ctx: ToolContext) -> list[Any]:
            found = [getattr(self, "k", None), ctx.state.get("k")]
            self.k = 1
            ctx.state["k"] = 1
            return found

    async with await made(Keeper) as env:
        contents = [await env.execute_tool(call("keeper")) for _ in range(2)]
        assert [each.tool_result and each.tool_result.content for each in contents] == [
            [None, None],
            [None, 1],
        ]


# Shows T19, T99
async def test_the_end_aborts_what_runs_and_withdraws_what_waits(tmp_path: Path) -> None:
    count, slow = Counting(tmp_path), Slow()
    asked = asyncio.Event()

    async def callback(one: ToolCall) -> bool:
        if one.tool_name == "count":
            asked.set()
            await asyncio.Event().wait()
        return True

    env = await made(slow.tool, count.tool, callback=callback)
    running = asyncio.ensure_future(env.execute_tool(call("slow")))
    waiting = asyncio.ensure_future(env.execute_tool(call("count")))
    arriving = await env.register_request_tool_call(call("count"))
    await slow.began.wait()
    await asked.wait()
    await env.dispose()
    ran, withdrawn = await running, await waiting
    assert (ran.status, withdrawn.status) == ("aborted", "aborted")
    assert withdrawn.ran == "no"
    assert count.n == 0
    assert dict(env.observers) == {}
    await env.dispose()
    for use in (
        env.execute_tool(arriving),
        env.approve_tool(arriving),
        env.register_tool(echo),
        env.register_request_tool_call(arriving),
    ):
        with pytest.raises(ToolEnvironmentClosed):
            await use
    assert count.n == 0


# Shows T19
async def test_async_with_is_the_end_as_well() -> None:
    env = await made(echo)
    async with env:
        pass
    with pytest.raises(ToolEnvironmentClosed) as raised:
        await env.execute_tool(call("echo", text="a"))
    assert raised.value.code == "environment_closed"
    with pytest.raises(ToolEnvironmentClosed):
        async with env:
            pass
