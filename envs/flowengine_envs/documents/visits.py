"""What an address leads to: a web page, a file or a directory, read page by page."""

from __future__ import annotations

import asyncio
import posixpath
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from flowengine.sdk.texts.untrusted import marked
from flowengine.sdk.texts.visible_text import one_line
from flowengine.sdk.web.urls import Url, read_url, scheme_of
from flowengine_documents.document import Document
from flowengine_documents.formats import SUFFIXES
from flowengine_documents.markdown import TextSpan, inline, target
from flowengine_documents.pages import Pages
from flowengine_envs.documents.conversion import UnreadableDocument

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
