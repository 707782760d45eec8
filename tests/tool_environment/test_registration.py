# Shows T95
"""Tools: creation, registration, cloning and disposal."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from flowengine.tool_environment import (
    RegistrationError,
    Tool,
    tool,
)
from tests.tool_environment.world import Asked, Seen, Slow, call, echo, made, until


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


# Shows T7, T8
@pytest.mark.parametrize("form", [echo, Echo])
async def test_a_function_and_a_class_are_tools(form: Any) -> None:
    async with await made(form) as env:
        response = await env.execute_tool(call("echo", text="hello"))
        assert response.tool_result is not None
        assert response.tool_result.content == "hello"


# Shows T8
async def test_each_call_has_an_instance_as_it_was_registered() -> None:
    original = Log()
    async with await made(original) as env:
        original.seen.append("later")
        for _ in range(2):
            response = await env.execute_tool(call("log", what="a"))
            assert response.tool_result is not None
            assert response.tool_result.content == 1
        async with await made() as other:
            assert (await other.execute_tool(call("log", what="a"))).status == "invalid"


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
        (tool(name="t", approval="perhaps")(lambda: None), "'approval'"),  # type: ignore[call-overload]
        (tool(name="posonly")(lambda a, /: None), "posonly"),
    ],
)
async def test_what_is_no_tool_is_refused_and_named(wrong: Any, named: str) -> None:
    async with await made(echo) as env:
        with pytest.raises(RegistrationError) as raised:
            await env.register_tool(wrong)
        assert named in str(raised.value)
        assert raised.value.code == "registration"
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


async def test_a_call_that_runs_keeps_the_tool_that_it_began_with() -> None:
    slow, other = Slow(), Slow()
    async with await made(slow.tool) as env:
        running = asyncio.ensure_future(env.execute_tool(call("slow")))
        await slow.began.wait()
        await env.register_tool(other.tool, replace=True)
        slow.go_on.set()
        assert (await running).status == "ok"
        assert not other.began.is_set()


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
    seen = Seen(env)
    await env.dispose()
    await env.dispose()
    assert ended == ["c", "b", "a"]
    [warning] = seen.of("warning")
    assert "tool 'b'" in warning["message"]
    assert "stuck" in warning["message"]


# Shows T83
async def test_a_listener_follows_calls_and_the_program_answers_questions() -> None:
    async with await made(echo, callback=Asked({"approved": False, "decision": "defer"})) as env:
        seen = Seen(env)

        def fails(_: Any) -> None:
            raise OSError("no screen")

        env.listen(fails)
        running = asyncio.ensure_future(env.execute_tool(call("echo", "1", text="a")))
        await until(lambda: seen.of("deferred"))
        [question] = env.questions()
        assert question.is_approval_pending
        env.decide("1", {"approved": True, "feedback": "fine"}, by="ana")
        assert (await running).status == "ok"
    assert seen.types() == [
        "call_registered",
        "parameters_updated",
        "approval",
        "deferred",
        "decided",
        "execution",
        "result",
    ]
    [decided] = seen.of("decided")
    assert (decided["by"], decided["feedback"], decided["tool_call_id"]) == ("ana", "fine", "1")
