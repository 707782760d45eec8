# Shows T67, T69
"""Abort: tools that react to it, tools that do not, and messages to the model."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine
from flowengine.execution_environment import EnvironmentManager
from flowengine.sdk.processes import processes
from flowengine.tool_environment import (
    CallBounds,
    CallError,
    DecisionError,
    ToolCall,
    ToolContext,
    tool,
    tool_message,
)
from tests.tool_environment.world import (
    HANG,
    Asked,
    Counting,
    FakeClock,
    Seen,
    Slow,
    call,
    echo,
    made,
    run,
    until,
)


# Shows T66
async def test_running_tools_get_the_signal_and_end_as_aborted() -> None:
    clock, slow = FakeClock(), Slow()
    async with await made(slow.tool) as env:
        running = asyncio.ensure_future(env.execute_tool(call("slow")))
        await slow.began.wait()
        clock.advance(5)
        env.abort_step()
        response = await running  # no time passes, as it reacts to the signal
        assert response.status == "aborted"
        assert response.ran == "yes"


async def test_abort_from_another_thread() -> None:
    slow = Slow()
    async with await made(slow.tool) as env:
        running = asyncio.ensure_future(env.execute_tool(call("slow")))
        await slow.began.wait()
        thread = threading.Thread(target=env.abort_step)
        thread.start()
        assert (await running).status == "aborted"
        thread.join()


@pytest.mark.parametrize("deaf", [False, True])
async def test_a_coroutine_that_does_not_listen_is_cancelled(deaf: bool) -> None:
    began = asyncio.Event()
    never = asyncio.Event()

    @tool
    async def stubborn() -> None:
        """Wait for ever."""
        began.set()
        while True:
            try:
                await never.wait()
                return
            except asyncio.CancelledError:
                if not deaf:
                    raise

    clock = FakeClock()
    env = await made(stubborn, echo, bounds=CallBounds(grace=3))
    seen = Seen(env)
    running = asyncio.ensure_future(env.execute_tool(call("stubborn")))
    await began.wait()
    env.abort_step()
    await clock.until(running.done)
    response = await running
    assert (response.status, response.ran) == ("aborted", "maybe")
    assert ("still_running" in seen.codes()) is deaf
    assert (await env.execute_tool(call("echo", text="a"))).status == "ok"
    never.set()
    await env.dispose()


async def test_a_thread_that_does_not_listen_is_left_behind_and_told() -> None:
    began, never = threading.Event(), threading.Event()

    @tool
    def stubborn() -> None:
        """Wait for ever."""
        began.set()
        never.wait()

    clock = FakeClock()
    env = await made(stubborn, echo)
    seen = Seen(env)
    running = asyncio.ensure_future(env.execute_tool(call("stubborn")))
    await asyncio.to_thread(began.wait)
    env.abort_step()
    await clock.until(running.done)
    response = await running
    assert (response.status, response.ran) == ("aborted", "maybe")
    assert seen.codes() == ["still_running"]
    assert (await env.execute_tool(call("echo", text="a"))).status == "ok"
    await env.dispose()
    never.set()


async def test_a_thread_that_listens_ends_by_itself() -> None:
    began = threading.Event()

    @tool
    def polite(ctx: ToolContext) -> str:
        """Wait for the signal."""
        began.set()
        ctx.signal.wait()
        ctx.signal.check()
        return "never"

    async with await made(polite) as env:
        running = asyncio.ensure_future(env.execute_tool(call("polite")))
        await asyncio.to_thread(began.wait)
        env.abort_step()
        response = await running
        assert (response.status, response.ran) == ("aborted", "maybe")


async def test_a_coroutine_that_would_block_the_loop_is_told_what_to_await() -> None:
    @tool
    async def blocking(ctx: ToolContext) -> str:
        """Wait for the signal, as a thread does."""
        ctx.signal.wait(HANG)
        return "never"

    async with await made(blocking) as env:
        response = await env.execute_tool(call("blocking"))
        assert response.error is not None
        assert response.status == "error"
        assert "await async_wait()" in response.error.message


# Processes

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

    @tool(timeout=100)
    async def tree(ctx: ToolContext) -> None:
        """Start processes."""
        await ctx.processes.run(["sh", "-c", TREE], env=variables, cwd=os.getcwd())

    clock = FakeClock()
    env = await made(
        tree,
        echo,
        bounds=CallBounds(grace=0.2),
    )
    running = asyncio.ensure_future(env.execute_tool(call("tree")))
    await asyncio.to_thread(wait_for, mark, 4)
    ending = None
    if how == "abort":
        env.abort_step()
    elif how == "timeout":
        clock.advance(100)
    else:
        ending = asyncio.ensure_future(env.dispose())
    await clock.until(running.done, step=0.01)
    response = await running
    assert response.status == ("timed_out" if how == "timeout" else "aborted")
    await asyncio.to_thread(wait_for, mark, 0)
    if ending is None:
        assert (await env.execute_tool(call("echo", text="a"))).status == "ok"
        await env.dispose()
    else:
        await clock.until(ending.done)


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[EnvironmentManager]:
    with EnvironmentManager(tmp_path / "managed") as found:
        yield found


@pytest.mark.endurance
@pytest.mark.parametrize("kind", ["bash", "shell"])
# Shows T72
async def test_an_aborted_command_keeps_what_it_printed(
    kind: str, manager: EnvironmentManager
) -> None:
    mark = os.urandom(8).hex()
    command = f"export MARK_OF_TEST={mark}; echo one; echo two; echo three; {TREE}"

    spec = {"kind": kind, "provider": "host", "limits": {"best_effort": True}}
    env = await made(manager=manager, environments={"shell": spec})
    seen = Seen(env)
    one = call("execute_command", command=command)
    running = asyncio.ensure_future(env.execute_tool(one))
    await until(lambda: "ready" in str(seen.of("progress")) or running.done())
    env.abort_step()
    response = await running
    assert response.status == "aborted"
    lines = str(tool_message(one, response)["content"])
    for line in ("one", "two", "three"):
        assert line in lines
    if kind == "shell":  # commands left running there are jobs of the shell
        await env.dispose()
    await asyncio.to_thread(wait_for, mark, 0)
    await env.dispose()


# Time of the abort


async def test_abort_while_a_question_is_open_withdraws_it(tmp_path: Path) -> None:
    count = Counting(tmp_path)
    defer = Asked({"approved": False, "decision": "defer"})
    async with await made(count.tool, callback=defer) as env:
        running = asyncio.ensure_future(env.execute_tool(call("count", "1")))
        await until(env.questions)
        env.abort_step()
        response = await running
        assert (response.status, response.ran) == ("aborted", "no")
        assert env.questions() == []
        with pytest.raises(DecisionError, match="aborted") as raised:
            env.decide("1", {"approved": True})
        assert raised.value.code == "not_open"
        assert count.n == 0


async def test_an_abort_does_not_hit_later_calls() -> None:
    signals: list[bool] = []

    @tool
    async def looks(ctx: ToolContext) -> None:
        """Look at the signal."""
        signals.append(ctx.signal.aborted)

    async with await made(looks) as env:
        env.abort_step()
        env.abort_step()
        assert (await env.execute_tool(call("looks"))).status == "ok"
        approved = call("looks")
        await env.approve_tool(approved)
        env.abort_step()
        assert (await env.execute_tool(approved)).status == "ok"
        assert signals == [False, False]


async def test_a_call_that_has_ended_cannot_be_aborted(tmp_path: Path) -> None:
    count = Counting(tmp_path)
    env = await made(count.tool, callback=Asked(lambda one: one.tool_call_id == "1"))
    for name, status in (("1", "ok"), ("2", "rejected")):
        assert (await env.execute_tool(call("count", name))).status == status
        assert not env.abort_call(name)
        with pytest.raises(CallError) as raised:
            await env.update_request_tool_params(call("count", name))
        assert raised.value.code == "late_update"
        assert (await env.execute_tool(call("count", name))).status == status
    await env.dispose()


async def test_an_abort_hits_a_call_whose_arguments_are_arriving(tmp_path: Path) -> None:
    count = Counting(tmp_path)
    async with await made(count.tool) as env:
        one = call("count")
        await env.register_request_tool_call(one)
        env.abort_step()
        response = await env.execute_tool(one)
        assert (response.status, response.ran) == ("aborted", "no")
        assert count.n == 0


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
    async with await made(form, bounds=CallBounds(grace=0.5)) as env:
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
                assert response.ran in {"yes", "maybe"}
            if response.ran == "no":
                assert name not in acted
            assert acted.count(name) <= 1
    assert statuses == {"ok", "aborted"}


async def test_who_stops_waiting_aborts_the_call() -> None:
    slow = Slow()
    async with await made(slow.tool) as env:
        seen = Seen(env)
        running = asyncio.ensure_future(env.execute_tool(call("slow", "1")))
        await slow.began.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert seen.of("result")[0]["result"]["status"] == "aborted"


# Shows T73
async def test_the_model_is_told_which_it_was(tmp_path: Path) -> None:
    clock, slow, count = FakeClock(), Slow(timeout=10.0), Counting(tmp_path)

    def answer(one: ToolCall) -> Any:
        if one.tool_call_id == "rejected":
            return False
        return {"approved": False, "decision": "defer"} if one.tool_name == "count" else True

    told = {}
    async with await made(slow.tool, count.tool, callback=Asked(answer)) as env:
        one = call("count", "rejected")
        told["rejected"] = tool_message(one, await env.execute_tool(one))
        one = call("count", "before")
        running = asyncio.ensure_future(env.execute_tool(one))
        await until(env.questions)
        env.abort_step()
        told["before"] = tool_message(one, await running)
        for name in ("while", "time"):
            slow.began.clear()
            one = call("slow", name)
            running = asyncio.ensure_future(env.execute_tool(one))
            await slow.began.wait()
            if name == "while":
                env.abort_step()
            else:
                clock.advance(10)
            told[name] = tool_message(one, await running)
    texts = {name: str(message["content"]) for name, message in told.items()}
    assert len(set(texts.values())) == 4
    nothing = {name for name, text in texts.items() if "Nothing was done" in text}
    assert nothing == {"rejected", "before"}


@pytest.mark.endurance
# Shows T5
def test_what_the_process_died_in_is_uncertain_and_does_not_run_again(tmp_path: Path) -> None:
    script = f"""
