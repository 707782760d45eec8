# Shows G15
"""Resources, prompts, completion, progress and cancellation, in both generations (G15)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from flowengine.execution_environment import EnvironmentManager
from flowengine.sdk import ToolError
from flowengine_envs.mcp.session import McpSession
from tests.engines.world import until
from tests.envs.mcp.conftest import HERE, Open

PARTS = [sys.executable, str(HERE / "parts_server.py")]


@pytest.fixture(
    scope="module",
    params=[
        ("command", "legacy"),
        ("command", "auto"),
        pytest.param(("url", "legacy"), marks=pytest.mark.endurance),
        pytest.param(("url", "auto"), marks=pytest.mark.endurance),
    ],
    ids=" ".join,
)
def session(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[McpSession]:
    """A session that tests share, over each transport, in each generation of the protocol."""
    way, mode = request.param
    config: dict[str, Any] = {"mode": mode, "resources": True, "prompts": True}
    spec = {"kind": "mcp", "scope": "session", "owner_id": "parts", "config": config}
    with EnvironmentManager(tmp_path_factory.mktemp("parts")) as manager, ExitStack() as stack:
        if way == "command":
            config["command"] = PARTS
        else:
            server = subprocess.Popen([*PARTS, "http"], stdout=subprocess.PIPE, text=True)
            stack.enter_context(server)
            stack.callback(server.kill)
            assert server.stdout is not None
            config["url"] = f"http://127.0.0.1:{int(server.stdout.readline())}/mcp"
        yield manager.ensure(spec).resource


def test_resources_and_prompts_are_read_by_tools(session: McpSession) -> None:
    tools = {str(tool["name"]): tool for tool in session.list_tools()}
    assert list(tools)[:4] == ["list_resources", "read_resource", "list_prompts", "get_prompt"]
    assert "Read a resource" in str(tools["read_resource"]["description"])  # not the server's

    listed: Any = session.call_tool("list_resources").structured
    uris = [each["uri"] for each in listed["resources"]]
    assert uris[:3] == ["note://plain", "note://picture", "note://large"]
    assert [each["uriTemplate"] for each in listed["templates"]] == ["order://{number}"]
    assert session.call_tool("read_resource", {"uri": "note://plain"}).text == "Grüße"
    assert session.call_tool("read_resource", {"uri": "order://17"}).text == "order 17"
    [picture] = session.call_tool("read_resource", {"uri": "note://picture"}).content
    assert picture["resource"]["blob"] == "UE5H"
    with pytest.raises(ToolError, match="resource note://none: "):
        session.call_tool("read_resource", {"uri": "note://none"})

    prompts: Any = session.call_tool("list_prompts").structured
    assert [each["name"] for each in prompts["prompts"]][:2] == ["review", "talk"]
    given = {"name": "review", "arguments": {"language": "Perl"}}
    assert session.call_tool("get_prompt", given).text == "You review Perl."
    assert session.call_tool("get_prompt", {"name": "talk"}).text == "Who is it?\nassistant: Ada."
    for wrong in ({}, {"name": "review", "arguments": {"language": 7}}, {"name": "none"}):
        with pytest.raises(ToolError):
            session.call_tool("get_prompt", wrong)


def test_values_of_arguments_are_completed(session: McpSession) -> None:
    assert session.complete("language", "p", prompt="review") == ["python", "perl"]
    given = {"shop": "north"}
    found = session.complete("number", "1", template="order://{number}", given=given)
    assert found == ["1", "17", "north"]
    with pytest.raises(ToolError, match="either 'prompt' or 'template'"):
        session.complete("number", "1")


def test_progress_is_passed_on_now_and_then(session: McpSession) -> None:
    heard: list[tuple[float, float | None, str | None]] = []
    begun = time.monotonic()

    session.call_tool("work", {"steps": 500}, progress=lambda *told: heard.append(told))

    assert heard[0] == (1, 500, "file 1\ufffd[2J")
    assert len(heard) <= 2 * (time.monotonic() - begun) + 1


def test_a_call_that_is_cancelled_ends_on_the_server(session: McpSession, tmp_path: Path) -> None:
    async def cancelled() -> None:
        call = asyncio.create_task(session.async_call_tool("wait", {"folder": str(tmp_path)}))
        await asyncio.to_thread(until, (tmp_path / "begun").exists)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(cancelled())
    until((tmp_path / "cancelled").exists)
    assert session.call_tool("work", {"steps": 1}).text == "done"  # the session goes on


def test_those_of_several_servers_have_their_names(opened: Open) -> None:
    session = opened(servers={"a": {"command": PARTS, "resources": True}, "b": {"command": PARTS}})

    names = {tool["name"] for tool in session.list_tools()}
    assert {"a.list_resources", "a.read_resource"} == {
        name for name in names if "resource" in str(name) and str(name).startswith("a.")
    }
    assert session.call_tool("a.read_resource", {"uri": "order://17"}).text == "order 17"
    assert session.call_tool("b.read_resource").text == "the server's own"


def test_a_result_without_a_type_is_complete(opened: Open) -> None:
    """The protocol defines this default since 2026-07-28."""
    session = opened(command=[sys.executable, str(HERE / "bare_server.py")])

    assert session.call_tool("act").text == "done"
