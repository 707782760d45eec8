"""The tools, resources and prompts that a server lists, and changes in its list of tools."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from flowengine.sdk import Plain, ToolChanged, ToolError
from flowengine.sdk.environments import Request
from flowengine.sdk.python.schema_forms import each_part
from flowengine.sdk.texts import near_words
from flowengine.sdk.tools.browser_tools import OfferedTool
from flowengine_envs.mcp import library
from flowengine_envs.mcp.messages import brief

LONGEST = 256
"""Maximum characters of a tool's name."""
_OLDER = frozenset({"items", "additionalItems", "nullable", "dependencies"})
"""Keywords that drafts before 2020-12 and OpenAPI have, or write in other ways."""
Tools = list[dict[str, Plain]]


_NEEDED = {
    "tools": {"name", "inputSchema"},
    "resources": {"name", "uri"},
    "resourceTemplates": {"name", "uriTemplate"},
    "prompts": {"name", "arguments"},
}
"""Parts without which an entry cannot be used. The others only describe it."""
_METHODS = {"resourceTemplates": "resources/templates/list"}
"""Methods that are not named after what they list."""


def usable(entries: list[Any], version: str, kinds: str) -> tuple[Tools, dict[str, str]]:
    """Return the entries that the protocol library accepts, and the reasons for leaving out others.

    Args:
        entries: The entries of one page, as the server sent them.
        version: The protocol revision of the session.
        kinds: `tools`, `resources`, `resourceTemplates` or `prompts`.

    Returns:
        The entries, and the name of each unusable one → the reason.
    """
    kept: Tools = []
    left_out: dict[str, str] = {}
    for number, entry in enumerate(entries, 1):
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str) or not 0 < len(name) <= LONGEST or not name.isprintable():
            what = f"its name is {brief(repr(name)[:LONGEST])}" if name is not None else "no name"
            kind = kinds.removesuffix("s")
            left_out[f"entry {number}"] = f"it is not a {kind} with a readable name: {what}"
            continue
        try:
            sound = _with_schemas(entry, version) if kinds == "tools" else entry
            kept.append(_valid(sound, version, kinds))
        except ValueError as fault:
            left_out[name] = str(fault)
    return kept, left_out


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


def _with_schemas(entry: Mapping[str, Any], version: str) -> dict[str, Plain]:
    """Return a tool whose schemas the protocol library accepts.

    Raises:
        ValueError: Its arguments are not clear.
    """
    modern = version in library.MODERN_PROTOCOL_VERSIONS
    schema = _completed(entry.get("inputSchema"))
    if fault := _fault(schema):
        raise ValueError(f"the schema of its arguments {fault}")
    if modern and (header := library.find_invalid_x_mcp_header(schema)):
        raise ValueError(f"the schema of its arguments has an invalid header: {brief(header)}")
    tool = {**entry, "inputSchema": schema}
    result = entry.get("outputSchema")
    if not isinstance(result, dict) or (not modern and _fault(result)):
        tool.pop("outputSchema", None)
    return tool


def _valid(entry: Mapping[str, Any], version: str, kinds: str) -> dict[str, Plain]:
    """Return an entry without the parts that the protocol library refuses.

    Raises:
        ValueError: It needs one of them.
    """
    invalid = _invalid_parts(entry, version, kinds)
    if kinds != "tools" and (needed := sorted(invalid & _NEEDED[kinds])):
        raise ValueError(f"its '{needed[0]}' is not valid")
    invalid -= _NEEDED[kinds]
    return {part: value for part, value in entry.items() if part not in invalid}


