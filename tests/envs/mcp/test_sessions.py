# Shows E48
"""Sessions with third-party servers, over both transports (E48, E49, E53)."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from flowengine.execution_environment import EnvironmentManager
from flowengine.sdk import ToolError
from flowengine_envs.mcp.session import McpSession
from tests.envs.mcp.conftest import HERE, NASTY, Open
from tests.envs.opening import managed_processes

SDK = [sys.executable, str(HERE / "sdk_server.py")]
EVERYTHING = (
    Path(__file__).parents[2]
    / "mcp_servers/node_modules/@modelcontextprotocol/server-everything/dist/index.js"
)


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[McpSession]:
    """A session with a server that is started once, because loading its library takes a second."""
    spec = {"kind": "mcp", "scope": "session", "config": {"command": [*SDK, "stdio"]}}
    with EnvironmentManager(tmp_path_factory.mktemp("started") / "environments") as manager:
        yield manager.ensure(spec).resource


@pytest.fixture(params=["stdio", "http"])
def session(request: pytest.FixtureRequest, opened: Open) -> McpSession:
    if request.param == "stdio":
        started: McpSession = request.getfixturevalue("started")
        return started
    return opened(url=request.getfixturevalue("address"), headers={"x-tenant": "a"})


# Shows E49
def test_tools_resources_and_prompts(session: McpSession) -> None:
    assert [tool["name"] for tool in session.list_tools()] == ["add", "fail", "grow", "request"]
    answer = session.call_tool("add", {"a": 1, "b": 2})
    assert (answer.text, answer.structured, answer.is_error) == ("3", {"result": 3}, False)
    assert [each["uri"] for each in session.list_resources()] == ["note://greeting"]
    assert session.read_resource("note://greeting")[0]["text"] == "Grüße"
    assert [each["name"] for each in session.list_prompts()] == ["ask"]
    said = session.get_prompt("ask", {"name": "Ada"})
    assert said[0]["content"]["text"] == "Who is Ada?"


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("elicitation", r"input from a user \(elicitation\).* pass the input as arguments"),
        ("sampling", r"a text from a model \(sampling\)"),
        ("roots", r"the client's directories \(roots\).* 'mode: legacy'"),
    ],
)
def test_a_request_of_a_tool_that_is_not_answered_is_named(
    session: McpSession, what: str, told: str
) -> None:
    with pytest.raises(ToolError, match=f"tool request: the server requests {told}"):
        session.call_tool("request", {"what": what})

    refused = session.call_tool("request", {"what": "refused"})
    assert refused.is_error
    assert refused.text.endswith("or pass the input as arguments)")


def test_a_list_that_never_advances_keeps_what_was_read(nasty: Open) -> None:
    session = nasty("again")

    assert len(session.list_tools()) == 2
    assert session.call_tool("env").text


@pytest.mark.endurance
def test_the_reference_server(opened: Open) -> None:
    if not EVERYTHING.exists():
        pytest.skip("no server: npm ci --prefix tests/mcp_servers")
    session = opened(command=["node", str(EVERYTHING), "stdio"])

    assert len(session.list_tools()) > 5
    assert "7" in session.call_tool("get-sum", {"a": 3, "b": 4}).text
    assert session.call_tool("echo", {"message": "Grüße"}).text == "Echo: Grüße"
    assert session.list_resources()
    assert session.list_resource_templates()
    assert session.list_prompts()
    assert session.complete("department", "E", prompt="completable-prompt") == ["Engineering"]
    heard: list[Any] = []
    session.call_tool(
        "trigger-long-running-operation",
        {"duration": 1, "steps": 2},
        progress=lambda *told: heard.append(told),
    )
    assert heard[0] == (1, 2, None)


@pytest.mark.endurance
def test_a_server_in_python_of_others(opened: Open) -> None:
    session = opened(
        command=[sys.executable, "-m", "mcp_server_time"], args=["--local-timezone", "UTC"]
    )

    asked = {"source_timezone": "Europe/Berlin", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    assert "convert_time" in {tool["name"] for tool in session.list_tools()}
    assert "Asia/Tokyo" in session.call_tool("convert_time", asked).text
    assert session.call_tool("get_current_time", {"timezone": "No/Where"}).is_error


@pytest.mark.endurance
# Shows E53
def test_many_servers_in_any_order(manager: EnvironmentManager) -> None:
    """Servers are opened, used and released by tasks, threads and loops in random order (E53)."""
    dice = random.Random(53)

    def spec(number: int) -> dict[str, Any]:
        return {
            "kind": "mcp",
            "scope": "session",
            "owner_id": str(number),
            "config": {"command": NASTY},
        }

    def by_thread(number: int) -> None:
        handle = manager.ensure(spec(number))
        assert handle.resource.call_tool("count").text.isdigit()
        manager.release(handle)

    def by_three_loops(number: int) -> None:
        handle = asyncio.run(manager.async_ensure(spec(number)))
        assert asyncio.run(handle.resource.async_call_tool("count")).text.isdigit()
        asyncio.run(manager.async_release(handle))

    def by_three_tasks(number: int) -> None:
        async def work() -> None:
            handle = await asyncio.create_task(manager.async_ensure(spec(number)))
            used = handle.resource.async_call_tool("count")
            assert (await asyncio.create_task(used)).text.isdigit()
            await asyncio.create_task(manager.async_release(handle))

        asyncio.run(work())

    work = [*enumerate([by_thread, by_three_loops, by_three_tasks] * 2)]
    dice.shuffle(work)
    with ThreadPoolExecutor(len(work)) as pool:
        for done in [pool.submit(way, number) for number, way in work]:
            done.result(100)
    assert managed_processes(manager) == []
