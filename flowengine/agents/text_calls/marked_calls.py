"""A parser for one call in the marked form: its tool, its parameters or JSON, its end."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from flowengine.agents.text_calls.marked_form import (
    PARAMETER,
    VALUE_END,
    MarkedForm,
    without_line_ends,
)
from flowengine.agents.text_calls.records import InvalidCall, TextCall, Untyped

SHOWN = 300
_SPACE = re.compile(r"\s*")
_NAME = re.compile(r"""[\s\w=]{0,40}["'](?P<name>[\w.-]{1,128})""")


@dataclass(slots=True)
class ReadCall:
    """A call, or the fault in its place."""

    end: int
    item: TextCall | InvalidCall
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

    def _made(self) -> TextCall:
        head = self.form.head.match(self.text, self.start, self.inside)
        if head is None:
            name = _NAME.match(self.text, self.start + len(self.form.opening), self.inside)
            self.name = name["name"] if name else ""
            raise _Broken("its first tag is not complete", cut=not self.closed)
        self.name = head["name"]
        if not self.closed and not self.complete:
            raise _Broken("it has no end", cut=True)
        body = self.text[head.end() : self.inside].strip()
        call = TextCall(self.name, self._arguments(body))
        if not self.closed:
            self.repairs.append(f"the missing end of a call of {self.name} was added")
        return call

    def _arguments(self, body: str) -> Any:
        if body.startswith("{"):
            return body  # JSON, which is parsed together with the arguments of native calls
        arguments: dict[str, Any] = {}
        at = 0
        while opening := PARAMETER.match(body, at):
            name = opening["name"]
            close = VALUE_END.search(body, opening.end())
            if close is None:
                raise _Broken(f"the parameter '{name}' has no end", cut=not self.closed)
            if name in arguments:
                raise _Broken(f"'{name}' is given twice")
            arguments[name] = Untyped(without_line_ends(body[opening.end() : close.start()]))
            at = skipped(body, close.end())
        if at < len(body):
            reason = "something else is where a parameter or its end should be"
            raise _Broken(reason, cut=not self.closed)
        return arguments

    def _fault(self, reason: str, *, cut: bool) -> InvalidCall:
        call = f"A call of {self.name}" if self.name else "A call"
        message = f"{call} cannot be read, and was not made: {reason}."
        if cut and not self.complete:
            message = f"{call} was cut off by the limit of length, and was not made."
        written = self.text[self.start : min(self.end, self.start + SHOWN)]
        return InvalidCall(message, self.name or None, written)


def skipped(text: str, at: int) -> int:
    """Return the place of the next character that is not a blank."""
    blank = _SPACE.match(text, at)
    return blank.end() if blank else at
