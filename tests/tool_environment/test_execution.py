# Shows T58, T60b
"""Execution of tools: resources that they may use, and handling of their results."""

# ruff: noqa: ASYNC240 - the tests are alone on their loop

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from flowengine.execution_environment import EnvironmentManager
from flowengine.tool_environment import (
    Image,
    ToolCall,
    ToolContext,
    tool,
    tool_message,
)
from tests.tool_environment.test_approval import PNG
from tests.tool_environment.world import (
    Asked,
    FakeClock,
    Seen,
    Slow,
    call,
    echo,
    made,
    until,
)


# Shows T52
async def test_the_context_has_what_a_tool_may_use() -> None:
    seen: dict[str, Any] = {}

    @tool(supports_parallel_execution=True)
    async def look(ctx: ToolContext) -> None:
        """Look."""
        seen.update(vars(ctx), context=ctx)

    async with await made(look, execution_id="x1") as env:
        await env.execute_tool(call("look", "7"))
    assert seen["tool_call_id"] == "7"
    assert seen["execution_id"] == "x1"
    assert seen["parallel"] is True
    assert seen["signal"].aborted is False
    assert dict(seen["state"]) == {}
    assert seen["resources"] == {}
    assert callable(seen["context"].report)


# Shows T53
async def test_a_raising_tool_is_an_error_without_a_traceback() -> None:
    @tool
    def broken() -> None:
        """Break."""
        raise ValueError("x")

    async with await made(broken, echo) as env:
        one = call("broken")
        response = await env.execute_tool(one)
        assert response.error is not None
        assert response.error.message == "ValueError: x"
        assert response.tool_result is not None
        assert response.tool_result.success is False
        told = json.dumps(tool_message(one, response)) + response.model_dump_json()
        assert "Traceback" not in told
        assert os.path.dirname(__file__) not in told
        assert (await env.execute_tool(call("echo", text="a"))).status == "ok"


def too_deep() -> None:
    too_deep()


def stops() -> None:
    raise StopIteration


async def cancels_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


async def raises_cancelled() -> None:
    raise asyncio.CancelledError


async def exits() -> None:
    raise SystemExit(3)


def exits_on_a_thread() -> None:
    raise SystemExit(3)


async def interrupts() -> None:
    raise KeyboardInterrupt


def out_of_memory() -> None:
    raise MemoryError


async def stops_in_a_coroutine() -> None:
    raise StopIteration


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def raises_unprintable() -> None:
    raise Unprintable


@pytest.mark.parametrize(
    "ending",
    [
        too_deep,
        stops,
        cancels_itself,
        raises_cancelled,
        exits,
        exits_on_a_thread,
        interrupts,
        out_of_memory,
        stops_in_a_coroutine,
        raises_unprintable,
    ],
)
# Shows T53
async def test_no_tool_ends_the_host(ending: Any) -> None:
    async with await made(ending, echo) as env:
        response = await env.execute_tool(call(ending.__name__))
        assert (response.status, response.ran) == ("error", "yes")
        assert (await env.execute_tool(call("echo", text="a"))).status == "ok"


# Shows T55b
async def test_a_timeout_does_not_count_the_time_of_the_question() -> None:
    clock = FakeClock()
    go_on = asyncio.Event()

    async def callback(one: ToolCall) -> bool:
        await go_on.wait()
        return True

    slow = Slow(timeout=1.0)
    async with await made(slow.tool, callback=callback) as env:
        running = asyncio.ensure_future(env.execute_tool(call("slow")))
        await until(env.questions)
        clock.advance(3600)
        go_on.set()
        await slow.began.wait()
        clock.advance(0.5)
        slow.go_on.set()
        assert (await running).status == "ok"

        slow.began.clear()
        slow.go_on.clear()
        running = asyncio.ensure_future(env.execute_tool(call("slow")))
        await slow.began.wait()
        clock.advance(1)
        response = await running
        assert response.status == "timed_out"
        assert response.ran == "yes"


# Shows T56
async def test_execution_callbacks_are_called_around_each_call_that_runs() -> None:
    order: list[str] = []

    @tool
    def works(fails: bool) -> None:
        """Work."""
        order.append("tool")
        if fails:
            raise ValueError

    def start(one: ToolCall) -> None:
        order.append(f"start {one.tool_call_id}")
        raise SystemExit

    async def end(one: ToolCall, result: Any) -> None:
        order.append(f"end {one.tool_call_id} {result.status}")
        result.content = "changed"
        raise ValueError

    slow = Slow()
    async with await made(
        works, slow.tool, callback=Asked(lambda one: one.tool_call_id != "3")
    ) as env:
        env.register_execute_callback(start, end)
        response = await env.execute_tool(call("works", "1", fails=False))
        assert response.tool_result is not None
        assert response.tool_result.content is None
        await env.execute_tool(call("works", "2", fails=True))
        await env.execute_tool(call("works", "3", fails=True))
        running = asyncio.ensure_future(env.execute_tool(call("slow", "4")))
        await slow.began.wait()
        env.abort_step()
        await running
        env.clear_execute_callback()
        await env.execute_tool(call("works", "5", fails=False))
        assert order == [
            *("start 1", "tool", "end 1 ok"),
            *("start 2", "tool", "end 2 error"),
            *("start 4", "end 4 aborted"),
            "tool",
        ]


