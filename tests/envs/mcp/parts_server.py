"""A server with resources, prompts, completion, progress and calls that last, made with the
protocol's official library: `parts_server.py` over standard streams, or `parts_server.py http` on a
free port, which it prints.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.prompts.base import AssistantMessage, Message, Prompt, UserMessage
from mcp.server.mcpserver.resources import TextResource
from mcp.types import (
    Completion,
    CompletionArgument,
    CompletionContext,
    PromptReference,
    ResourceTemplateReference,
)

server = MCPServer("parts")


@server.tool()
async def work(steps: int, ctx: Context) -> str:
    """Report progress in small steps."""
    for number in range(1, steps + 1):
        await ctx.report_progress(number, steps, f"file {number}\x1b[2J")
    return "done"


@server.tool()
async def wait(folder: str, ctx: Context) -> str:
    """Wait until the call is cancelled. Files tell what happens."""
    try:
        (Path(folder) / "begun").touch()
        await anyio.sleep_forever()
    finally:
        (Path(folder) / "cancelled").touch()
    return "never"


@server.tool()
async def grow(name: str, ctx: Context) -> str:
    """Add a resource and a prompt."""
    server.add_resource(TextResource(uri=f"note://{name}", name=name, text=name))
    server.add_prompt(Prompt.from_function(lambda: name, name=name, description="It grew."))
    await ctx.notify_resources_changed()
    await ctx.notify_prompts_changed()
    return "done"


@server.tool()
def read_resource() -> str:
    """Look like the tool that reads resources."""
    return "the server's own"


@server.resource("note://plain")
def plain() -> str:
    """Return a text."""
    return "Grüße"


@server.resource("note://picture", mime_type="image/png")
def picture() -> bytes:
    """Return bytes."""
    return b"PNG"


@server.resource("note://large")
def large() -> str:
    """Return a long text."""
    return "x" * 100_000


@server.resource("order://{number}")
def order(number: str) -> str:
    """Return the text of an order."""
    return f"order {number}"


@server.prompt()
def review(language: str) -> str:
    """Return instructions."""
    return f"You review {language}."


@server.prompt()
def talk() -> list[Message]:
    """Return messages of both sides."""
    return [UserMessage("Who is it?"), AssistantMessage("Ada.")]


@server.completion()  # type: ignore[no-untyped-call, untyped-decorator]
async def complete(
    ref: PromptReference | ResourceTemplateReference,
    argument: CompletionArgument,
    context: CompletionContext | None,
) -> Completion | None:
    """Complete languages, and numbers of orders."""
    words = ["python", "perl", "rust"] if isinstance(ref, PromptReference) else ["1", "17"]
    given = {} if context is None else context.arguments or {}
    found = [word for word in words if word.startswith(argument.value)]
    return Completion(values=[*found, *given.values()])


def main() -> None:
    if sys.argv[1:] != ["http"]:
        server.run()
        return
    import uvicorn

    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)  # noqa: T201
    app = server.streamable_http_app()
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run([listening])


if __name__ == "__main__":
    main()
