"""A document that is read page by page: its pagination, its search, and a page as text."""

from __future__ import annotations

import asyncio
import posixpath
import re
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from flowengine.sdk.untrusted import marked
from flowengine.sdk.visible_text import one_line
from flowengine.sdk.web.urls import Url, read_url, scheme_of
from flowengine_envs.documents.conversion import UnreadableDocument
from flowengine_envs.documents.document import Document, Unreadable
from flowengine_envs.documents.formats import SUFFIXES
from flowengine_envs.documents.markdown import TextSpan, inline, target

# Pagination of a long text, and search in it.

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


# The target of an address: a web page, a file of the workspace, or a directory.

_HOST = re.compile(r"(?:localhost|[^\s/:@]+\.[^\W\d_][^\W_-]+)(?::\d{1,5})?", re.IGNORECASE)
_MOST_ENTRIES = 1_000


class Visit(NamedTuple):
    """The page, file or directory at an address."""

    document: Document
    address: str
    """The final address without credentials, or the path of the file."""
    status: str = ""
    """`200 OK`, for web pages."""
    file: str = ""
    """The path below the workspace of a kept download. Pages are not kept."""

    @property
    def succeeded(self) -> bool:
        """Whether it is the requested page, not an error page."""
        return not self.status or self.status < "4"


def destination(address: str, folders: Sequence[str]) -> Url | str:
    """Return the target of an address: a web page, or a path.

    Args:
        address: The address as written by the user.
        folders: Paths of the workspace on the host. Paths below them become relative.

    Raises:
        UrlRefused: It is not a valid address or path.
    """
    scheme = scheme_of(address.strip())
    if scheme and scheme != "file":
        return read_url(address)
    if scheme == "file":
        parts = urlsplit(address.strip())
        if parts.netloc not in {"", "localhost"}:
            return read_url(address)  # it refuses the address
        address = unquote(parts.path)
    for folder in folders:
        if address == folder or address.startswith(f"{folder}/"):
            return address[len(folder) + 1 :] or "."
    return address


def looks_like_host(address: str) -> bool:
    """Return whether an address without a scheme begins with the name of a host."""
    host, slash, _ = address.strip().partition("/")
    named = _HOST.fullmatch(host) is not None
    return named and (bool(slash) or f".{host.rpartition('.')[2].lower()}" not in SUFFIXES)


def listing(path: str, entries: Sequence[Mapping[str, Any]]) -> Document:
    """Return a directory as a document whose links can be visited."""
    normal = posixpath.normpath(path or ".")
    folder = "" if normal == "." else f"{normal}/"
    shown = sorted(entries, key=lambda each: (each["kind"] != "folder", each["path"]))
    lines = []
    for each in shown[:_MOST_ENTRIES]:
        name = str(each["path"]).rpartition("/")[2]
        mark, size = ("/", "") if each["kind"] == "folder" else ("", f" ({each['size']:,} bytes)")
        where = target(f"./{folder}{name}{mark}")
        lines.append(f"- {inline([TextSpan(f'{one_line(name)}{mark}', link=where)])}{size}")
    document = Document("folder", "\n".join(lines), title=folder or "./")
    if len(shown) > _MOST_ENTRIES:
        document.truncated = True
        document.notes.append(f"only {_MOST_ENTRIES:,} of {len(shown):,} entries are shown")
    return document


# One page of a document, in the form for a model.

_NOTES = 10


class Page(NamedTuple):
    """A page of a document."""

    visit: Visit
    number: int
    pages: int
    text: str
    searched: str = ""
    is_found: bool = False
    """Whether the searched text is on this page."""
    more: bool = False
    """Whether there are further pages, which are not counted yet."""

    def as_text(self, remark: str = "") -> str:
        """Return the page for a model, with the document's text in a marked block.

        Args:
            remark: A further note.
        """
        visit, document = self.visit, self.visit.document
        status = f" ({visit.status})" if visit.status else ""
        lines = [f"Address: {one_line(visit.address)}{status}", remark]
        if self.searched:
            outcome = "is on this page" if self.is_found else "was not found"
            lines.append(f"Search: {one_line(self.searched, 100)!r} {outcome}")
        pages = f"at least {self.pages}" if self.more else self.pages
        lines.append(f"Page {self.number} of {pages} ({document.format})")
        head = [f"Title: {one_line(document.title)}"] if document.title else []
        if visit.file:  # its name comes from the server
            head.append(f"File: kept as {visit.file}")
        notes = [*dict.fromkeys(one_line(note) for note in document.notes)]
        head += [f"Note: {note}" for note in notes[:_NOTES]]
        content = "\n".join(head) + "\n\n" * bool(head) + (self.text or "(empty)")
        return "\n".join([*filter(None, lines), marked(content, visit.address)])


# A document that is read page by page. A long one is converted only as far as needed.

_LONGEST_OPEN = 50_000_000
"""Maximum characters kept of a document. Further ones are left out."""


class OpenedDocument:
    """A document and its pages.

    Args:
        visit: The opened document, with the text converted so far.
        pages: The pages of that text.
        convert: Continues the conversion from a page of the file.
    """

    def __init__(
        self, visit: Visit, pages: Pages, convert: Callable[[int], Awaitable[Document]]
    ) -> None:
        self.visit = visit
        self.pages = pages
        self._convert = convert
        self._turn = asyncio.Lock()
        self.describe: Callable[[Document], Awaitable[object]] | None = None
        """Adds descriptions of pictures to newly converted text."""
        pages.more = bool(visit.document.following)

    async def reach(self, page: int) -> None:
        """Convert until a page is complete, or until the end.

        Raises:
            UnreadableDocument: The document has changed, or `Documents.visit` raised this error.
        """
        while self.pages.more and len(self.pages) <= page:
            await self._read_on()

    async def page_with(self, searched: str, page: int) -> int | None:
        """Return the first page that contains a text, from a page on and then from the start."""
        while (hit := self.pages.page_with(searched, page)) is None and self.pages.more:
            await self._read_on()
        if hit is not None:
            await self.reach(hit)
        return hit

    async def find(self, searched: str) -> int | None:
        """Go to the page that contains a text, as `Pages.find` does."""
        while (hit := self.pages.find(searched)) is None and self.pages.more:
            await self._read_on()
        if hit is not None:
            await self.reach(self.pages.current)
        return hit

    async def _read_on(self) -> None:
        known = self.visit.document
        before = known.following
        async with self._turn:
            if known.following != before:  # another caller has continued the conversion
                return
            converted = await self._convert(before)
            if converted.sha256 != known.sha256:
                message = f"{self.visit.address}: it has changed since it was opened: open it again"
                raise UnreadableDocument(message, type="Damaged", retryable=False)
            if self.describe is not None:
                await self.describe(converted)
            known.pictures |= converted.pictures
            self.pages.extend(converted.markdown)
            known.notes += [note for note in converted.notes if note not in known.notes]
            known.truncated = known.truncated or converted.truncated
            known.following = converted.following
            if len(self.pages.text) > _LONGEST_OPEN and known.following:
                known.following, known.truncated = 0, True
                known.notes.append(f"cut after {_LONGEST_OPEN:,} characters")
            self.pages.more = bool(known.following)
