"""A server made with the protocol's official library: `sdk_server.py stdio`, or `http` on a free
port, which it prints.
"""

from __future__ import annotations

import socket
import sys

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import SamplingMessage, TextContent
from pydantic import BaseModel

server = MCPServer("sums")


class Name(BaseModel):
    """The input of a user."""

    name: str


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("it does not work")


@server.tool()
async def grow(name: str, ctx: Context) -> str:
    """Add a tool, and announce it in either revision of the protocol."""
    server.add_tool(lambda: name, name=name, description="It grew.")
    await ctx.notify_tools_changed()
    await ctx.session.send_tool_list_changed()
    return "done"


@server.tool()
async def request(what: str, ctx: Context) -> str:
    """Request something from the client."""
    if what == "elicitation":
        await ctx.elicit("Your name?", Name)
    elif what == "sampling":
        text = TextContent(type="text", text="hi")
        await ctx.session.create_message([SamplingMessage(role="user", content=text)], max_tokens=5)
    elif what == "roots":
        await ctx.session.list_roots()
    elif what == "refused":
        raise ToolError("Client does not support elicitation.")
    return "done"


@server.resource("note://greeting")
def greeting() -> str:
    """Return a text."""
    return "Grüße"


@server.prompt()
def ask(name: str) -> str:
    """Return a question."""
    return f"Who is {name}?"


def main() -> None:
    if sys.argv[1] == "stdio":
        server.run()
        return
    import uvicorn

    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    print(listening.getsockname()[1], flush=True)  # noqa: T201
    app = server.streamable_http_app()
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run([listening])


if __name__ == "__main__":
    main()
