"""The resources and prompts of a server as tools, if its config asks for them."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from flowengine.sdk import Plain

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


def as_part(part: Any) -> dict[str, Plain]:
    """Return a part, as a text if it is a resource that consists of text."""
    inner = part.get("resource")
    if isinstance(inner, Mapping) and isinstance(inner.get("text"), str):
        return {"type": "text", "text": inner["text"]}
    return dict(part)


def as_file(resource: Mapping[str, Plain]) -> dict[str, Plain]:
    """Return a resource as servers send those that are not text."""
    text = resource.get("text")
    if not isinstance(text, str):
        return dict(resource)
    rest = {key: value for key, value in resource.items() if key != "text"}
    return {**rest, "blob": base64.b64encode(text.encode()).decode()}


def said(message: Any) -> dict[str, Plain]:
    """Return a message of a prompt as a part. A text names a speaker other than the user."""
    part = as_part(message["content"])
    if part["type"] == "text" and message["role"] != "user":
        part = {**part, "text": f"{message['role']}: {part['text']}"}
    return part
