"""The resources and prompts of a server as tools, if its config asks for them."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flowengine.sdk import Plain, ToolError

if TYPE_CHECKING:
    from flowengine_envs.mcp.session import McpSession

Parts = list[dict[str, Plain]]
_TEXT: Mapping[str, Plain] = {"type": "string"}
_RESOURCES: Mapping[str, tuple[str, Mapping[str, Plain]]] = {
    "list_resources": (
        "List the server's resources, and the templates of addresses of further ones.",
        {},
    ),
    "read_resource": (
        "Read a resource of the server.",
        {
            "uri": {**_TEXT, "description": "Its address, from a list or made from a template."},
            "as_file": {"type": "boolean", "description": "Keep its text as a file, too."},
        },
    ),
}
_PROMPTS: Mapping[str, tuple[str, Mapping[str, Plain]]] = {
    "list_prompts": ("List the server's prompts, with the arguments of each.", {}),
    "get_prompt": (
        "Return the text of a prompt of the server.",
        {
            "name": {**_TEXT, "description": "Its name, from the list."},
            "arguments": {"type": "object", "additionalProperties": _TEXT},
        },
    ),
}
_OPTIONAL = frozenset({"arguments", "as_file"})


def own_tools(config: Any) -> list[dict[str, Plain]]:
    """Return the tools for the resources and prompts of a server, as servers list theirs.

    Args:
        config: Its config: `resources` and `prompts` say whether there are tools for them.
    """
    chosen = {
        **(_RESOURCES if config.resources else {}),
        **(_PROMPTS if config.prompts else {}),
    }
    return [
        {
            "name": name,
            "description": description,
            "inputSchema": {
                "type": "object",
                "properties": dict(arguments),
                "required": [each for each in arguments if each not in _OPTIONAL],
                "additionalProperties": False,
            },
        }
        for name, (description, arguments) in chosen.items()
    ]


async def call_own(
    session: McpSession, name: str, args: Mapping[str, Plain]
) -> tuple[Parts, dict[str, Plain] | None]:
    """Call one of these tools.

    Args:
        session: The session with the server.
        name: Its name.
        args: Its arguments.

    Returns:
        The parts of the answer, or the answer as data.

    Raises:
        ToolError: An argument is missing or of another type, or the server refused the request.
    """
    if name == "list_resources":
        resources = await session.async_list_resources()
        templates = await session.async_list_resource_templates()
        return [], {"resources": list(resources), "templates": list(templates)}
    if name == "list_prompts":
        return [], {"prompts": list(await session.async_list_prompts())}
    if name == "read_resource":
        parts = await session.async_read_resource(_text(session, name, args, "uri"))
        form = _bytes if args.get("as_file") is True else dict
        return [_part({"type": "resource", "resource": form(part)}) for part in parts], None
    given = args.get("arguments", {})
    if not isinstance(given, Mapping) or not all(isinstance(each, str) for each in given.values()):
        raise ToolError(f"{session.name}: {name}: 'arguments' must be texts", retryable=False)
    messages = await session.async_get_prompt(_text(session, name, args, "name"), given)
    return [_said(message) for message in messages], None


def _text(session: McpSession, tool: str, args: Mapping[str, Plain], name: str) -> str:
    value = args.get(name)
    if not isinstance(value, str):
        raise ToolError(f"{session.name}: {tool}: '{name}' must be a text", retryable=False)
    return value


def _part(part: Any) -> dict[str, Plain]:
    """Return a part, as a text if it is a resource that consists of text."""
    inner = part.get("resource")
    if isinstance(inner, Mapping) and isinstance(inner.get("text"), str):
        return {"type": "text", "text": inner["text"]}
    return dict(part)


def _bytes(resource: Mapping[str, Plain]) -> dict[str, Plain]:
    """Return a resource as servers send those that are not text."""
    text = resource.get("text")
    if not isinstance(text, str):
        return dict(resource)
    rest = {key: value for key, value in resource.items() if key != "text"}
    return {**rest, "blob": base64.b64encode(text.encode()).decode()}


def _said(message: Any) -> dict[str, Plain]:
    """Return a message of a prompt as a part. A text names a speaker other than the user."""
    part = _part(message["content"])
    if part["type"] == "text" and message["role"] != "user":
        part = {**part, "text": f"{message['role']}: {part['text']}"}
    return part
