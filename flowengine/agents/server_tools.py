"""Tools of servers, offered to agents as they were listed when the agent's work began.

The descriptions of a server are not trusted. They are limited, checked, and offered unchanged until
the server reports a change. A call names the digest of the offered tool, so that a tool that has
changed since is not called.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from flowengine.agents.models.provider_schemas import WireNames
from flowengine.agents.tool_steps import allowed
from flowengine.errors import FlowEngineError
from flowengine.sdk import Plain, ToolError
from flowengine.sdk.texts.near_words import did_you_mean
from flowengine.sdk.texts.visible_text import visible
from flowengine.sdk.tools.browser_tools import OfferedTool
from flowengine.sdk.values.argument_schemas import without_arguments
from flowengine.sdk.values.validation import Validator

UNUSABLE = (FlowEngineError, ValueError, RecursionError)
"""Errors about tool descriptions that cannot be used."""
MOST = 200
"""Maximum server tools per agent. Providers accept few more."""
LONGEST_DESCRIPTION = 4_000
LARGEST_SCHEMA = 32_000
"""Maximum characters of a schema as JSON."""
LARGEST_OFFER = 1_000_000
"""Maximum characters of the whole offer to the agents of a step."""


@dataclass
class ServerToolOffer:
    """The server tools offered to agents."""

    agents: dict[str, dict[str, Plain]] = field(default_factory=dict)
    """By agent: name → `description`, `parameters`, and data for calls."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Name → reason why the tool is not offered."""

    @property
    def data(self) -> dict[str, Plain]:
        """The offer as stored in the state of the flow."""
        return {"agents": self.agents}


async def offered(
    sessions: Mapping[str, Any], wanted: Mapping[str, Any], *, again: bool = False
) -> ServerToolOffer:
    """List the tools of servers, and return the offer to agents.

    Args:
        sessions: Sessions with the servers, by name.
        wanted: By agent: `servers`, with the tools to use of each, and `names` of its other tools.
        again: Whether this updates an earlier offer. If so, a missing tool is not an error.

    Raises:
        ToolError: A tool that an agent names does not exist, or cannot be offered.
    """
    lists: dict[str, Sequence[OfferedTool]] = {}
    for wants in wanted.values():
        for session in (use["session"] for use in wants["servers"]):
            if session not in lists:
                lists[session] = await sessions[session].async_offers()
    return of_lists(lists, wanted, again=again)


def of_lists(
    lists: Mapping[str, Sequence[OfferedTool]], wanted: Mapping[str, Any], *, again: bool
) -> ServerToolOffer:
    """Return the offer to agents, from the tools that servers listed.

    Args:
        lists: Listed tools, by session.
        wanted: As for `offered`.
        again: As for `offered`.
    """
    offer = ServerToolOffer()
    for agent, value in wanted.items():
        tools: dict[str, Plain] = {}
        for use in value["servers"]:
            tools |= _of_server(use, lists[use["session"]], offer.left_out, strict=not again)
        offer.agents[agent] = dict(sorted(tools.items()))
        if len(tools) > MOST:
            message = f"servers offer {len(tools)} tools to the agent {agent!r}; at most {MOST}"
            raise ToolError(f"{message} are taken: name fewer, or 'include' some", retryable=False)
        WireNames([*value["names"], *tools])
    size = len(json.dumps(offer.agents))
    if size > LARGEST_OFFER:
        message = (
            f"the servers' tool descriptions have {size} characters, but at most {LARGEST_OFFER}"
        )
        raise ToolError(f"{message} are offered: name fewer tools", retryable=False)
    return offer


def scripted(names: Sequence[str], wanted: Mapping[str, Any]) -> ServerToolOffer:
    """Return the offer to agents in a test case, without querying servers.

    Args:
        names: Tools for which the case has results, by their names in the flow.
        wanted: As for `offered`. Tools that it names are also available.
    """
    lists: dict[str, list[OfferedTool]] = {}
    for wants in wanted.values():
        for use in wants["servers"]:
            session, patterns = use["session"], use["patterns"]
            before = f"{session}."
            called = [name.removeprefix(before) for name in names if name.startswith(before)]
            named = [pattern for pattern in patterns if not any(c in pattern for c in "*?[")]
            known = [tool.name for tool in lists.get(session, ())]
            lists[session] = [
                OfferedTool(name, "", {"type": "object", "additionalProperties": True}, "")
                for name in dict.fromkeys([*known, *called, *named])
            ]
    return of_lists(lists, wanted, again=True)


