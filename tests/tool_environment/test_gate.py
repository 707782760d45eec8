"""A single gate for calls of every origin and tools of every kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowengine import function_to_json
from flowengine.tool_environment import (
    LocalEnvironment,
    ToolCall,
    through,
    tool,
)
from tests.tool_environment.world import Asked, Counting, call, made


class Step:
    """The part of the calling step that a function needs."""

    def __init__(self, key: str) -> None:
        self.idempotency_key = key


async def executed(env: LocalEnvironment, one: ToolCall) -> None:
    await env.execute_tool(one)


async def of_a_reply(env: LocalEnvironment, one: ToolCall) -> None:
    await env.execute_tools([one, one])


async def arriving(env: LocalEnvironment, one: ToolCall) -> None:
    await env.register_request_tool_call(one)
    await env.update_request_tool_params(one, is_final=True)
    await env.execute_tool(one.tool_call_id)


async def after_a_rejection(env: LocalEnvironment, one: ToolCall) -> None:
    await env.approve_tool(one)
    await env.execute_tool(one)


async def by_an_agents_function(env: LocalEnvironment, one: ToolCall) -> None:
    [function] = through(env, [tool(name="count")(lambda: None)])
    told = await function(step_of_call=Step(one.tool_call_id))
    assert "rejected" in told


WAYS = [executed, of_a_reply, arriving, after_a_rejection, by_an_agents_function]


@pytest.mark.parametrize("way", WAYS)
# Shows T35, T28
async def test_no_way_leads_around_the_gate(way: Any, tmp_path: Path) -> None:
    count = Counting(tmp_path)
    async with await made(count.tool, callback=Asked(False)) as env:
        await way(env, call("count"))
        assert count.n == 0


# Functions of agents


@tool
def find(query: str, limit: int = 3) -> str:
    """Find something.

    Args:
        query: What to look for.
        limit: How many at most.
    """
    return f"{query} {limit}"


# Shows T10
async def test_an_agent_is_shown_the_tool_as_it_is_and_calls_through_the_environment() -> None:
    asked = Asked()
    async with await made(find, callback=asked) as env:
        [function] = through(env, [find])
        shown = function_to_json(function)["function"]
        own = function_to_json(find)["function"]
        assert shown == own
        assert await function(query="a", step_of_call=Step("k1")) == "a 3"
        assert (asked.calls[0].tool_call_id, asked.calls[0].args) == ("k1", {"query": "a"})
        assert await function(query="a", step_of_call=Step("k1")) == "a 3"
        assert len(asked.calls) == 1  # a retry of the same step does not run it again
