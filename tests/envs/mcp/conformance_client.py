"""The client that the protocol's conformance tool starts: `conformance_client.py ADDRESS`.

It opens a session as flows do, and uses everything that the server offers. Tools of the scenarios
about elicitation are called by a flow, whose questions it answers.
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

from flowengine import Engine
from flowengine.execution_environment import EnvironmentManager
from flowengine.sdk import ToolError
from flowengine_envs.mcp.session import McpSession
from tests.envs.mcp.conformance_login import log_in

_VALUES: Mapping[str, Any] = {"number": 1, "integer": 1, "boolean": True, "array": [], "object": {}}
"""A value of each type of an argument."""


_ASKING = ("elicitation-sep1034-client-defaults", "sep-2322-client-request-state")


def main() -> None:
    """Open the session in the generation of the protocol that is tested."""
    version = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "")
    mode = "legacy" if version and version < "2026" else "auto"
    config = {"url": sys.argv[1], "mode": mode}
    scenario = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
    if scenario.startswith("auth/"):
        sys.exit(0 if log_in(sys.argv[1], scenario, context(), mode) else 1)
    if scenario in _ASKING:
        answer(config)
        return
    spec = {"kind": "mcp", "scope": "session", "config": config, "limits": {"time": 20}}
    with (
        tempfile.TemporaryDirectory() as folder,
        EnvironmentManager(Path(folder) / "environments") as manager,
    ):
        use(manager.ensure(spec).resource)


def context() -> Any:
    """Return what the tool tells about the scenario."""
    return json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")


def use(session: McpSession) -> None:
    """Call each tool, read each resource and get each prompt. Failures of calls are answers."""
    tools = session.list_tools()
    calls = context().get("toolCalls") or [
        {"name": tool["name"], "arguments": arguments(tool, tools[0])} for tool in tools
    ]
    for call in calls:
        attempt(partial(session.call_tool, call["name"], call["arguments"]))
    for resource in attempt(session.list_resources) or []:
        attempt(partial(session.read_resource, resource["uri"]))
    for prompt in attempt(session.list_prompts) or []:
        attempt(partial(session.get_prompt, prompt["name"]))


def answer(config: Mapping[str, str]) -> None:
    """Call each tool by a step of a flow, and answer questions with the defaults of forms."""
    with tempfile.TemporaryDirectory() as folder:
        with EnvironmentManager(Path(folder) / "environments") as manager:
            spec = {"kind": "mcp", "scope": "session", "config": dict(config)}
            names = [tool["name"] for tool in manager.ensure(spec).resource.list_tools()]
        steps = [{"id": f"s{number}", "call": f"t.{name}"} for number, name in enumerate(names)]
        flow = {"flowengine": 1, "id": "f", "tools": {"t": {"mcp": config}}, "steps": steps}
        path = Path(folder) / "flow.yaml"
        path.write_text(json.dumps(flow))
        with Engine(Path(folder) / "store.db", workdir=folder) as engine:
            result = engine.run(path)
            while result.status == "waiting":
                for wait in result.waits:
                    engine.approvals.approve(wait["id"], form={})
                result = engine.executions.result(result.execution)
            sys.stderr.write(f"{result.status} {result.error}\n")


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