# Shows T56
async def test_a_callback_that_hangs_delays_a_call_no_longer_than_its_bound() -> None:
    async def start(one: ToolCall) -> None:
        await asyncio.Event().wait()

    clock = FakeClock()
    async with await made(echo) as env:
        seen = Seen(env)
        env.register_execute_callback(start)
        running = asyncio.ensure_future(env.execute_tool(call("echo", text="a")))
        await clock.until(running.done)
        assert (await running).status == "ok"
        assert seen.codes() == ["callback"]


# Results


class Point(BaseModel):
    x: int
    y: int


@dataclasses.dataclass
class Pair:
    one: int
    other: str


@pytest.mark.parametrize(
    ("returned", "content"),
    [
        (None, None),
        ("text", "text"),
        (b"bytes", "bytes"),
        (Point(x=1, y=2), {"x": 1, "y": 2}),
        (Pair(1, "a"), {"one": 1, "other": "a"}),
        ((1, 2), [1, 2]),
        ({"a": [1.5, True]}, {"a": [1.5, True]}),
        (Path("a") / "b", "a/b"),
    ],
)
async def test_what_a_tool_returns_becomes_data(returned: Any, content: Any) -> None:
    @tool
    def give() -> Any:
        """Give."""
        return returned

    async with await made(give) as env:
        response = await env.execute_tool(call("give"))
        assert response.tool_result is not None
        assert response.tool_result.status == "ok"
        assert response.tool_result.content == content


async def test_images_are_images() -> None:
    from PIL import Image as Pillow

    def painting(image: Any) -> Any:
        @tool(name="paint")
        def paint() -> Any:
            """Paint."""
            return image

        return paint

    for image in (PNG, Image.model_validate(PNG), Pillow.new("RGB", (2, 2))):
        async with await made(painting(image)) as env:
            one = call("paint")
            response = await env.execute_tool(one)
            assert response.tool_result is not None
            assert [each.media_type for each in response.tool_result.images] == ["image/png"]
            assert tool_message(one, response)["content"][0]["type"] == "image_url"


async def test_a_tool_says_how_much_of_a_result_the_model_is_sent() -> None:
    @tool(limits={"output": "0.03kB"})
    def long(n: int) -> str:
        """Give much."""
        return "ä" * n

    async with await made(long) as env:
        whole = (await env.execute_tool(call("long", n=15))).tool_result
        cut = (await env.execute_tool(call("long", n=16))).tool_result
        assert whole is not None
        assert cut is not None
        assert (whole.content, whole.artifacts) == ("ä" * 15, [])
        assert cut.content == "ä" * 10 + "\n... 1 characters left out ...\n" + "ä" * 5
        assert Path(cut.artifacts[0]["path"]).read_text() == "ä" * 16


async def test_what_is_too_large_is_kept_as_a_file_and_cut_for_the_model() -> None:
    @tool
    def huge() -> str:
        """Give much."""
        return "begin" + "x" * 50_000_000 + "end"

    @tool
    def binary() -> bytes:
        """Give bytes."""
        return bytes(range(256)) * 1000

    async with await made(huge, binary) as env:
        one = call("huge")
        response = await env.execute_tool(one)
        result = response.tool_result
        assert result is not None
        assert result.content.startswith("begin")
        assert result.content.endswith("end")
        assert len(result.content) < 110_000
        [file] = result.artifacts
        assert file["size"] == 50_000_008
        assert Path(file["path"]).stat().st_size == 50_000_008
        assert file["name"] in tool_message(one, response)["content"]
        second = await env.execute_tool(call("binary"))
        assert second.tool_result is not None
        assert Path(second.tool_result.artifacts[0]["path"]).read_bytes()[:4] == bytes(range(4))
    assert not Path(file["path"]).exists()


async def test_what_has_no_form_as_data_is_an_error_that_names_tool_and_type() -> None:
    @tool
    def lock() -> Any:
        """Give a lock."""
        return {"deep": [threading.Lock()]}

    async with await made(lock) as env:
        response = await env.execute_tool(call("lock"))
        assert (response.status, response.ran) == ("error", "yes")
        assert response.error is not None
        assert "'lock'" in response.error.message
        assert "_thread.lock" in response.error.message


# Progress


async def test_progress_reaches_the_client_in_order_before_the_result() -> None:
    @tool
    def works(ctx: ToolContext) -> None:
        """Work."""
        ctx.report("50%")
        ctx.report({"done": 1.0})

    env = await made(works)
    seen = Seen(env)
    await env.execute_tool(call("works"))
    await env.dispose()
    types = [each["type"] for each in seen.messages]
    reports = [each["report"] for each in seen.messages if each["type"] == "progress"]
    assert reports == ["50%", {"done": 1.0}]
    assert types.index("progress") < types.index("result")


# Secrets


