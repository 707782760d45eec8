"""A reply as it arrives: what of it may be shown, without the syntax of calls."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from flowengine.agents.text_calls.formats import FORMATS, Format
from flowengine.agents.text_calls.formats.fences import closing_of
from flowengine.agents.text_calls.reading import content_of, marks_of, next_mark
from flowengine.agents.text_calls.reasoning import CLOSINGS, STRAY
from flowengine.agents.text_calls.records import Ended, Tool
from flowengine.agents.text_calls.source import Source

_LONGEST_MARK = 1_000
_TICKS = re.compile(r"[ \t]*(`{3,})")


class StreamFilter:
    """Takes the pieces of a reply, and gives out what is content.

    What may still become the beginning of a call is held back until that is known: a single `<` of
    prose until the next piece. From the first call on, all is held back until the reply ends; what
    of it is content comes then. Code fences come when they close, reasoning does not come.

    Reasoning whose beginning a chat template wrote cannot be told from content before it ends.

    Args:
        tools: Those on offer.
        formats: In the order in which they are tried.
    """

    def __init__(self, tools: Iterable[Tool], *, formats: tuple[Format, ...] = FORMATS) -> None:
        self._tools = tuple(tools)
        self._formats = formats
        self._marks = marks_of(formats)
        self._state: Literal["text", "reasoning", "fence", "call"] = "text"
        self._before = ""
        """The character before what is pending."""
        self._pending = ""
        self._held: list[str] = []
        self._closing = re.compile("")
        """What ends the reasoning or the fence that is held back."""

    def feed(self, piece: str) -> str:
        """Take the next piece, and return what can be shown now.

        Args:
            piece: As it arrived.
        """
        return self._advance(piece, final=False)

    def close(self, ended: Ended = "stop") -> str:
        """Take the end of the reply, and return what is left to be shown.

        Args:
            ended: Why it ended.
        """
        shown = self._advance("", final=True)
        held, state = "".join([*self._held, self._pending]), self._state
        self._held, self._pending = [], ""
        if state == "reasoning":
            return shown
        return shown + content_of(held, self._tools, ended, self._formats)

    def _advance(self, piece: str, *, final: bool) -> str:
        shown: list[str] = []
        if self._state == "call":
            self._held.append(piece)
            return ""
        self._pending += piece
        states = {"text": self._text, "reasoning": self._reasoning, "fence": self._fence}
        while (step := states.get(self._state)) and step(shown, final):
            pass
        return "".join(shown)

    def _text(self, shown: list[str], final: bool) -> bool:
        """Show what cannot be the beginning of a call; say whether the state has changed."""
        source = Source(self._before + self._pending, "stop", ())
        text, begin = source.text, len(self._before)
        begun = None if final else self._marks.begun.search(text, begin)
        end = begun.start() if begun else len(text)
        if len(text) - end > _LONGEST_MARK:
            end = len(text)
        at = begin
        while (mark := next_mark(source, self._marks, at)) and mark.start() < end:
            if mark.start() == 0 or text[mark.start() - 1] != "`":
                self._show(shown, text[begin : mark.start()])
                self._enter(mark[0], text[mark.start() :])
                return True
            at = mark.end()
        self._show(shown, text[begin:end])
        self._pending = text[end:]
        return False

    def _show(self, shown: list[str], text: str) -> None:
        shown.append(text)
        self._before = text[-1:] or self._before

    def _enter(self, mark: str, rest: str) -> None:
        self._pending = rest
        if mark in CLOSINGS:
            self._state, self._closing = "reasoning", CLOSINGS[mark]
        elif STRAY.fullmatch(mark):
            self._before, self._pending = mark[-1], rest[len(mark) :]
        elif ticks := _TICKS.match(mark):
            self._state, self._closing = "fence", closing_of(ticks[1])
            self._held, self._pending = [rest[: len(mark)]], rest[len(mark) :]
        else:
            self._hold_rest()

    def _hold_rest(self) -> None:
        self._held.append(self._pending)
        self._state, self._pending = "call", ""

    def _reasoning(self, shown: list[str], final: bool) -> bool:
        """Drop reasoning; say whether it has ended."""
        close = self._closing.search(self._pending)
        if close is None:
            self._pending = self._pending[-20:]  # its end may have begun
            return False
        self._state, self._before = "text", close[0][-1]
        self._pending = self._pending[close.end() :]
        return True

    def _fence(self, shown: list[str], final: bool) -> bool:
        """Hold whole lines back until the closing one; say whether the state has changed."""
        *lines, self._pending = self._pending.split("\n")
        for place, line in enumerate(lines):
            self._held.append(f"{line}\n")
            if self._closing.fullmatch(self._held[-1]):
                self._pending = "\n".join([*lines[place + 1 :], self._pending])
                self._close_fence(shown)
                return True
        return False

    def _close_fence(self, shown: list[str]) -> None:
        fence = "".join(self._held)
        if content_of(fence, self._tools, "stop", self._formats) != fence:
            self._hold_rest()
            return
        self._show(shown, fence)
        self._state, self._held = "text", []
