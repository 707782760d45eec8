"""Deployed flows as tools of an MCP server, over HTTP and over standard input and output.

Only `sdk` and `http` import the SDK, and they are imported by the first request that needs them.
"""