# Shows T61b
async def test_secrets_are_in_nothing_that_leaves_a_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    canary = "c4n4ry-57a1n"
    monkeypatch.setenv("TOKEN", canary)
    told: list[Any] = []

    @tool
    def leak(how: str, given: str, ctx: ToolContext) -> Any:
        """Leak."""
        assert given == canary
        ctx.report({"at": canary})
        if how == "raise":
            raise ValueError(f"wrong: {canary}")
        return {"token": canary, "list": [f"x{canary}y"]}

    class Watching:
        name = "watching"
        description = "Watches."

        async def execute(self, one: ToolCall, result: Any) -> Any:
            told.append((one.model_dump_json(), result.model_dump_json()))
            return {"again": result.content, "args": one.args, "own": canary}

    asked = Asked()
    env = await made(leak, callback=asked, secrets={"TOKEN": {"env": "TOKEN"}})
    env.register_observer(Watching())
    env.register_execute_callback(lambda one: told.append(one.model_dump_json()))
    seen = Seen(env)
    for how in ("return", "raise"):
        one = call("leak", how=how, given=canary)
        response = await env.execute_tool(one)
        told.append(tool_message(one, response))
        told.append(response.model_dump_json())
    told.append([each.model_dump_json() for each in asked.calls])
    told.append(seen.messages)
    await env.dispose()
    assert "***" in str(told)
    assert canary not in str(told)


# Resources


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[EnvironmentManager]:
    with EnvironmentManager(tmp_path / "managed") as found:
        yield found


async def test_resources_are_ensured_after_the_approval_and_released_after_the_call(
    manager: EnvironmentManager, tmp_path: Path
) -> None:
    order: list[str] = []
    manager.subscribe(
        lambda event: (
            order.append(event.event.removeprefix("execution_environment."))
            if event.event.endswith(("ready", "released"))
            else None
        )
    )
    spec = {"kind": "files", "scope": "action_call", "config": {}}

    @tool(resources={"box": spec})
    def work(ctx: ToolContext) -> list[str]:
        """Work."""
        manager.flush_events(60)
        order.append("execute")
        assert list(ctx.resources) == ["box"]
        ctx.resources["box"].write("a.txt", "a")
        return list(ctx.resources["box"].list("*"))

    def answer(one: ToolCall) -> bool:
        order.append("approval")
        return one.tool_call_id != "no"

    async with await made(work, echo, callback=Asked(answer), manager=manager) as env:
        assert (await env.execute_tool(call("work", "no"))).status == "rejected"
        assert order == ["approval"]
        response = await env.execute_tool(call("work"))
        assert response.status == "ok", response
        assert await asyncio.to_thread(manager.flush_events, 60)
        assert order == ["approval", "approval", "ready", "execute", "released"]


async def test_a_resource_of_the_execution_stays_until_the_end(manager: EnvironmentManager) -> None:
    @tool(resources={"box": None})
    def work(ctx: ToolContext) -> int:
        """Work."""
        box = ctx.resources["box"]
        box.write(f"{len(list(box.list('*')))}.txt", "a")
        return len(list(box.list("*")))

    env = await made(work, manager=manager, environments={"box": {"kind": "files"}})
    found = [await env.execute_tool(call("work")) for _ in range(2)]
    assert [each.tool_result and each.tool_result.content for each in found] == [1, 2]
    assert [each["state"] for each in manager.list()] == ["ready"]
    await env.dispose()
    assert manager.list(state="ready") == []


async def test_a_resource_that_cannot_be_had_is_an_error_and_nothing_ran(
    manager: EnvironmentManager, tmp_path: Path
) -> None:
    ran: list[int] = []

    @tool(resources={"box": {"kind": "files", "config": {"path": str(tmp_path / "nowhere")}}})
    def work(ctx: ToolContext) -> None:
        """Work."""
        ran.append(1)

    async with await made(work, manager=manager) as env:
        response = await env.execute_tool(call("work"))
        assert (response.status, response.ran) == ("error", "no")
        assert ran == []


# Commands


# Shows T57
async def test_a_command_without_a_shell_environment_names_the_missing_spec() -> None:
    async with await made() as env:
        response = await env.execute_tool(call("execute_command", command="ls -la"))
        assert (response.status, response.ran) == ("error", "no")
        assert response.error is not None
        assert "'shell'" in response.error.message
        assert "environments=" in response.error.message


@pytest.mark.parametrize("kind", ["bash", "shell"])
# Shows T57
async def test_a_command_runs_in_the_managed_shell(kind: str, manager: EnvironmentManager) -> None:
    spec = {"kind": kind, "provider": "host", "limits": {"best_effort": True}}
    async with await made(manager=manager, environments={"shell": spec}) as env:
        response = await env.execute_tool(
            call("execute_command", command="touch a.txt; ls -la; (exit 3)")
        )
        result = response.tool_result
        assert result is not None
        assert result.status == "ok", response
        assert result.content["exit_code"] == 3
        assert "a.txt" in result.content["stdout"]
        assert "stderr" in result.content
        assert not Path("a.txt").exists()
