"""Conversion of a provider's response to a reply: calls, checked arguments, and readable faults."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from json import dumps
from secrets import token_hex
from typing import Literal

from flowengine.agents.models.known_messages import ids_in
from flowengine.agents.models.port import (
    CallFault,
    FunctionCalling,
    Message,
    ModelCall,
    ModelReply,
    ModelRequest,
    Usage,
)
from flowengine.agents.models.wire_names import wire_name
from flowengine.agents.text_calls.arguments import bind
from flowengine.agents.text_calls.example_values import example_of
from flowengine.agents.text_calls.marked_form import MarkedForm, mark_of, marked
from flowengine.agents.text_calls.reading import MAX_CALLS, NOT_MADE, read_reply
from flowengine.agents.text_calls.records import (
    Ended,
    InvalidCall,
    ParsedReply,
    TextCall,
    ToolOffer,
    object_in,
)
from flowengine.agents.text_calls.requests import MUST_CALL, faults_told
from flowengine.agents.text_calls.unread import may_hold_call, unread_call
from flowengine.sdk import Plain
from flowengine.sdk.received import whole_texts

Finish = Literal["stop", "length", "filtered"]
"""Why a reply ended. Whether it contains calls is not part of this."""
UNREAD = (
    "The call of {0} in the text of your reply was not made. Write calls {1}. If you only quoted "
    "it, give your answer again, with a sentence around it and the call in a code fence."
)
_ID_DIGITS = 9
"""The strictest provider accepts exactly this many letters and digits."""


@dataclass(slots=True)
class SentCall:
    """A native call as received."""

    id: str = ""
    name: str = ""
    """Flow name of the tool."""
    arguments: str | None = ""
    """JSON, or a malformed text in its place."""


@dataclass(slots=True)
class SentReply:
    """A reply as received, before its calls are checked."""

    content: str = ""
    reasoning: str | None = None
    """Reasoning that arrived separately from the content, possibly empty. None: none arrived."""
    calls: list[SentCall] = field(default_factory=list)
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
    scripted: bool = False,
) -> ModelReply:
    """Interpret a received reply.

    Args:
        sent: The reply of a provider or a script.
        request: The request.
        calling: How the tools were offered.
        events: Events so far.
        scripted: Whether a script replied.

    Returns:
        The reply, in which every call is either valid or a fault.
    """
    reader = _Reader(sent, request)
    if calling == "text" and not sent.calls:
        reader.read_text()
    else:
        reader.read_native()
    reader.tell_unread(calling)
    return ModelReply(
        reader.message(),
        "calls" if reader.entries else sent.ended,
        sent.usage,
        request.model,
        tuple(reader.calls),
        tuple(reader.faults),
        (*events, *reader.events),
        scripted,
    )


def _mended(sent: SentReply) -> SentReply:
    """Return a received reply with all its texts as Unicode."""
    calls = [
        SentCall(*map(whole_texts, (call.id, call.name, call.arguments))) for call in sent.calls
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
            self._take(self._read((), None))
        by_name = {tool.name: tool for tool in self.request.tools}
        repairs: list[str] = []
        for call in self.sent.calls[:MAX_CALLS]:
            made, mended = bind(TextCall(call.name, call.arguments), by_name, ended=self.ended)
            repairs += mended
            id = self._id(call.id)
            if isinstance(made, InvalidCall):
                self.faults.append(CallFault(id, call.name, _worded(made, by_name)))
                self._enter(id, call.name, call.arguments or "{}")
            else:
                self.calls.append(ModelCall(id, made.name, made.arguments))
                self._enter(id, made.name, _as_sent(call.arguments) or _json(made.arguments))
        if len(self.sent.calls) > MAX_CALLS:
            self.faults.append(CallFault(None, None, NOT_MADE))
        self._tell_repairs(repairs)

    def read_text(self) -> None:
        tools, form = text_tools_of(self.request), form_of(self.request)
        reading = self._read(tools, form)
        self._take(reading)
        faults = reading.faults
        if must_call(self.request) and not (reading.calls or faults):
            faults = (InvalidCall(f"There is no call in your reply. {MUST_CALL}"),)
        for fault in faults:
            self.faults.append(CallFault(None, fault.tool, faults_told([fault], tools, form)))
        if reading.faults and not self.content:  # some providers reject empty messages
            self.content = reading.faults[0].written

    def _read(self, tools: Sequence[ToolOffer], form: MarkedForm | None) -> ParsedReply:
        thought = None if self.sent.reasoning is None else bool(self.reasoning.strip())
        return read_reply(self.content, tools, form, ended=self.ended, thought=thought)

    def tell_unread(self, calling: FunctionCalling) -> None:
        """Report a probable call in the text that was not made."""
        told_already = calling == "text" and self.faults
        if told_already or not may_hold_call(self.content):
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
            fault = InvalidCall(message, unread.tool, unread.written)
            text = faults_told([fault], [*tools.values()], form_of(self.request))
        else:  # no example: the tool name may be a quotation, and the model has the schema
            text = UNREAD.format(unread.tool, "by function calling only")
        self.faults.append(CallFault(None, unread.tool, text))

    def _take(self, reading: ParsedReply) -> None:
        self.content = reading.content
        self.reasoning = "\n".join(filter(None, [self.reasoning, reading.reasoning]))
        self._tell_repairs(reading.repairs)
        for call in reading.calls:
            id = self._id("")
            self.calls.append(ModelCall(id, call.name, call.arguments))
            self._enter(id, call.name, _json(call.arguments))

    def _enter(self, id: str, name: str, arguments: str) -> None:
        function: Message = {"name": name, "arguments": arguments}
        self.entries.append({"id": id, "type": "function", "function": function})

    def _tell_repairs(self, repairs: Iterable[str]) -> None:
        if distinct := list(dict.fromkeys(repairs)):
            self.events.append(
                {"event": "repaired", "model": self.request.model, "what": [*distinct]}
            )

    def _id(self, id: str) -> str:
        """Return the id of a call, or a new one if it is missing or already used."""
        if self._known is None:
            known = self.request.call_ids
            self._known = ids_in(self.request.messages) if known is None else known
        while not id or id in self._known or id in self._taken:
            id = token_hex(_ID_DIGITS)[:_ID_DIGITS]
        self._taken.add(id)
        return id


def _worded(fault: InvalidCall, tools: Mapping[str, ToolOffer]) -> str:
    """Return the fault for a model with function calling, with the schema and a fitting example."""
    tool = tools.get(fault.tool or "")
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
