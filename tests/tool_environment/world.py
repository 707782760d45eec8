"""Helpers for the tests of the tool environment: tools, a recording callback, messages."""

from __future__ import annotations

import asyncio
import base64
import itertools
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from flowengine import Engine
from flowengine.tool_environment import (
    ApprovalResponse,
    EnvironmentResponse,
    LocalEnvironment,
    ToolCall,
    ToolContext,
    ToolResult,
    tool,
)

_Result = TypeVar("_Result")
HANG = 240
"""Seconds, to guard against a hang."""
DEFER = {"approved": False, "decision": "defer"}
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


async def until(condition: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    while not condition():  # noqa: ASYNC110 - there are many conditions
        await asyncio.sleep(0)


class Asked:
    """An approval callback that records and approves."""

    def __init__(self, answer: Any = True) -> None:
        self.calls: list[ToolCall] = []
        self.answer = answer

    async def __call__(self, call: ToolCall) -> Any:
        self.calls.append(call.model_copy(deep=True))
        return self.answer(call) if callable(self.answer) else self.answer


class Seen:
    """Records the messages of an environment."""

    def __init__(self, environment: LocalEnvironment) -> None:
        self.messages: list[dict[str, Any]] = []
        environment.listen(self.messages.append)

    def types(self) -> list[str]:
        return [each["type"] for each in self.messages]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [each for each in self.messages if each["type"] == kind]


class Watching:
    """An observer that records."""

    description = "Watches."

    def __init__(self, name: str, says: Any = "seen") -> None:
        self.name = name
        self.says = says
        self.seen: list[tuple[ToolCall, ToolResult]] = []

    async def execute(self, one: ToolCall, result: ToolResult) -> Any:
        self.seen.append((one, result))
        return self.says(one, result) if callable(self.says) else self.says


class TwoMethods:
    """The minimum of an environment."""

    def __init__(self) -> None:
        self.calls: list[ToolCall] = []

    async def approve_tool(self, call: ToolCall) -> EnvironmentResponse:
        return EnvironmentResponse(result=ApprovalResponse(approved=True))

    async def execute_tool(self, call: ToolCall) -> EnvironmentResponse:
        self.calls.append(call)
        named = {"tool_call_id": call.tool_call_id, "tool_name": call.tool_name}
        made = {**named, "status": "ok", "content": "from the fake"}
        return EnvironmentResponse(result=ToolResult.model_validate(made))


@tool
def echo(text: str) -> str:
    """Return the text."""
    return text


class Counting:
    """`count()` adds a byte to a file, so that a test may read it at any time."""

    def __init__(self, folder: Path) -> None:
        self.file = file = folder / "count"
        file.touch()

        @tool
        def count() -> str:
            """Count one more."""
            with file.open("ab") as counter:
                counter.write(b".")
            return str(file.stat().st_size)

        self.tool = count

    @property
    def n(self) -> int:
        return self.file.stat().st_size


class Slow:
    """`slow()` waits for `go_on`, or for an abort."""

    def __init__(self, **options: Any) -> None:
        self.began = asyncio.Event()
        self.go_on = asyncio.Event()

        @tool(**options)
        async def slow(ctx: ToolContext) -> str:
            """Wait."""
            ctx.write("so far")
            self.began.set()
            await self.go_on.wait()
            return "done"

        self.tool = slow


_numbers = itertools.count(1)


def call(name: str, id: str | None = None, /, **args: Any) -> ToolCall:
    return ToolCall(tool_call_id=id or f"c{next(_numbers)}", tool_name=name, args=args)


async def made(*tools: Any, callback: Any = None, **options: Any) -> LocalEnvironment:
    """Return an environment with tools, and a callback that approves by default."""
    environment = LocalEnvironment(**options)
    environment.register_tool_approval_callback(callback or Asked())
    for each in tools:
        await environment.register_tool(each)
    return environment


async def result_of(environment: LocalEnvironment, made: ToolCall) -> ToolResult:
    """Execute a call, and return its result."""
    result = (await environment.execute_tool(made)).tool_result
    assert result is not None
    return result


async def asked_in(engine: Engine, *, number: int = 1) -> list[Any]:
    """Return the open questions of an engine, as soon as there are that many."""
    await until(lambda: len(engine.approvals.list().items) == number)
    return engine.approvals.list().items


def run(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Run a test's coroutine."""
    return asyncio.run(work)
