"""`mcp`: calls a tool of an MCP server, in the session of an environment."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from flowengine.sdk import Plain, StepContext, StepKind, ToolError

_TEXT: dict[str, Plain] = {"type": "string"}
_TEXTS: dict[str, Plain] = {"type": "array", "items": _TEXT}
_SERVER: dict[str, Plain] = {
    "command": {
        "description": "The program to start, or the program with its arguments.",
        "examples": [["npx", "some-server"]],
    },
    "args": {
        "type": "array",
        "description": "Arguments of the program.",
        "examples": [["--verbose"]],
    },
    "env": {
        "type": "object",
        "description": "Environment variables of the program, besides PATH, HOME and LANG.",
        "examples": [{"TOKEN": "${{ secrets.TOKEN }}"}],
    },
    "cwd": {
        **_TEXT,
        "description": "Its working directory. Default: the working directory.",
        "examples": ["data"],
    },
    "url": {
        **_TEXT,
        "description": "The address of a server with streamable HTTP.",
        "examples": ["https://mcp.example.com"],
    },
    "headers": {
        "type": "object",
        "description": "Headers of every request to it.",
        "examples": [{"Authorization": "Bearer ${{ secrets.TOKEN }}"}],
    },
    "roots": {
        "type": "array",
        "description": "Folders that the server receives when it requests its roots.",
        "examples": [["data"]],
    },
    "mode": {
        "enum": ["auto", "legacy"],
        "description": "Protocol revisions to try. `legacy`: those with a handshake.",
        "default": "auto",
        "examples": ["legacy"],
    },
    "servers": {
        "type": "object",
        "description": "Several servers by name. Their tools are called `name.tool`.",
        "examples": [{"units": {"command": ["units-server"]}}],
    },
    "mounts": {
        "type": "object",
        "additionalProperties": _TEXT,
        "description": "Directories in a server's sandbox: environment of kind `files` → "
        "directory inside.",
        "examples": [{"docs": "/docs"}],
    },
    "provider": {
        "anyOf": [_TEXT, {**_TEXTS, "minItems": 1}],
        "description": "The sandbox that the server runs in, or several in order of "
        "preference. `host` means none. Default: `namespace` for commands "
        "that download their program, such as `npx` and `uvx`, otherwise "
        "`host`.",
        "examples": ["namespace", "docker", "host"],
    },
    "policy": {
        "type": "object",
        "description": "The permissions of the server in its sandbox.",
        "examples": [{"network": ["api.example.com:443"]}],
    },
    "in": {
        "anyOf": [_TEXT, {"type": "object", "minProperties": 1, "maxProperties": 1}],
        "description": "A declared environment of kind `mcp`, instead of a separate server.",
        "examples": ["units"],
    },
    "include": {
        **_TEXTS,
        "minItems": 1,
        "description": "The tools that can be called, as names or globs. Default: all.",
        "examples": [["get_*"]],
    },
    "exclude": {
        **_TEXTS,
        "description": "The tools that cannot be called, as names or globs.",
        "default": [],
        "examples": [["delete_*"]],
    },
}
"""Keys of a server, or of several."""


class Mcp(StepKind):
    """Calls a tool once. The flow declares whether it may be repeated, not the server."""

    places = ("tool",)
    takes_arguments = True
    session = "mcp"
    foreign = True

    @classmethod
    def configuration(cls) -> dict[str, Plain]:
        """Return the JSON Schema of the configuration of `mcp`: one server, or several."""
        return {
            "type": "object",
            "properties": _SERVER,
            "oneOf": [{"required": [key]} for key in ("command", "url", "servers", "in")],
            "additionalProperties": False,
        }

    async def execute(
        self, context: StepContext, task: Mapping[str, Plain], input: Mapping[str, Plain]
    ) -> Plain:
        """Call the tool that the step names and return its result.

        Args:
            context: The attempt.
            task: `server`, the environment, and `tool`, its name there.
            input: `args`, and the values that the flow fixes. `offered`, if the tool was offered to
                a model.

        Returns:
            The result as data if the tool returns data, else its text, with other parts if there
            are any.

        Raises:
            ToolChanged: The tool has changed since it was offered.
            ToolError: The tool reports a failure. The data is its result.
        """
        session = context.resources[task["server"]]
        args = {**input["args"], **input.get("bind", {})}
        offered = input.get("offered") or {}
        tool = offered.get("tool") or task["tool"]
        asked = context.approval
        approved = None if asked is None or offered else session.approved(asked.get("source"))
        answer = await session.async_call_tool(
            tool,
            args,
            digest=offered.get("digest"),
            approved=approved,
            traceparent=context.traceparent,
        )
        if answer.is_error:
            data = {"content": answer.content, "structured": answer.structured}
            raise ToolError(
                f"{tool}: {answer.text or 'the tool failed'}", data=data, retryable=False
            )
        if answer.structured is not None:
            return answer.structured
        if all(part.get("type") == "text" for part in answer.content):
            return answer.text
        return [_kept(context, part, number) for number, part in enumerate(answer.content)]

    def text_for_model(
        self, task: Mapping[str, Plain], input: Mapping[str, Plain], output: Plain, room: int
    ) -> str | None:
        """Return the text of a result that consists of text only."""
        from flowengine_nodes.tool_texts import answer_text

        return answer_text(output)


def _kept(context: StepContext, part: Mapping[str, Any], number: int) -> dict[str, Plain]:
    """Return a part of a result, with its bytes as a file."""
    name, holder = ("blob", part["resource"]) if "resource" in part else ("data", part)
    if not isinstance(holder.get(name), str):
        return dict(part)
    try:
        data = base64.b64decode(holder[name], validate=True)
    except ValueError as error:
        raise ToolError(f"a part of the answer is not base64: {error}", retryable=False) from None
    file = context.execution.artifacts.put(data, f"part_{number + 1}")
    rest = {key: value for key, value in holder.items() if key != name}
    return {**rest, "type": part["type"], "file": file}
