"""A reply as it arrives: what of it may be shown, without reasoning and the syntax of calls."""

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
"""Characters that are held back because they may become the beginning of something."""
_TAIL = 20
"""As many characters as the end of reasoning has at most."""

Shown = tuple[Literal["text", "reasoning", "restart"], str]
"""A piece of the content or the reasoning; `restart`: what was shown so far is to be forgotten."""


class StreamFilter:
    """Takes the pieces of a reply, and gives out its content and its reasoning.

    All pieces of text together, after the last `restart`, are the content that `read_reply` finds.
    What may still become the beginning of a call or of reasoning is held back until that is known:
    a single `<` of prose until the next piece, blanks until the next word. From the first call on,
    all is held back until the reply ends; what of it is content comes then.

    Reasoning whose beginning a chat template wrote cannot be told from content before it ends; then
    it is taken back.

    Args:
        form: With the mark of the conversation; None: the model writes no calls as text.
    """

    def __init__(self, form: MarkedForm | None) -> None:
        self._apart: bool | None = None
        """Whether reasoning that came apart from the reply says anything."""
        self._thought = False
        self._form = form
        self._events = events_of(form)
        self._begun = _begun(form)
        self._state: Literal["text", "reasoning", "fence", "held"] = "text"
        self._reply: list[str] = []
        self._found: list[Shown] = []
        self._text = ""
        """The end of the reply, from before what is pending."""
        self._at = 0
        """Where in it what is pending begins."""
        self._first = 0
        """Where in it what was cut out last ended."""
        self._named = 0
        """How many tags that open reasoning were named in a sentence."""
        self._closing = re.compile("")
        """What ends the reasoning or the fence."""
        self._begin()

    def _begin(self) -> None:
        self._shown: list[str] = []
        self._said = False
        """Whether there is content that stays, whatever comes."""
        self._lead = ""
        """What came before that."""
        self._blanks: list[str] = []
        """Blanks at the end of what was shown, and what may be around a call."""
        self._cut: bool | None = None
        """Whether reasoning was cut out, and with it the blanks before the content."""

    def feed(self, piece: str) -> list[Shown]:
        """Take the next piece, and return what can be shown now.

        Args:
            piece: As it arrived.
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
        """Note a piece of reasoning that came apart from the reply.

        Args:
            piece: As it arrived.
        """
        self._apart = self._apart or bool(piece.strip())
        self._cut_out()

    def close(self, ended: Ended = "stop") -> list[Shown]:
        """Take the end of the reply, and return what is left to be shown.

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
        """Take what is pending as content, up to a place; show it if it stays, whatever comes."""
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
        """Take what is pending as reasoning, up to a place."""
        thought, self._at = self._text[self._at : end], over
        if thought:
            self._found.append(("reasoning", thought))
            self._thought = self._thought or bool(thought.strip())

    def _take(self) -> bool:
        """Show what cannot be the beginning of anything else; say whether to go on."""
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
        """Go on after a tag; say whether that can be done now."""
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
        """Take all that has come so far for reasoning, whose beginning nobody has seen."""
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
        """Enter a code fence; one at the beginning of the reply may be around calls."""
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
        """Tell reasoning; say whether it has ended."""
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
        """Show whole lines up to the closing one; say whether it has come."""
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
    """Return what matches the beginning of an event, at the end of a text."""
    tags = [*PAIRS, *PAIRS.values(), *WRAPPERS, *((form.opening, form.result) if form else ())]
    begun = "|".join(map(_beginning, tags))
    return re.compile(rf"(?:{begun}|(?<![^\n])[ \t]*(?:`{{1,2}}|~{{1,2}})?)\Z")


def _beginning(tag: str) -> str:
    rest = ""
    for character in reversed(tag[1:]):
        rest = f"(?:{re.escape(character)}{rest})?"
    return re.escape(tag[0]) + rest
