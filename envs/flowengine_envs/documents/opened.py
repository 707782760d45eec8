"""A document that is read page by page. A long one is converted only as far as needed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from flowengine_envs.documents.conversion import UnreadableDocument
from flowengine_envs.documents.document import Document
from flowengine_envs.documents.pages import Pages
from flowengine_envs.documents.visits import Visit

_LONGEST = 50_000_000
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
            if len(self.pages.text) > _LONGEST and known.following:
                known.following, known.truncated = 0, True
                known.notes.append(f"cut after {_LONGEST:,} characters")
            self.pages.more = bool(known.following)
