"""An MCP server over a store of its own, called by the SDK's client in the same loop.

The SDK is imported where it is used. Otherwise each process that runs tests would load it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from flowengine.errors import Conflict
from flowengine.server.mcp.calls import Caller, ToolCalls
from flowengine.server.rights import Principal, access_of
from tests.server.api import OWNER, Api

if TYPE_CHECKING:
    from mcp.client import Client
    from mcp_types import ElicitResult

MODES = ("legacy", "2026-07-28")
"""Both generations of the protocol: with a session up to 2025-11-25, and without."""


class Mcp:
    """The tools of a user.

    Args:
        api: The server.
        mode: The generation of the protocol.
        user: Who calls.
        wait_seconds: How long a call waits.
        worker: Whether the executions are driven.
    """

    def __init__(
        self,
        api: Api,
        mode: str,
        user: str = OWNER,
        *,
        wait_seconds: float = 60,
        worker: bool = True,
    ) -> None:
        self.api, self.mode, self.has_worker = api, mode, worker
        self._wait_seconds = wait_seconds
        self._caller = Caller(
            Principal(user, "token", access_of(user, OWNER, api.engine.settings)),
            "",
            lambda id: f"executions/{id}",
            lambda id: f"approvals/{id}",
        )
        self.asked: list[Any] = []
        """What the user was asked."""

    def __call__(
        self,
        talk: Callable[[Client], Awaitable[Any]],
        answers: list[Mapping[str, Any] | str] | None = None,
    ) -> Any:
        """Let a client talk to the server, and return what comes of it.

        Args:
            talk: Does the talking.
            answers: Of the user, in order: the content of a form, or `decline`. None: the client
                cannot ask its user.
        """
        from mcp_types import ElicitResult

        given = [] if answers is None else [*answers]

        async def elicit(ctx: Any, params: Any) -> ElicitResult:
            self.asked.append(params)
            answer = given.pop(0)
            if isinstance(answer, str):
                return ElicitResult(action="decline")
            return ElicitResult(action="accept", content=dict(answer))

        return self.run(talk, None if answers is None else elicit)

    def run(self, talk: Callable[[Client], Awaitable[Any]], elicit: Any) -> Any:
        """Let a client talk to the server, whose questions a function answers."""
        from mcp.client import Client

        from flowengine.server.mcp.sdk import mcp_server

        async def run() -> Any:
            application = self.api.new_application(self.api.records)
            server = mcp_server(
                ToolCalls(application, self._wait_seconds), lambda ctx: self._caller
            )
            worker = asyncio.create_task(drive(self.api))
            if not self.has_worker:
                worker.cancel()
            async with Client(server, mode=self.mode, elicitation_callback=elicit) as client:
                found = await talk(client)
            application.close()
            worker.cancel()
            with suppress(asyncio.CancelledError):
                await worker
            return found

        return asyncio.run(run())

    def call(
        self,
        name: str,
        arguments: dict[str, Any],
        answers: list[Mapping[str, Any] | str] | None = None,
        **options: Any,
    ) -> Any:
        """Return the result of a call."""
        return self(lambda client: client.call_tool(name, arguments, **options), answers)


async def drive(api: Api) -> None:
    """Drive the executions of a store, as a worker does."""
    while True:
        for due in await asyncio.to_thread(api.engine.due):
            # In another thread, because a store tells only of commits by others.
            with suppress(Conflict):  # the test itself continues it at this moment
                await asyncio.to_thread(api.engine.resume, due.execution)
        await asyncio.sleep(0.02)
