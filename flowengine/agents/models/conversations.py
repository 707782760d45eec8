"""A conversation in the form that a provider accepts: its names, ids, own parts and cache marks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from json import dumps
from typing import Any

from flowengine.agents.models.port import Message
from flowengine.agents.models.provider_schemas import arguments_form
from flowengine.agents.models.wire_names import wire_name
from flowengine.agents.text_calls.records import ToolOffer, object_in
from flowengine.sdk.read_only import plain, unwrapped

LONGEST_ID = 40
"""Maximum characters of a call id. A longer id is sent only to the provider that created it."""
_MISTRAL_ID = re.compile(r"[A-Za-z0-9]{9}")
_NO_IMAGE = "(An image was left out here: this model takes none.)"
_UNREADABLE = 300
_CACHE = {"type": "ephemeral"}


def offered(tools: Iterable[ToolOffer]) -> list[dict[str, Any]]:
    """Return tools in the form offered to a model with function calling."""
    return [{"type": "function", "function": _function(tool)} for tool in tools]


def _function(tool: ToolOffer) -> dict[str, Any]:
    parameters, more = arguments_form(tool.schema)
    description = "\n\n".join(filter(None, [tool.description, more])) if more else tool.description
    return {
        "name": wire_name(tool.name),
        "description": description,
        "parameters": parameters,
    }


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


def with_cache_marks(messages: list[dict[str, Any]]) -> None:
    """Mark the prefixes that a provider should cache: up to the system text, and the whole request.

    Args:
        messages: Messages of one request, changed in place.
    """
    system = [message for message in messages if message["role"] == "system"][-1:]
    for message in [*system, *messages[-1:]]:
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