def _completed(schema: Any) -> Any:
    """Return a schema of arguments in draft 2020-12, with its obvious omissions filled in.

    A server without arguments often leaves out the schema or its type. PHP encodes an empty map as
    a list. Libraries of other languages write older drafts.
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
    with suppress(AttributeError, TypeError, RecursionError):  # it is not a JSON Schema
        given = _modern(given)
    if isinstance(kinds := given.get("type"), list) and "object" in kinds:
        given["type"] = "object"  # arguments are never null
    return {"type": "object", **given}


def _modern(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema of an older draft, or of OpenAPI, in draft 2020-12."""
    made = {key: value for key, value in schema.items() if key not in _OLDER}
    if isinstance(items := schema.get("items"), list):
        made["prefixItems"] = items
        made |= {"items": schema["additionalItems"]} if "additionalItems" in schema else {}
    elif items is not None:
        made["items"] = items
    for bound, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if made.get(bound) is True and limit in made:
            made[bound] = made.pop(limit)
        elif isinstance(made.get(bound), bool):
            del made[bound]
    if schema.get("nullable") is True and isinstance(kind := schema.get("type"), str):
        made["type"] = [kind, "null"]
    for name, needed in schema.get("dependencies", {}).items():
        key = "dependentRequired" if isinstance(needed, list) else "dependentSchemas"
        made[key] = {**made.get(key, {}), name: needed}
    return each_part(made, _modern)


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


