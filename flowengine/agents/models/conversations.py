"""A conversation in the form that a provider accepts: its names, ids, own parts and cache marks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import chain
from json import dumps
from operator import is_not, itemgetter, methodcaller
from typing import Any

from flowengine.agents.models.port import Message
from flowengine.agents.models.provider_schemas import arguments_form, wire_name
from flowengine.agents.text_calls.marked_form import ToolOffer, object_in
from flowengine.sdk.texts.untrusted import RULES, brief
from flowengine.sdk.values.read_only import plain, unwrapped

LONGEST_ID = 40
"""Maximum characters of a call id. A longer id is sent only to the provider that created it."""
_MISTRAL_ID = re.compile(r"[A-Za-z0-9]{9}")
_NO_IMAGE = "(An image was left out here: this model takes none.)"
_UNREADABLE = 300
_CACHE = {"type": "ephemeral"}
_LOOKS_BACK = 20
"""Blocks before a mark in which Claude looks for a prefix that it knows."""


def offered(tools: Iterable[ToolOffer]) -> list[dict[str, Any]]:
    """Return tools in the form offered to a model with function calling."""
    offers = []
    for tool in tools:
        parameters, more = arguments_form(tool.schema)
        about = "\n\n".join(filter(None, [tool.description, more])) if more else tool.description
        function = {"name": wire_name(tool.name), "description": about, "parameters": parameters}
        offers.append({"type": "function", "function": function})
    return offers


def answers_first(messages: Iterable[Message]) -> Iterator[Message]:
    """Yield messages in an order that keeps the answers to the calls of one reply together.

    Messages that accompany an answer, such as images from a tool or an approver, follow after the
    last answer. Providers reject other messages before all calls of a reply are answered.
    """
    unanswered: set[str] = set()
    later: list[Message] = []
    for message in messages:
        role = message["role"]
        if role == "tool":
            unanswered.discard(message.get("tool_call_id") or "")
        elif role == "user" and unanswered:
            later.append(message)
            continue
        else:
            unanswered = {call["id"] for call in message.get("tool_calls") or ()}
        if role != "tool":
            yield from later
            later = []
        yield message
        if not unanswered:
            yield from later
            later = []
    yield from later


class ConversationWriter:
    """Writes the messages of a request.

    Args:
        provider: The provider that receives them. Only its own parts are sent back to it.
        vision: Whether the model accepts images.
    """

    def __init__(self, provider: str, *, vision: bool) -> None:
        self._provider = provider
        self._vision = vision
        self._ids: dict[str, str] = {}
        """Ids of calls by which the provider knows them, where they differ."""

    def written(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        """Return the messages for a model with function calling."""
        return [self._written(message) for message in answers_first(unwrapped(messages))]

    def with_images(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return messages without images, if the model does not accept them."""
        if self._vision:
            return messages
        return [{**message, "content": _imageless(message.get("content"))} for message in messages]

    def _written(self, message: Message) -> dict[str, Any]:
        role, content = message["role"], message.get("content")
        if isinstance(content, list):
            content = plain(content)
        written: dict[str, Any] = {"role": role, "content": "" if content is None else content}
        if not self._vision:
            written["content"] = _imageless(written["content"])
        if role == "tool":
            written["tool_call_id"] = self._id(message.get("tool_call_id") or "")
            if name := message.get("name"):
                written["name"] = wire_name(name)
        if role == "assistant":
            self._write_assistant(message, written)
        return written

    def _write_assistant(self, message: Message, written: dict[str, Any]) -> None:
        parts = plain((message.get("provider_parts") or {}).get(self._provider) or {})
        self._ids.update(parts.get("ids") or {})
        for name in ("thinking_blocks", "reasoning_items"):
            if parts.get(name):
                written[name] = parts[name]
        calls = message.get("tool_calls")
        if not calls:
            return
        written["content"] = written["content"] or None
        written["tool_calls"] = [
            self._call(call, (parts.get("calls") or {}).get(call["id"])) for call in calls
        ]

    def _call(self, call: Mapping[str, Any], parts: Any) -> dict[str, Any]:
        function = call["function"]
        written = {
            "id": self._id(call["id"]),
            "type": "function",
            "function": {
                "name": wire_name(function["name"]),
                "arguments": _object_text(function.get("arguments") or "{}"),
            },
        }
        if parts:
            written["provider_specific_fields"] = parts
        return written

    def _id(self, id: str) -> str:
        if self._provider == "mistral" and not _MISTRAL_ID.fullmatch(id):
            return sha256(id.encode(errors="surrogatepass")).hexdigest()[:9]
        return self._ids.get(id, id)


