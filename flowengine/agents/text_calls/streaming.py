"""Filtering of an arriving reply: its content, without reasoning and call syntax."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

from flowengine.agents.text_calls.marked_form import MarkedForm
from flowengine.agents.text_calls.places import (
    INDENT,
    WRAPPERS,
    begins_line,
    closing_of,
    in_code,
    says_nothing,
    unwrapped,
)
from flowengine.agents.text_calls.reading import events_of, read_reply
from flowengine.agents.text_calls.reasoning import CLOSINGS, PAIRS, TAG
from flowengine.agents.text_calls.records import Ended

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
    word. From the first call on, all text is held back until the reply ends, and its content is
    returned then.

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
        self._events = events_of(form)
        self._begun = _begun(form)
        self._state: Literal["text", "reasoning", "fence", "held"] = "text"
        self._reply: list[str] = []
        self._found: list[Shown] = []
        self._text = ""
        """The end of the reply, starting before the pending text."""
        self._at = 0
        """Start of the pending text in it."""
        self._first = 0
        """End of the last removed part in it."""
        self._named = 0
        """Number of opening tags of reasoning mentioned in a sentence."""
        self._closing = re.compile("")
        """Pattern for the end of the reasoning or of the fence."""
        self._begin()

    def _begin(self) -> None:
        self._shown: list[str] = []
        self._said = False
        """Whether any content is final."""
        self._lead = ""
        """Text before the first final content."""
        self._blanks: list[str] = []
        """Blanks at the end of the shown text, and possible wrappers of a call."""
        self._cut: bool | None = None
        """Whether reasoning was removed, together with the blanks before the content."""

    def feed(self, piece: str) -> list[Shown]:
        """Process the next piece, and return everything that can be shown now.

        Args:
            piece: The piece as it arrived.
        """
        self._reply.append(piece)
        if self._state == "held":
            return []
        self._found = []
        self._text += piece
        steps = {"text": self._take, "reasoning": self._reasoning, "fence": self._fence}
        while (step := steps.get(self._state)) and step():
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
        self._cut_out()

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
        text, self._at = self._text[self._at : end], end
        if not self._said:
            self._lead += text
            if len(self._lead) <= _LONGEST and says_nothing(self._lead, more=True):
                return
            text, self._said = self._lead.lstrip() if self._cut else self._lead, True
        stays = unwrapped(text, len(text))
        if stays:
            piece = "".join([*self._blanks, text[:stays]])
            self._shown.append(piece)
            self._found.append(("text", piece))
            self._blanks.clear()
        if stays < len(text):
            self._blanks.append(text[stays:])

    def _think(self, end: int, over: int) -> None:
        """Treat pending text as reasoning up to a place."""
        thought, self._at = self._text[self._at : end], over
        if thought:
            self._found.append(("reasoning", thought))
            self._thought = self._thought or bool(thought.strip())

    def _take(self) -> bool:
        """Show text that cannot start anything else. Return whether to continue."""
        text, match = self._text, self._events.search(self._text, self._at)
        while match and not match["fence"]:
            is_code = in_code(text, match.start(), match.end(), self._first, more=True)
            if is_code is None:
                self._show(match.start())
                return False
            if not is_code:
                break
            match = self._events.search(text, match.end())
        if match is None:
            begun = self._begun.search(text, self._at)
            waits = begun and len(text) - begun.start() < _LONGEST
            self._show(begun.start() if begun and waits else len(text))
            return False
        self._show(match.start())
        return self._open_fence(match) if match["fence"] else self._enter(match)

    def _enter(self, match: re.Match[str]) -> bool:
        """Enter the state after a tag. Return whether that is possible now."""
        if match["opens"]:
            if self._form is None and not begins_line(self._text, match.start(), self._first):
                self._named += 1
                self._show(match.end())
                return True
            self._state, self._closing = "reasoning", CLOSINGS[match[0]]
        elif not match["closes"]:
            self._state = "held"
            return False
        elif self._named:
            self._named -= 1
            self._show(match.end())
            return True
        elif not (self._thought or self._apart):
            self._take_back(match)
        self._cut_out()
        self._at = self._first = match.end()
        return True

    def _cut_out(self) -> None:
        if self._cut is None:
            self._cut = not self._lead.strip()

    def _take_back(self, match: re.Match[str]) -> None:
        """Treat everything so far as reasoning, because its opening tag was not in the reply."""
        if self._shown:
            self._found.append(("restart", ""))
        reply = "".join(self._reply)
        thought = reply[: len(reply) - (len(self._text) - match.start())]
        if thought.strip():
            self._found.append(("reasoning", TAG.sub("", thought)))
        self._thought = True
        self._begin()
        self._cut = True

    def _open_fence(self, match: re.Match[str]) -> bool:
        """Enter a code fence. One at the start of the reply can enclose calls."""
        line = self._text.find("\n", match.end())
        if line < 0:
            return False
        if self._form and not self._said:
            inside = self._text[line:].lstrip()
            if inside.startswith(self._form.opening):
                self._state = "held"
                return False
            if self._form.opening.startswith(inside):
                return False
        self._state, self._closing = "fence", closing_of(match["ticks"])
        self._show(line + 1)
        return True

    def _reasoning(self) -> bool:
        """Show reasoning. Return whether it has ended."""
        close = self._closing.search(self._text, self._at)
        if close is None:
            end = max(self._at, len(self._text) - _TAIL)
            self._think(end, end)
            return False
        self._think(close.start(), close.end())
        self._state = "text"
        self._first = close.end()
        return True

    def _fence(self) -> bool:
        """Show whole lines up to the closing fence. Return whether it has arrived."""
        end = self._text.rfind("\n", self._at) + 1
        close = self._closing.search(self._text, self._at, max(end, self._at))
        if close is None:
            self._show(max(end, self._at) if len(self._text) - end < _LONGEST else len(self._text))
            return False
        self._state = "text"
        self._show(close.end())
        return True


@lru_cache(maxsize=64)
def _begun(form: MarkedForm | None) -> re.Pattern[str]:
    """Return a pattern for the start of an event at the end of a text."""
    tags = [*PAIRS, *PAIRS.values(), *WRAPPERS, *((form.opening, form.result) if form else ())]
    begun = "|".join(map(_beginning, tags))
    return re.compile(rf"(?:{begun}|(?<![^\n])[ \t]*(?:`{{1,2}}|~{{1,2}})?)\Z")


def _beginning(tag: str) -> str:
    rest = ""
    for character in reversed(tag[1:]):
        rest = f"(?:{re.escape(character)}{rest})?"
    return re.escape(tag[0]) + rest
