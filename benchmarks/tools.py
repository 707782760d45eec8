"""What calls cost in the tool environment: followed or not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

from flowengine.tool_environment import LocalEnvironment, MemoryClient, tool
from flowengine.tool_environment.clients import Link

CALLS = 1000


@tool(approval="none")
async def echo(text: str) -> str:
    """Return the text."""
    return text


class Stuck(MemoryClient):
    """Never reads."""

    async def follow(self, link: Link) -> None:
        await asyncio.Event().wait()


@contextmanager
def _seconds() -> Iterator[list[float]]:
    took = [time.process_time()]
    yield took
    took[0] = time.process_time() - took[0]


def calls(*, followed: bool) -> float:
    """Return the processor time of 1,000 calls, with a client that never reads or without one."""

    async def main() -> float:
        environment = LocalEnvironment()
        if followed:
            environment.set_client(Stuck(decides=False))
        await environment.register_tool(echo)
        with _seconds() as took:
            for number in range(CALLS):
                call = {"tool_call_id": str(number), "tool_name": "echo", "args": {"text": "x"}}
                await environment.execute_tool(call)
        environment.set_client(None)
        await environment.dispose()
        return took[0]

    return asyncio.run(main())