def _invalid_parts(entry: Mapping[str, Any], version: str, kinds: str) -> set[str]:
    """Return the parts of an entry that the protocol library refuses."""
    forms: dict[str, type[BaseModel]] = {
        "tools": library.Tool,
        "resources": library.Resource,
        "resourceTemplates": library.ResourceTemplate,
        "prompts": library.Prompt,
    }
    method = _METHODS.get(kinds, f"{kinds}/list")
    page = {kinds: [entry], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    invalid: set[str] = set()
    for validate, depth in (
        (lambda: library.validate_server_result(method, version, page), 2),
        (lambda: forms[kinds].model_validate(entry, by_name=False), 0),
    ):
        try:
            validate()
        except ValidationError as error:
            places = (fault["loc"][depth:] for fault in error.errors(include_url=False))
            invalid |= {str(place[0]) for place in places if place}
    return invalid


_LEFT_OUT = 100
"""Maximum number of unusable tools that are reported."""
_SHOWN = 10
"""Maximum number of tools named in a message."""


class Changed(NamedTuple):
    """The changes in a server's list of tools since the last one: sorted names."""

    added: list[str]
    changed: list[str]
    removed: list[str]


class Approved(NamedTuple):
    """The approval of a tool that is about to be called."""

    source: str | None
    """Digest of the description shown to the approver. None: the session was not open yet."""


class ToolList:
    """The tools of one server.

    Args:
        request: The request that opened the environment.
        name: Names the server in messages.
        read: Requests all tools from the server.
    """

    def __init__(self, request: Request, name: str, read: Callable[[], Awaitable[Tools]]) -> None:
        self._request = request
        self._name = name
        self._read = read
        self._reading = asyncio.Lock()
        self._offered: dict[str, str] = {}
        """Name → digest of its description for models."""
        self._texts: dict[str, str] | None = None
        """Name → its complete description, for users. None: the list has not been read."""
        self._first: dict[str, str] = {}
        """Name → its complete description when the session first read it."""
        self.left_out: dict[str, str] = {}
        """Name of each entry of the last list that cannot be used → the reason."""
        self._unusable: dict[str, str] = {}
        """Likewise, of the list that is being read."""
        self._outdated = True
        self.changed: Changed | None = None
        """The last change that was found."""

    def forget(self) -> None:
        """Read the list again before the next tool is called."""
        self._outdated = True

    async def all(self) -> Tools:
        """Return all tools, as the server lists them now."""
        async with self._reading:
            return await self._all()

    def offers(self, tools: Tools) -> list[OfferedTool]:
        """Return tools as offered to models, with those that were left out of the list."""
        left_out = islice(self.left_out.items(), _LEFT_OUT)
        unusable = [OfferedTool(name, "", None, "", why) for name, why in left_out]
        return [*map(OfferedTool.of, tools), *unusable]

    def readable(self, answer: library.JSONRPCResponse, version: str) -> library.JSONRPCResponse:
        """Return an answer whose entries, if it lists any, the protocol library accepts.

        Args:
            answer: An answer of the server.
            version: The protocol revision of the session.
        """
        for name in _NEEDED:
            listed = answer.result.get(name)
            if isinstance(listed, list):
                kept, unusable = usable(listed, version, name)
                if name == "tools":
                    self._unusable |= unusable
                elif unusable:
                    shown = dict(islice(unusable.items(), _SHOWN))
                    self._request.log.warning("left out of the server's %s: %s", name, shown)
                result = {**answer.result, name: kept}
                return answer.model_copy(update={"result": result})
        return answer

    def text(self, name: str) -> str | None:
        """Return the server's last description of a tool, or None."""
        return (self._texts or {}).get(name)

    async def check(
        self, name: str, digest: str | None = None, approved: Approved | None = None
    ) -> None:
        """Refuse a tool that does not exist or has changed.

        Args:
            name: Its name.
            digest: Digest of the offered tool. None: any version.
            approved: The approval, if one was requested.

        Raises:
            ToolChanged: It has changed.
            ToolError: The tool does not exist.
        """
        async with self._reading:
            # An unknown tool may be newer than the last notification of the server.
            if self._outdated or name not in (self._texts or {}):
                await self._all()
        known = self._texts or {}
        if name not in known:
            why = self.left_out.get(name)
            message = f"{self._name}: there is no tool '{name}'{nearest(name, known)}"
            if why is not None:
                message = f"{self._name}: the tool '{name}' cannot be called: {why}"
            raise ToolError(message, retryable=False)
        if digest is not None and digest != self._offered[name]:
            message = f"{self._name}: the tool '{name}' has changed since it was offered"
            raise ToolChanged(f"{message}; it was not called", retryable=False)
        if approved is not None:
            now, first = known[name], self._first[name]
            if digest_of(now) != (approved.source or digest_of(first)):
                # Later approvals without a description refer to this version.
                self._first[name] = now
                raise ToolChanged(
                    f"{self._name}: the tool '{name}' has changed since its call was approved; it "
                    "was not called",
                    data={"approved": {"before": first, "now": now}},
                    retryable=False,
                )

    async def watch(self, client: library.Client) -> None:
        """Subscribe to changes, if the protocol revision requires a subscription.

        Args:
            client: The connection, with which the subscription ends.
        """
        self.forget()
        with suppress(Exception):
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self.forget()
        self.forget()

    async def _all(self) -> Tools:
        self._outdated = False  # Later changes are not part of the list being read.
        self._unusable = {}
        try:
            tools = once(await self._read(), self._unusable)
        except BaseException:
            self._outdated = True
            raise
        self.left_out = self._unusable
        self._offered = {str(tool["name"]): OfferedTool.of(tool).digest for tool in tools}
        before, now = self._texts, {str(tool["name"]): text_of(tool) for tool in tools}
        self._texts, self._first = now, {**now, **self._first}
        if before is not None and before != now:
            self.changed = Changed(
                sorted(now.keys() - before.keys()),
                sorted(name for name in now.keys() & before.keys() if now[name] != before[name]),
                sorted(before.keys() - now.keys()),
            )
            self._request.log.warning("the server's tools have changed: %s", self.changed)
            self._request.changed(**self.changed._asdict())
        return tools


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the probable intended name or the known names, as the end of a message.

    Args:
        name: The unknown name.
        known: The known names.
    """
    names = sorted(known)
    if (near := near_words.did_you_mean(name, names)) is not None:
        return f"; {near}"
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"; it has {', '.join(names[:_SHOWN])}{more}" if names else "; it has none"


def text_of(tool: Mapping[str, Plain]) -> str:
    """Return the complete description of a tool, as lines that can be compared."""
    rest = {key: value for key, value in tool.items() if key != "description"}
    definition = json.dumps(rest, indent=2, sort_keys=True, ensure_ascii=False)
    return f"{tool.get('description') or ''}\n{definition}\n"


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()
