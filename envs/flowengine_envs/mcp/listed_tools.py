"""The entries of a server's tool list, which often differ from the protocol.

The protocol library refuses the whole list for one invalid entry. Here an entry is completed where
its meaning is clear, as other clients do, and parts that only describe are dropped if they are
invalid. An entry that remains unusable is left out, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from flowengine.sdk import Plain
from flowengine_envs.mcp.messages import brief

LONGEST = 256
"""Maximum characters of a tool's name."""
Tools = list[dict[str, Plain]]


def usable(entries: list[Any], version: str) -> tuple[Tools, dict[str, str]]:
    """Return the entries that the protocol library accepts, and the reasons for leaving out others.

    Args:
        entries: The entries of one page, as the server sent them.
        version: The protocol revision of the session.

    Returns:
        The tools, and the name of each unusable entry → the reason.
    """
    tools: Tools = []
    left_out: dict[str, str] = {}
    for number, entry in enumerate(entries, 1):
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str) or not 0 < len(name) <= LONGEST or not name.isprintable():
            what = f"its name is {brief(repr(name)[:LONGEST])}" if name is not None else "no name"
            left_out[f"entry {number}"] = f"it is not a tool with a readable name: {what}"
            continue
        try:
            tools.append(_tool(entry, version))
        except ValueError as fault:
            left_out[name] = str(fault)
    return tools, left_out


def once(tools: Iterable[dict[str, Plain]], left_out: dict[str, str]) -> Tools:
    """Return the tools of all pages, each name once. Two different tools of one name are left out.

    Args:
        tools: The tools of all pages.
        left_out: Receives the reasons.
    """
    known: dict[str, dict[str, Plain]] = {}
    for tool in tools:
        name = str(tool["name"])
        if known.setdefault(name, tool) != tool:
            left_out[name] = "the server lists two different tools of this name"
    return [tool for name, tool in known.items() if name not in left_out]


def _tool(entry: Mapping[str, Any], version: str) -> dict[str, Plain]:
    """Return an entry in the form that the protocol library accepts.

    Raises:
        ValueError: Its arguments are not clear.
    """
    from mcp.shared.inbound import find_invalid_x_mcp_header
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS

    modern = version in MODERN_PROTOCOL_VERSIONS
    schema = _completed(entry.get("inputSchema"))
    if fault := _fault(schema):
        raise ValueError(f"the schema of its arguments {fault}")
    if modern and (header := find_invalid_x_mcp_header(schema)):
        raise ValueError(f"the schema of its arguments has an invalid header: {brief(header)}")
    tool = {**entry, "inputSchema": schema}
    result = entry.get("outputSchema")
    if not isinstance(result, dict) or (not modern and _fault(result)):
        tool.pop("outputSchema", None)
    for part in _invalid_parts(tool, version):
        tool.pop(part, None)
    return tool


def _completed(schema: Any) -> Any:
    """Return a schema of arguments with its obvious omissions filled in.

    A server without arguments often leaves out the schema or its type. PHP encodes an empty map as
    a list.
    """
    if schema is None or schema == []:
        return {"type": "object"}
    if not isinstance(schema, dict):
        return schema
    given = {key: value for key, value in schema.items() if value is not None}
    if given.get("properties") == []:
        given["properties"] = {}
    if given.get("required") == {}:
        del given["required"]
    return {"type": "object", **given}


def _fault(schema: Any) -> str:
    """Return why a schema does not describe an object, or an empty text.

    The protocol library would describe every fault of every property, which takes minutes for a few
    megabytes.
    """
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return "does not describe an object"
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, dict):
        return "has 'properties' that are not a map"
    for name, value in properties.items():
        if not isinstance(value, dict | bool):
            return f"has no schema for the property {brief(name)}"
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        return "has a 'required' that is not a list of names"
    return "" if isinstance(schema.get("$schema", ""), str) else "has a '$schema' that is not text"


def _invalid_parts(tool: Mapping[str, Any], version: str) -> set[str]:
    """Return the parts of a tool that the protocol library refuses, which only describe it."""
    from mcp.types import Tool
    from mcp_types.methods import validate_server_result
    from pydantic import ValidationError

    page = {"tools": [tool], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    invalid: set[str] = set()
    for validate, depth in (
        (lambda: validate_server_result("tools/list", version, page), 2),
        (lambda: Tool.model_validate(tool, by_name=False), 0),
    ):
        try:
            validate()
        except ValidationError as error:
            places = (fault["loc"][depth:] for fault in error.errors(include_url=False))
            invalid |= {str(place[0]) for place in places if place}
    return invalid - {"name", "inputSchema"}