def _of_server(
    use: Mapping[str, Any],
    listed: Sequence[OfferedTool],
    left_out: dict[str, str],
    *,
    strict: bool,
) -> dict[str, Plain]:
    """Return the tools of a server that an agent can use."""
    server = use["server"]
    known = [entry for entry in listed if allowed(entry.name, use["include"], use["exclude"])]
    names = [entry.name for entry in known]
    steps: dict[str, Plain] = {}
    for pattern, step in use["patterns"].items():
        fitting = [name for name in names if fnmatchcase(name, pattern)]
        if not fitting and strict:
            has = did_you_mean(pattern, names) or f"it has {', '.join(names[:10]) or 'none'}"
            message = f"no tool of the server {server!r} matches {pattern!r}; {has}"
            raise ToolError(message, retryable=False)
        steps |= {name: step for name in fitting if name not in steps}
    taken: dict[str, Plain] = {}
    for entry in known:
        if entry.name not in steps:
            continue
        full = f"{server}.{entry.name}"
        try:
            if entry.fault:
                raise ValueError(entry.fault)
            taken[full] = {
                "description": description_of(entry.description),
                "parameters": parameters_of(entry.schema, use["bound"]),
                "step": steps[entry.name],
                "tool": entry.name,
                "digest": entry.digest,
            }
        except UNUSABLE as error:
            fault = fault_of(error)
            if strict and entry.name in use["patterns"]:
                raise ToolError(f"{full} cannot be offered: {fault}", retryable=False) from None
            left_out[full] = fault
    return taken


def fault_of(error: Exception) -> str:
    """Return a readable reason why a tool cannot be used.

    Args:
        error: One of `UNUSABLE`.
    """
    return getattr(error, "message", None) or str(error) or type(error).__name__


def parameters_of(schema: Any, bound: Sequence[str] = ()) -> dict[str, Plain]:
    """Return the schema of the arguments that a caller of a server's tool supplies.

    Args:
        schema: The schema that the server declares.
        bound: Arguments that the flow fixes.

    Raises:
        ValueError: It is too large, or does not describe an object.
        FlowEngineError: It is not a JSON Schema.
    """
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        raise ValueError("the schema of its arguments does not describe an object")
    if len(json.dumps(schema)) > LARGEST_SCHEMA:
        raise ValueError(f"the schema of its arguments has more than {LARGEST_SCHEMA} characters")
    properties = schema.get("properties", {})
    if not isinstance(properties, dict):
        raise ValueError("'properties' in the schema of its arguments is not a map")
    given = {**schema, "type": "object", "properties": properties}
    whole: dict[str, Plain] = _cleaned(without_arguments(given, bound))
    if "required" not in schema:
        del whole["required"]
    Validator(whole)
    return whole


_PROSE = ("description", "title", "$comment", "default", "examples", "example")
"""Keywords that only describe a value. All others must stay as the server declares them."""


def _cleaned(schema: Any, *, prose: bool = False) -> Any:
    """Return a schema without characters that are invisible to humans but read by models.

    Args:
        schema: The schema, or a part of it.
        prose: Whether this part only describes.

    Raises:
        ValueError: Such characters are in a name or value that a call must contain.
    """
    if isinstance(schema, list):
        return [_cleaned(part, prose=prose) for part in schema]
    if isinstance(schema, dict):
        # A word such as `description` that has a map is the name of an argument with its schema.
        return {
            _cleaned(key, prose=prose): _cleaned(
                value, prose=prose or (key in _PROSE and not isinstance(value, dict))
            )
            for key, value in schema.items()
        }
    if not isinstance(schema, str):
        return schema

    shown, invisible = visible(schema)
    if prose:
        return shown
    if invisible:
        raise ValueError("the schema of its arguments has invisible characters in a name or value")
    return schema


def description_of(text: str) -> str:
    """Return a tool description without invisible characters, cut to the maximum length.

    Args:
        text: The description from the server.
    """
    seen = visible(text)[0]
    if len(seen) <= LONGEST_DESCRIPTION:
        return seen
    return f"{seen[:LONGEST_DESCRIPTION]} […]"
