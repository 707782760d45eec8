"""A reply as it arrives: what of it may be shown, without the syntax of calls."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

from flowengine.agents.text_calls.marked_form import MarkedForm
from flowengine.agents.text_calls.reading import closing_of, content_of, events_of
from flowengine.agents.text_calls.reasoning import CLOSINGS, PAIRS
from flowengine.agents.text_calls.records import Ended

_LONGEST = 1_000
"""Characters that are held back because they may become the beginning of something."""


class StreamFilter:
    """Takes the pieces of a reply, and gives out what is content.

    What may still become the beginning of a call is held back until that is known: a single `<` of
    prose until the next piece. From the first call on, all is held back until the reply ends; what
    of it is content comes then. Reasoning does not come.

    Reasoning whose beginning a chat template wrote cannot be told from content before it ends.

    Args:
        form: With the mark of the conversation.
    """

    def __init__(self, form: MarkedForm) -> None:
        self._form = form
        self._events = events_of(form)
        self._begun = _begun(form)
        self._state: Literal["text", "reasoning", "fence", "held"] = "text"
        self._reply: list[str] = []
        self._shown: list[str] = []
        self._said = False
        """Whether anything but blanks was shown."""
        self._opened = False
        """Whether reasoning has begun, or ended."""
        self._before = ""
        """The character before what is pending."""
        self._pending = ""
        self._closing = re.compile("")
        """What ends the reasoning or the fence."""

    def feed(self, piece: str) -> str:
        """Take the next piece, and return what can be shown now.

        Args:
            piece: As it arrived.
        """
        self._reply.append(piece)
        if self._state == "held":
            return ""
        before = len(self._shown)
        self._pending += piece
        steps = {"text": self._text, "reasoning": self._reasoning, "fence": self._fence}
        while (step := steps.get(self._state)) and step():
            pass
        return "".join(self._shown[before:])

    def close(self, ended: Ended = "stop") -> str:
        """Take the end of the reply, and return what is left to be shown.

        Args:
            ended: Why it ended.
        """
        shown = "".join(self._shown)
        return content_of("".join(self._reply), self._form, ended).removeprefix(shown)

    def _show(self, end: int) -> None:
        """Show what is pending, up to a place."""
        text, self._pending = self._pending[:end], self._pending[end:]
        if text:
            self._shown.append(text)
            self._said = self._said or bool(text.strip())
            self._before = text[-1]

    def _text(self) -> bool:
        """Show what cannot be the beginning of anything else; say whether to go on."""
        text, begin = self._before + self._pending, len(self._before)
        match = self._events.search(text, begin)
        while match and not match["fence"] and text[match.start() - 1 : match.start()] == "`":
            match = self._events.search(text, match.end())
        if match is None:
            begun = self._begun.search(text, begin)
            end = begun.start() if begun and len(text) - begun.start() < _LONGEST else len(text)
            self._show(end - begin)
            return False
        self._show(match.start() - begin)
        return self._enter(match)

    def _enter(self, match: re.Match[str]) -> bool:
        length = len(match[0])
        if match["fence"]:
            return self._open_fence(match["ticks"], length)
        if match["opens"]:
            self._opened = True
            self._state, self._closing = "reasoning", CLOSINGS[match[0]]
        elif match["closes"]:
            if not self._opened:
                self._shown, self._said = [], False
            self._opened = True
        else:
            self._state, self._pending = "held", ""
            return False
        self._before, self._pending = match[0][-1], self._pending[length:]
        return True

    def _open_fence(self, ticks: str, length: int) -> bool:
        """Enter a code fence; one at the beginning of the reply may be around calls."""
        line = self._pending.find("\n", length)
        if line < 0:
            return False
        inside = self._pending[line:].lstrip()
        if not self._said:
            if inside.startswith(self._form.opening):
                self._state, self._pending = "held", ""
                return False
            if self._form.opening.startswith(inside):
                return False
        self._state, self._closing = "fence", closing_of(ticks)
        self._show(line + 1)
        return True

    def _reasoning(self) -> bool:
        """Drop reasoning; say whether it has ended."""
        close = self._closing.search(self._pending)
        if close is None:
            self._pending = self._pending[-20:]  # its end may have begun
            return False
        self._state, self._before = "text", close[0][-1]
        self._pending = self._pending[close.end() :]
        return True

    def _fence(self) -> bool:
        """Show whole lines up to the closing one; say whether it has come."""
        *_, rest = self._pending.rpartition("\n")
        lines = self._pending[: len(self._pending) - len(rest)]
        close = self._closing.search(lines)
        if close is None:
            self._show(len(lines))
            return False
        self._state = "text"
        self._show(close.end())
        return True


@lru_cache(maxsize=64)
def _begun(form: MarkedForm) -> re.Pattern[str]:
    """Return what matches the beginning of an event, at the end of a text."""
    tags = [*PAIRS, *PAIRS.values(), form.opening, form.result]
    begun = "|".join(map(_beginning, tags))
    return re.compile(rf"(?:{begun}|(?<![^\n])[ \t]*(?:`{{1,2}}|~{{1,2}})?)\Z")


def _beginning(tag: str) -> str:
    rest = ""
    for character in reversed(tag[1:]):
        rest = f"(?:{re.escape(character)}{rest})?"
    return re.escape(tag[0]) + rest
