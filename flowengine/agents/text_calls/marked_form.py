"""The form in which a model writes calls as text, tags with a secret mark, and its parser.

The content of mails, pages and tool results cannot contain the mark. Text that the model quotes is
therefore never a call, and no result can close the tag that encloses it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2s
from itertools import count
from json import dumps, loads
from secrets import token_bytes
from typing import Any, Literal

from flowengine.agents.call_answers import text_of
from flowengine.agents.text_calls.json_text import QUOTES

Ended = Literal["stop", "length"]
"""Why a reply ended: the model stopped by itself, or reached the length limit."""


@dataclass(frozen=True, slots=True)
class ToolOffer:
    """A tool as offered to a model."""

    name: str
    """Flow name of the tool."""
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """JSON Schema of the arguments, which are an object. Empty: it takes any."""
    step: str = ""
    """The step of the agent that runs a call of it. Empty: the turn answers the call itself."""
    handoff: str = ""
    """The agent to which a call of it hands off."""

    @property
    def schema(self) -> dict[str, Any]:
        """The schema of the arguments, with at least a type and properties."""
        return {"type": "object", "properties": {}} | dict(self.parameters)


@dataclass(slots=True)
class ModelCall:
    """A call in a reply, as received or, once bound, with arguments that fit the tool's schema."""

    name: str
    """Flow name of the tool."""
    arguments: Any
    """A dict once bound. Before that, JSON, or a malformed text in its place."""
    id: str = ""
    """Id of the call in the message, unique in the conversation. Empty: it has none yet."""


@dataclass(frozen=True, slots=True)
class CallFault:
    """An intended call that cannot be run."""

    message: str
    """The error and its correction, for the model."""
    name: str | None = None
    """The intended tool, if it is known."""
    written: str = ""
    """The beginning of the model's text."""
    id: str | None = None
    """Id of the call in the message, which is answered as a tool message. None: the message does
    not contain the call, so the model receives a user message."""


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """A reply, split into its parts."""

    content: str = ""
    reasoning: str = ""
    calls: tuple[ModelCall, ...] = ()
    faults: tuple[CallFault, ...] = ()
    repairs: tuple[str, ...] = ()
    """Descriptions of the repairs, in the order of the reply."""


@dataclass(frozen=True, slots=True)
class Untyped:
    """An argument written as text without a type, which the schema determines."""

    text: str


def object_in(text: str) -> dict[str, Any] | None:
    """Return the object that a text is as JSON, such as the arguments of a call, or None."""
    try:
        value = loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


_SECRET = token_bytes(32)
"""Key of this process. Another process uses different marks for the whole of a conversation."""
_DIGITS = 8
_END = "</parameter>"
_NAME = rf"[{QUOTES}]?(?P<name>[\w.-]{{1,128}})[{QUOTES}]?\s*>"
_PARAMETER = re.compile(rf"<parameter(?:\s+name)?\s*=\s*{_NAME}")
_VALUE_END = re.compile(rf"{_END}(?=\s*(?:<parameter[\s=]|\Z))")
_SHOWN = 300
_SPACE = re.compile(r"\s*")
_STARTED_NAME = re.compile(rf"[\s\w=]{{0,40}}[{QUOTES}](?P<name>[\w.-]{{1,128}})")


def mark_of(conversation: str, messages: Iterable[Mapping[str, Any]] = ()) -> str:
    """Return the mark of a conversation, which stays the same from turn to turn.

    If the model passed the mark to a tool, or a tool returned it, the mark is replaced.

    Args:
        conversation: Name of the conversation in this process.
        messages: All messages of the conversation.
    """
    texts = [text for message in messages for text in _texts(message)]
    for attempt in count():
        seed = f"{attempt} {conversation}".encode(errors="surrogatepass")
        mark = blake2s(seed, key=_SECRET).hexdigest()[:_DIGITS]
        if not any(mark in text for text in texts):
            return mark
    raise AssertionError("there is always another mark")


def _texts(message: Mapping[str, Any]) -> list[str]:
    texts = [text_of(message.get("content"))] if message.get("role") == "tool" else []
    for call in message.get("tool_calls") or ():
        arguments = call["function"].get("arguments")
        texts.append(arguments if isinstance(arguments, str) else dumps(arguments))
    return texts


