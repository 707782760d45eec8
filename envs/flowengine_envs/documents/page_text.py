"""One page of a document, in the form for a model."""

from __future__ import annotations

from typing import NamedTuple

from flowengine.sdk.untrusted import marked
from flowengine.sdk.visible_text import one_line
from flowengine_envs.documents.visits import Visit

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
