"""Comments of Word documents: a mark at their place, and what they say at the end."""

from __future__ import annotations

from typing import Any

from flowengine_envs.documents.markdown import Span

_LONGEST = 100
"""Characters of the commented text that are quoted."""


class Comments:
    """The comments of a document.

    Args:
        ids: Of those that are there; nothing is kept of others, or if comments are not wanted.
    """

    def __init__(self, ids: list[str]) -> None:
        self._quotes: dict[str, str] = dict.fromkeys(ids, "")
        self._open: dict[str, None] = {}

    def begin(self, id: str) -> None:
        """Take text from here on for what a comment is about."""
        if id in self._quotes:
            self._open[id] = None

    def end(self, id: str) -> None:
        """Take no more."""
        self._open.pop(id, None)

    def take(self, text: str) -> None:
        """Take text of the document."""
        for id in self._open:
            if len(self._quotes[id]) <= _LONGEST:
                self._quotes[id] += text

    def mark(self, id: str) -> Span:
        """Return the mark that stands behind what a comment is about."""
        return Span(f"[^{_label(id)}]" if id in self._quotes else "", raw=True)

    def told(self, id: str, author: str, text: str) -> str:
        """Return a comment as a footnote: who wrote it, about what, and what it says."""
        quote = " ".join(self._quotes.get(id, "").split())
        if len(quote) > _LONGEST:
            quote = f"{quote[:_LONGEST]}…"
        about = f' on "{quote}"' if quote else ""
        who = " ".join(author.split()) or "somebody"
        return f"[^{_label(id)}]: {who}{about}: {text}".rstrip()


def _label(id: Any) -> str:
    return f"c{id}"
