"""Conversion of a provider's response to a reply: calls, checked arguments, and readable faults."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from json import dumps
from secrets import token_hex
from types import SimpleNamespace
from typing import Any, Literal

from flowengine.agents.models.conversations import ids_in
from flowengine.agents.models.port import (
    FunctionCalling,
    Listener,
    Message,
    ModelReply,
    ModelRequest,
    ReplyPart,
    Usage,
)
from flowengine.agents.models.provider_schemas import WireNames, WrappedText, wire_name
from flowengine.agents.text_calls.arguments import bind
from flowengine.agents.text_calls.marked_form import (
    CallFault,
    Ended,
    MarkedForm,
    ModelCall,
    ParsedReply,
    ToolOffer,
    mark_of,
    marked,
    object_in,
)
from flowengine.agents.text_calls.reading import MAX_CALLS, NOT_MADE, read_reply
from flowengine.agents.text_calls.requests import MUST_CALL, example_of, faults_told
from flowengine.agents.text_calls.streaming import Shown, StreamFilter
from flowengine.agents.text_calls.unread import unread_call
from flowengine.sdk import Plain
from flowengine.sdk.texts.received import whole_text, whole_texts

Finish = Literal["stop", "length", "filtered"]
"""Why a reply ended. Whether it contains calls is not part of this."""
UNREAD = (
    "The call of {0} in the text of your reply was not made. Write calls {1}. If you only quoted "
    "it, give your answer again, with a sentence around it and the call in a code fence."
)
_ID_DIGITS = 9
"""The strictest provider accepts exactly this many letters and digits."""


@dataclass(slots=True)
class SentReply:
    """A reply as received, before its calls are checked."""

    content: str = ""
    reasoning: str | None = None
    """Reasoning that arrived separately from the content, possibly empty. None: none arrived."""
    calls: list[ModelCall] = field(default_factory=list)
    """The native calls."""
    ended: Finish = "stop"
    usage: Usage = field(default_factory=Usage)
    provider_parts: Mapping[str, Plain] | None = None


def text_tools_of(request: ModelRequest) -> Sequence[ToolOffer]:
    """Return the tools that a model can call in text, restricted by `tool_choice`."""
    choice = request.tool_choice
    if choice in (None, "auto", "required"):
        return request.tools
    return tuple(tool for tool in request.tools if tool.name == choice)


def must_call(request: ModelRequest) -> bool:
    """Return whether the reply must contain a call."""
    return bool(request.tools) and request.tool_choice not in (None, "auto", "none")


def form_of(request: ModelRequest) -> MarkedForm:
    """Return the form in which the model writes calls as text."""
    return marked(mark_of(request.conversation, request.messages))


def read_sent(
    sent: SentReply,
    request: ModelRequest,
    calling: FunctionCalling,
    *,
    events: Iterable[Mapping[str, Plain]] = (),
) -> ModelReply:
    """Interpret a received reply.

    Args:
        sent: The reply of a provider or a script.
        request: The request.
        calling: How the tools were offered.
        events: Events so far.

    Returns:
        The reply, in which every call is either valid or a fault.
    """
    reader = _Reader(sent, request)
    if calling == "text" and not sent.calls:
        reader.read_text()
    else:
        reader.read_native()
    reader.report_unread(calling)
    return ModelReply(
        reader.message(),
        "calls" if reader.entries else sent.ended,
        sent.usage,
        request.model,
        tuple(reader.calls),
        tuple(reader.faults),
        (*events, *reader.events),
    )


def _mended(sent: SentReply) -> SentReply:
    """Return a received reply with all its texts as Unicode."""
    calls = [
        ModelCall(*map(whole_texts, (call.name, call.arguments, call.id))) for call in sent.calls
    ]
    parts = None if sent.provider_parts is None else whole_texts({**sent.provider_parts})
    content, reasoning = whole_texts(sent.content), whole_texts(sent.reasoning)
    return replace(sent, content=content, reasoning=reasoning, calls=calls, provider_parts=parts)


class _Reader:
    def __init__(self, sent: SentReply, request: ModelRequest) -> None:
        self.sent = sent = _mended(sent)
        self.request = request
        self.ended: Ended = "length" if sent.ended == "length" else "stop"
        self.content = sent.content
        self.reasoning = sent.reasoning or ""
        self.entries: list[Message] = []
        self.calls: list[ModelCall] = []
        self.faults: list[CallFault] = []
        self.events: list[Mapping[str, Plain]] = []
        self._known: Set[str] | None = None
        """Ids of the conversation."""
        self._taken: set[str] = set()
        """Ids of this reply."""

    def message(self) -> Message:
        message: Message = {"role": "assistant", "content": self.content}
        if thought := self.reasoning.strip():
            message["reasoning"] = thought
        if self.entries:
            message["tool_calls"] = self.entries
        if self.sent.provider_parts:
            message["provider_parts"] = dict(self.sent.provider_parts)
        return message

    def read_native(self) -> None:
        """Read the native calls. No part of the text counts as a call."""
        if self.content:
            self._add_reading(self._read((), None))
        by_name = {tool.name: tool for tool in self.request.tools}
        repairs: list[str] = []
        for call in self.sent.calls[:MAX_CALLS]:
            made, mended = bind(call, by_name, ended=self.ended)
            repairs += mended
            id = self._id(call.id)
            if isinstance(made, CallFault):
                self.faults.append(CallFault(_worded(made, by_name), call.name, id=id))
                self._enter(id, call.name, call.arguments or "{}")
            else:
                self._make(replace(made, id=id), _as_sent(call.arguments))
        if len(self.sent.calls) > MAX_CALLS:
            self.faults.append(CallFault(NOT_MADE))
        self._report_repairs(repairs)

    def read_text(self) -> None:
        tools, form = text_tools_of(self.request), form_of(self.request)
        reading = self._read(tools, form)
        self._add_reading(reading)
        faults = reading.faults
        if must_call(self.request) and not (reading.calls or faults):
            faults = (CallFault(f"There is no call in your reply. {MUST_CALL}"),)
        for fault in faults:
            self.faults.append(CallFault(faults_told([fault], tools, form), fault.name))
        if reading.faults and not self.content:  # some providers reject empty messages
            self.content = reading.faults[0].written

    def _read(self, tools: Sequence[ToolOffer], form: MarkedForm | None) -> ParsedReply:
        thought = None if self.sent.reasoning is None else bool(self.reasoning.strip())
        return read_reply(self.content, tools, form, ended=self.ended, thought=thought)

    def report_unread(self, calling: FunctionCalling) -> None:
        """Report a probable call in the text that was not made."""
        told_already = calling == "text" and self.faults
        if told_already:
            return
        # A call that was also made natively is not missing: some servers repeat it in the text.
        made = {call.name for call in self.calls}
        tools = {tool.name: tool for tool in text_tools_of(self.request) if tool.name not in made}
        known = tools | {wire_name(name): tool for name, tool in tools.items()}
        bare = self.request.returns is None
        unread = unread_call(self.content, known, bare=bare)
        if unread is None:
            return
        if calling == "text":
            message = UNREAD.format(unread.tool, "exactly as shown")
            fault = CallFault(message, unread.tool, unread.written)
            text = faults_told([fault], [*tools.values()], form_of(self.request))
        else:  # no example: the tool name may be a quotation, and the model has the schema
            text = UNREAD.format(unread.tool, "by function calling only")
        self.faults.append(CallFault(text, unread.tool))

    def _add_reading(self, reading: ParsedReply) -> None:
        self.content = reading.content
        self.reasoning = "\n".join(filter(None, [self.reasoning, reading.reasoning]))
        self._report_repairs(reading.repairs)
        for call in reading.calls:
            self._make(replace(call, id=self._id("")))

    def _make(self, call: ModelCall, sent: str | None = None) -> None:
        """Add a valid call, with its arguments as sent if they are to stay so."""
        self.calls.append(call)
        self._enter(call.id, call.name, sent or _json(call.arguments))

    def _enter(self, id: str, name: str, arguments: str) -> None:
        function: Message = {"name": name, "arguments": arguments}
        self.entries.append({"id": id, "type": "function", "function": function})

    def _report_repairs(self, repairs: Iterable[str]) -> None:
        if distinct := list(dict.fromkeys(repairs)):
            self.events.append(
                {"event": "repaired", "model": self.request.model, "what": [*distinct]}
            )

    def _id(self, id: str) -> str:
        """Return the id of a call, or a new one if it is missing or already used."""
        if self._known is None:
            self._known = ids_in(self.request.messages)
        while not id or id in self._known or id in self._taken:
            id = token_hex(_ID_DIGITS)[:_ID_DIGITS]
        self._taken.add(id)
        return id


def _worded(fault: CallFault, tools: Mapping[str, ToolOffer]) -> str:
    """Return the fault for a model with function calling, with the schema and a fitting example."""
    tool = tools.get(fault.name or "")
    if tool is None:
        return fault.message
    worded = f"{fault.message}\nThe arguments of {tool.name}: {_json(tool.schema)}"
    example = example_of(tool.schema)
    return worded if example is None else f"{worded}\nFor example: {_json(example)}"


def _json(value: Plain) -> str:
    return dumps(value, ensure_ascii=False)


def _as_sent(arguments: str | None) -> str | None:
    """Return arguments as received if they are an object, because providers cache them.

    Repaired arguments are serialized again.
    """
    return arguments if arguments and object_in(arguments) is not None else None


# Arriving replies: their assembly from pieces, and the notification of listeners.

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
        self._calls: dict[Any, ModelCall] = {}
        self._parts = parts
        self._names = names

    @property
    def calls(self) -> list[ModelCall]:
        """The calls, in the order in which they started."""
        return [
            replace(call, name=self._names.from_wire(call.name)) for call in self._calls.values()
        ]

    def feed(self, chunk: Any) -> None:
        """Process the next chunk of the stream."""
        for choice in chunk.choices or ():
            self.finish = choice.finish_reason or self.finish
            delta = choice.delta
            for block in getattr(delta, "thinking_blocks", None) or ():
                self._think(block)
            for call in getattr(delta, "tool_calls", None) or ():
                self._call(call, getattr(call, "index", None))
            self._feed_single_call(delta)
            self._feed_texts(delta)

    def feed_whole(self, response: Any) -> None:
        """Process a reply that was not streamed."""
        for choice in response.choices[:1]:
            self.finish = choice.finish_reason
            self.thinking_blocks += getattr(choice.message, "thinking_blocks", None) or ()
            for place, call in enumerate(getattr(choice.message, "tool_calls", None) or ()):
                self._call(call, place)
            self._feed_single_call(choice.message)
            self._feed_texts(choice.message)

    def _feed_single_call(self, delta: Any) -> None:
        """Process a call in the form that OpenAI had before a reply could contain several."""
        function = getattr(delta, "function_call", None)
        if function is not None and not getattr(delta, "tool_calls", None):
            self._call(SimpleNamespace(function=function), "single")

    def _feed_texts(self, delta: Any) -> None:
        refusal = (getattr(delta, "provider_specific_fields", None) or {}).get("refusal")
        if text := getattr(delta, "content", None) or refusal:  # it stands in place of an answer
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
            call = self._calls.setdefault(key, ModelCall("", ""))
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
