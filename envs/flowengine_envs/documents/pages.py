"""A long text in pages, and search in it."""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import islice

from flowengine_envs.documents.document import Unreadable

LINES = 1_024
CHARACTERS = 100_000
_GAP = 200
"""Characters that `*` stands for at most."""
_MOST_TRIES = 100_000
"""Places that are tried for a search with `*` before it is given up."""
_LONGEST = 1_000
"""Characters of a part behind `*` that are looked at."""


class NoSuchPage(Unreadable):
    """There is no page of that number."""


class Pages:
    """A text cut into pages: each has so many lines at most, and so many characters.

    Together the pages are the text, without loss or doubling.

    Args:
        text: The text.
        lines: Lines of a page.
        characters: Characters of a page; a longer line is cut, at a space if there is one.
    """

    def __init__(self, text: str, lines: int = LINES, characters: int = CHARACTERS) -> None:
        if lines < 1 or characters < 1:
            raise ValueError("a page has at least 1 line and 1 character")
        self.text = text
        self.more = False
        """Whether more text follows, which is not known yet; the last page may then be longer."""
        self._size = lines, characters
        self._starts = _starts(text, lines, characters)
        self.current = 1
        """The number of the page that is shown; the first is 1."""
        self.searched = ""
        """What `find` was asked for last, and has found."""
        self._found = -1

    def __len__(self) -> int:
        return len(self._starts)

    def extend(self, text: str) -> None:
        """Add what follows, as blocks of their own; pages before the last one stay as they are."""
        self.text = "\n\n".join(filter(None, (self.text, text)))
        self._starts = _starts(self.text, *self._size)

    @property
    def count(self) -> str:
        """How many pages there are, `24+` if there are more."""
        return f"{len(self)}{'+' if self.more else ''}"

    def content(self, number: int) -> str:
        """Return the text of a page."""
        end = self._starts[number] if number < len(self) else len(self.text)
        return self.text[self._starts[number - 1] : end]

    def shown(self) -> str:
        """Return the current page behind a line that says which it is."""
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
            NoSuchPage: There is none; the message has the range.
        """
        if not 1 <= number <= len(self):
            raise NoSuchPage(f"there is no page {number!r}: pages are 1 to {len(self)}")
        self.current = number
        return self.shown()

    def page_of(self, offset: int) -> int:
        """Return the number of the page on which a character stands."""
        return bisect_right(self._starts, offset)

    def page_with(self, searched: str, number: int) -> int | None:
        """Return the first page, from one on and then from the start, on which a text begins.

        Nothing is found before that page while more may follow behind it.
        """
        found = _search(self.text, _parts(searched), self._starts[number - 1])
        if found is None and not self.more:
            found = _search(self.text, _parts(searched), 0)
        return None if found is None else self.page_of(found)

    def find(self, searched: str) -> int | None:
        """Search from the current page on, and from the start if it is not found there.

        Case does not count, white space matches white space, and `*` stands for up to 200
        characters. The page where it is found becomes the current one. Nothing is found before the
        current page while more may follow behind it.

        Args:
            searched: What to look for; the same again goes on behind the last place.

        Returns:
            The offset in the text, or None; then the page stays.
        """
        start = self._starts[self.current - 1]
        if searched == self.searched and self.page_of(self._found) == self.current:
            start = self._found + 1
        parts = _parts(searched)
        found = _search(self.text, parts, start)
        if found is None and not self.more:
            found = _search(self.text, parts, 0)
        if found is not None:
            self.current = self.page_of(found)
            self.searched, self._found = searched, found
        return found

    def find_next(self) -> int | None:
        """Search for the same again."""
        return self.find(self.searched) if self.searched else None


def _starts(text: str, lines: int, characters: int) -> list[int]:
    """Return where each page begins."""
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
    """Return where to cut a line that is too long for a page."""
    end = begin + characters
    space = text.rfind(" ", begin, end) + 1
    return space if space > begin + characters // 2 else end


def _parts(searched: str) -> list[re.Pattern[str]]:
    texts = [part.split() for part in searched.split("*")]
    words = [[re.escape(word) for word in part] for part in texts if part]
    return [re.compile(r"\s+".join(part), re.IGNORECASE) for part in words]


def _search(text: str, parts: list[re.Pattern[str]], start: int) -> int | None:
    """Return where the first of the parts begins, with the others close behind in their order."""
    if not parts or any(part.search(text, start) is None for part in parts):
        return None
    for found in islice(parts[0].finditer(text, start), _MOST_TRIES):
        if _follow(text, parts[1:], found.end()):
            return found.start()
    return None


def _follow(text: str, parts: list[re.Pattern[str]], end: int) -> bool:
    """Return whether the parts stand close behind each other from `end` on."""
    for part in parts:
        found = part.search(text, end, end + _GAP + _LONGEST)
        if found is None or found.start() - end > _GAP:
            return False
        end = found.end()
    return True
