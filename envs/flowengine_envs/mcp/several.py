"""Several servers as one resource. A tool's name consists of its server's name and its own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from flowengine.sdk import Plain, ToolError
from flowengine.sdk.environments import Request, Resource, awaitable, blocking
from flowengine.sdk.offered_tools import OfferedTool
from flowengine_envs.mcp.session import McpSession, McpToolResult
from flowengine_envs.mcp.tool_list import Approved, nearest


class Sessions(Resource):
    """Sessions with several servers: `add` of the server `sums` is the tool `sums.add`.

    Args:
        request: The request to open the environment.
        servers: The open sessions by the names of the servers.
    """

    def __init__(self, request: Request, servers: Mapping[str, McpSession]) -> None:
        super().__init__(request)
        self.servers = servers
        """The session of each server."""

    async def _list_tools(self) -> list[dict[str, Plain]]:
        """Return the tools of all servers, each under its name here."""
        listed = await asyncio.gather(*(server._list_tools() for server in self.servers.values()))
        return [
            {**tool, "name": f"{name}.{tool['name']}"}
            for name, tools in zip(self.servers, listed, strict=True)
            for tool in tools
        ]

    list_tools = blocking(_list_tools)
    async_list_tools = awaitable(_list_tools)

    async def _offers(self) -> list[OfferedTool]:
        """Return the tools of all servers as offered to models."""
        listed = await asyncio.gather(*(server._offers() for server in self.servers.values()))
        return [
            offer._replace(name=f"{name}.{offer.name}")
            for name, offers in zip(self.servers, listed, strict=True)
            for offer in offers
        ]

    offers = blocking(_offers)
    async_offers = awaitable(_offers)

    async def _call_tool(
        self,
        name: str,
        args: Mapping[str, Plain] | None = None,
        *,
        timeout: float | None = None,
        digest: str | None = None,
        approved: Approved | None = None,
        traceparent: str | None = None,
    ) -> McpToolResult:
        """Call a tool once, as `McpSession.call_tool` does.

        Args:
            name: `server.tool`.
            args: Its arguments.
            timeout: Seconds to wait for the answer. Default: `limits.time`.
            digest: Digest of the offered tool. None: the tool is called in any version.
            approved: The approval, if one was requested.
            traceparent: The header that continues the trace of the caller (W3C Trace Context).

        Returns:
            The answer, which may be a tool error.

        Raises:
            ToolChanged: It differs from the offered tool and was not called.
            ToolError: The server or tool does not exist, or the server refused the call.
            Timeout: There was no answer in time.
            EnvironmentLost: The server has ended. The outcome is unknown.
        """
        server, _, tool = name.partition(".")
        if server not in self.servers:
            message = f"{self.name}: there is no server '{server}'{nearest(server, self.servers)}"
            raise ToolError(message, retryable=False)
        return await self.servers[server]._call_tool(
            tool,
            args,
            timeout=timeout,
            digest=digest,
            approved=approved,
            traceparent=traceparent,
        )

    approved = staticmethod(McpSession.approved)

    def tool_text(self, name: str) -> str | None:
        """Return a server's last description of a tool. None: it has not been read yet."""
        server, _, tool = name.partition(".")
        return self.servers[server].tool_text(tool) if server in self.servers else None

    call_tool = blocking(_call_tool)
    async_call_tool = awaitable(_call_tool)

    async def ping(self) -> bool:
        """Return whether all servers respond."""
        return all(await asyncio.gather(*(server.ping() for server in self.servers.values())))

    async def close(self) -> None:
        """End all sessions, and the servers that were started for them."""
        await asyncio.gather(*(server.close() for server in self.servers.values()))
