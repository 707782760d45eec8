"""MCP over standard input and output, for the user who runs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TextIO

import anyio
from mcp.server.stdio import stdio_server

from flowengine.engines.engine import Engine
from flowengine.server.application import Application
from flowengine.server.guard import Hosts
from flowengine.server.mcp.calls import Caller, ToolCalls
from flowengine.server.mcp.sdk import mcp_server
from flowengine.server.records import ServerRecords, server_folder
from flowengine.util.blocking import run_on_new_loop


def serve_stdio(engine: Engine, output: TextIO, link: Callable[[str], str]) -> None:
    """Serve until standard input ends.

    Args:
        engine: The store's engine. Its user calls, with all rights.
        output: Where answers are written.
        link: Id of an execution or an approval → the command that shows it.
    """
    records = ServerRecords(server_folder(engine.store.location))
    try:
        token, _ = records.local_token()

        async def run() -> None:
            application = Application(engine, records, Hosts(frozenset()), token)
            caller = Caller(application.identity.local(), "", link, link)
            server = mcp_server(ToolCalls(application), lambda ctx: caller)
            async with stdio_server(stdout=anyio.wrap_file(output)) as (read, write):
                await server.run(read, write, server.create_initialization_options())
            application.close()

        run_on_new_loop(run())
    finally:
        records.close()
