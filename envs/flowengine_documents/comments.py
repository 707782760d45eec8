"""Comments in documents, which are included on request and otherwise counted.

In Word documents, a mark is inserted at the place of each comment, and the comments follow at the
end.
"""

from __future__ import annotations

from typing import Any

from flowengine_documents.markdown import TextSpan, Writer

_LONGEST = 100
"""Characters of the commented text that are quoted."""


class Remarks:
    """The comments of a document that follow their page, slide or sheet.

    Args:
        out: Receives the text.
        wanted: Whether they are included. Otherwise a note contains their number.
    """

    def __init__(self, out: Writer, wanted: bool) -> None:
        self._out = out
        self._wanted = wanted
        self._left_out = 0

    def write(self, author: str, text: str, about: str = "") -> None:
        """Write a comment.

        Args:
            author: Its author, may be empty.
            text: Its text.
            about: The commented text, if known.
        """
        text = " ".join(text.split())
        if not text:
            return
        if not self._wanted:
            self._left_out += 1
            return
        where = f" on {about}" if about else ""
        self._out.paragraph(f"Comment by {_who(author)}{where}: {text}")

    def finish(self) -> None:
        """Add a note about omitted comments."""
        if self._left_out:
            leave_out(self._out, self._left_out)


def leave_out(out: Writer, count: int) -> None:
    """Add a note that comments were omitted, and how to include them."""
    out.note(f"comments left out: {count:,} (config: comments)")


class WordComments:
    """The comments of a Word document.

    Args:
        ids: Ids of existing comments. Others are ignored, and all are if comments are not wanted.
    """

    def __init__(self, ids: list[str]) -> None:
        self._quotes: dict[str, str] = dict.fromkeys(ids, "")
        self._open: dict[str, None] = {}

    def start_quote(self, id: str) -> None:
        """Collect text from here on as the commented text."""
        if id in self._quotes:
            self._open[id] = None

    def end(self, id: str) -> None:
        """Stop collecting."""
        self._open.pop(id, None)

    def feed(self, text: str) -> None:
        """Add text of the document."""
        for id in self._open:
            if len(self._quotes[id]) <= _LONGEST:
                self._quotes[id] += text

    def mark(self, id: str) -> TextSpan:
        """Return the mark that follows the commented text."""
        return TextSpan(f"[^{_label(id)}]" if id in self._quotes else "", raw=True)

    def footnote(self, id: str, author: str, text: str) -> str:
        """Return a comment as a footnote, with its author, the commented text and its text."""
        quote = " ".join(self._quotes.get(id, "").split())
        if len(quote) > _LONGEST:
            quote = f"{quote[:_LONGEST]}…"
        about = f' on "{quote}"' if quote else ""
        return f"[^{_label(id)}]: {_who(author)}{about}: {text}".rstrip()


def _label(id: Any) -> str:
    return f"c{id}"


def _who(author: str) -> str:
    return " ".join(author.split()) or "somebody"
