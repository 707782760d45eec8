"""The text of a reply, searched from left to right without repetition."""

from __future__ import annotations

import re

from flowengine.agents.text_calls.records import Ended

_SPACE = re.compile(r"\s*")


class ReplySource:
    """A reply that is being read.

    Readers move from left to right. A search without a match, or with a match further ahead, is
    remembered. The time to read a reply is therefore linear in its length, for any content.

    Attributes:
        text: The reply.
        ended: Why it ended.
    """

    def __init__(self, text: str, ended: Ended) -> None:
        self.text = text
        self.ended = ended
        self._known: dict[re.Pattern[str], tuple[int, re.Match[str] | None]] = {}

    @property
    def complete(self) -> bool:
        """Whether the model ended the reply itself."""
        return self.ended == "stop"

    def search(self, pattern: re.Pattern[str], at: int) -> re.Match[str] | None:
        """Return the first match at or after a place.

        Args:
            pattern: The pattern to search for.
            at: Where to start.
        """
        known = self._known.get(pattern)
        if known:
            begun, match = known
            if begun <= at and (match is None or at <= match.start()):
                return match
        match = pattern.search(self.text, at)
        self._known[pattern] = at, match
        return match

    def skip(self, at: int) -> int:
        """Return the place of the next character that is not a blank."""
        blank = _SPACE.match(self.text, at)
        return blank.end() if blank else at

    def is_over(self, at: int) -> bool:
        """Return whether only blanks follow."""
        return self.skip(at) >= len(self.text)
