"""Ready-made tools: `execute_command`, and the tools of MCP servers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from flowengine.agents.server_tools import UNUSABLE, description_of, fault_of, parameters_of
from flowengine.agents.tool_marks import tool
from flowengine.sdk import StepError, ToolError
from flowengine.sdk.tools.browser_tools import OfferedTool
from flowengine.sdk.tools.tool_calls import Image
from flowengine.tool_environment.context import ToolContext
from flowengine.tool_environment.errors import RegistrationError
from flowengine.tool_environment.tools import Tool

SHELL = "shell"
"""The environment of `execute_command`, which is of the kind `shell` or `bash`."""


@tool(resources={SHELL: None})
async def execute_command(command: str, ctx: ToolContext) -> dict[str, Any]:
    """Run a command in the shell and return its exit code and output.

    When the call must stop, the command ends with all its child processes.

    Args:
        command: The shell command.
        ctx: The context of the call.

    Returns:
        `exit_code`, `stdout` and `stderr`. A terminal has both streams in `stdout`.

    Raises:
        StepError: The environment cannot run commands.
    """
    shell = ctx.resources[SHELL]
    run = getattr(shell, "async_run_in_turn", None) or getattr(shell, "async_run", None)
    if run is None:
        raise StepError(f"the environment '{SHELL}' runs no commands: take the kind shell or bash")

    def wrote(_: str, text: str) -> None:
        ctx.write(text)
        ctx.report(text)

    running = asyncio.ensure_future(run(command, on_output=wrote))
    try:
        await ctx.signal.async_wait(running)
    finally:
        if not running.done():  # cancellation ends the command with its child processes
            running.cancel()
            await asyncio.wait([running])
    result = running.result()
    own = hasattr(result, "stdout")
    return {
        "exit_code": result.exit_code,
        "stdout": result.stdout if own else result.output,
        "stderr": result.stderr if own else "",
    }


BUILT_IN = {"execute_command": execute_command}
"""Tools that can be called without being registered."""


class McpTool(Tool):
    """One tool of a server. Its description is limited as for agents in flows.

    Args:
        server: Name of the managed environment with the session.
        listed: The tool as listed by the server.

    Raises:
        RegistrationError: The schema of its arguments cannot be used.
    """

    def __init__(self, server: str, listed: Mapping[str, Any]) -> None:
        self.server = server
        self.tool = str(listed["name"])
        self.name = self.written_by = f"{server}.{self.tool}"
        self.description = description_of(str(listed.get("description") or ""))
        try:
            self.parameters = parameters_of(listed.get("inputSchema") or {})
        except UNUSABLE as error:
            raise RegistrationError(
                f"the tool {self.name!a:.100} of a server cannot be used: {fault_of(error)}"
            ) from None
        self.digest = OfferedTool.of(listed).digest
        self.resources = {server: None}

    async def execute(self, ctx: ToolContext, **args: Any) -> Any:
        """Call the tool on its server, unless it has changed since it was listed."""
        session = ctx.resources[self.server]
        answer = await session.async_call_tool(self.tool, args, digest=self.digest)
        if answer.is_error:
            raise ToolError(answer.text or "the tool failed without a reason")
        for part in answer.content:
            if part.get("type") == "image":
                return Image(media_type=part["mimeType"], data=part["data"])
        return answer.structured if answer.structured is not None else answer.text


def mcp_tools(server: str, listed: Iterable[Mapping[str, Any]]) -> list[McpTool]:
    """Return the tools of an MCP server, to be registered in an environment.

    If the server has changed the description or schema of a tool since, the tool is no longer
    called. Create tools from the new list, and register those.

    Args:
        server: Name of the managed environment of the kind `mcp`, as declared by the environment.
        listed: The result of the session's `list_tools()`.

    Returns:
        A tool for each usable entry, named `server.tool`. Others are left out, with a warning.
    """
    tools: list[McpTool] = []
    for entry in listed:
        try:
            tools.append(McpTool(server, entry))
        except RegistrationError as error:
            logging.getLogger("flowengine.tools").warning("%s. It is left out", error)
    return tools
