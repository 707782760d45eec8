"""An MCP server: `units_server.py stdio`, or `http` on a free port, which it prints."""

from __future__ import annotations

import socket
import sys

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("units")


@server.tool()
def fahrenheit(celsius: float) -> float:
    """Convert degrees."""
    return round(celsius * 9 / 5 + 32, 1)


@server.tool()
def kelvin(celsius: float) -> float:
    """Convert degrees. Values below zero kelvin are invalid."""
    if celsius < -273.15:
        raise ToolError(f"it does not get as cold as {celsius:g} °C")
    return round(celsius + 273.15, 2)


def main() -> None:
    """Serve."""
    if sys.argv[1] == "stdio":
        server.run()
        return
    import uvicorn

    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    print(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", flush=True)
    app = server.streamable_http_app()
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run([listening])


if __name__ == "__main__":
    main()
