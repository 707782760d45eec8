"""`mcp`: sessions with MCP servers, over the standard streams of a process or over HTTP."""
