"""The client that the protocol's conformance tool starts: `conformance_client.py ADDRESS`.

It opens a session as flows do, and uses everything that the server offers.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from flowengine.execution_environment import EnvironmentManager
from flowengine.sdk import ToolError
from flowengine_envs.mcp.session import McpSession

_VALUES: Mapping[str, Any] = {"number": 1, "integer": 1, "boolean": True, "array": [], "object": {}}
"""A value of each type of an argument."""


def main() -> None:
    """Open the session in the generation of the protocol that is tested."""
    version = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "")
    mode = "legacy" if version and version < "2026" else "auto"
    config = {"url": sys.argv[1], "mode": mode}
    spec = {"kind": "mcp", "scope": "session", "config": config, "limits": {"time": 20}}
    with (
        tempfile.TemporaryDirectory() as folder,
        EnvironmentManager(Path(folder) / "environments") as manager,
    ):
        use(manager.ensure(spec).resource)


def use(session: McpSession) -> None:
    """Call each tool, read each resource and get each prompt. Failures of calls are answers."""
    tools = session.list_tools()
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    calls = context.get("toolCalls") or [
        {"name": tool["name"], "arguments": arguments(tool, tools[0])} for tool in tools
    ]
    for call in calls:
        attempt(partial(session.call_tool, call["name"], call["arguments"]))
    for resource in attempt(session.list_resources) or []:
        attempt(partial(session.read_resource, resource["uri"]))
    for prompt in attempt(session.list_prompts) or []:
        attempt(partial(session.get_prompt, prompt["name"]))


def arguments(tool: Mapping[str, Any], first: Mapping[str, Any]) -> dict[str, Any]:
    """Return a value for each required argument. One named `schema` is that of the first tool."""
    schema = tool["inputSchema"]
    given = {
        name: _VALUES.get(schema["properties"][name].get("type"), "text")
        for name in schema.get("required", ())
    }
    return given | ({"schema": first["inputSchema"]} if "schema" in given else {})


def attempt(work: Callable[[], Any]) -> Any:
    """Return a result, or None if the server does not have what was requested."""
    with suppress(ToolError):
        return work()
    return None


if __name__ == "__main__":
    main()
