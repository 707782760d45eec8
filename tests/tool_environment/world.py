"""Helpers for the tests of the tool environment: a clock, tools, a recording callback."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from flowengine.tool_environment import (
    LocalEnvironment,
    ToolCall,
    ToolContext,
    tool,
)

_Result = TypeVar("_Result")
HANG = 240
"""Seconds, to guard against a hang."""


class FakeClock:
    """Replaces the running loop's clock, which moves only in `advance`."""

    def __init__(self) -> None:
        loop: Any = asyncio.get_running_loop()
        self._now = loop.time()
        loop.time = lambda: self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds

    async def until(self, condition: Callable[[], object], step: float = 0.1) -> None:
        """Advance in steps until a condition holds."""
        while not condition():
            await asyncio.sleep(0)
            self.advance(step)


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

    def types(self, call: str | None = None) -> list[str]:
        return [
            each["type"]
            for each in self.messages
            if call is None or each.get("tool_call_id") in {None, call}
        ]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [each for each in self.messages if each["type"] == kind]

    def codes(self) -> list[str]:
        return [each["code"] for each in self.of("warning")]


@tool
def echo(text: str) -> str:
    """Return the text."""
    return text


class Counting:
    """`count()` increments a counter in a file."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "count"
        self.file.write_text("0")
        file = self.file

        @tool
        def count() -> str:
            """Count one more."""
            n = int(file.read_text()) + 1
            file.write_text(str(n))
            return str(n)

        self.tool = count

    @property
    def n(self) -> int:
        return int(self.file.read_text())


class Slow:
    """`slow()` waits for `go_on`, or for an abort."""

    def __init__(self, **options: Any) -> None:
        self.began = asyncio.Event()
        self.go_on = asyncio.Event()

        @tool(**options)
        async def slow(ctx: ToolContext) -> str:
            """Wait."""
            self.began.set()
            aborted = asyncio.ensure_future(ctx.signal.async_wait())
            told = asyncio.ensure_future(self.go_on.wait())
            await asyncio.wait([aborted, told], return_when=asyncio.FIRST_COMPLETED)
            aborted.cancel()
            told.cancel()
            return "aborted" if ctx.signal.aborted else "done"

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


def run(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Run a test's coroutine."""
    return asyncio.run(work)
