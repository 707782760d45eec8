# Shows T95
"""Tools: creation, registration, cloning and disposal."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest

from flowengine.tool_environment import (
    LocalEnvironment,
    RegistrationError,
    Tool,
    ToolRegistry,
    create_tool_instance,
    tool,
)
from tests.tool_environment.world import Slow, call, echo, made, run


class Echo(Tool):
    name = "echo"

    def execute(self, text: str) -> str:
        """Return the text."""
        return text


class Log(Tool):
    """Keeps the requests."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def execute(self, what: str) -> int:
        self.seen.append(what)
        return len(self.seen)


# Shows T7
def test_a_function_and_a_class_make_the_same_tool() -> None:
    async def main(form: Any) -> tuple[Any, Any]:
        async with await made(form) as env:
            response = await env.execute_tool(call("echo", text="hello"))
            return response.tool_result, env.registry.get_tool_metadata()

    assert create_tool_instance(echo).execute("a") == "a"  # type: ignore[attr-defined]
    assert create_tool_instance(Echo).execute("a") == "a"  # type: ignore[attr-defined]
    (one, one_told), (other, other_told) = run(main(echo)), run(main(Echo))
    assert one.content == other.content == "hello"
    assert one_told == other_told


# Shows T8
def test_clones_share_nothing() -> None:
    registry = ToolRegistry()
    registry.register_tool(Log)

    one, other = registry.clone_tool("log"), registry.clone_tool("log")

    assert isinstance(one, Log)
    assert isinstance(other, Log)
    assert one is not other
    assert one.seen is not other.seen
    assert registry.clone_tool("nope") is None


def test_an_instance_is_copied_as_it_was_registered() -> None:
    registry = ToolRegistry()
    original = Log()
    registry.register_tool(original)
    original.seen.append("later")

    clone = registry.clone_tool("log")

    assert isinstance(clone, Log)
    assert clone.seen == []


# Shows T8
async def test_each_environment_has_its_own_tools() -> None:
    registry = ToolRegistry()
    one, other = LocalEnvironment(registry=registry), LocalEnvironment(registry=registry)
    await one.register_tool(Log)

    assert list(one.registry.tools) == ["log"]
    assert other.registry.tools == {}
    assert registry.names() == []
    assert one.registry.tools["log"].environment is one
    assert other.registry.clone_tool("log") is None
    await one.dispose()
    await other.dispose()


async def test_a_known_tool_is_registered_when_it_is_first_called() -> None:
    registry = ToolRegistry()
    registry.register_tool(echo)
    async with LocalEnvironment(registry=registry) as env:
        assert env.registry.tools == {}
        response = await env.execute_tool(call("echo", text="a"))
        assert response.status == "ok"
        assert list(env.registry.tools) == ["echo"]


METADATA = """
import asyncio, json
from flowengine.tool_environment import LocalEnvironment, tool

@tool(supports_parallel_execution=True, approval="required", effect="pure", timeout=3)
def search(query: str, limit: int = 10, tags: list[str] | None = None) -> list[str]:
    "Search the index."
    return []

async def main():
    env = LocalEnvironment()
    await env.register_tool(search)
    print(json.dumps(env.registry.get_tool_metadata()))

asyncio.run(main())
"""


@pytest.mark.endurance
# Shows T10
def test_metadata_is_plain_data_and_the_same_in_every_process() -> None:
    told = [
        subprocess.run(
            [sys.executable, "-c", METADATA], capture_output=True, check=True, timeout=60
        ).stdout
        for _ in range(2)
    ]

    assert told[0] == told[1]
    [found] = json.loads(told[0])
    assert found["name"] == "search"
    assert found["description"] == "Search the index."
    assert found["args"]["required"] == ["query"]
    assert set(found["args"]["properties"]) == {"query", "limit", "tags"}
    assert found["args"]["additionalProperties"] is False
    assert (found["parallel"], found["approval"]) == (True, "required")
    assert (found["effect"], found["timeout"]) == ("pure", 3)


# Shows T11
async def test_all_are_disposed_of_once_in_reverse_order_whatever_one_raises() -> None:
    ended: list[str] = []

    def ending(own_name: str, fault: Exception | None = None) -> type[Tool]:
        class Ending(Tool):
            name = own_name

            def execute(self) -> None:
                return None

            def dispose(self) -> None:
                ended.append(own_name)
                if fault is not None:
                    raise fault

        return Ending

    env = await made(ending("a"), ending("b", OSError("stuck")), ending("c"))
    failed = await env.registry.dispose_all()
    assert ended == ["c", "b", "a"]
    assert list(failed) == ["b"]
    assert "stuck" in failed["b"]
    assert await env.registry.dispose_all() == {}
    assert ended == ["c", "b", "a"]
    await env.dispose()


def no_hint_of_mine(x: Missing) -> None:  # type: ignore[name-defined]  # noqa: F821
    return None


class NoSchema(Tool):
    parameters: Any = None

    def __init__(self) -> None:
        self.parameters = ["a"]

    def execute(self, **args: Any) -> None:
        return None


class WrongSchema(NoSchema):
    def __init__(self) -> None:
        self.parameters = {"type": "object", "properties": {"a": {"type": "nothing"}}}


class Stubborn(Tool):
    def __init__(self, needed: int) -> None:
        self.needed = needed

    def execute(self) -> None:
        return None


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (42, "42"),
        (object(), "execute"),
        (tool(name="")(lambda: None), "''"),
        (tool(name="x" * 65)(lambda: None), "x" * 65),
        (tool(name="two words")(lambda: None), "two words"),
        (type("Empty", (), {}), "execute"),
        (NoSchema(), "no_schema"),
        (WrongSchema(), "wrong_schema"),
        (no_hint_of_mine, "no_hint_of_mine"),
        (Stubborn, "Stubborn"),
        (tool(name="t", approval="perhaps")(lambda: None), "perhaps"),  # type: ignore[call-overload]
        (tool(name="posonly")(lambda a, /: None), "posonly"),
    ],
)
async def test_what_is_no_tool_is_refused_and_named(wrong: Any, named: str) -> None:
    async with await made(echo) as env:
        before = env.registry.get_tool_metadata()
        with pytest.raises(RegistrationError) as raised:
            await env.register_tool(wrong)
        assert named in str(raised.value)
        assert raised.value.code == "registration"
        assert env.registry.get_tool_metadata() == before
        assert (await env.execute_tool(call("echo", text="a"))).status == "ok"


async def test_a_name_is_taken_once_and_replaced_only_on_purpose() -> None:
    @tool(name="echo")
    def other(text: str) -> str:
        return text.upper()

    async with await made(echo) as env:
        await env.register_tool(echo)  # registering the same object changes nothing
        with pytest.raises(RegistrationError, match="replace=True"):
            await env.register_tool(other)
        await env.register_tool(other, replace=True)
        response = await env.execute_tool(call("echo", text="a"))
        assert response.tool_result is not None
        assert response.tool_result.content == "A"


async def test_a_tool_is_not_replaced_while_a_call_of_it_runs() -> None:
    slow = Slow()
    async with await made(slow.tool) as env:
        running = asyncio.ensure_future(env.execute_tool(call("slow")))
        await slow.began.wait()
        with pytest.raises(RegistrationError, match="slow"):
            await env.register_tool(Slow().tool, replace=True)
        slow.go_on.set()
        response = await running
        assert response.status == "ok"
        await env.register_tool(Slow().tool, replace=True)
