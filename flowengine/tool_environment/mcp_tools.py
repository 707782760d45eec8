"""Tools of an MCP server, as tools of an environment: the same gate, observers and abort."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from flowengine.sdk import ToolError
from flowengine.sdk.tool_calls import Image
from flowengine.tool_environment.context import ToolContext
from flowengine.tool_environment.tools import Tool


class McpTool(Tool):
    """One tool of a server.

    Args:
        server: Name of the managed environment with the session.
        listed: The tool as the server lists it.
    """

    def __init__(self, server: str, listed: Mapping[str, Any]) -> None:
        self.server = server
        self.tool = str(listed["name"])
        self.name = f"{server}.{self.tool}"
        self.description = str(listed.get("description") or "")
        self.parameters = {"type": "object", **(listed.get("inputSchema") or {})}
        self.resources = {server: None}
        self.written_by = self.name

    async def execute(self, ctx: ToolContext, **args: Any) -> Any:
        """Call the tool on its server."""
        answer = await ctx.resources[self.server].async_call_tool(self.tool, args)
        if answer.is_error:
            raise ToolError(answer.text or "the tool failed and does not say why")
        for part in answer.content:
            if part.get("type") == "image":
                return Image(media_type=part["mimeType"], data=part["data"])
        return answer.structured if answer.structured is not None else answer.text


def mcp_tools(server: str, listed: Iterable[Mapping[str, Any]]) -> list[McpTool]:
    """Return the tools of an MCP server, to be registered in an environment.

    Args:
        server: Name of the managed environment of the kind `mcp`, as the environment declares it.
        listed: What `list_tools()` of its session returns.

    Returns:
        A tool each, named `server.tool`.
    """
    return [McpTool(server, each) for each in listed]
