"""Pagination of a long text, and search in it."""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import islice

from flowengine_documents.document import Unreadable

LINES = 1_024
CHARACTERS = 100_000
_GAP = 200
"""Maximum characters that `*` matches."""
_MOST_TRIES = 100_000
"""Maximum number of places tried in a search with `*`."""
_LONGEST = 1_000
"""Maximum characters examined of a part after `*`."""


class NoSuchPage(Unreadable):
    """A page with this number does not exist."""


class Pages:
    """A text cut into pages, each with a maximum number of lines and characters.

    Together the pages are the text, without loss or duplication.

    Args:
        text: The text.
        lines: Maximum lines of a page.
        characters: Maximum characters of a page. A longer line is cut, at a space if there is one.
    """

    def __init__(self, text: str, lines: int = LINES, characters: int = CHARACTERS) -> None:
        if lines < 1 or characters < 1:
            raise ValueError("a page has at least 1 line and 1 character")
        self.text = text
        self.more = False
        """Whether more text follows that is not converted yet. The last page may then become
        longer."""
        self._size = lines, characters
        self._starts = _starts(text, lines, characters)
        self.current = 1
        """The number of the current page, from 1."""
        self.searched = ""
        """The last text that `find` found."""
        self._found = -1

    def __len__(self) -> int:
        return len(self._starts)

    def extend(self, text: str) -> None:
        """Append text as separate blocks. Pages before the last one stay unchanged."""
        self.text = "\n\n".join(filter(None, (self.text, text)))
        self._starts = _starts(self.text, *self._size)

    @property
    def count(self) -> str:
        """The number of pages, `24+` if there are more."""
        return f"{len(self)}{'+' if self.more else ''}"

    def content(self, number: int) -> str:
        """Return the text of a page."""
        end = self._starts[number] if number < len(self) else len(self.text)
        return self.text[self._starts[number - 1] : end]

    def shown(self) -> str:
        """Return the current page, after a line with its number."""
        return f"[Page {self.current}/{self.count}]\n\n{self.content(self.current) or '(empty)'}"

    def down(self) -> str:
        """Go to the next page, if there is one, and return it."""
        self.current = min(self.current + 1, len(self))
        return self.shown()

    def up(self) -> str:
        """Go to the page before, if there is one, and return it."""
        self.current = max(self.current - 1, 1)
        return self.shown()

    def go_to(self, number: int) -> str:
        """Go to a page and return it.

        Raises:
            NoSuchPage: It does not exist. The message contains the range.
        """
        if not 1 <= number <= len(self):
            raise NoSuchPage(f"there is no page {number!r}: pages are 1 to {len(self)}")
        self.current = number
        return self.shown()

    def page_of(self, offset: int) -> int:
        """Return the number of the page that contains a character."""
        return bisect_right(self._starts, offset)

    def page_with(self, searched: str, number: int) -> int | None:
        """Return the first page on which a text begins, from a page on and then from the start.

        Pages before that page are not searched while more text may follow.
        """
        span = _search(self.text, _parts(searched), self._starts[number - 1])
        if span is None and not self.more:
            span = _search(self.text, _parts(searched), 0)
        return None if span is None else self.page_of(span)

    def find(self, searched: str) -> int | None:
        """Search from the current page on, and then from the start.

        Case is ignored, white space matches white space, and `*` matches up to 200 characters. The
        page with the match becomes the current one. Pages before the current one are not searched
        while more text may follow.

        Args:
            searched: The text to search for. Repeating it continues after the last match.

        Returns:
            The offset in the text, or None without a match, which leaves the current page
            unchanged.
        """
        start = self._starts[self.current - 1]
        if searched == self.searched and self.page_of(self._found) == self.current:
            start = self._found + 1
        parts = _parts(searched)
        span = _search(self.text, parts, start)
        if span is None and not self.more:
            span = _search(self.text, parts, 0)
        if span is not None:
            self.current = self.page_of(span)
            self.searched, self._found = searched, span
        return span

    def find_next(self) -> int | None:
        """Continue the search for the same text."""
        return self.find(self.searched) if self.searched else None


def _starts(text: str, lines: int, characters: int) -> list[int]:
    """Return the beginning of each page."""
    starts, begin, count, at = [0], 0, 0, 0
    while at < len(text):
        end = text.find("\n", at) + 1 or len(text)
        if count == lines or (count and end - begin > characters):
            starts.append(at)
            begin, count = at, 0
        while end - begin > characters:
            begin = _cut(text, begin, characters)
            starts.append(begin)
        at, count = end, count + 1
    return starts


def _cut(text: str, begin: int, characters: int) -> int:
    """Return the place at which to cut a line that is too long for a page."""
    end = begin + characters
    space = text.rfind(" ", begin, end) + 1
    return space if space > begin + characters // 2 else end


def _parts(searched: str) -> list[re.Pattern[str]]:
    texts = [part.split() for part in searched.split("*")]
    words = [[re.escape(word) for word in part] for part in texts if part]
    return [re.compile(r"\s+".join(part), re.IGNORECASE) for part in words]


def _search(text: str, parts: list[re.Pattern[str]], start: int) -> int | None:
    """Return the start of the first part, if the others follow closely in their order."""
    if not parts or any(part.search(text, start) is None for part in parts):
        return None
    for match in islice(parts[0].finditer(text, start), _MOST_TRIES):
        if _follow(text, parts[1:], match.end()):
            return match.start()
    return None


def _follow(text: str, parts: list[re.Pattern[str]], end: int) -> bool:
    """Return whether the parts follow each other closely from `end` on."""
    for part in parts:
        match = part.search(text, end, end + _GAP + _LONGEST)
        if match is None or match.start() - end > _GAP:
            return False
        end = match.end()
    return True
