"""Assembly of a streamed reply from text, reasoning, and pieces of calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowengine.agents.models.replies import SentCall
from flowengine.agents.models.reply_parts import PartSender
from flowengine.agents.models.wire_names import WireNames


class ArrivingReply:
    """The part of a reply that has arrived.

    Args:
        parts: Receives arriving parts, if there is a listener.
        names: Wire names of the tools on offer.
    """

    def __init__(self, parts: PartSender | None, names: WireNames) -> None:
        self.content: list[str] = []
        self.reasoning: list[str] = []
        self.thinking_blocks: list[dict[str, Any]] = []
        self.reasoning_items: list[Any] = []
        self.call_parts: dict[str, Any] = {}
        """Provider data of calls: id → data."""
        self.finish: str | None = None
        self._calls: dict[Any, SentCall] = {}
        self._parts = parts
        self._names = names

    @property
    def calls(self) -> list[SentCall]:
        """The calls, in the order in which they started."""
        return [
            SentCall(call.id, self._names.from_wire(call.name), call.arguments)
            for call in self._calls.values()
        ]

    def take(self, chunk: Any) -> None:
        """Process the next chunk of the stream."""
        for choice in chunk.choices or ():
            self.finish = choice.finish_reason or self.finish
            delta = choice.delta
            for block in getattr(delta, "thinking_blocks", None) or ():
                self._think(block)
            for call in getattr(delta, "tool_calls", None) or ():
                self._call(call, getattr(call, "index", None))
            self._take_texts(delta)

    def take_whole(self, response: Any) -> None:
        """Process a reply that was not streamed."""
        for choice in response.choices[:1]:
            self.finish = choice.finish_reason
            self.thinking_blocks += getattr(choice.message, "thinking_blocks", None) or ()
            for place, call in enumerate(getattr(choice.message, "tool_calls", None) or ()):
                self._call(call, place)
            self._take_texts(choice.message)

    def _take_texts(self, delta: Any) -> None:
        if text := getattr(delta, "content", None):
            self.content.append(text)
            if self._parts:
                self._parts.text(text)
        if (thought := getattr(delta, "reasoning_content", None)) is not None:
            self.reasoning.append(thought)
            if self._parts:
                self._parts.reasoning(thought)
        self.reasoning_items += getattr(delta, "reasoning_items", None) or ()

    def _think(self, block: Mapping[str, Any]) -> None:
        """Add a piece of signed reasoning. The signature comes last and completes it."""
        last = self.thinking_blocks[-1] if self.thinking_blocks else None
        if last is None or "signature" in last or block.get("type") != last.get("type"):
            last = {"type": block.get("type", "thinking")}
            self.thinking_blocks.append(last)
        for key, value in block.items():
            if key == "type" or value is None:
                continue
            if key == "signature" or key not in last:
                last[key] = value
            elif isinstance(value, str):
                last[key] += value

    def _call(self, piece: Any, index: Any) -> None:
        id = str(getattr(piece, "id", None) or "")
        call = self._calls.get(index)
        if call is None or (id and call.id and id != call.id):
            # Some providers give every call the same index, so a new id means a new call.
            key = index if call is None else (index, id)
            call = self._calls.setdefault(key, SentCall())
        call.id = call.id or id
        function = getattr(piece, "function", None)
        name = getattr(function, "name", None) or ""
        if name != call.name and not call.arguments:
            call.name += name  # a name can come in pieces, or repeatedly as a whole
        arguments = getattr(function, "arguments", None) or ""
        call.arguments = f"{call.arguments}{arguments}"
        if parts := getattr(piece, "provider_specific_fields", None):
            self.call_parts[call.id] = dict(parts)
        if self._parts:
            self._parts.call(call.id or str(index), self._names.from_wire(call.name), arguments)
