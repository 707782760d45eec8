"""Filtering of an arriving reply: its content, without reasoning and call syntax."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

from flowengine.agents.text_calls.marked_form import Ended, MarkedForm
from flowengine.agents.text_calls.reading import (
    CLOSINGS,
    INDENT,
    OPENING,
    PAIRS,
    STRAY,
    WRAPPERS,
    begins_line,
    read_reply,
    says_nothing,
    unwrapped,
)

_LONGEST = 1_000
"""Maximum characters held back because they may become the start of something else."""
_TAIL = 20
"""Maximum length of a closing tag of reasoning."""

Shown = tuple[Literal["text", "reasoning", "restart"], str]
"""A piece of the content or the reasoning. `restart`: discard everything shown so far."""


class StreamFilter:
    """Takes the pieces of a reply, and returns its content and its reasoning.

    All pieces of text after the last `restart`, taken together, are the content that `read_reply`
    returns. Text that may still become the start of a call or of reasoning is held back until that
    is decided. A single `<` in prose is held back until the next piece, and blanks until the next
    word. From the first call on, or a tag that may only be mentioned, all text is held back until
    the reply ends, and its content is returned then.

    If a chat template wrote the opening tag of reasoning, the reasoning looks like content until it
    ends. It is then retracted with a `restart`.

    Args:
        form: The form, with the mark of the conversation. None: text calls are not used.
    """

    def __init__(self, form: MarkedForm | None) -> None:
        self._apart: bool | None = None
        """Whether reasoning that arrived separately has content."""
        self._thought = False
        self._form = form
        self._events, self._begun = _patterns(form)
        self._state: Literal["text", "reasoning", "held"] = "text"
        self._reply: list[str] = []
        self._found: list[Shown] = []
        self._text = ""
        """The end of the reply, starting before the pending text."""
        self._at = 0
        """Start of the pending text in it."""
        self._first = 0
        """End of the last removed part in it."""
        self._closing = re.compile("")
        """Pattern for the end of the reasoning."""
        self._begin()

    def _begin(self) -> None:
        self._shown: list[str] = []
        self._said = False
        """Whether any content is final."""
        self._blanks: list[str] = []
        """Blanks at the end of the shown text, and possible wrappers of a call."""
        self._cut = False
        """Whether reasoning was removed, together with the blanks before the content."""

    def feed(self, piece: str) -> list[Shown]:
        """Process the next piece, and return everything that can be shown now.

        Args:
            piece: The piece as it arrived.
        """
        self._reply.append(piece)
        self._found = []
        if self._state != "held":
            self._text += piece
            while self._reasoning() if self._state == "reasoning" else self._process_next():
                pass
            if (old := self._at - INDENT - 1) > INDENT:
                self._text, self._at = self._text[old:], self._at - old
                self._first = max(self._first - old, 0)
        return self._found

    def reasoning(self, piece: str) -> None:
        """Process a piece of reasoning that arrived separately from the reply.

        Args:
            piece: The piece as it arrived.
        """
        self._apart = self._apart or bool(piece.strip())
        self._cut = self._cut or not self._said

    def close(self, ended: Ended = "stop") -> list[Shown]:
        """Process the end of the reply, and return everything not yet shown.

        Args:
            ended: Why it ended.
        """
        shown = "".join(self._shown)
        text = "".join(self._reply)
        reading = read_reply(text, (), self._form, ended=ended, thought=self._apart)
        if reading.content.startswith(shown):
            rest = reading.content[len(shown) :]
            return [("text", rest)] if rest else []
        found: list[Shown] = [("restart", ""), ("reasoning", reading.reasoning)]
        return [*found, ("text", reading.content)]

    def _show(self, end: int) -> None:
        """Treat pending text as content up to a place, and show the part that is final."""
        text = self._text[self._at : end]
        if not self._said:
            if len(text) <= _LONGEST and says_nothing(text, more=True):
                return  # it stays pending
            text, self._said = text.lstrip() if self._cut else text, True
        self._at = end
        stays = unwrapped(text, len(text))
        if stays:
            piece = "".join([*self._blanks, text[:stays]])
            self._shown.append(piece)
            self._found.append(("text", piece))
            self._blanks.clear()
        if stays < len(text):
            self._blanks.append(text[stays:])

    def _process_next(self) -> bool:
        """Show text that cannot start anything else. Return whether to continue."""
        text, match = self._text, self._events.search(self._text, self._at)
        if match is None:
            begun = self._begun.search(text, self._at)
            waits = begun and len(text) - begun.start() < _LONGEST
            self._show(begun.start() if begun and waits else len(text))
            return False
        self._show(match.start())
        if match["opens"] and begins_line(text, match.start(), self._first):
            self._state, self._closing = "reasoning", CLOSINGS[match[0]]
        elif not match["closes"] or not (self._thought or self._apart or self._take_back(match)):
            self._state = "held"
            return False
        self._cut = self._cut or not self._said
        self._at = self._first = match.end()
        return True

    def _take_back(self, match: re.Match[str]) -> bool:
        """Treat everything so far as reasoning if its opening tag was not in the reply.

        Returns:
            Whether that is so.
        """
        reply = "".join(self._reply)
        until = reply[: len(reply) - len(self._text) + match.end()]
        reading = read_reply(until, (), self._form)
        if reading.content or not reading.reasoning:
            return False
        if self._shown:
            self._found.append(("restart", ""))
        self._found.append(("reasoning", reading.reasoning))
        self._thought = True
        self._begin()
        self._cut = True
        return True

    def _reasoning(self) -> bool:
        """Show reasoning. Return whether it has ended."""
        close = self._closing.search(self._text, self._at)
        end = close.start() if close else max(self._at, len(self._text) - _TAIL)
        if thought := self._text[self._at : end]:
            self._found.append(("reasoning", thought))
            self._thought = self._thought or bool(thought.strip())
        self._at = end
        if close:
            self._state, self._at, self._first = "text", close.end(), close.end()
        return bool(close)


@lru_cache(maxsize=64)
def _patterns(form: MarkedForm | None) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return patterns for the tags that end content, and for the start of one at a text's end."""
    calls = [form.opening, form.result] if form else []
    events = "|".join([f"(?P<opens>{OPENING.pattern})|(?P<closes>{STRAY.pattern})", *calls])
    tags = [*PAIRS, *PAIRS.values(), *WRAPPERS, *calls]
    return re.compile(events), re.compile(rf"(?:{'|'.join(map(_beginning, tags))})\Z")


def _beginning(tag: str) -> str:
    rest = ""
    for character in reversed(tag[1:]):
        rest = f"(?:{re.escape(character)}{rest})?"
    return re.escape(tag[0]) + rest
