"""What calls cost in the tool environment: with a listener or without one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

from flowengine.tool_environment import LocalEnvironment, tool

CALLS = 1000


@tool(approval="none")
async def echo(text: str) -> str:
    """Return the text."""
    return text


@contextmanager
def _seconds() -> Iterator[list[float]]:
    took = [time.process_time()]
    yield took
    took[0] = time.process_time() - took[0]


def calls(*, followed: bool) -> float:
    """Return the processor time of 1,000 calls, with a listener or without one."""

    async def main() -> float:
        environment = LocalEnvironment()
        if followed:
            environment.listen(lambda message: None)
        await environment.register_tool(echo)
        with _seconds() as took:
            for number in range(CALLS):
                call = {"tool_call_id": str(number), "tool_name": "echo", "args": {"text": "x"}}
                await environment.execute_tool(call)
        await environment.dispose()
        return took[0]

    return asyncio.run(main())