def with_system_text(messages: Sequence[Message], text: str) -> list[Message]:
    """Return messages whose system message ends with a text."""
    first, *others = unwrapped(messages or [{"role": "user", "content": ""}])
    if first["role"] != "system":
        return [{"role": "system", "content": text}, first, *others]
    content = "\n\n".join(filter(None, (first.get("content"), text)))
    return [{**first, "content": content}, *others]


def with_brief_blocks(messages: Sequence[Message], *, ruled: bool) -> Sequence[Message]:
    """Return messages in which the blocks of tool results are brief, and explained once.

    Args:
        messages: The messages of a request.
        ruled: Whether to explain blocks before there are any. Otherwise, the first result would
            change the beginning of the next request, which providers cache.
    """
    shown = [_with_brief_blocks(message) for message in unwrapped(messages)]
    changed = any(map(is_not, shown, unwrapped(messages)))
    return with_system_text(shown, RULES) if ruled or changed else messages


def _with_brief_blocks(message: Message) -> Message:
    if message["role"] != "tool":
        return message
    content = dict.get(message, "content")  # bypasses a read-only view
    shown = brief(content) if isinstance(content, str) else content
    return message if shown is content else {**message, "content": shown}


def with_cache_marks(messages: list[dict[str, Any]]) -> None:
    """Mark the prefixes that a provider should cache: up to the system text, and the whole request.

    A provider looks for a known prefix in a few blocks before a mark only. If the last reply and
    its results are more than these, the end of the request before is marked, too.

    Args:
        messages: Messages of one request, changed in place.
    """
    system = [message for message in messages if message["role"] == "system"][-1:]
    at = max((n for n, one in enumerate(messages) if one["role"] == "assistant"), default=0)
    blocks = sum(1 + len(one.get("tool_calls") or ()) for one in messages[at:])
    before = messages[at - 1 : at] if blocks >= _LOOKS_BACK else []
    for message in [*system, *before, *messages[-1:]]:
        content = message["content"]
        if message["role"] == "tool":  # only the result itself can be marked
            message["cache_control"] = _CACHE
        elif isinstance(content, str) and content:
            text = {"type": "text", "text": content, "cache_control": _CACHE}
            message["content"] = [text]
        elif isinstance(content, list) and content:
            message["content"] = [*content[:-1], {**content[-1], "cache_control": _CACHE}]


def schema_text(schema: Mapping[str, Any]) -> str:
    """Return a description of the required answer, for providers without a schema mode."""
    return (
        "Your final answer must be one JSON value that fits this JSON Schema, and nothing else:\n"
        f"{dumps(schema, ensure_ascii=False)}"
    )


def _object_text(arguments: str) -> str:
    """Return arguments unchanged if they are an object, because some providers parse them."""
    if object_in(arguments) is not None:
        return arguments
    return dumps({"unreadable": arguments[:_UNREADABLE]}, ensure_ascii=False)


def _imageless(content: Any) -> Any:
    if not isinstance(content, list):
        return content
    return [
        {"type": "text", "text": _NO_IMAGE} if part.get("type") == "image_url" else part
        for part in content
    ]


def ids_in(messages: Iterable[Message]) -> set[str]:
    """Return the ids of the calls in messages."""
    calls = map(methodcaller("get", "tool_calls"), unwrapped(messages))
    return set(map(itemgetter("id"), chain.from_iterable(filter(None, calls))))


def parted(messages: Sequence[Message]) -> list[int]:
    """Return the places of the messages whose content is a list of parts, such as images."""
    # Bypasses the read-only views, which would copy the content.
    contents = [dict.get(message, "content") for message in unwrapped(messages)]
    return [place for place, content in enumerate(contents) if isinstance(content, list)]


def since_reply(messages: Sequence[Message]) -> list[Message] | None:
    """Return the last reply and the messages after it, or None without a reply."""
    for place in range(len(messages) - 1, -1, -1):
        if messages[place]["role"] == "assistant":
            return [messages[at] for at in range(place, len(messages))]
    return None