class MarkedForm:
    """The form with one mark.

    Args:
        mark: Letters and digits.
    """

    def __init__(self, mark: str) -> None:
        self.mark = mark
        self.opening = f"<call-{mark}"
        self.closing = f"</call-{mark}>"
        self.result = f"<result-{mark}"
        self.head = re.compile(rf"{self.opening}\s+(?:tool|name)\s*=\s*{_NAME}")

    def write(self, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
        return "\n".join(self._call(name, arguments) for name, arguments in calls)

    def placeholder(self, name: str) -> str:
        """Return a call in this form, with a description in place of its arguments."""
        return f'{self.opening} tool="{name}">\n(the arguments as one JSON object)\n{self.closing}'

    def write_result(self, name: str, text: str) -> str:
        """Return the result of a call in this form, with the name of the tool."""
        return f'{self.result} tool="{name}">\n{text}\n</result-{self.mark}>'

    def _call(self, name: str, arguments: Mapping[str, Any]) -> str:
        values = {key: _written(value) for key, value in arguments.items()}
        lines = [f'<parameter name="{key}">{value}{_END}' for key, value in values.items()]
        if any(_END in value for value in values.values()):
            lines = [dumps(arguments, ensure_ascii=False)]
        return "\n".join([f'{self.opening} tool="{name}">', *lines, self.closing])


@lru_cache(maxsize=64)
def marked(mark: str) -> MarkedForm:
    return MarkedForm(mark)


def _written(value: Any) -> str:
    """Return an argument as text that parses to the same value."""
    text = value if isinstance(value, str) else dumps(value, ensure_ascii=False)
    return f"\n{text}\n" if "\n" in text else text


# Parsing


@dataclass(slots=True)
class ReadCall:
    """A call, or the fault in its place."""

    end: int
    item: ModelCall | CallFault
    repairs: list[str] = field(default_factory=list)


def read_call(text: str, start: int, form: MarkedForm, *, complete: bool) -> ReadCall:
    """Read the call at an opening tag.

    Args:
        text: The reply.
        start: Start of the tag.
        form: The form, with the mark of the conversation.
        complete: Whether the model ended the reply itself.
    """
    return _Call(text, start, form, complete).read()


class _Broken(Exception):
    def __init__(self, reason: str, *, cut: bool = False) -> None:
        super().__init__(reason)
        self.cut = cut


class _Call:
    def __init__(self, text: str, start: int, form: MarkedForm, complete: bool) -> None:
        self.text = text
        self.start = start
        self.form = form
        self.complete = complete
        self.name = ""
        self.repairs: list[str] = []
        following = text.find(form.opening, start + len(form.opening))
        inside = following if following >= 0 else len(text)
        close = text.find(form.closing, start, inside)
        self.closed = close >= 0
        """Whether it has its own closing tag, which the model may have forgotten."""
        self.inside = close if self.closed else inside
        self.end = close + len(form.closing) if self.closed else inside

    def read(self) -> ReadCall:
        try:
            return ReadCall(self.end, self._made(), self.repairs)
        except _Broken as broken:
            cut = broken.cut and self.end == len(self.text)
            return ReadCall(self.end, self._fault(str(broken), cut=cut))

    def _made(self) -> ModelCall:
        head = self.form.head.match(self.text, self.start, self.inside)
        if head is None:
            name = _STARTED_NAME.match(self.text, self.start + len(self.form.opening), self.inside)
            self.name = name["name"] if name else ""
            raise _Broken("its first tag is not complete", cut=not self.closed)
        self.name = head["name"]
        if not self.closed and not self.complete:
            raise _Broken("it has no end", cut=True)
        body = self.text[head.end() : self.inside].strip()
        call = ModelCall(self.name, self._arguments(body))
        if not self.closed:
            self.repairs.append(f"the missing end of a call of {self.name} was added")
        return call

    def _arguments(self, body: str) -> Any:
        if body.startswith("{"):
            return body  # JSON, which is parsed together with the arguments of native calls
        arguments: dict[str, Any] = {}
        at = 0
        while opening := _PARAMETER.match(body, at):
            name = opening["name"]
            close = _VALUE_END.search(body, opening.end())
            if close is None:
                raise _Broken(f"the parameter '{name}' has no end", cut=not self.closed)
            if name in arguments:
                raise _Broken(f"'{name}' is given twice")
            value = body[opening.end() : close.start()]
            arguments[name] = Untyped(value.removeprefix("\n").removesuffix("\n"))
            at = skipped(body, close.end())
        if at < len(body):
            reason = "something else is where a parameter or its end should be"
            raise _Broken(reason, cut=not self.closed)
        return arguments

    def _fault(self, reason: str, *, cut: bool) -> CallFault:
        call = f"A call of {self.name}" if self.name else "A call"
        message = f"{call} cannot be read, and was not made: {reason}."
        if cut and not self.complete:
            message = f"{call} was cut off by the limit of length, and was not made."
        written = self.text[self.start : min(self.end, self.start + _SHOWN)]
        return CallFault(message, self.name or None, written)


def skipped(text: str, at: int) -> int:
    """Return the place of the next character that is not a blank."""
    blank = _SPACE.match(text, at)
    return blank.end() if blank else at
