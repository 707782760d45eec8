"""Calls that are invalid in themselves."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from flowengine import tool
from flowengine.errors import UsageError
from flowengine.tool_environment import LocalEnvironment
from tests.tool_environment.world import Asked, Counting, Seen, call, echo, made, run

GOOD = {"tool_call_id": "1", "tool_name": "count", "args": {}}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"tool_call_id": None}, ["tool_call_id"]),
        ({"tool_call_id": ""}, ["tool_call_id"]),
        ({"tool_name": ""}, ["tool_name"]),
        ({"type": "functionCall"}, ["type"]),
        ({"args": []}, ["args"]),
        ({"args": "{}"}, ["args"]),
        ({"args": None}, ["args"]),
        ({"force": True}, ["force"]),
        ({"tool_call_id": 7, "tool_name": "", "args": 1}, ["tool_call_id", "tool_name", "args"]),
    ],
)
# Shows T92
async def test_a_wrong_call_is_invalid_with_every_fault_and_nobody_is_asked(
    change: dict[str, Any], named: list[str], tmp_path: Path
) -> None:
    count, asked = Counting(tmp_path), Asked()
    async with await made(count.tool, callback=asked) as env:
        for wrong in ({**GOOD, **change}, None, "nope", 7, [GOOD]):
            response = await env.execute_tool(wrong)  # type: ignore[arg-type]
            assert (response.status, response.ran) == ("invalid", "no")
            assert (await env.approve_tool(wrong)).error is not None  # type: ignore[arg-type]
        response = await env.execute_tool({**GOOD, **change})
        assert response.error is not None
        for field in named:
            assert f"'{field}'" in response.error.message
        assert asked.calls == []
        assert count.n == 0


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"text": 1},
        {"text": "a", "more": 1},
        {"text": float("nan")},
        {"text": 2**70},
        {"text": {"deep": [float("inf")]}},
    ],
)
async def test_arguments_that_do_not_fit_are_invalid_and_nobody_is_asked(
    args: dict[str, Any],
) -> None:
    asked = Asked()
    async with await made(echo, callback=asked) as env:
        response = await env.execute_tool(call("echo", **args))
        assert response.status == "invalid"
        assert "text" in str(response.error) or "more" in str(response.error)
        assert asked.calls == []


# Shows T93
async def test_an_unknown_tool_is_told_with_the_nearest_name_and_others_run() -> None:
    asked = Asked()
    async with await made(echo, callback=asked) as env:
        unknown, known = await env.execute_tools([call("ehco", text="a"), call("echo", text="b")])
        assert unknown.error is not None
        assert unknown.error.code == "unknown_tool"
        assert "did you mean 'echo'?" in unknown.error.message
        assert "execute_command" in unknown.error.message
        assert known.status == "ok"
        assert len(asked.calls) == 1


# Shows T94
async def test_an_id_that_is_used_twice(tmp_path: Path) -> None:
    count = Counting(tmp_path)
    async with await made(count.tool, echo) as env:
        seen = Seen(env)
        first = await env.execute_tool(call("count", "1"))
        assert await env.execute_tool(call("count", "1")) == first
        for other in (call("echo", "1", text="a"), call("count", "1", surplus=1)):
            response = await env.execute_tool(other)
            assert response.error is not None
            assert response.error.code == "duplicate_call"
        assert count.n == 1
        assert seen.types().count("execution") == 1


# Shows T94
def test_the_same_call_from_twenty_threads_runs_once(tmp_path: Path) -> None:
    count = Counting(tmp_path)
    env = LocalEnvironment()
    run(env.register_tool(count.tool))
    together = threading.Barrier(20)
    contents: list[Any] = []

    def thread() -> None:
        together.wait()
        result = asyncio.run(env.execute_tool(call("count", "1"))).tool_result
        contents.append(result and result.content)

    threads = [threading.Thread(target=thread) for _ in range(20)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)

    assert contents == ["1"] * 20
    assert count.n == 1
    run(env.dispose())


def test_a_timeout_is_read_where_it_is_declared() -> None:
    assert vars(tool(timeout="500ms")(lambda: None))["__flowengine_tool__"]["timeout"] == 0.5
    for wrong in ("soon", 0, True, 10**400):
        with pytest.raises(UsageError, match="the timeout of a tool is"):
            tool(timeout=wrong)