import asyncio, os
from flowengine import Engine
from flowengine.tool_environment import LocalEnvironment, tool

@tool
def act() -> None:
    open({str(tmp_path / "acted")!r}, "a").write("x")
    os.kill(os.getpid(), 9)

async def main():
    env = LocalEnvironment(engine=Engine({str(tmp_path / "calls")!r}), execution_id="x")
    await env.register_tool(act)
    await env.execute_tool({{"tool_call_id": "1", "tool_name": "act"}})

asyncio.run(main())
"""
    import sys

    done = subprocess.run([sys.executable, "-c", script], check=False, timeout=60)
    assert done.returncode == -9

    @tool
    def act() -> None:
        """Act."""
        raise AssertionError

    async def main(status: str, ran: str, content: Any) -> None:
        async with await made(act, engine=engine, execution_id="x") as env:
            result = (await env.execute_tool(call("act", "1"))).tool_result
            assert result is not None
            assert (result.status, result.ran, result.content) == (status, ran, content)
            assert (tmp_path / "acted").read_text() == "x"

    with Engine(tmp_path / "calls") as engine:
        run(main("uncertain", "maybe", None))
        [question] = engine.approvals.list().items
        engine.approvals.decide(question["id"], "result", value="it has acted", resume=False)
        run(main("ok", "no", "it has acted"))
