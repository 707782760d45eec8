"""Arriving replies: their assembly from pieces, and the notification of listeners."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from flowengine.agents.models.port import FunctionCalling, Listener, ModelRequest, ReplyPart
from flowengine.agents.models.provider_schemas import WrappedText
from flowengine.agents.models.replies import SentCall, form_of
from flowengine.agents.models.wire_names import WireNames
from flowengine.agents.text_calls.streaming import Shown, StreamFilter
from flowengine.sdk.received import whole_text

_log = logging.getLogger("flowengine.agents")


class GuardedListener:
    """Calls a listener. After an error, the listener is dropped and the reply continues.

    Args:
        listen: The listener, if any.
    """

    def __init__(self, listen: Listener | None) -> None:
        self.listen = listen

    def __call__(self, part: ReplyPart) -> None:
        """Pass a part on."""
        if self.listen is None:
            return
        try:
            self.listen(part)
        except Exception:
            self.listen = None
            _log.exception("a listener to a reply failed, and gets no more of it")


class PartSender:
    """Passes on arriving parts: reasoning separately, and text without the syntax of text calls.

    Args:
        listen: The listener, if any.
        request: The request.
        calling: How the tools were offered.
        is_wrapped: Whether the answer arrives inside an object that is not part of it.
    """

    def __init__(
        self,
        listen: Listener | None,
        request: ModelRequest,
        calling: FunctionCalling,
        *,
        is_wrapped: bool = False,
    ) -> None:
        self._listen = GuardedListener(listen)
        self._wrapped = WrappedText() if is_wrapped else None
        self._filter = StreamFilter(form_of(request) if calling == "text" else None)
        self._calls: list[ReplyPart] = []
        self._sent = False
        self._listen(ReplyPart("start"))

    def text(self, piece: str) -> None:
        """Process the next piece of the text."""
        piece = self._wrapped.feed(piece) if self._wrapped else piece
        self._send_shown(self._filter.feed(whole_text(piece)))

    def reasoning(self, piece: str) -> None:
        """Process the next piece of the reasoning."""
        self._filter.reasoning(piece)
        self._send_piece(ReplyPart("reasoning", whole_text(piece)))

    def call(self, id: str, tool: str | None, piece: str) -> None:
        """Process the next piece of a call's arguments."""
        self._sent = True
        self._calls.append(ReplyPart("call", whole_text(piece), id, tool))
        self._listen(self._calls[-1])

    def end(self, ended: str) -> None:
        """Process the end of the reply."""
        if self._wrapped:
            self._send_shown(self._filter.feed(self._wrapped.close()))
        self._send_shown(self._filter.close("length" if ended == "length" else "stop"))
        self._listen(ReplyPart("end"))

    def broke_off(self) -> bool:
        """Send `restart` if any part was sent, because the reply will not be completed.

        Returns:
            Whether any part was sent.
        """
        if self._sent:
            self._listen(ReplyPart("restart"))
        return self._sent

    def _send_shown(self, shown: Iterable[Shown]) -> None:
        for kind, text in shown:
            if kind == "restart":
                for part in (ReplyPart("restart"), ReplyPart("start"), *self._calls):
                    self._listen(part)
            else:
                self._send_piece(ReplyPart(kind, text))

    def _send_piece(self, part: ReplyPart) -> None:
        if part.text:
            self._sent = True
            self._listen(part)


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
